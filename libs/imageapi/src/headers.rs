//! The headers `Content-Type` and `Accept` of requests.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};

use crate::error::ApiError;

/// The type without which a body has no name of its own (RFC 9110, section 8.3).
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Checks that a body is JSON. Requests without a body need no type: generated clients send none with `Content-Length: 0`.
pub(crate) fn check_content_type(headers: &HeaderMap, body: &[u8]) -> Result<(), ApiError> {
    if body.is_empty() {
        return Ok(());
    }
    let content_type = headers.get(CONTENT_TYPE).map_or(Some(UNKNOWN_TYPE), |it| it.to_str().ok());
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!(
        "unsupported media type {:?}, only [application/json] are allowed",
        media_type.to_ascii_lowercase()
    );
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}

/// Checks that the client accepts JSON.
pub(crate) fn check_accept(headers: &HeaderMap) -> Result<(), ApiError> {
    let lines = || headers.get_all(ACCEPT).iter().map(|line| line.to_str().unwrap_or_default());
    let ranges = || lines().flat_map(|line| line.split(',')).map(str::trim);
    if ranges().all(str::is_empty) || accepts_json(ranges()) {
        return Ok(());
    }
    let message = "unsupported media type requested, only [application/json] are available";
    Err(ApiError::new(StatusCode::NOT_ACCEPTABLE, message))
}

/// True if the most specific of the media `ranges` that match JSON has a weight above 0 (RFC 9110, section 12.5.1).
fn accepts_json<'a>(ranges: impl Iterator<Item = &'a str>) -> bool {
    let matching = ranges.filter_map(|range| {
        let (media_type, parameters) = range.split_once(';').unwrap_or((range, ""));
        let specificity = match media_type.trim().to_ascii_lowercase().as_str() {
            "application/json" => 2,
            "application/*" => 1,
            "*/*" => 0,
            _ => return None,
        };
        Some((specificity, weight(parameters) > 0.0))
    });
    matching.max().is_some_and(|(_, is_accepted)| is_accepted)
}

/// Returns the weight `q` of a media range, by default 1.
fn weight(parameters: &str) -> f32 {
    let mut parameters = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let weight = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    weight.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(1.0)
}

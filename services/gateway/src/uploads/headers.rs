//! The headers that are passed on: those of tus 1.0 and of the content. No other one is, so that a
//! client cannot send what only the gateway may, such as the caller of a request.

use http::uri::Uri;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The beginnings of the headers of tus 1.0.
const OF_TUS: [&str; 2] = ["tus-", "upload-"];
/// Further headers of requests.
const OF_REQUESTS: [HeaderName; 3] =
    [header::CONTENT_LENGTH, header::CONTENT_RANGE, header::CONTENT_TYPE];
/// Further headers of responses. `Location` is treated apart.
const OF_RESPONSES: [HeaderName; 3] =
    [header::CACHE_CONTROL, header::CONTENT_TYPE, header::RETRY_AFTER];

/// Returns the headers of a request that are passed on to the image service.
pub(super) fn of_request(headers: &HeaderMap) -> HeaderMap {
    only(headers, &OF_REQUESTS)
}

/// Returns the headers of a response that are passed on to the client.
pub(super) fn of_response(headers: &HeaderMap) -> HeaderMap {
    let mut passed = only(headers, &OF_RESPONSES);
    let location = headers.get(header::LOCATION).and_then(own_location);
    passed.extend(location.map(|location| (header::LOCATION, location)));
    passed
}

fn only(headers: &HeaderMap, further: &[HeaderName]) -> HeaderMap {
    let is_passed = |name: &HeaderName| {
        OF_TUS.iter().any(|prefix| name.as_str().starts_with(*prefix)) || further.contains(name)
    };
    let passed = headers.iter().filter(|(name, _)| is_passed(name));
    passed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns `location` without the server: the gateway has the same paths as the image service.
fn own_location(location: &HeaderValue) -> Option<HeaderValue> {
    let uri: Uri = location.to_str().ok()?.parse().ok()?;
    HeaderValue::from_str(uri.path_and_query()?.as_str()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(names: &[&'static str]) -> HeaderMap {
        let value = HeaderValue::from_static("1");
        names.iter().map(|name| (HeaderName::from_static(name), value.clone())).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn headers_of_tus_and_of_the_content_are_passed_on_and_no_others() {
        let others = [
            "authorization",
            "connection",
            "forwarded",
            "grpc-timeout",
            "te",
            "tinwright-caller-bin",
            "transfer-encoding",
            "x-api-key",
            "x-forwarded-for",
        ];
        let passed = ["content-length", "content-type", "tus-resumable", "upload-offset"];
        let request = of_request(&headers(&[&others[..], &passed].concat()));
        assert_eq!(names(&request), passed);
        let others = ["connection", "grpc-status", "grpc-message", "set-cookie"];
        let passed = ["retry-after", "tus-resumable", "upload-expires"];
        let response = of_response(&headers(&[&others[..], &passed].concat()));
        assert_eq!(names(&response), passed);
    }

    #[test]
    fn a_location_is_at_the_gateway() {
        for location in ["/uploads/1", "https://10.0.0.1:42113/uploads/1"] {
            let value = HeaderValue::from_static(location);
            let response = of_response(&HeaderMap::from_iter([(header::LOCATION, value)]));
            assert_eq!(response[header::LOCATION], "/uploads/1", "{location}");
        }
    }
}

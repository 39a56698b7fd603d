//! Resuming a download: the rules of RFC 9110 §13.1.5 and §14, without I/O.

use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderMap, HeaderName, LAST_MODIFIED,
    TRANSFER_ENCODING,
};

use super::AttemptError;

/// The version of a file, from response headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    /// Length in bytes.
    pub(super) length: Option<u64>,
    /// A strong validator for If-Range: an entity tag or a date.
    pub(super) validator: Option<String>,
    /// True if the body marks its own end.
    pub(super) chunked: bool,
}

/// The position of a partial response's first byte, and the length of the whole file, if known. `None`: no valid header.
pub(super) type ContentRange = Option<(u64, Option<u64>)>;

/// The position at which a response's body begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resume {
    /// The requested byte.
    AtPosition,
    /// The first byte of the file.
    FromStart,
}

impl FileVersion {
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let length = text(headers, CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let tag = text(headers, ETAG).filter(|tag| !tag.starts_with("W/"));
        // RFC 9110 §8.8.2.2: a date is strong only if the response was made at least a second after it.
        let date = text(headers, LAST_MODIFIED)
            .filter(|date| text(headers, DATE).is_some_and(|made| made != *date));
        let validator = tag.or(date).map(str::to_owned);
        Self { length, validator, chunked: headers.contains_key(TRANSFER_ENCODING) }
    }
}

/// Parses the Content-Range of a response: `bytes 5-9/10`, or `bytes 5-9/*`.
pub(super) fn content_range(headers: &HeaderMap) -> ContentRange {
    let (range, total) = text(headers, CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    let first = range.split_once('-')?.0.parse().ok()?;
    Some((first, total.parse().ok()))
}

/// Returns the position at which the body of `response` begins, after a request from `position`. Fails if the file is no
/// longer the version `first`. `range` is the Content-Range of a partial response.
pub(super) fn decide(
    first: &FileVersion,
    position: u64,
    range: Option<ContentRange>,
    response: &FileVersion,
) -> Result<Resume, AttemptError> {
    let length = range.map_or(response.length, |range| range.and_then(|(_, total)| total));
    same("version", first.validator.as_deref(), response.validator.as_deref(), range.is_some())?;
    let (was, is) = (first.length.map(|n| n.to_string()), length.map(|n| n.to_string()));
    same("length", was.as_deref(), is.as_deref(), range.is_some())?;
    match range {
        None => Ok(Resume::FromStart),
        Some(Some((first, _))) if first == position => Ok(Resume::AtPosition),
        Some(_) => Err(AttemptError::WrongRange { position }),
    }
}

/// Fails unless both responses agree. A partial response may omit the value: If-Range guarantees the same version.
fn same(
    what: &str,
    was: Option<&str>,
    is: Option<&str>,
    partial: bool,
) -> Result<(), AttemptError> {
    if was == is || was.is_none() && partial || is.is_none() && partial {
        return Ok(());
    }
    let text = |value: Option<&str>| format!("{what} {}", value.unwrap_or("unknown"));
    Err(AttemptError::Changed { was: text(was), is: text(is) })
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::header::HeaderValue;

    use super::*;

    fn file(length: u64, validator: &str) -> FileVersion {
        FileVersion { length: Some(length), validator: Some(validator.into()), chunked: false }
    }

    fn headers(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn the_requested_range_continues_the_download() {
        let response = file(6, "\"a\"");
        assert_eq!(
            decide(&file(10, "\"a\""), 4, Some(Some((4, Some(10)))), &response).unwrap(),
            Resume::AtPosition
        );
    }

    #[test]
    fn the_whole_file_is_skipped_up_to_the_position() {
        let first = file(10, "\"a\"");
        assert_eq!(decide(&first, 4, None, &first).unwrap(), Resume::FromStart);
    }

    #[test]
    fn another_range_is_refused() {
        let first = file(10, "\"a\"");
        for range in [None, Some((0, Some(10))), Some((5, None))] {
            let error = decide(&first, 4, Some(range), &first).unwrap_err();
            assert_eq!(error.to_string(), "the response does not begin at the requested byte 4");
        }
    }

    #[test]
    fn a_file_that_changed_is_refused_and_both_versions_named() {
        let first = file(10, "\"a\"");
        let error = |response: &FileVersion, range| {
            decide(&first, 4, range, response).unwrap_err().to_string()
        };
        assert_eq!(
            error(&file(10, "\"b\""), None),
            "changed while it was downloaded: was version \"a\", is version \"b\""
        );
        assert_eq!(
            error(&file(11, "\"a\""), None),
            "changed while it was downloaded: was length 10, is length 11"
        );
        let range = Some(Some((4, Some(12))));
        assert_eq!(
            error(&file(8, "\"a\""), range),
            "changed while it was downloaded: was length 10, is length 12"
        );
        let nameless = FileVersion { validator: None, ..first.clone() };
        assert_eq!(
            error(&nameless, None),
            "changed while it was downloaded: was version \"a\", is version unknown"
        );
    }

    #[test]
    fn only_strong_validators_are_used() {
        let validator = |lines: &[(HeaderName, &'static str)]| {
            FileVersion::from_headers(&headers(lines)).validator
        };
        let (then, now) = ("Fri, 20 Nov 2026 10:00:00 GMT", "Fri, 20 Nov 2026 12:00:00 GMT");
        assert_eq!(
            validator(&[(ETAG, "\"a\""), (LAST_MODIFIED, then), (DATE, now)]).as_deref(),
            Some("\"a\"")
        );
        assert_eq!(
            validator(&[(ETAG, "W/\"a\""), (LAST_MODIFIED, then), (DATE, now)]).as_deref(),
            Some(then)
        );
        assert_eq!(validator(&[(LAST_MODIFIED, now), (DATE, now)]), None);
        assert_eq!(validator(&[(LAST_MODIFIED, then)]), None);
        assert_eq!(validator(&[(ETAG, "W/\"a\"")]), None);
    }

    proptest! {
        #[test]
        fn no_header_text_makes_the_parsing_panic(value in "\\PC{0,40}") {
            let Ok(value) = HeaderValue::from_str(&value) else { return Ok(()) };
            let names = [CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED, DATE];
            let headers: HeaderMap = names.into_iter().map(|name| (name, value.clone())).collect();
            let _either = (FileVersion::from_headers(&headers), content_range(&headers));
        }

        #[test]
        fn content_ranges_are_read_back(first in any::<u64>(), last in any::<u64>(), total in any::<Option<u64>>()) {
            let whole = total.map_or("*".to_owned(), |total| total.to_string());
            let value = HeaderValue::from_str(&format!("bytes {first}-{last}/{whole}")).unwrap();
            let headers: HeaderMap = [(CONTENT_RANGE, value)].into_iter().collect();
            prop_assert_eq!(content_range(&headers), Some((first, total)));
        }
    }
}

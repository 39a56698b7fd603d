//! Whether a second reply goes on where the first was cut: the rules of RFC 9110 §13.1.5 and §14, as values.

use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderMap, HeaderName, LAST_MODIFIED,
    TRANSFER_ENCODING,
};

use super::Trouble;

/// What a reply says about the file behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Its length in bytes.
    pub(super) length: Option<u64>,
    /// A strong validator, as If-Range takes it: an entity tag or a date.
    pub(super) version: Option<String>,
    /// Whether the body marks its own end.
    pub(super) chunked: bool,
}

/// The first byte of a partial reply and the length of the whole, `None` where it says `*`.
pub(super) type ContentRange = Option<(u64, Option<u64>)>;

/// How to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continue {
    /// The body begins with the byte that is wanted.
    Here,
    /// The body begins with the first byte of the file.
    Skipping,
}

impl Identity {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let length = text(headers, CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let tag = text(headers, ETAG).filter(|tag| !tag.starts_with("W/"));
        // RFC 9110 §8.8.2.2: a date is strong only if the reply was made at least a second after it.
        let date = text(headers, LAST_MODIFIED)
            .filter(|date| text(headers, DATE).is_some_and(|made| made != *date));
        let version = tag.or(date).map(str::to_owned);
        Self { length, version, chunked: headers.contains_key(TRANSFER_ENCODING) }
    }
}

/// The Content-Range of a reply: `bytes 5-9/10`, or `bytes 5-9/*`.
pub(super) fn content_range(headers: &HeaderMap) -> ContentRange {
    let (range, total) = text(headers, CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    let first = range.split_once('-')?.0.parse().ok()?;
    Some((first, total.parse().ok()))
}

/// How `reply` goes on from `position` of the file that `known` is. `range` is there if the reply is a partial one.
pub(super) fn decide(
    known: &Identity,
    position: u64,
    range: Option<ContentRange>,
    reply: &Identity,
) -> Result<Continue, Trouble> {
    let length = range.map_or(reply.length, |range| range.and_then(|(_, total)| total));
    same("version", known.version.as_deref(), reply.version.as_deref(), range.is_some())?;
    let (was, is) = (known.length.map(|n| n.to_string()), length.map(|n| n.to_string()));
    same("length", was.as_deref(), is.as_deref(), range.is_some())?;
    match range {
        None => Ok(Continue::Skipping),
        Some(Some((first, _))) if first == position => Ok(Continue::Here),
        Some(_) => Err(Trouble::WrongRange { wanted: position }),
    }
}

/// Fails unless both replies say the same. A partial reply may leave it out: If-Range has vouched for it.
fn same(what: &str, was: Option<&str>, is: Option<&str>, partial: bool) -> Result<(), Trouble> {
    if was == is || was.is_none() && partial || is.is_none() && partial {
        return Ok(());
    }
    let said = |value: Option<&str>| format!("{what} {}", value.unwrap_or("unknown"));
    Err(Trouble::Changed { was: said(was), is: said(is) })
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::header::HeaderValue;

    use super::*;

    fn identity(length: u64, version: &str) -> Identity {
        Identity { length: Some(length), version: Some(version.into()), chunked: false }
    }

    fn headers(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn the_range_that_was_asked_for_is_read_on() {
        let reply = identity(6, "\"a\"");
        assert_eq!(
            decide(&identity(10, "\"a\""), 4, Some(Some((4, Some(10)))), &reply).unwrap(),
            Continue::Here
        );
    }

    #[test]
    fn the_whole_file_again_is_skipped_through() {
        let known = identity(10, "\"a\"");
        assert_eq!(decide(&known, 4, None, &known).unwrap(), Continue::Skipping);
    }

    #[test]
    fn another_range_is_refused() {
        let known = identity(10, "\"a\"");
        for range in [None, Some((0, Some(10))), Some((5, None))] {
            let error = decide(&known, 4, Some(range), &known).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the reply to a request for the bytes from 4 on has others"
            );
        }
    }

    #[test]
    fn a_file_that_changed_is_refused_and_both_versions_named() {
        let known = identity(10, "\"a\"");
        let said =
            |reply: &Identity, range| decide(&known, 4, range, reply).unwrap_err().to_string();
        assert_eq!(
            said(&identity(10, "\"b\""), None),
            "changed while it was downloaded: was version \"a\", is version \"b\""
        );
        assert_eq!(
            said(&identity(11, "\"a\""), None),
            "changed while it was downloaded: was length 10, is length 11"
        );
        let range = Some(Some((4, Some(12))));
        assert_eq!(
            said(&identity(8, "\"a\""), range),
            "changed while it was downloaded: was length 10, is length 12"
        );
        let nameless = Identity { version: None, ..known.clone() };
        assert_eq!(
            said(&nameless, None),
            "changed while it was downloaded: was version \"a\", is version unknown"
        );
    }

    #[test]
    fn only_strong_validators_name_a_version() {
        let version = |lines: &[(HeaderName, &'static str)]| Identity::of(&headers(lines)).version;
        let (then, now) = ("Fri, 20 Nov 2026 10:00:00 GMT", "Fri, 20 Nov 2026 12:00:00 GMT");
        assert_eq!(
            version(&[(ETAG, "\"a\""), (LAST_MODIFIED, then), (DATE, now)]).as_deref(),
            Some("\"a\"")
        );
        assert_eq!(
            version(&[(ETAG, "W/\"a\""), (LAST_MODIFIED, then), (DATE, now)]).as_deref(),
            Some(then)
        );
        assert_eq!(version(&[(LAST_MODIFIED, now), (DATE, now)]), None);
        assert_eq!(version(&[(LAST_MODIFIED, then)]), None);
        assert_eq!(version(&[(ETAG, "W/\"a\"")]), None);
    }

    proptest! {
        #[test]
        fn no_header_text_makes_the_parsing_panic(value in "\\PC{0,40}") {
            let Ok(value) = HeaderValue::from_str(&value) else { return Ok(()) };
            let names = [CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED, DATE];
            let headers: HeaderMap = names.into_iter().map(|name| (name, value.clone())).collect();
            let _either = (Identity::of(&headers), content_range(&headers));
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

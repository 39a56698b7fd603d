//! Request paths in normal form.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// How many bytes of path are read; no path of ours comes near.
const LONGEST: usize = 1024;

/// A request's path: decoded once, without empty segments, so that a trailing or doubled slash changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a>(Cow<'a, str>);

impl<'a> Path<'a> {
    /// The path as it stood in the request line. `None` if it leads upwards, is too long, or is not text.
    pub fn parse(raw: &'a str) -> Option<Self> {
        if raw.len() > LONGEST {
            return None;
        }
        let decoded = percent_decode_str(raw).decode_utf8().ok()?;
        let upwards = decoded.split('/').any(|segment| segment == "..");
        (!upwards).then_some(Self(decoded))
    }

    /// Its segments, which is what everybody else means by a path; none for the root.
    pub fn segments(&self) -> Vec<&str> {
        self.0.split('/').filter(|segment| !segment.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segments(raw: &str) -> Option<Vec<String>> {
        Some(Path::parse(raw)?.segments().into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn slashes_at_the_end_or_doubled_change_nothing() {
        let plain = segments("/latest/meta-data");
        assert_eq!(plain.as_ref().unwrap(), &["latest", "meta-data"]);
        assert_eq!(segments("/latest/meta-data/"), plain);
        assert_eq!(segments("//latest///meta-data//"), plain);
        assert_eq!(segments("/"), Some(vec![]));
    }

    #[test]
    fn a_path_is_decoded_once() {
        assert_eq!(segments("/a%20b/%2541").unwrap(), ["a b", "%41"]);
    }

    #[test]
    fn a_path_that_leads_upwards_is_none() {
        for raw in ["/latest/../x", "/%2e%2e/x", "/..", "/a%2f..%2fb"] {
            assert_eq!(Path::parse(raw), None, "{raw}");
        }
        assert!(Path::parse("/a..b/...").is_some());
    }

    #[test]
    fn a_path_of_more_than_1024_bytes_is_none() {
        assert!(Path::parse(&"a".repeat(1024)).is_some());
        assert_eq!(Path::parse(&"a".repeat(1025)), None);
    }

    proptest! {
        #[test]
        fn no_path_is_too_odd(raw: String) {
            for segment in Path::parse(&raw).iter().flat_map(Path::segments) {
                prop_assert!(!segment.is_empty() && segment != ".." && !segment.contains('/'));
            }
        }
    }
}

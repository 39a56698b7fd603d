//! Request paths in normal form.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The longest path. The service has none that is nearly as long.
const MAX_PATH_BYTES: usize = 1024;

/// The path of a request, percent-decoded once. Empty segments are left out, so a trailing or doubled slash changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a>(Cow<'a, str>);

impl<'a> Path<'a> {
    /// Parses the path of a request line. `None` if it has a `..` segment, is too long, or is not UTF-8.
    pub fn parse(raw: &'a str) -> Option<Self> {
        if raw.len() > MAX_PATH_BYTES {
            return None;
        }
        let decoded = percent_decode_str(raw).decode_utf8().ok()?;
        let has_parent = decoded.split('/').any(|segment| segment == "..");
        (!has_parent).then_some(Self(decoded))
    }

    /// Returns its segments; none for the root. All other modules mean these by a path.
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
    fn trailing_and_doubled_slashes_change_nothing() {
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
    fn a_path_with_a_parent_segment_is_refused() {
        for raw in ["/latest/../x", "/%2e%2e/x", "/..", "/a%2f..%2fb"] {
            assert_eq!(Path::parse(raw), None, "{raw}");
        }
        assert!(Path::parse("/a..b/...").is_some());
    }

    #[test]
    fn a_path_of_more_than_1024_bytes_is_refused() {
        assert!(Path::parse(&"a".repeat(1024)).is_some());
        assert_eq!(Path::parse(&"a".repeat(1025)), None);
    }

    proptest! {
        #[test]
        fn segments_are_never_empty_and_never_lead_upwards(raw: String) {
            for segment in Path::parse(&raw).iter().flat_map(Path::segments) {
                prop_assert!(!segment.is_empty() && segment != ".." && !segment.contains('/'));
            }
        }
    }
}

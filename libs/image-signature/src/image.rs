//! The signed values of an image, as a text and as a comment.

use crate::error::{Difference, Error, malformed};

/// First line of the text: the format and its version.
const HEADER: &str = "tinwright image 1";
/// Value of the map's digest for an image without a map.
const NO_MAP: &str = "none";
/// Separates the lines of the text in a comment.
const SEPARATOR: &str = "; ";
/// The line of a signature that errors name.
const LINE: &str = "trusted comment";
/// Maximum length of a name in bytes.
const MAX_NAME_BYTES: usize = 63;

/// The values of an image that its signature names. Digests are SHA-256, in lower-case hexadecimal
/// digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedImage {
    /// Name of the image, without its tenant.
    pub name: String,
    /// Size of the raw content in bytes.
    pub size_bytes: u64,
    /// Digest of the raw content.
    pub sha256: String,
    /// Digest of the stored file.
    pub stored_sha256: String,
    /// Digest of the map. None for an archive.
    pub map_sha256: Option<String>,
}

impl SignedImage {
    /// Returns the text that is signed.
    pub fn text(&self) -> String {
        self.lines().join("\n") + "\n"
    }

    /// Returns the trusted comment of a signature: the text in one line.
    pub fn comment(&self) -> String {
        self.lines().join(SEPARATOR)
    }

    /// Parses a trusted comment.
    pub(crate) fn parse_comment(comment: &str) -> Result<Self, Error> {
        let mut lines = comment.split(SEPARATOR);
        if lines.next() != Some(HEADER) {
            return Err(malformed(LINE, "not that of an image: sign with `tinwright image sign`"));
        }
        let mut value = |field: &'static str| {
            let line = lines.next().and_then(|line| line.strip_prefix(field));
            let value = line.and_then(|rest| rest.strip_prefix(": "));
            value.map(str::to_owned).ok_or(malformed(LINE, "a field is missing, or not in order"))
        };
        let image = Self {
            name: value("name")?,
            size_bytes: value("size_bytes")?
                .parse()
                .map_err(|_| malformed(LINE, "size_bytes: not a number"))?,
            sha256: value("sha256")?,
            stored_sha256: value("stored_sha256")?,
            map_sha256: Some(value("map_sha256")?).filter(|map| map != NO_MAP),
        };
        image.check()?;
        // One spelling for each image: no leading zeros, and nothing behind the last field.
        match image.comment() == comment {
            true => Ok(image),
            false => Err(malformed(LINE, "not in its canonical form")),
        }
    }

    /// Passes if both are equal.
    pub fn require(&self, expected: &Self) -> Result<(), Difference> {
        for ((field, signed), (_, expected)) in self.fields().into_iter().zip(expected.fields()) {
            require(field, &signed, &expected)?;
        }
        Ok(())
    }

    /// Passes if the name is `expected`.
    pub fn require_name(&self, expected: &str) -> Result<(), Difference> {
        require("name", &self.name, expected)
    }

    /// Passes if the digest of the stored file is `expected`.
    pub fn require_stored(&self, expected: &str) -> Result<(), Difference> {
        require("stored_sha256", &self.stored_sha256, expected)
    }

    /// Passes if the digest of the map is `expected`; None for an archive.
    pub fn require_map(&self, expected: Option<&str>) -> Result<(), Difference> {
        let signed = self.map_sha256.as_deref().unwrap_or(NO_MAP);
        require("map_sha256", signed, expected.unwrap_or(NO_MAP))
    }

    /// Passes if all values can be signed.
    pub fn check(&self) -> Result<(), Error> {
        let is_label = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let has_length = (1..=MAX_NAME_BYTES).contains(&self.name.len());
        if !has_length || !self.name.bytes().all(is_label) {
            return Err(malformed(LINE, "name: not lower-case letters, digits and hyphens"));
        }
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let digests = [Some(&self.sha256), Some(&self.stored_sha256), self.map_sha256.as_ref()];
        for digest in digests.into_iter().flatten() {
            if digest.len() != 64 || !digest.bytes().all(is_digit) {
                return Err(malformed(LINE, "a digest is not 64 lower-case hexadecimal digits"));
            }
        }
        Ok(())
    }

    fn fields(&self) -> [(&'static str, String); 5] {
        [
            ("name", self.name.clone()),
            ("size_bytes", self.size_bytes.to_string()),
            ("sha256", self.sha256.clone()),
            ("stored_sha256", self.stored_sha256.clone()),
            ("map_sha256", self.map_sha256.clone().unwrap_or_else(|| NO_MAP.to_owned())),
        ]
    }

    fn lines(&self) -> Vec<String> {
        let fields = self.fields().map(|(field, value)| format!("{field}: {value}"));
        std::iter::once(HEADER.to_owned()).chain(fields).collect()
    }
}

fn require(field: &'static str, signed: &str, expected: &str) -> Result<(), Difference> {
    match signed == expected {
        true => Ok(()),
        false => Err(Difference { field, signed: signed.into(), expected: expected.into() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn image() -> SignedImage {
        SignedImage {
            name: "debian-12".into(),
            size_bytes: 2_147_483_648,
            sha256: "0".repeat(64),
            stored_sha256: "1".repeat(64),
            map_sha256: Some("a".repeat(64)),
        }
    }

    #[test]
    fn the_text_has_a_line_for_each_value_and_the_comment_the_same_in_one_line() {
        let (zero, one, map) = ("0".repeat(64), "1".repeat(64), "a".repeat(64));
        let text = format!(
            "tinwright image 1\nname: debian-12\nsize_bytes: 2147483648\nsha256: {zero}\n\
             stored_sha256: {one}\nmap_sha256: {map}\n"
        );
        assert_eq!(image().text(), text);
        assert_eq!(image().comment().replace("; ", "\n") + "\n", text);
        let archive = SignedImage { map_sha256: None, ..image() };
        assert!(archive.text().ends_with("\nmap_sha256: none\n"));
        assert_eq!(SignedImage::parse_comment(&archive.comment()), Ok(archive));
    }

    #[test]
    fn comments_in_another_form_are_refused() {
        let comment = image().comment();
        let order = comment.replace("name: debian-12; size_bytes", "size_bytes; name: debian-12");
        for other in [
            "timestamp:1796051423\tfile:t\thashed",
            "",
            &comment.replace("image 1", "image 2"),
            &comment.replace("2147483648", "02147483648"),
            &comment.replace("2147483648", "+2147483648"),
            &comment.replace("debian", "Debian"),
            &comment.replace("debian-12", ""),
            &comment.replace("aaaa", "AAAA"),
            &comment.replace("0000", "000"),
            &comment.replace("; ", ";"),
            &format!("{comment}; more: 1"),
            &format!("{comment} "),
            &order,
        ] {
            assert!(SignedImage::parse_comment(other).is_err(), "{other}");
        }
    }

    #[test]
    fn the_first_field_that_differs_is_named() {
        let other = SignedImage { size_bytes: 1, map_sha256: None, ..image() };
        let difference = image().require(&other).unwrap_err();
        assert_eq!(difference.to_string(), "size_bytes: signed is \"2147483648\", expected \"1\"");
        assert_eq!(image().require(&image()), Ok(()));
        assert_eq!(image().require_map(None).unwrap_err().expected, "none");
    }

    proptest! {
        #[test]
        fn every_image_is_read_as_it_was_written(
            name in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
            size_bytes: u64,
            digests in prop::array::uniform3("[0-9a-f]{64}"),
            has_map: bool,
        ) {
            let [sha256, stored_sha256, map] = digests;
            let map_sha256 = has_map.then_some(map);
            let image = SignedImage { name, size_bytes, sha256, stored_sha256, map_sha256 };
            prop_assert_eq!(SignedImage::parse_comment(&image.comment()), Ok(image));
        }

        #[test]
        fn a_comment_that_is_read_is_the_only_one_of_its_image(comment in "\\PC{0,40}|tinwright image 1; name: [a-z; :]{0,9}") {
            if let Ok(image) = SignedImage::parse_comment(&comment) {
                prop_assert_eq!(image.comment(), comment);
            }
        }
    }
}

//! Signatures, as `minisign -S` writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign_verify::PublicKey;

use crate::error::{Error, malformed};
use crate::image::SignedImage;
use crate::key_id::KeyId;

/// Maximum number of signatures that are read.
pub const MAX_SIGNATURES: usize = 8;
/// Maximum size of a signature in bytes.
pub const MAX_SIGNATURE_BYTES: usize = 2048;
/// Lines of a signature.
const LINES: usize = 4;
/// Begin of the first line of keys and signatures.
pub(crate) const UNTRUSTED_COMMENT: &str = "untrusted comment: ";
/// Begin of the third line.
const TRUSTED_COMMENT: &str = "trusted comment: ";
/// Bytes of the second line: the algorithm, the id of the key, and the signature.
const SIGNATURE_BYTES: usize = 74;

/// A parsed signature. Nothing is known of it before [`PublicKeys::verify`](crate::PublicKeys::verify).
#[derive(Clone)]
pub struct Signature {
    file: SignatureFile,
    image: SignedImage,
}

/// A file of `minisign -S`, whatever it signs.
#[derive(Clone)]
pub(crate) struct SignatureFile {
    pub(crate) key_id: KeyId,
    /// The trusted comment.
    pub(crate) comment: String,
    text: String,
    decoded: minisign_verify::Signature,
}

impl SignatureFile {
    /// Parses a signature.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_SIGNATURE_BYTES {
            return Err(malformed("signature", "larger than 2048 bytes"));
        }
        let lines: Vec<_> = text.lines().collect();
        let [untrusted, signature, trusted, _] = lines[..] else {
            return Err(malformed("signature", "not four lines: give the file of `minisign -S`"));
        };
        if text.chars().any(is_control) {
            return Err(malformed("signature", "has control characters"));
        }
        if !untrusted.starts_with(UNTRUSTED_COMMENT) {
            return Err(malformed("signature", "the first line is not an untrusted comment"));
        }
        let bytes = STANDARD.decode(signature).unwrap_or_default();
        let key_id = KeyId::of(&bytes).filter(|_| bytes.len() == SIGNATURE_BYTES);
        let key_id =
            key_id.ok_or(malformed("signature", "the second line is not one of minisign"))?;
        if bytes.starts_with(b"Ed") {
            return Err(Error::Legacy(key_id));
        }
        let comment = trusted.strip_prefix(TRUSTED_COMMENT);
        let comment =
            comment.ok_or(malformed("signature", "the third line is not a trusted comment"))?;
        let decoded = minisign_verify::Signature::decode(text)
            .map_err(|_| malformed("signature", "not one of minisign"))?;
        let (comment, text) = (comment.to_owned(), text.trim_end().to_owned() + "\n");
        Ok(Self { key_id, comment, text, decoded })
    }

    /// True if `key` signed `content`, and the comment.
    pub(crate) fn is_valid(&self, key: &PublicKey, content: &[u8]) -> bool {
        key.verify(content, &self.decoded, false).is_ok()
    }
}

impl Signature {
    /// Parses a signature of an image.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let file = SignatureFile::parse(text)?;
        let image = SignedImage::parse_comment(&file.comment)?;
        Ok(Self { file, image })
    }

    /// Returns the id of the key that the signature names.
    pub fn key_id(&self) -> KeyId {
        self.file.key_id
    }

    /// Returns the image that the signature names.
    pub fn image(&self) -> &SignedImage {
        &self.image
    }

    /// Returns the signature as a file of minisign.
    pub fn text(&self) -> &str {
        &self.file.text
    }

    /// True if `key` signed the text of the image, and the comment.
    pub(crate) fn is_valid(&self, key: &PublicKey) -> bool {
        self.file.is_valid(key, self.image.text().as_bytes())
    }
}

impl std::fmt::Debug for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signature({} of {:?})", self.key_id(), self.image)
    }
}

/// Parses the signatures in `text`, one after another. A text without line breaks is base64 of
/// that, for places where only one line fits.
pub fn parse_signatures(text: &str) -> Result<Vec<Signature>, Error> {
    let text = text.trim();
    if !text.is_empty() && !text.contains(':') {
        let wrong = || malformed("signature", "neither that of minisign, nor base64");
        let bytes = STANDARD.decode(text).map_err(|_| wrong())?;
        let decoded = String::from_utf8(bytes).map_err(|_| wrong())?;
        // Only once: else a text of a stranger could nest base64 as often as it likes.
        return parse_files(decoded.trim());
    }
    parse_files(text)
}

fn parse_files(text: &str) -> Result<Vec<Signature>, Error> {
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    if lines.len() > LINES * MAX_SIGNATURES {
        return Err(Error::TooMany { max: MAX_SIGNATURES });
    }
    lines.chunks(LINES).map(|lines| Signature::parse(&lines.join("\n"))).collect()
}

/// True for characters that a terminal does not show.
fn is_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\r')
}

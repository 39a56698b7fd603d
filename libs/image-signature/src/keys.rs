//! Public keys, and the verification of signatures with them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign_verify::PublicKey;

use crate::error::{Difference, Error, malformed};
use crate::image::SignedImage;
use crate::key_id::KeyId;
use crate::signature::{Signature, SignatureFile, UNTRUSTED_COMMENT};

/// Path of the accepted keys on a machine, below the root of its in-memory environment.
pub const KEYS_PATH: &str = "etc/tinwright/image-keys";
/// Bytes of a public key: the algorithm, the id and the key.
const KEY_BYTES: usize = 42;
/// The algorithm of public keys.
const ALGORITHM: &[u8] = b"Ed";

/// Public keys whose signatures are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicKeys(Vec<(KeyId, PublicKey)>);

impl PublicKeys {
    /// Parses the files of public keys that `text` has, one after another.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut keys = Vec::new();
        let mut lines = text.lines().filter(|line| !line.is_empty());
        while let Some(comment) = lines.next() {
            if !comment.starts_with(UNTRUSTED_COMMENT) {
                return Err(malformed("key", "the first line is not an untrusted comment"));
            }
            keys.push(key(lines.next().unwrap_or_default())?);
        }
        if keys.is_empty() { Err(malformed("key", "missing")) } else { Ok(Self(keys)) }
    }

    /// Parses a public key alone: the second line of its file, in base64.
    pub fn of_line(line: &str) -> Result<Self, Error> {
        Ok(Self(vec![key(line.trim())?]))
    }

    /// Also accepts the keys of `more`.
    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Returns the ids of the keys.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.0.iter().map(|(id, _)| *id)
    }

    /// Returns the first of `signatures` that is valid, by one of these keys, and of an image that
    /// passes `check`. Else the error is that of a signature by one of these keys, if there is one.
    pub fn verify<'a>(
        &self,
        signatures: &'a [Signature],
        check: impl Fn(&SignedImage) -> Result<(), Difference>,
    ) -> Result<&'a Signature, Error> {
        let mut refused = None;
        for signature in signatures {
            match self.verify_one(signature, &check) {
                Some(Ok(())) => return Ok(signature),
                Some(Err(error)) => refused = refused.or(Some(error)),
                None => {}
            }
        }
        Err(match refused {
            Some(error) => error,
            None if signatures.is_empty() => Error::NotSigned,
            None => Error::UnknownKey {
                signers: list(signatures.iter().map(Signature::key_id)),
                accepted: list(self.ids()),
            },
        })
    }

    /// Verifies the file `signature` of `minisign -S` for `content`, whatever that is. Returns the id
    /// of its key, and its trusted comment.
    pub fn verify_content(
        &self,
        content: &[u8],
        signature: &str,
    ) -> Result<(KeyId, String), Error> {
        let file = SignatureFile::parse(signature)?;
        let mut keys = self.0.iter().filter(|(id, _)| *id == file.key_id).peekable();
        if keys.peek().is_none() {
            let (signers, accepted) = (file.key_id.to_string(), list(self.ids()));
            return Err(Error::UnknownKey { signers, accepted });
        }
        match keys.any(|(_, key)| file.is_valid(key, content)) {
            true => Ok((file.key_id, file.comment)),
            false => Err(Error::Broken(file.key_id)),
        }
    }

    /// Returns `None` if no key has the id that `signature` names.
    fn verify_one(
        &self,
        signature: &Signature,
        check: impl Fn(&SignedImage) -> Result<(), Difference>,
    ) -> Option<Result<(), Error>> {
        let key = signature.key_id();
        let mut keys = self.0.iter().filter(|(id, _)| *id == key).peekable();
        keys.peek()?;
        let is_valid = keys.any(|(_, key)| signature.is_valid(key));
        Some(match (is_valid, check(signature.image())) {
            (false, _) => Err(Error::Broken(key)),
            (true, Err(difference)) => Err(Error::OtherImage { key, difference }),
            (true, Ok(())) => Ok(()),
        })
    }
}

fn key(line: &str) -> Result<(KeyId, PublicKey), Error> {
    let wrong = malformed("key", "the second line is not a public key of minisign");
    let bytes = STANDARD.decode(line).map_err(|_| wrong.clone())?;
    let id = KeyId::of(&bytes).ok_or_else(|| wrong.clone())?;
    let is_key = bytes.len() == KEY_BYTES && bytes.starts_with(ALGORITHM);
    match PublicKey::from_base64(line) {
        Ok(key) if is_key => Ok((id, key)),
        Ok(_) | Err(_) => Err(wrong),
    }
}

fn list(ids: impl Iterator<Item = KeyId>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(", ")
}

//! The keys by which a machine trusts images, and the signature that a template names.
//!
//! A machine whose environment has keys installs signed images only. Its environment is built with
//! them (`tinwright osie build --image-key`). The signed text has the digests of the image, so the
//! rest is a comparison of digests, before the first write.

use std::io;
use std::path::{Path, PathBuf};

use image_signature::{KEYS_PATH, PublicKeys, SignedImage, parse_signatures};

use crate::context::Context;
use crate::environment::{self, Environment};
use crate::error;

/// An image that this machine does not install, or a template that names too little of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("IMG_SIGNATURE is missing: this machine installs signed images only")]
    NotSigned,
    #[error("IMG_MAP is missing: this machine checks the blocks of signed images by their map")]
    NoMap,
    #[error("IMG_SIGNATURE")]
    Signature(#[source] image_signature::Error),
    #[error("GET {url}: not as signed")]
    Differs { url: String, source: image_signature::Difference },
}

impl error::StepError for Error {}

/// The file with keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}", path = path.display())]
pub struct KeysError {
    path: PathBuf,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Reads the keys in the environment below `root`. None without a file: then all images are
/// installed. A file that cannot be read is an error, not an environment without keys.
pub fn read(root: &Path) -> Result<Option<PublicKeys>, KeysError> {
    let path = root.join(KEYS_PATH);
    let failed = |source| KeysError { path: path.clone(), source };
    match std::fs::read_to_string(&path) {
        Ok(text) => PublicKeys::parse(&text).map(Some).map_err(|error| failed(error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error.into())),
    }
}

/// Returns what is signed of the image that the variables name: by an accepted key, with this name,
/// and with the map `map_sha256`; None for an archive. Returns None on a machine without keys.
pub(crate) fn signed_image(
    environment: &Environment,
    context: &Context,
    map_sha256: Option<&str>,
) -> Result<Option<SignedImage>, error::Error> {
    let Some(keys) = &context.image_keys else { return Ok(None) };
    let text = environment.optional("IMG_SIGNATURE").ok_or(Error::NotSigned)?;
    let name = environment.required("IMG_NAME")?;
    let signatures = parse_signatures(text).map_err(Error::Signature)?;
    let valid = keys.verify(&signatures, |signed| {
        signed.require_name(name)?;
        signed.require_map(map_sha256)
    });
    Ok(Some(valid.map_err(Error::Signature)?.image().clone()))
}

/// Returns the SHA-256 in the variable `name`, in lower-case hexadecimal digits.
pub(crate) fn sha256<'a>(
    name: &'static str,
    checksum: &'a crate::checksum::Checksum,
) -> Result<&'a str, environment::Error> {
    let invalid = || environment::Error::invalid(name, checksum.hex(), "a SHA-256, as signed");
    checksum.as_sha256().ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_has_no_keys_or_keys_that_can_be_read() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path()).unwrap(), None);
        let path = root.path().join(KEYS_PATH);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let key = "RWRtR5I6gJhlWUJEZQxK9EgQ8142Fq4V9su8H3EToWnoflmVuVQbwNcP";
        std::fs::write(&path, format!("untrusted comment: minisign public key\n{key}\n")).unwrap();
        let ids: Vec<_> =
            read(root.path()).unwrap().unwrap().ids().map(|it| it.to_string()).collect();
        assert_eq!(ids, ["596598803A92476D"]);
        for text in ["", "x", key] {
            std::fs::write(&path, text).unwrap();
            assert!(read(root.path()).is_err(), "{text}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read(root.path()).is_err());
    }
}

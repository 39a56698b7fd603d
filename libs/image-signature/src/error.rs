//! Keys and signatures that are not accepted.

use crate::key_id::KeyId;

/// A key or signature that is not accepted, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no signature.
    #[error("no signature")]
    NotSigned,
    /// No signature is by an accepted key.
    #[error("signed by {signers}: not among the accepted keys {accepted}")]
    UnknownKey {
        /// The keys of the signatures, separated by commas.
        signers: String,
        /// The accepted keys, separated by commas.
        accepted: String,
    },
    /// The signature is of another text than its comment says, or by another key than it names.
    #[error("signature of key {0}: broken: text, comment or signature was changed")]
    Broken(KeyId),
    /// The signature is valid, and of another image.
    #[error("signature of key {key}: {difference}")]
    OtherImage {
        /// The key.
        key: KeyId,
        /// The first field that differs.
        difference: Difference,
    },
    /// The signature is in the legacy format.
    #[error("signature of key {0}: legacy format: sign without `-l`")]
    Legacy(KeyId),
    /// The text is not a file of minisign, or its comment not that of an image.
    #[error("{line}: {problem}")]
    Malformed {
        /// The line.
        line: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// There are too many signatures.
    #[error("signatures: at most {max}")]
    TooMany {
        /// The maximum.
        max: usize,
    },
}

/// A field whose signed value is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: signed is {signed:?}, expected {expected:?}")]
pub struct Difference {
    /// Name of the field.
    pub field: &'static str,
    /// The signed value.
    pub signed: String,
    /// The expected value.
    pub expected: String,
}

/// Returns the error of a malformed line.
pub(crate) fn malformed(line: &'static str, problem: &'static str) -> Error {
    Error::Malformed { line, problem }
}

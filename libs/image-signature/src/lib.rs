//! Signatures of disk images, in the format of minisign.
//!
//! What is signed is a text with the name, the size and the digests of an image ([`SignedImage`]).
//! A signature has the same values in its trusted comment, which is signed, too. So a file of
//! signatures says which image it is of, and a reader can name the field that differs.
//!
//! ```text
//! tinwright image 1               the signed text; each line ends with a line feed
//! name: debian-12
//! size_bytes: 2147483648
//! sha256: 0e57…                   SHA-256 of the raw content
//! stored_sha256: 77ab…            SHA-256 of the stored file
//! map_sha256: 43c1…               SHA-256 of the map; `none` for an archive
//! ```
//!
//! - [`Signature`]: a file of `minisign -S`, parsed. [`parse_signatures`]: several of them.
//! - [`PublicKeys`]: the keys that a reader accepts, and the verification. It also verifies
//!   signatures of other texts ([`PublicKeys::verify_content`]).
//!
//! Only signatures of the BLAKE2b hash (`ED`) are accepted. Those of the text itself (`Ed`, the
//! legacy format) are refused: else the hash of one text could pass as another text.
//!
//! Keys and signatures are made by the program `minisign`: this library has no secret.

mod error;
mod image;
mod key_id;
mod keys;
mod signature;

pub use error::{Difference, Error};
pub use image::SignedImage;
pub use key_id::KeyId;
pub use keys::{KEYS_PATH, PublicKeys};
pub use signature::{MAX_SIGNATURE_BYTES, MAX_SIGNATURES, Signature, parse_signatures};

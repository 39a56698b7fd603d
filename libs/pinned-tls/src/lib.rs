//! TLS to peers that are known by the SHA-256 of their certificate, such as BMCs.
//!
//! Such a peer signs its own certificate, often with no valid name, time, extension or version. The
//! digest says that it is the right certificate; the signature in the handshake proves that the
//! peer has its key. Nothing else of the certificate is judged.
//!
//! - [`CertificatePin`] and [`client_config`]: TLS 1.2 and 1.3 by rustls.
//! - [`legacy`]: TLS 1.0 and later with every cipher, by the program `openssl`, for peers that have
//!   nothing better.
//! - [`words`]: errors of rustls for people.
//! - `certificate`: the public key of a certificate. `rsa`: signatures by RSA keys of unusual
//!   sizes.

mod certificate;
pub mod legacy;
mod pin;
mod rsa;
mod verifier;
pub mod words;

pub use self::pin::CertificatePin;
pub use self::verifier::client_config;

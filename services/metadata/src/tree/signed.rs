//! Signatures of identity documents, in EC2's forms.
//!
//! A signature proves that this site wrote the document. It does not prove that the bearer is the machine.
//!
//! | leaf | form | verification |
//! |---|---|---|
//! | `signature` | RSA with SHA-256 (PKCS#1 v1.5) | `openssl dgst -sha256 -verify KEY -signature FILE document` |
//! | `pkcs7` | the same as PKCS#7, without the document | `openssl smime -verify -content document …` |
//! | `rsa2048` | PKCS#7 with the document in it | `openssl smime -verify …` |

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use runtime::authority::CertificateAndKey;
use x509_parser::pem::parse_x509_pem;
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, Tag};

/// The length of a line of base64.
const LINE_CHARS: usize = 64;

// RFC 8017 appendix C, RFC 5754 section 2, RFC 5652 sections 4 and 5.
const SHA256: &[u64] = &[2, 16, 840, 1, 101, 3, 4, 2, 1];
const RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 1];
const DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 1];
const SIGNED_DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 2];

/// The form of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The signature alone.
    Signature,
    /// PKCS#7 without the document.
    Detached,
    /// PKCS#7 with the document.
    Attached,
}

/// Signs documents. A key gives one document always the same signature.
pub struct Signer {
    key: RsaKeyPair,
    pem: String,
    certificate: Vec<u8>,
    /// The certificate's issuer, in DER.
    issuer: Vec<u8>,
    /// The certificate's serial number, big-endian.
    serial: Vec<u8>,
}

/// A key or certificate that cannot sign documents.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key for identity documents is not usable: {0}")]
pub struct UnusableKey(&'static str);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

impl Signer {
    /// A signer with the RSA key of `identity`.
    pub fn new(identity: &CertificateAndKey) -> Result<Self, UnusableKey> {
        let bad = |what| move |_| UnusableKey(what);
        let (_, pem) = parse_x509_pem(identity.key.expose().as_bytes())
            .map_err(|_| UnusableKey("the key is not PEM"))?;
        let key =
            RsaKeyPair::from_pkcs8(&pem.contents).map_err(bad("the key is not an RSA key"))?;
        let (_, pem) = parse_x509_pem(identity.certificate.as_bytes())
            .map_err(|_| UnusableKey("the certificate is not PEM"))?;
        let found = pem.parse_x509().map_err(|_| UnusableKey("the certificate is damaged"))?;
        if found.public_key().subject_public_key.data.as_ref() != key.public_key().as_ref() {
            return Err(UnusableKey("the certificate has another key"));
        }
        let (issuer, serial) = (found.issuer().as_raw().to_vec(), found.raw_serial().to_vec());
        let pem = identity.certificate.clone();
        Ok(Self { key, certificate: found.as_raw().to_vec(), issuer, serial, pem })
    }

    /// Returns the certificate that verifies the signatures, in PEM.
    pub fn certificate(&self) -> &str {
        &self.pem
    }

    /// Returns the signature of `document` as lines of base64; none if the cryptographic library fails.
    pub(super) fn sign(&self, document: &[u8], form: Form) -> Option<String> {
        let mut signature = vec![0; self.key.public_modulus_len()];
        let signed =
            self.key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), document, &mut signature);
        signed.ok()?;
        Some(match form {
            Form::Signature => base64_lines(&signature),
            Form::Detached => base64_lines(&self.pkcs7(&signature, None)),
            Form::Attached => base64_lines(&self.pkcs7(&signature, Some(document))),
        })
    }

    /// A PKCS#7 message with one signer and without signed attributes (RFC 5652 section 5).
    fn pkcs7(&self, signature: &[u8], document: Option<&[u8]>) -> Vec<u8> {
        yasna::construct_der(|out| {
            out.write_sequence(|message| {
                message.next().write_oid(&oid(SIGNED_DATA));
                message.next().write_tagged(Tag::context(0), |out| {
                    out.write_sequence(|data| {
                        data.next().write_i64(1);
                        data.next().write_set_of(|set| algorithm(set.next(), SHA256));
                        data.next().write_sequence(|content| {
                            content.next().write_oid(&oid(DATA));
                            if let Some(document) = document {
                                content.next().write_tagged(Tag::context(0), |out| {
                                    out.write_bytes(document);
                                });
                            }
                        });
                        data.next().write_tagged_implicit(Tag::context(0), |out| {
                            out.write_set_of(|set| set.next().write_der(&self.certificate));
                        });
                        data.next().write_set_of(|set| self.signer_info(set.next(), signature));
                    });
                });
            });
        })
    }

    fn signer_info(&self, out: DERWriter, signature: &[u8]) {
        out.write_sequence(|info| {
            info.next().write_i64(1);
            info.next().write_sequence(|name| {
                name.next().write_der(&self.issuer);
                name.next().write_bigint_bytes(&self.serial, true);
            });
            algorithm(info.next(), SHA256);
            algorithm(info.next(), RSA);
            info.next().write_bytes(signature);
        });
    }
}

fn oid(numbers: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(numbers)
}

fn algorithm(out: DERWriter, numbers: &[u64]) {
    out.write_sequence(|algorithm| {
        algorithm.next().write_oid(&oid(numbers));
        algorithm.next().write_null();
    });
}

/// Encodes `bytes` as base64 in lines of [`LINE_CHARS`], without a final newline.
fn base64_lines(bytes: &[u8]) -> String {
    let base64 = BASE64_STANDARD.encode(bytes);
    let lines: Vec<_> = base64.as_bytes().chunks(LINE_CHARS).map(String::from_utf8_lossy).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    fn signer() -> (tempfile::TempDir, Signer) {
        let folder = tempfile::tempdir().unwrap();
        let site = runtime::authority::SiteAuthority::open(folder.path()).unwrap();
        site.ensure_document_key().unwrap();
        let signer = Signer::new(&site.document_key().unwrap().unwrap()).unwrap();
        (folder, signer)
    }

    fn pem(kind: &str, base64: &str) -> String {
        format!("-----BEGIN {kind}-----\n{base64}\n-----END {kind}-----\n")
    }

    /// Runs openssl in `folder`, and returns its output if it succeeds.
    fn openssl(folder: &Path, arguments: &str) -> Option<Vec<u8>> {
        let mut command = Command::new("openssl");
        let done =
            command.args(arguments.split(' ')).current_dir(folder).output().expect("openssl");
        done.status.success().then_some(done.stdout)
    }

    const DOCUMENT: &[u8] = b"{\n  \"instanceId\": \"i-0001\"\n}";

    #[test]
    fn openssl_verifies_every_form_and_rejects_a_changed_document() {
        let (folder, signer) = signer();
        let folder = folder.path();
        let sign = |form| signer.sign(DOCUMENT, form).unwrap();
        std::fs::write(folder.join("detached"), pem("PKCS7", &sign(Form::Detached))).unwrap();
        std::fs::write(folder.join("attached"), pem("PKCS7", &sign(Form::Attached))).unwrap();
        let signature = sign(Form::Signature);
        assert!(signature.lines().all(|line| line.len() <= LINE_CHARS), "{signature}");
        let raw = BASE64_STANDARD.decode(signature.replace('\n', "")).unwrap();
        std::fs::write(folder.join("signature"), raw).unwrap();
        let key = openssl(folder, "x509 -in identity.pem -pubkey -noout").unwrap();
        std::fs::write(folder.join("key.pem"), key).unwrap();

        let smime = "smime -verify -inform PEM -CAfile ca.pem -purpose any -binary";
        let by_dgst = "dgst -sha256 -verify key.pem -signature signature document";
        let detached = format!("{smime} -in detached -content document");
        let attached = format!("{smime} -in attached");
        std::fs::write(folder.join("document"), DOCUMENT).unwrap();
        assert_eq!(openssl(folder, &detached).as_deref(), Some(DOCUMENT));
        assert_eq!(openssl(folder, &attached).as_deref(), Some(DOCUMENT));
        assert!(openssl(folder, by_dgst).is_some());

        std::fs::write(folder.join("document"), "{}").unwrap();
        assert_eq!(openssl(folder, &detached), None);
        assert_eq!(openssl(folder, by_dgst), None);
    }

    #[test]
    fn the_same_document_has_the_same_signature() {
        let (_folder, signer) = signer();
        for form in [Form::Signature, Form::Detached, Form::Attached] {
            assert_eq!(signer.sign(DOCUMENT, form), signer.sign(DOCUMENT, form), "{form:?}");
        }
    }

    #[test]
    fn a_certificate_of_another_key_is_refused() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [one, two] = [one, two].map(|folder| {
            let site = runtime::authority::SiteAuthority::open(folder.path()).unwrap();
            site.ensure_document_key().unwrap();
            site.document_key().unwrap().unwrap()
        });
        let mixed = CertificateAndKey { certificate: one.certificate.clone(), key: two.key };
        assert_eq!(
            Signer::new(&mixed).unwrap_err(),
            UnusableKey("the certificate has another key")
        );
    }
}

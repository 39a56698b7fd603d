//! The key that signs EC2's instance identity documents, and its certificate.
//!
//! ```text
//! <secrets>/identity.pem      the certificate: public, for those who verify documents
//! <secrets>/identity-key.pem  its RSA key of 2048 bits; processes that serve metadata are given a copy
//! ```
//!
//! Both are made once and are valid as long as the authority, since those who verify documents store the certificate.

use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};

use super::{
    AUTHORITY_VALIDITY, CertificateAndKey, Error, MIN_REMAINING_VALIDITY, SiteAuthority, lasts,
    read, write,
};
use crate::secret::Secret;

const CERTIFICATE: &str = "identity.pem";
const KEY: &str = "identity-key.pem";

impl SiteAuthority {
    /// Makes the signing key and its certificate, unless one with enough validity is there.
    pub fn ensure_document_key(&self) -> Result<(), Error> {
        let path = self.folder.join(CERTIFICATE);
        let now = self.now();
        if lasts(&path, now + MIN_REMAINING_VALIDITY) {
            return Ok(());
        }
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        let name = "tinwright instance identity";
        let certificate =
            self.sign(CertificateParams::default(), name, &key, now + AUTHORITY_VALIDITY)?;
        // The certificate is the mark that both are there: it is written last.
        write(&self.folder.join(KEY), key.serialize_pem().as_bytes())?;
        write(&path, certificate.as_bytes())
    }

    /// The signing key and its certificate; none if this process was not given them.
    pub fn document_key(&self) -> Result<Option<CertificateAndKey>, Error> {
        let (certificate, key) = (self.folder.join(CERTIFICATE), self.folder.join(KEY));
        if !certificate.exists() || !key.exists() {
            return Ok(None);
        }
        let (certificate, key) = (read(&certificate)?, Secret::new(read(&key)?));
        Ok(Some(CertificateAndKey { certificate, key }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_key_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        assert!(site.document_key().unwrap().is_none());
        site.ensure_document_key().unwrap();
        let first = site.document_key().unwrap().unwrap();
        site.ensure_document_key().unwrap();
        let again = site.document_key().unwrap().unwrap();
        assert_eq!((first.certificate, first.key), (again.certificate, again.key));
    }
}

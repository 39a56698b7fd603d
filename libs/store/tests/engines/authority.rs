//! The authority that signs the certificates of a cluster and of its clients.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose as Usage, IsCa, Issuer,
    KeyPair,
};
use store::etcd::{Identity, Tls};

use super::peer::{Guard, loopback};

/// An authority of its own.
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate for whoever goes by `name`. Members also show theirs to themselves.
    pub(crate) fn issue(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![Usage::ServerAuth, Usage::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    /// For a member at [`loopback`] that keeps its files in `dir`, and a client of it.
    pub(crate) fn guard(&self, dir: &Path) -> Guard {
        let member = self.issue(&loopback().to_string());
        let file = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let flags = vec![
            "--client-cert-auth".into(),
            format!("--trusted-ca-file={}", file("ca.pem", &self.certificate)),
            format!("--cert-file={}", file("member.pem", &member.certificate)),
            format!("--key-file={}", file("member-key.pem", &member.key)),
        ];
        Guard { flags, key: self.key() }
    }

    /// Returns the TLS options of a client.
    pub(crate) fn key(&self) -> Tls {
        Tls { authority: self.certificate.clone(), identity: Some(self.issue("tinwright")) }
    }
}

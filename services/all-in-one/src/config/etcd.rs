//! What is said of a cluster, checked: no connection is tried with half of what it takes.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use store::etcd::{Identity, Login, MAX_PREFIX_BYTES, Options, Tls};
use tonic::transport::Uri;

use super::Flags;

/// What was said, wherever it was.
#[derive(Debug)]
pub(super) struct Said {
    endpoints: Option<Vec<String>>,
    prefix: Option<String>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    insecure: Option<bool>,
}

impl Said {
    pub(super) fn of(flags: &Flags, file: &Flags) -> Self {
        let (flags, file) = (flags.clone(), file.clone());
        Self {
            endpoints: flags.etcd_endpoints.or(file.etcd_endpoints),
            prefix: flags.etcd_prefix.or(file.etcd_prefix),
            ca: flags.etcd_ca.or(file.etcd_ca),
            certificate: flags.etcd_certificate.or(file.etcd_certificate),
            key: flags.etcd_key.or(file.etcd_key),
            user: flags.etcd_user.or(file.etcd_user),
            password_file: flags.etcd_password_file.or(file.etcd_password_file),
            insecure: flags.etcd_insecure.or(file.etcd_insecure),
        }
    }

    /// Passes if nothing was said, since `engine` is another.
    pub(super) fn nothing(&self, engine: &str) -> anyhow::Result<()> {
        let said = [
            ("etcd_endpoints", self.endpoints.is_some()),
            ("etcd_prefix", self.prefix.is_some()),
            ("etcd_ca", self.ca.is_some()),
            ("etcd_certificate", self.certificate.is_some()),
            ("etcd_key", self.key.is_some()),
            ("etcd_user", self.user.is_some()),
            ("etcd_password_file", self.password_file.is_some()),
            ("etcd_insecure", self.insecure.is_some()),
        ];
        match said.iter().find(|(_, said)| *said) {
            Some((name, _)) => anyhow::bail!("{name} is for store etcd, but store is {engine}"),
            None => Ok(()),
        }
    }

    pub(super) fn options(self) -> anyhow::Result<Options> {
        let defaults = Options::default();
        let endpoints = self.endpoints.unwrap_or(defaults.endpoints);
        let secure = all_secure(&endpoints)?;
        let prefix = self.prefix.unwrap_or(defaults.prefix);
        anyhow::ensure!(prefix.ends_with('/'), "etcd_prefix {prefix:?} does not end with /");
        anyhow::ensure!(
            prefix.len() <= MAX_PREFIX_BYTES,
            "etcd_prefix is longer than {MAX_PREFIX_BYTES} bytes"
        );
        let tls = tls(secure, self.ca, self.certificate, self.key)?;
        let login = login(self.user, self.password_file)?;
        if login.is_some() && !self.insecure.unwrap_or(false) {
            in_confidence(&endpoints)?;
        }
        Ok(Options { endpoints, prefix, tls, login })
    }
}

/// Whether `endpoints` are https, which are all of them or none.
fn all_secure(endpoints: &[String]) -> anyhow::Result<bool> {
    let first = endpoints.first().context("etcd_endpoints is empty")?;
    let secure = first.starts_with("https://");
    for endpoint in endpoints {
        let other = endpoint.starts_with("https://");
        let known = other || endpoint.starts_with("http://");
        anyhow::ensure!(known, "etcd_endpoints: {endpoint} is neither https:// nor http://");
        anyhow::ensure!(other == secure, "etcd_endpoints has both https:// and http://");
    }
    Ok(secure)
}

/// Passes if nobody on the way reads a password told to `endpoints`.
fn in_confidence(endpoints: &[String]) -> anyhow::Result<()> {
    for endpoint in endpoints {
        let uri: Uri = endpoint.parse().with_context(|| format!("etcd_endpoints: {endpoint}"))?;
        anyhow::ensure!(
            uri.scheme_str() == Some("https") || super::is_local(&uri),
            "etcd_user: its password would go to {endpoint} in clear: use https, or say etcd_insecure"
        );
    }
    Ok(())
}

fn tls(
    secure: bool,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> anyhow::Result<Option<Tls>> {
    if !secure {
        let said = [("etcd_ca", &ca), ("etcd_certificate", &certificate), ("etcd_key", &key)];
        let said = said.iter().find(|(_, said)| said.is_some());
        let Some((name, _)) = said else { return Ok(None) };
        anyhow::bail!("{name} is for https, but etcd_endpoints are http");
    }
    let ca = ca.context("etcd_endpoints are https, but etcd_ca is not given")?;
    let authority = pem("etcd_ca", &ca, "CERTIFICATE")?;
    let identity = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(Identity {
            certificate: pem("etcd_certificate", &certificate, "CERTIFICATE")?,
            key: pem("etcd_key", &key, "PRIVATE KEY")?,
        }),
        (Some(_), None) => anyhow::bail!("etcd_certificate is given, but etcd_key is not"),
        (None, Some(_)) => anyhow::bail!("etcd_key is given, but etcd_certificate is not"),
    };
    Ok(Some(Tls { authority, identity }))
}

fn login(user: Option<String>, file: Option<PathBuf>) -> anyhow::Result<Option<Login>> {
    match (user, file) {
        (None, None) => Ok(None),
        (Some(user), Some(file)) => {
            let password = read("etcd_password_file", &file)?.trim_end_matches(['\r', '\n']).into();
            Ok(Some(Login { user, password }))
        }
        (Some(_), None) => anyhow::bail!("etcd_user is given, but etcd_password_file is not"),
        (None, Some(_)) => anyhow::bail!("etcd_password_file is given, but etcd_user is not"),
    }
}

/// The text of a PEM file that holds at least one `what`.
fn pem(option: &str, path: &Path, what: &str) -> anyhow::Result<String> {
    let text = read(option, path)?;
    let begin = |line: &str| line.starts_with("-----BEGIN ") && line.contains(what);
    anyhow::ensure!(
        text.lines().any(begin),
        "{option} {}: no {} in it",
        path.display(),
        what.to_lowercase()
    );
    Ok(text)
}

fn read(option: &str, path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{option} {}", path.display()))
}

//! The options of an etcd cluster. Incomplete options are an error before any connection.

use std::path::Path;

use anyhow::Context as _;
use store::etcd::{Identity, Login, MAX_PREFIX_BYTES, Options, Tls};
use tonic::transport::Uri;

use super::{Service, Split};

/// Checks the options of the etcd cluster and reads the files that they name.
pub(super) fn options(options: &super::Options, split: &Split) -> anyhow::Result<Options> {
    let endpoints = options.etcd_endpoints.clone();
    let secure = all_secure(&endpoints)?;
    let prefix = options.etcd_prefix.clone();
    anyhow::ensure!(prefix.ends_with('/'), "etcd_prefix {prefix:?} does not end with /");
    anyhow::ensure!(
        prefix.len() <= MAX_PREFIX_BYTES,
        "etcd_prefix is longer than {MAX_PREFIX_BYTES} bytes"
    );
    let tls = tls(secure, options)?;
    let login = login(options.etcd_user.clone(), options.etcd_password_file.as_deref())?;
    if login.is_some() && !options.etcd_insecure {
        check_confidential(&endpoints)?;
    }
    Ok(Options { endpoints, prefix, followed: followed(split), tls, login })
}

/// Returns the prefix of the keys that this process follows. Without a service that owns records these are netboot's, so that the user of
/// an edge may be limited to them.
fn followed(split: &Split) -> String {
    if split.owns_records() { String::new() } else { format!("{}/", Service::Netboot) }
}

/// True if `endpoints` are https. Fails if only some of them are.
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

/// Fails if a password for `endpoints` would be sent to another host without TLS.
fn check_confidential(endpoints: &[String]) -> anyhow::Result<()> {
    for endpoint in endpoints {
        let uri: Uri = endpoint.parse().with_context(|| format!("etcd_endpoints: {endpoint}"))?;
        anyhow::ensure!(
            uri.scheme_str() == Some("https") || super::is_local(&uri),
            "etcd_user: its password would go to {endpoint} without TLS: use https, or set etcd_insecure"
        );
    }
    Ok(())
}

fn tls(secure: bool, options: &super::Options) -> anyhow::Result<Option<Tls>> {
    let super::Options { etcd_ca: ca, etcd_certificate: certificate, etcd_key: key, .. } = options;
    if !secure {
        let files = [("etcd_ca", ca), ("etcd_certificate", certificate), ("etcd_key", key)];
        let Some((name, _)) = files.iter().find(|(_, file)| file.is_some()) else {
            return Ok(None);
        };
        anyhow::bail!("{name} is for https, but etcd_endpoints are http");
    }
    let ca = ca.as_deref().context("etcd_endpoints are https, but etcd_ca is not given")?;
    let authority = pem("etcd_ca", ca, "CERTIFICATE")?;
    let identity = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(Identity {
            certificate: pem("etcd_certificate", certificate, "CERTIFICATE")?,
            key: pem("etcd_key", key, "PRIVATE KEY")?,
        }),
        (Some(_), None) => anyhow::bail!("etcd_certificate is given, but etcd_key is not"),
        (None, Some(_)) => anyhow::bail!("etcd_key is given, but etcd_certificate is not"),
    };
    Ok(Some(Tls { authority, identity }))
}

fn login(user: Option<String>, file: Option<&Path>) -> anyhow::Result<Option<Login>> {
    match (user, file) {
        (None, None) => Ok(None),
        (Some(user), Some(file)) => {
            let password = read("etcd_password_file", file)?.trim_end_matches(['\r', '\n']).into();
            Ok(Some(Login { user, password }))
        }
        (Some(_), None) => anyhow::bail!("etcd_user is given, but etcd_password_file is not"),
        (None, Some(_)) => anyhow::bail!("etcd_password_file is given, but etcd_user is not"),
    }
}

/// Reads a PEM file and checks that it has a section `label`.
fn pem(option: &str, path: &Path, label: &str) -> anyhow::Result<String> {
    let text = read(option, path)?;
    let begin = |line: &str| line.starts_with("-----BEGIN ") && line.contains(label);
    anyhow::ensure!(
        text.lines().any(begin),
        "{option} {}: no {} in it",
        path.display(),
        label.to_lowercase()
    );
    Ok(text)
}

fn read(option: &str, path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{option} {}", path.display()))
}

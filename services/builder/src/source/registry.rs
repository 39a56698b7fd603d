//! Artifacts in registries, by the distribution specification of OCI, version 1.1.
//!
//! ```text
//! tag ─▶ digest, which the server stores ─▶ index ─▶ manifest ─▶ the only layer, by `transfer`
//! ```
//!
//! All requests go through [`Web`], so that the rules for addresses hold for the registry, for the
//! server of its tokens, and for servers that it redirects to.

use std::str::FromStr as _;
use std::sync::{Mutex, PoisonError};

use disk_images::checksums::Checksum;
use http::header::{ACCEPT, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use oci_spec::distribution::Reference;
use reqwest::Url;
use tinwright::image::v1::OciSource;

use super::answer::{Answer, Cut};
use super::login::{Challenge, Login};
use super::manifest::{self, Document};
use super::web::{Remote, ServerKind, Web};
use crate::failure::Failure;

/// Field of the image's source, for failures.
const FIELD: &str = "source.oci";
/// Digest of the manifest in an answer, as the registry says.
const CONTENT_DIGEST: &str = "docker-content-digest";

/// An artifact in a registry.
#[derive(Debug)]
pub(crate) struct Artifact<'a> {
    pub(crate) repository: Repository<'a>,
    reference: Reference,
    /// The architecture that is taken of an index.
    architecture: &'a str,
}

/// A repository of a registry, and the login to it.
#[derive(Debug)]
pub(crate) struct Repository<'a> {
    web: &'a Web,
    /// URL of its manifests and blobs, with a slash at the end.
    base: Url,
    login: Login,
    /// What the registry wants to have in requests.
    authorization: Mutex<Option<HeaderValue>>,
}

/// The layer of an artifact.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) remote: Remote,
    pub(crate) digest: Checksum,
    /// Name of the file, or empty.
    pub(crate) name: String,
}

impl<'a> Artifact<'a> {
    /// The artifact that `source` names, by its pinned reference if it has one.
    pub(crate) fn new(web: &'a Web, source: &'a OciSource) -> Result<Self, Failure> {
        let OciSource { reference, architecture, plain_http, pinned_reference, .. } = source;
        let text = if pinned_reference.is_empty() { reference } else { pinned_reference };
        let invalid = |error: &dyn std::fmt::Display| {
            Failure::permanent(format_args!("{FIELD}.reference: {error}: {text:?}"))
        };
        let reference: Result<Reference, _> = text.parse();
        let reference = reference.map_err(|error| invalid(&error))?;
        let scheme = if *plain_http { "http" } else { "https" };
        let (registry, repository) = (reference.resolve_registry(), reference.repository());
        let base = Url::from_str(&format!("{scheme}://{registry}/v2/{repository}/"));
        let base = base.map_err(|error| invalid(&error))?;
        let login = Login::new(&source.username, &source.password);
        let repository = Repository { web, base, login, authorization: Mutex::default() };
        let architecture = if architecture.is_empty() { "amd64" } else { architecture };
        Ok(Self { repository, reference, architecture })
    }

    /// Returns the reference with the digest that its tag has now.
    pub(crate) async fn pinned_reference(&self) -> Result<String, Cut> {
        if self.reference.digest().is_some() {
            return Ok(self.reference.whole());
        }
        let tag = self.reference.tag().unwrap_or_default();
        let (digest, _) = self.document(tag).await?;
        Ok(format!("{}@{digest}", self.reference.whole()))
    }

    /// Returns the layer, which may have `max_bytes` bytes.
    pub(crate) async fn layer(&self, max_bytes: u64) -> Result<Layer, Cut> {
        let digest = self.reference.digest().unwrap_or_default();
        let mut remote = self.manifest(digest)?;
        let mut document = self.document(digest).await?.1;
        if let Document::Index(index) = &document {
            let chosen = manifest::of_architecture(index, self.architecture);
            let digest = chosen.map_err(|problem| remote.end(&remote.url, problem))?;
            remote = self.manifest(digest)?;
            document = self.document(digest).await?.1;
        }
        let layer = document.layer(max_bytes);
        let layer = layer.map_err(|problem| remote.end(&remote.url, problem))?;
        let digest = layer.digest();
        let remote = self.repository.remote(&format!("blobs/{digest}"))?;
        let digest =
            checksum(digest.as_ref()).map_err(|problem| remote.end(&remote.url, problem))?;
        Ok(Layer { remote, digest, name: manifest::file_name(layer) })
    }

    fn manifest(&self, reference: &str) -> Result<Remote, Failure> {
        self.repository.remote(&format!("manifests/{reference}"))
    }

    /// Returns the document that is found by a tag or a digest, and its digest.
    async fn document(&self, reference: &str) -> Result<(Checksum, Document), Cut> {
        let remote = self.manifest(reference)?;
        let accept = HeaderValue::from_static(manifest::MEDIA_TYPES);
        let headers = [(ACCEPT, accept)].into_iter().collect();
        let answer = self.repository.get(&remote, &headers).await?;
        self.repository.check_status(&remote, answer.status)?;
        let named = answer.headers.get(CONTENT_DIGEST).and_then(|it| it.to_str().ok());
        let expected = match reference.contains(':') {
            true => Some(reference.to_owned()),
            false => named.map(str::to_owned),
        };
        let text = self.repository.web.read(&remote, answer).await?;
        let digest = verified(expected.as_deref(), &text);
        let digest = digest.map_err(|problem| remote.end(&remote.url, problem))?;
        let document = Document::parse(&text);
        Ok((digest, document.map_err(|problem| remote.end(&remote.url, problem))?))
    }
}

impl Repository<'_> {
    /// Requests `remote`, which is of this repository. Logs in if the registry asks for it.
    pub(crate) async fn get(&self, remote: &Remote, headers: &HeaderMap) -> Result<Answer, Cut> {
        let authorization = self.authorization();
        let first = Remote { authorization, ..remote.clone() };
        let (url, answer) = self.web.get_from(&first, headers).await?;
        // A server that the registry redirects to has no say in logins.
        let is_asked =
            answer.status == StatusCode::UNAUTHORIZED && url.origin() == remote.url.origin();
        let challenges = answer.headers.get_all(WWW_AUTHENTICATE).iter();
        let Some(challenge) = Challenge::among(challenges).filter(|_| is_asked) else {
            return Ok(answer);
        };
        let Some(authorization) = self.authorize(&challenge).await? else { return Ok(answer) };
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(authorization.clone());
        let second = Remote { authorization: Some(authorization), ..remote.clone() };
        self.web.get(&second, headers).await
    }

    /// Fails unless `status` is that of a whole file, or of its rest.
    pub(crate) fn check_status(&self, remote: &Remote, status: StatusCode) -> Result<(), Cut> {
        let problem = match status {
            StatusCode::UNAUTHORIZED if self.login.is_anonymous() => "a user and a password needed",
            StatusCode::UNAUTHORIZED => "wrong user or password",
            StatusCode::FORBIDDEN => "not allowed for the user",
            StatusCode::NOT_FOUND => "not in the registry",
            _ => return remote.check_status(status),
        };
        Err(remote.end(&remote.url, format_args!("the server answered {status}: {problem}")))
    }

    /// Returns the file at `path` of the repository.
    fn remote(&self, path: &str) -> Result<Remote, Failure> {
        let url = self.base.join(path);
        let url = url.map_err(|error| Failure::permanent(format_args!("{FIELD}: {error}")))?;
        Ok(Remote { url, field: FIELD, server: ServerKind::Registry, authorization: None })
    }

    fn authorization(&self) -> Option<HeaderValue> {
        self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the answer to a `challenge`. None if it needs a user, and there is none.
    async fn authorize(&self, challenge: &Challenge) -> Result<Option<HeaderValue>, Cut> {
        let Challenge::Token { realm, query } = challenge else {
            return Ok(self.login.basic());
        };
        let remote = Remote { authorization: self.login.basic(), ..self.remote("")? };
        let problem = |problem: String| remote.end(&remote.url, problem);
        let url = Url::from_str(realm).map_err(|error| problem(format!("token: {error}")))?;
        if self.base.scheme() == "https" && url.scheme() == "http" {
            return Err(problem("token: its server has no TLS".into()));
        }
        let mut remote = Remote { url, ..remote.clone() };
        remote.url.query_pairs_mut().extend_pairs(query);
        let answer = self.web.get(&remote, &HeaderMap::new()).await?;
        self.check_status(&remote, answer.status)?;
        let text = self.web.read(&remote, answer).await?;
        let token = super::login::bearer(&text);
        Ok(Some(token.ok_or_else(|| remote.end(&remote.url, "the answer has no token"))?))
    }
}

/// Returns the digest of `text`: the expected one, or by SHA-256 if none is.
fn verified(expected: Option<&str>, text: &str) -> Result<Checksum, String> {
    let expected = expected.map(checksum).transpose()?;
    let mut sum = match &expected {
        Some(expected) => expected.sum(),
        None => disk_images::checksums::Sum::sha256(),
    };
    sum.update(text.as_bytes());
    let actual = sum.finish();
    match expected {
        Some(expected) if expected != actual => {
            Err(format!("digest: {expected}: the manifest has {actual}"))
        }
        _ => Ok(actual),
    }
}

fn checksum(digest: &str) -> Result<Checksum, String> {
    Checksum::from_str(digest).map_err(|error| format!("digest: {error}: {digest:?}"))
}

#[cfg(test)]
mod tests;

//! Requests to servers of others.
//!
//! ```text
//! URL ─▶ form ─▶ addresses ─▶ rules ─▶ request to these addresses ─▶ 2xx: answer
//!  ▲                                         │ 3xx
//!  └─────────── Location, up to 5 ───────────┘
//! ```
//!
//! Each request has a client of its own, which knows only the checked addresses and follows no
//! redirect. The variables of the environment for proxies are ignored. A login is sent to the first
//! server only.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Proxy, Url};

use super::answer::{Answer, Cut, cause, stalled};
use super::resolver::{Pinned, Resolver};
use super::rules::{self, Rules};
use crate::failure::Failure;
use crate::http::is_temporary;
use crate::settings::{Downloads, Timing};

/// Maximum number of redirects that a request follows.
const MAX_REDIRECTS: usize = 5;
/// The problem with a registry without TLS at an address that is not the site's.
const OPEN_LOGIN: &str = "http without TLS: only in networks that the settings allow";
/// Maximum size of a text in bytes. Checksum files of publishers have some KiB.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// Client of servers of others.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    rules: Rules,
    pub(super) resolver: Resolver,
    authorities: Vec<Certificate>,
    proxy: Option<Url>,
    timing: Timing,
}

/// A file at a server of others.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    /// The URL that redirects begin at.
    pub(crate) url: Url,
    /// Field of the image's source, for failures.
    pub(crate) field: &'static str,
    pub(crate) server: ServerKind,
    /// Login for the server of `url`. It is marked as sensitive.
    pub(crate) authorization: Option<HeaderValue>,
}

/// Kind of the server of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// Any server.
    Public,
    /// A mirror of the settings: its address need not be public.
    Mirror,
    /// A registry, or the server of its tokens: logins are sent to it. Without TLS, its address must
    /// be in a network that the settings allow.
    Registry,
}

impl Web {
    /// Reads the certificate authorities of `settings`.
    pub(crate) fn new(settings: &Downloads, timing: Timing) -> anyhow::Result<Self> {
        let allow = settings.allow_networks.clone();
        let refuse = settings.refuse_networks.clone();
        Ok(Self {
            rules: Rules { allow, refuse },
            resolver: Resolver::System,
            authorities: settings.ca.as_deref().map(authorities).transpose()?.unwrap_or_default(),
            proxy: settings.proxy.clone(),
            timing,
        })
    }

    /// Requests `remote` with `headers`, and follows redirects.
    pub(crate) async fn get(&self, remote: &Remote, headers: &HeaderMap) -> Result<Answer, Cut> {
        self.get_from(remote, headers).await.map(|(_, answer)| answer)
    }

    /// Requests `remote` with `headers`, and follows redirects. Returns the URL that answered, too.
    pub(crate) async fn get_from(
        &self,
        remote: &Remote,
        headers: &HeaderMap,
    ) -> Result<(Url, Answer), Cut> {
        let mut url = remote.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.request(remote, &url, headers).await?;
            match target(&url, &response) {
                None => return Ok((url, Answer::new(response.into()))),
                Some(next) => url = next.map_err(|problem| remote.end(&url, problem))?,
            }
        }
        Err(remote.end(&url, format_args!("more than {MAX_REDIRECTS} redirects")))
    }

    /// Returns the text at `remote`.
    pub(crate) async fn text(&self, remote: &Remote) -> Result<String, Cut> {
        let answer = self.get(remote, &HeaderMap::new()).await?;
        remote.check_status(answer.status)?;
        self.read(remote, answer).await
    }

    /// Returns the body of an `answer` of `remote`, which is a text.
    pub(crate) async fn read(&self, remote: &Remote, mut answer: Answer) -> Result<String, Cut> {
        let mut bytes = Vec::new();
        let next = async |answer: &mut Answer| answer.next(self.timing.stall).await;
        while let Some(chunk) =
            next(&mut answer).await.map_err(|problem| remote.again(&remote.url, problem))?
        {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_TEXT_BYTES {
                let problem = format_args!("the file has more than {MAX_TEXT_BYTES} bytes");
                return Err(remote.end(&remote.url, problem));
            }
        }
        String::from_utf8(bytes).map_err(|_| remote.end(&remote.url, "the file is not text"))
    }

    /// Requests `url`, which `remote` was redirected to unless it is the first.
    async fn request(
        &self,
        remote: &Remote,
        url: &Url,
        headers: &HeaderMap,
    ) -> Result<reqwest::Response, Cut> {
        rules::check_form(url).map_err(|problem| remote.end(url, problem))?;
        let addresses = self.addresses(remote, url).await?;
        let client = self.client(addresses).map_err(|error| Failure::host("download", error))?;
        // No content coding: the checksum is that of the file as it is stored.
        let mut request = client.get(url.clone()).headers(headers.clone());
        if let Some(authorization) = &remote.authorization
            && url.origin() == remote.url.origin()
        {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let sent = request.header(ACCEPT_ENCODING, "identity").send();
        match tokio::time::timeout(self.timing.stall, sent).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(remote.again(url, cause(&error.without_url()))),
            Err(_) => Err(remote.again(url, stalled(self.timing.stall))),
        }
    }

    /// Returns the checked addresses of the host of `url`. None if the proxy looks for them.
    async fn addresses(
        &self,
        remote: &Remote,
        url: &Url,
    ) -> Result<Option<Arc<[SocketAddr]>>, Cut> {
        let Some(found) = self.resolver.addresses(url, self.timing.connect).await else {
            // A site with a proxy may know only the names of the site.
            return match self.proxy {
                Some(_) if remote.is_open_login(url) => Err(remote.end(url, OPEN_LOGIN)),
                Some(_) => Ok(None),
                None => Err(remote.again(url, "the name of the host is not resolved")),
            };
        };
        let addresses: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
        let port = url.port_or_known_default().unwrap_or_default();
        let is_first = url.origin() == remote.url.origin();
        let is_trusted = remote.server == ServerKind::Mirror && is_first;
        if remote.is_open_login(url) && !self.rules.are_allowed(&addresses) {
            return Err(remote.end(url, OPEN_LOGIN));
        }
        match self.rules.check(&addresses, port) {
            Err(problem) if !is_trusted => {
                // The owner of the image is not told how the names of the site are resolved.
                tracing::warn!(host = url.host_str(), ?addresses, problem, "download refused");
                Err(remote.end(url, problem))
            }
            _ => Ok(Some(found.into())),
        }
    }

    /// Makes a client that connects to `addresses` only, or to the proxy.
    fn client(&self, addresses: Option<Arc<[SocketAddr]>>) -> reqwest::Result<Client> {
        let client = Client::builder()
            .user_agent(concat!("tinwright/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .referer(false)
            .connect_timeout(self.timing.connect)
            .tls_certs_merge(self.authorities.iter().cloned());
        match (&self.proxy, addresses) {
            (Some(proxy), _) => client.proxy(Proxy::all(proxy.clone())?),
            (None, addresses) => {
                let pinned = Pinned(addresses.unwrap_or_default());
                client.no_proxy().dns_resolver(Arc::new(pinned))
            }
        }
        .build()
    }
}

impl Remote {
    /// Fails unless `status` is that of a whole file, or of its rest.
    pub(crate) fn check_status(&self, status: StatusCode) -> Result<(), Cut> {
        let problem = format_args!("the server answered {status}");
        match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(()),
            status if is_temporary(status) => Err(self.again(&self.url, problem)),
            _ => Err(self.end(&self.url, problem)),
        }
    }

    /// A failure at `url` that the same request may not have.
    pub(crate) fn again(&self, url: &Url, problem: impl fmt::Display) -> Cut {
        Cut::Again(Failure::temporary(self.reason(url, &problem)))
    }

    /// True for a request without TLS that a login may be sent with.
    fn is_open_login(&self, url: &Url) -> bool {
        let is_first = url.origin() == self.url.origin();
        self.server == ServerKind::Registry && is_first && url.scheme() == "http"
    }

    /// A failure at `url` that the same request has again.
    pub(crate) fn end(&self, url: &Url, problem: impl fmt::Display) -> Cut {
        Cut::End(Failure::permanent(self.reason(url, &problem)))
    }

    fn reason(&self, url: &Url, problem: &dyn fmt::Display) -> String {
        let field = self.field;
        let start = Shown(&self.url);
        match *url == self.url {
            true => format!("{field}: {start}: {problem}"),
            false => format!("{field}: {start}: redirected to {}: {problem}", Shown(url)),
        }
    }
}

/// A URL without user, password, query and fragment: they may have secrets.
struct Shown<'a>(&'a Url);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        self.0.port().map_or(Ok(()), |port| write!(f, ":{port}"))?;
        f.write_str(self.0.path())
    }
}

/// Returns the URL that `response` redirects `url` to, if it does.
fn target(url: &Url, response: &reqwest::Response) -> Option<Result<Url, &'static str>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION).map(HeaderValue::to_str);
    let Some(Ok(Ok(next))) = location.map(|it| it.map(|it| url.join(it))) else {
        return Some(Err("redirected to an invalid URL"));
    };
    match (url.scheme(), next.scheme()) {
        ("https", "http") => Some(Err("redirected from https to http")),
        _ => Some(Ok(next)),
    }
}

/// Reads the certificates in the file at `path`.
fn authorities(path: &Path) -> anyhow::Result<Vec<Certificate>> {
    let pem = std::fs::read(path).with_context(|| format!("ca: {}", path.display()))?;
    let found = Certificate::from_pem_bundle(&pem);
    let found = found.with_context(|| format!("ca: {}", path.display()))?;
    anyhow::ensure!(!found.is_empty(), "ca: {}: no certificate", path.display());
    Ok(found)
}

#[cfg(test)]
mod tests;

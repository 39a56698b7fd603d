//! Requests to one BMC. Their credentials go only to the origin in the BMC's record: a URL in an
//! answer counts by its path and query, since some BMCs name an internal host, or http instead of
//! https, in their links.

use std::sync::Arc;

use pinned_tls::CertificatePin;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_MATCH,
};
use reqwest::{Method, Url};
use runtime::secret::Secret;
use serde_json::Value;

use super::Error;
use super::http::{Http, HttpRequest, HttpResponse};
use super::response::Response;

/// Maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 5;
/// The header of a session's token (DSP0266, "Redfish session login authentication").
const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
/// The header of the version of OData (DSP0266 §6.5).
const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");

/// A BMC at its address.
#[derive(Debug)]
pub(super) struct Connection {
    http: Http,
    /// The trusted certificate; none if any that is signed by a root is trusted.
    pin: Option<Arc<CertificatePin>>,
    /// The URL of the service root.
    pub(super) root: Url,
    pub(super) username: String,
    pub(super) password: Secret<String>,
}

/// The authentication of a request.
#[derive(Clone, Debug)]
pub(super) enum Credentials {
    Absent,
    /// The token of a session.
    Token(Secret<String>),
    /// The user name and the password (RFC 7617).
    Basic,
}

/// A request before its headers.
#[derive(Clone, Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) body: Option<&'a Value>,
    pub(super) if_match: Option<&'a str>,
}

impl<'a> Outgoing<'a> {
    pub(super) fn get(url: &Url) -> Self {
        Self { method: Method::GET, url: url.clone(), body: None, if_match: None }
    }

    pub(super) fn post(url: &Url, body: &'a Value) -> Self {
        Self { method: Method::POST, url: url.clone(), body: Some(body), if_match: None }
    }

    pub(super) fn delete(url: &Url) -> Self {
        Self { method: Method::DELETE, url: url.clone(), body: None, if_match: None }
    }
}

impl Connection {
    pub(super) fn new(
        root: Url,
        pin: Option<Arc<CertificatePin>>,
        is_legacy: bool,
        username: String,
        password: Secret<String>,
    ) -> Result<Self, Error> {
        let http = Http::new(&root, pin.clone(), is_legacy)?;
        Ok(Self { http, pin, root, username, password })
    }

    /// Returns the SHA-256 of the trusted certificate, if only one is trusted and was received.
    pub(super) fn certificate(&self) -> Option<[u8; 32]> {
        self.pin.as_ref()?.digest()
    }

    /// Returns the URL that `link`, from an answer of `base`, means at the BMC's own origin.
    pub(super) fn resolve(&self, base: &Url, link: &str) -> Result<Url, Error> {
        let not_a_url = || Error::Protocol(format!("{link:?} is not a URL"));
        let named = base.join(link).map_err(|_| not_a_url())?;
        if named.cannot_be_a_base() {
            return Err(not_a_url());
        }
        let mut url = self.root.clone();
        url.set_path(named.path());
        url.set_query(named.query());
        Ok(url)
    }

    /// Sends a request, and follows its redirects. A response that is no success is an error.
    pub(super) async fn exchange(
        &self,
        request: &Outgoing<'_>,
        credentials: &Credentials,
    ) -> Result<Response, Error> {
        let mut url = request.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let headers = self.headers(request, credentials)?;
            let (method, body) = (request.method.clone(), request.body.map(Value::to_string));
            let sent = HttpRequest { method, url: url.clone(), headers, body };
            let HttpResponse { status, headers, body } = self.http.send(sent).await?;
            let response = Response::new(url, status, &headers, &body);
            match self.redirect(&response, &request.method)? {
                Some(next) => url = next,
                None => return response.checked(),
            }
        }
        let text = format!("more than {MAX_REDIRECTS} redirects of {}", request.url.path());
        Err(Error::Protocol(text))
    }

    fn headers(
        &self,
        request: &Outgoing<'_>,
        credentials: &Credentials,
    ) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(ODATA_VERSION, HeaderValue::from_static("4.0"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if request.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let value = |text: &str| {
            let text = HeaderValue::from_str(text);
            text.map_err(|_| Error::Protocol("a token or an ETag is no header".into()))
        };
        if let Some(condition) = request.if_match {
            headers.insert(IF_MATCH, value(condition)?);
        }
        let (name, secret) = match credentials {
            Credentials::Absent => return Ok(headers),
            Credentials::Token(token) => (X_AUTH_TOKEN, value(token.expose())?),
            Credentials::Basic => {
                let pair = format!("{}:{}", self.username, self.password.expose());
                let encoded = data_encoding::BASE64.encode(pair.as_bytes());
                (AUTHORIZATION, value(&format!("Basic {encoded}"))?)
            }
        };
        let mut secret = secret;
        secret.set_sensitive(true);
        headers.insert(name, secret);
        Ok(headers)
    }

    /// Returns the URL to repeat a request at. A client may turn another method than GET into a GET
    /// after 301 or 302 (RFC 9110 §15.4); this one follows them with the same method if only a
    /// slash at the end differs, as older services want it.
    fn redirect(&self, response: &Response, method: &Method) -> Result<Option<Url>, Error> {
        let Some(location) = &response.location else { return Ok(None) };
        let status = response.status.as_u16();
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let next = self.resolve(&response.url, location)?;
        let keeps_method = match status {
            307 | 308 => true,
            303 => *method == Method::GET,
            _ => *method == Method::GET || differ_by_slash(&next, &response.url),
        };
        match keeps_method {
            // At the BMC's own origin it is the same URL.
            true if next == response.url => {
                Err(Error::Protocol(format!("{location:?} is not on the BMC's origin")))
            }
            true => Ok(Some(next)),
            false => Ok(None),
        }
    }
}

/// True if the paths differ by a slash at the end only.
fn differ_by_slash(one: &Url, other: &Url) -> bool {
    let [shorter, longer] = [one, other].map(|url| url.path().trim_end_matches('/'));
    shorter == longer && one.path() != other.path() && one.query() == other.query()
}

/// Returns `url` with a slash at its end if it has none, else without it.
pub(super) fn with_other_slash(url: &Url) -> Url {
    let mut other = url.clone();
    match url.path().strip_suffix('/') {
        Some(shorter) => other.set_path(shorter),
        None => other.set_path(&format!("{}/", url.path())),
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::StatusCode;
    use reqwest::header::LOCATION;

    fn connection() -> Connection {
        let root: Url = "https://192.0.2.1:8443/redfish/v1/".parse().unwrap();
        Connection::new(root, None, false, "u".into(), Secret::new("p".into())).unwrap()
    }

    fn redirect(status: u16, method: &Method, path: &str, location: &str) -> Option<String> {
        let connection = connection();
        let headers = [(LOCATION, HeaderValue::from_str(location).unwrap())].into_iter().collect();
        let url = connection.root.join(path).unwrap();
        let response = Response::new(url, StatusCode::from_u16(status).unwrap(), &headers, b"");
        let next = connection.redirect(&response, method).unwrap();
        next.map(|url| url.to_string())
    }

    #[test]
    fn a_link_counts_at_the_origin_of_the_record() {
        let connection = connection();
        let resolve = |link| connection.resolve(&connection.root, link).map(|url| url.to_string());
        let wanted = "https://192.0.2.1:8443/redfish/v1/Systems/1?a=b";
        for link in [
            "/redfish/v1/Systems/1?a=b",
            "Systems/1?a=b",
            "http://bmc.internal/redfish/v1/Systems/1?a=b",
            "https://u:p@10.0.0.1:9/redfish/v1/Systems/1?a=b#Name",
            "//10.0.0.1/redfish/v1/Systems/1?a=b",
        ] {
            assert_eq!(resolve(link).unwrap(), wanted, "{link}");
        }
        resolve("data:x").unwrap_err();
        resolve("http://[").unwrap_err();
    }

    #[test]
    fn a_login_is_redirected_by_every_status_if_only_a_slash_differs() {
        let to = "https://192.0.2.1:8443/redfish/v1/Sessions/";
        for status in [301, 302, 307, 308] {
            for location in ["/redfish/v1/Sessions/", "http://bmc.internal/redfish/v1/Sessions/"] {
                let next = redirect(status, &Method::POST, "Sessions", location);
                assert_eq!(next.as_deref(), Some(to), "{status} {location}");
            }
        }
        assert_eq!(redirect(301, &Method::POST, "Sessions", "/redfish/v1/Other"), None);
        assert!(redirect(308, &Method::POST, "Sessions", "/redfish/v1/Other").is_some());
        assert!(redirect(301, &Method::GET, "Sessions", "/redfish/v1/Other").is_some());
        assert_eq!(redirect(303, &Method::POST, "Sessions", to), None);
    }

    #[test]
    fn the_other_path_differs_by_a_slash() {
        for path in ["/a/b", "/a/b/"] {
            let url = connection().root.join(path).unwrap();
            let other = with_other_slash(&url);
            assert!(differ_by_slash(&url, &other), "{other}");
            assert_eq!(with_other_slash(&other), url);
        }
    }
}

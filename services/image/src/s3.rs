//! The object store in a bucket of an S3 server.
//!
//! Requests are made by the HTTP client of the workspace: that of `object_store` would add HTTP/2
//! to every client of the program, also to those of BMCs.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use http_body_util::BodyExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::{
    ClientOptions, MultipartId, MultipartUpload, PutPayload, PutResult, RetryConfig, UploadPart,
    path,
};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};
use runtime::secret::Secret;

use crate::settings::S3Settings;

/// Timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request with a part, until its answer, and of each further read.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of times that a request is sent again.
const MAX_RETRIES: usize = 5;
/// Maximum time after which a request is not sent again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// The keys of a file with an access key: those of the AWS tools.
const KEYS: [&str; 2] = ["aws_access_key_id", "aws_secret_access_key"];

/// A bucket.
pub(crate) type Bucket = Arc<AmazonS3>;

/// Opens the bucket of `settings`. The server is not called yet.
pub(crate) fn open(settings: &S3Settings) -> anyhow::Result<Bucket> {
    let S3Settings { url, bucket, region, credentials, ca } = settings;
    let key = AccessKey::read(credentials)
        .with_context(|| format!("images.s3_credentials: {}", credentials.display()))?;
    let client = client(url.scheme() == "https", ca.as_deref())?;
    let retry = RetryConfig {
        max_retries: MAX_RETRIES,
        retry_timeout: RETRY_TIMEOUT,
        ..RetryConfig::default()
    };
    let builder = AmazonS3Builder::new()
        .with_endpoint(url.as_str().trim_end_matches('/'))
        .with_bucket_name(bucket)
        .with_region(region)
        .with_access_key_id(key.id)
        .with_secret_access_key(key.secret.expose())
        // Not every server has requests that delete several objects.
        .with_disable_bulk_delete(true)
        .with_retry(retry)
        .with_http_connector(Connector(client));
    Ok(Arc::new(builder.build().context("images.s3_url")?))
}

/// A multipart upload with a known id. That of `object_store` keeps its id to itself.
#[derive(Debug)]
pub(crate) struct BucketUpload {
    bucket: Bucket,
    location: path::Path,
    id: MultipartId,
    /// Number of parts that were begun.
    begun: usize,
    /// The stored parts with their numbers.
    stored: Arc<Mutex<Vec<(usize, PartId)>>>,
}

impl BucketUpload {
    /// Begins to write the object at `location`.
    pub(crate) async fn begin(bucket: Bucket, location: path::Path) -> object_store::Result<Self> {
        let id = bucket.create_multipart(&location).await?;
        Ok(Self { bucket, location, id, begun: 0, stored: Arc::default() })
    }

    /// Returns the id of the upload.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Aborts the upload `id` of the object at `location`.
    pub(crate) async fn abort(
        bucket: &Bucket,
        location: &path::Path,
        id: &str,
    ) -> object_store::Result<()> {
        bucket.abort_multipart(location, &id.to_owned()).await
    }
}

#[async_trait]
impl MultipartUpload for BucketUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let number = self.begun;
        self.begun += 1;
        let (bucket, location, id) = (self.bucket.clone(), self.location.clone(), self.id.clone());
        let stored = self.stored.clone();
        Box::pin(async move {
            let part = bucket.put_part(&location, &id, number, data).await?;
            stored.lock().unwrap_or_else(PoisonError::into_inner).push((number, part));
            Ok(())
        })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        let mut parts = {
            let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *stored)
        };
        parts.sort_by_key(|(number, _)| *number);
        let parts = parts.into_iter().map(|(_, part)| part).collect();
        self.bucket.complete_multipart(&self.location, &self.id, parts).await
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        Self::abort(&self.bucket, &self.location, &self.id).await
    }
}

/// An access key.
#[derive(Debug)]
struct AccessKey {
    id: String,
    secret: Secret<String>,
}

impl AccessKey {
    /// Reads the file at `path`.
    fn read(path: &Path) -> anyhow::Result<Self> {
        Self::parse(&std::fs::read_to_string(path)?)
    }

    /// Reads `text`, a file of the AWS tools with one profile. Errors do not show values.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut values = [None, None];
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with(['#', ';', '[']) {
                continue;
            }
            let (key, value) =
                line.split_once('=').with_context(|| format!("line {number}: not KEY = VALUE"))?;
            let known = KEYS.iter().position(|known| *known == key.trim());
            let known = known.with_context(|| format!("line {number}: unknown key"))?;
            let former = values[known].replace(value.trim().to_owned());
            anyhow::ensure!(former.is_none(), "line {number}: {}: sent twice", KEYS[known]);
        }
        let [id, secret] = values;
        let missing = |key: usize| format!("{}: missing", KEYS[key]);
        let id = id.filter(|it| !it.is_empty()).with_context(|| missing(0))?;
        let secret = secret.filter(|it| !it.is_empty()).with_context(|| missing(1))?;
        Ok(Self { id, secret: Secret::new(secret) })
    }
}

/// Makes the client of a server. It trusts the host's authorities and those in the file `ca`.
fn client(has_tls: bool, ca: Option<&Path>) -> anyhow::Result<Client> {
    let mut client = Client::builder()
        .user_agent(concat!("tinwright/", env!("CARGO_PKG_VERSION")))
        .https_only(has_tls)
        .no_proxy()
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT);
    if let Some(path) = ca {
        let text = || format!("images.ca: {}", path.display());
        let pem = std::fs::read(path).with_context(text)?;
        let authorities = Certificate::from_pem_bundle(&pem).with_context(text)?;
        client = client.tls_certs_merge(authorities);
    }
    client.build().context("images.s3_url")
}

/// Connects `object_store` with an HTTP client.
#[derive(Clone, Debug)]
struct Connector(Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url = parts.uri.to_string().parse::<reqwest::Url>();
        let url = url.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(reqwest::Body::wrap(body));
        let response = self.0.execute(request).await.map_err(failed)?;
        let (parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body.map_err(failed))))
    }
}

/// Returns the error of a request. Its kind says if the request may be sent again.
fn failed(error: reqwest::Error) -> HttpError {
    let kind = match () {
        () if error.is_timeout() => HttpErrorKind::Timeout,
        () if error.is_connect() => HttpErrorKind::Connect,
        () if error.is_request() || error.is_body() || error.is_decode() => {
            HttpErrorKind::Interrupted
        }
        () => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error.without_url())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG=";

    #[test]
    fn a_file_of_the_aws_tools_is_read_and_its_secret_is_never_shown() {
        let text = format!(
            "# of the site\n[default]\naws_access_key_id = AKID\naws_secret_access_key={SECRET}\n"
        );
        let key = AccessKey::parse(&text).unwrap();
        assert_eq!((key.id.as_str(), key.secret.expose().as_str()), ("AKID", SECRET));
        let folder = tempfile::tempdir().unwrap();
        let credentials = folder.path().join("key");
        std::fs::write(&credentials, text).unwrap();
        let settings = S3Settings {
            url: "http://127.0.0.1:1".parse().unwrap(),
            bucket: "images".into(),
            region: "us-east-1".into(),
            credentials,
            ca: None,
        };
        let shown = format!("{key:?} {settings:?} {:?}", open(&settings).unwrap());
        assert!(!shown.contains(SECRET), "{shown}");
    }

    #[test]
    fn wrong_files_are_refused_without_their_values() {
        for (text, problem) in [
            ("aws_access_key_id = A", "aws_secret_access_key: missing"),
            ("aws_access_key_id =\naws_secret_access_key = secret", "aws_access_key_id: missing"),
            ("aws_secret_access_key = secret\naws_secret_access_key = secret", "line 2"),
            ("secret", "line 1: not KEY = VALUE"),
            ("secret = secret", "line 1: unknown key"),
        ] {
            let error = format!("{:#}", AccessKey::parse(text).unwrap_err());
            assert!(error.contains(problem), "{error}");
            assert!(!error.contains("= secret") && error != "secret", "{error}");
        }
    }
}

//! The HTTP client of downloads.

use reqwest::{Certificate, Client};

use super::error::{AttemptError, Error};
use super::retry_policy::RetryPolicy;

/// Creates a client that trusts only the certificate authorities in the PEM bundles `roots`.
/// Without any, only `http` works.
pub(super) fn client(roots: &[Vec<u8>], retry: &RetryPolicy) -> Result<Client, Error> {
    let bundles: Result<Vec<_>, _> =
        roots.iter().map(|pem| Certificate::from_pem_bundle(pem)).collect();
    let timeout = retry.stall_timeout;
    let client = bundles.and_then(|bundles| {
        let client = Client::builder().tls_certs_only(bundles.into_iter().flatten()).no_proxy();
        client.connect_timeout(timeout).read_timeout(timeout).build()
    });
    client.map_err(|error| Error {
        request: "certificate roots".into(),
        source: AttemptError::from(error),
    })
}

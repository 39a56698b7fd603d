//! Client of the control plane. It trusts only the site's certificate authority, and repeats calls until they succeed. After a
//! failure, the next server is called.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::retry::is_final;
use tinwright::client::{self, Call, Grpc};
use tinwright::workflow::v1::{RedeemRequest, RedeemResponse, RenewRequest, RenewResponse};
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::uri::Authority;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Error, Identity};
use tonic::{Request, Response, Status};

use crate::identity::IdentityIssuer;
use crate::retry_policy::until_final;

/// Timeout for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without data before an HTTP/2 ping, and timeout of its response. A server that lost power closes no connection.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Timeout of a call that the server answers at once.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Addresses and certificate authority of the control plane.
#[derive(Debug)]
pub struct ControlPlane {
    /// Host and port of each server. All have the same records.
    pub servers: Vec<Authority>,
    /// The site's certificate authority, in PEM.
    pub authority: String,
}

impl ControlPlane {
    /// Returns a channel to `server` with this `identity`. It connects at the first call, and again after a disconnect.
    fn channel(&self, server: &Authority, identity: Option<&Identity>) -> Result<Channel, Error> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.authority));
        let endpoint = Endpoint::from_shared(format!("https://{server}"))?
            .tls_config(identity.cloned().into_iter().fold(tls, ClientTlsConfig::identity))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        Ok(endpoint.connect_lazy())
    }
}

/// The channels to all servers. The first one is used.
#[derive(Debug)]
struct Channels {
    all: VecDeque<(Authority, Channel)>,
    /// The number of changes to the next server.
    changes: u64,
}

/// A client of the control plane. Each new certificate applies to all later calls.
///
/// Unless documented otherwise, a call is repeated until it succeeds, its error is final, or the certificate is expired.
#[derive(Clone, Debug)]
pub struct ControlPlaneClient {
    plane: Arc<ControlPlane>,
    channels: Arc<Mutex<Channels>>,
    expired: CancellationToken,
}

impl ControlPlaneClient {
    /// Creates a client without an identity.
    pub fn new(plane: ControlPlane) -> Result<Self, Error> {
        let channel = |server: &Authority| Ok((server.clone(), plane.channel(server, None)?));
        let all = plane.servers.iter().map(channel).collect::<Result<_, Error>>()?;
        let channels = Arc::new(Mutex::new(Channels { all, changes: 0 }));
        Ok(Self { plane: Arc::new(plane), channels, expired: CancellationToken::new() })
    }

    /// Declares the certificate expired. It cannot be renewed: new connections are refused from now on.
    pub fn set_expired(&self) {
        self.expired.cancel();
    }

    /// True if the certificate is expired.
    pub fn is_expired(&self) -> bool {
        self.expired.is_cancelled()
    }

    /// Waits until the certificate is expired.
    pub async fn expired(&self) {
        self.expired.cancelled().await;
    }

    /// Returns a channel to each server, with the present identity, in the order of the boot parameters.
    pub fn all(&self) -> Vec<(Authority, Channel)> {
        let channels = self.channels();
        let of = |server: &Authority| channels.all.iter().find(|(other, _)| other == server);
        self.plane.servers.iter().filter_map(|server| of(server).cloned()).collect()
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the next server, unless another call that failed did so since `changes` was read.
    fn change_server(&self, changes: u64) {
        let mut channels = self.channels();
        if channels.changes == changes && channels.all.len() > 1 {
            channels.changes += 1;
            channels.all.rotate_left(1);
            let server = channels.all.front().map(|(server, _)| server);
            tracing::debug!(server = server.map(Authority::as_str), "calling the next server");
        }
    }

    /// Calls without retries. After a failure that is not final, the next call is made to the next server.
    pub async fn once<R: Call>(&self, request: R, limit: Duration) -> Result<R::Response, Status> {
        let mut request = Request::new(request);
        request.set_timeout(limit);
        let (channel, changes) = {
            let channels = self.channels();
            (channels.all.front().map(|(_, channel)| channel.clone()), channels.changes)
        };
        let channel = channel.ok_or_else(|| Status::failed_precondition("no server"))?;
        // The timeout in the request is only effective if the server is reachable.
        let mut channel = Grpc::new(channel);
        let response = tokio::time::timeout(limit, client::unary::<R>(&mut channel, request)).await;
        let timed_out = |_| Status::deadline_exceeded(format!("no response within {limit:?}"));
        let response = response.map_err(timed_out).flatten();
        if response.as_ref().is_err_and(|status| !is_final(status.code())) {
            self.change_server(changes);
        }
        response.map(Response::into_inner)
    }

    /// Repeats a call until it succeeds, its error is final, or the certificate is expired.
    pub async fn repeat<R: Call + Clone>(
        &self,
        request: R,
        limit: Duration,
    ) -> Result<R::Response, Status> {
        let name = R::PATH.rsplit('/').next().unwrap_or_default();
        let call = async || {
            let result = self.once(request.clone(), limit).await;
            result.map_err(|status| match self.is_expired() {
                // The code is final.
                true => Status::unauthenticated(format!("certificate expired: {status}")),
                false => status,
            })
        };
        until_final(name, call).await
    }
}

impl IdentityIssuer for ControlPlaneClient {
    async fn redeem(&self, request: RedeemRequest) -> Result<RedeemResponse, Status> {
        self.repeat(request, CALL_TIMEOUT).await
    }

    async fn renew(&self, request: RenewRequest) -> Result<RenewResponse, Status> {
        self.repeat(request, CALL_TIMEOUT).await
    }

    fn set_identity(&self, certificate: &str, key: &str) -> Result<(), Error> {
        let identity = Identity::from_pem(certificate, key);
        for (server, channel) in &mut self.channels().all {
            *channel = self.plane.channel(server, Some(&identity))?;
        }
        Ok(())
    }
}

//! Open connections whose certificate is refused from some time on.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use super::ConnectionLimits;
use crate::serial::Serial;

/// The longest time for the open requests of a connection whose certificate is of a former authority.
const DROPPED_CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Resolves to the reason once a connection with the certificate `leaf` must end. After the authority was replaced, `stop` is cancelled
/// first, so that open requests finish: the client may have a certificate of the new one for its next connection.
pub(super) async fn refused_later(
    limits: &ConnectionLimits,
    leaf: &CertificateDer<'_>,
    stop: &CancellationToken,
) -> &'static str {
    let serial = Serial::in_certificate(leaf);
    let revoked = async {
        match serial {
            Some(serial) => limits.revocations.revoked(&serial.identity()).await,
            None => std::future::pending().await,
        }
    };
    let dropped = async {
        match &limits.authority {
            Some(authority) => authority.dropped_issuer_of(leaf).await,
            None => std::future::pending().await,
        }
        stop.cancel();
        tokio::time::sleep(DROPPED_CLOSE_TIMEOUT).await;
    };
    tokio::select! {
        () = revoked => "the certificate is revoked",
        () = dropped => "the authority of the certificate was replaced",
    }
}

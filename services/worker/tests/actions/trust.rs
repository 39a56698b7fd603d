//! Downloads trust only the configured certificate authorities.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use worker::{ActionOutcome, Builtin};

use crate::disk::LoopDisk;
use crate::file_server::FileServer;
use crate::image2disk::disk_image;
use crate::{context, environment, reason};

/// Returns the TLS configuration of a server, and the certificate authority that issued its certificate.
fn identity() -> (TlsAcceptor, String) {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = own.signing_key.serialize_der().try_into().unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
    (TlsAcceptor::from(Arc::new(config)), own.cert.pem())
}

async fn trusting(roots: &[&str], tls: TlsAcceptor) -> (ActionOutcome, String) {
    let server = FileServer::serve_tls("os.img", disk_image(5000), tls).await;
    let disk = LoopDisk::new(1 << 20);
    let (mut context, _) = context();
    context.roots = roots.iter().map(|pem| pem.as_bytes().to_vec()).collect();
    let variables = environment(&[("IMG_URL", server.url.as_str()), ("DEST_DISK", &disk.path)]);
    let outcome = worker::run(Builtin::Image2Disk, &variables, &context).await;
    assert!(outcome != ActionOutcome::Success || disk.content()[..5000] == disk_image(5000));
    (outcome, server.url.clone())
}

#[tokio::test]
async fn a_server_certified_by_a_configured_root_is_trusted() {
    let (tls, root) = identity();
    let (_, other) = identity();
    assert_eq!(trusting(&[&other, &root], tls).await.0, ActionOutcome::Success);
}

#[tokio::test]
async fn other_servers_are_refused_immediately() {
    let (_, root) = identity();
    for roots in [&[root.as_str()][..], &[]] {
        let (outcome, url) = trusting(roots, identity().0).await;
        let reason = reason(outcome);
        assert!(
            reason.starts_with(&format!("image2disk: GET {url}: invalid peer certificate: ")),
            "{reason}"
        );
    }
}

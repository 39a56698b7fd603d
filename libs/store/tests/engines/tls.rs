//! A cluster that speaks TLS, and wants to see certificates.

use store::Error;
use store::etcd::{Etcd, Identity, Options, Tls};

use super::authority::Authority;
use super::conformance;
use super::peer::Peer;

/// Returns the error of a connection with `tls`, in one line.
async fn refused(peer: &Peer, tls: Tls) -> String {
    let refused = Etcd::connect(Options { tls: Some(tls), ..peer.options() }).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    format!("{:#}", anyhow::Error::from(refused))
}

#[tokio::test]
async fn conforms_in_tls_with_a_certificate_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let peer = Peer::guarded(Authority::new("ours").guard(dir.path())).await;
    conformance::all(&peer.store().await).await;
}

#[tokio::test]
async fn a_member_of_another_authority_is_refused_and_the_error_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let peer = Peer::guarded(Authority::new("ours").guard(dir.path())).await;
    let why = refused(&peer, Authority::new("theirs").key()).await;
    assert!(why.contains(&format!("connecting to etcd at {}", peer.url())), "{why}");
    assert!(why.contains("invalid peer certificate: UnknownIssuer"), "{why}");
}

#[tokio::test]
async fn a_cluster_that_requires_certificates_refuses_clients_without_a_valid_one() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let peer = Peer::guarded(ours.guard(dir.path())).await;
    for identity in [None, Some(Authority::new("theirs").issue("tinwright"))] {
        let why = refused(&peer, Tls { identity, ..ours.key() }).await;
        assert!(why.contains(&format!("etcd at {}", peer.url())), "{why}");
    }
}

#[tokio::test]
async fn an_invalid_certificate_is_reported_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let peer = Peer::guarded(ours.guard(dir.path())).await;
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_owned();
    let identity = Some(Identity { key, ..ours.issue("tinwright") });
    let why = refused(&peer, Tls { identity, ..ours.key() }).await;
    assert!(why.contains(&format!("TLS for etcd at {}", peer.url())), "{why}");
}

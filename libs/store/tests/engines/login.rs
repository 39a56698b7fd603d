//! A cluster with authentication switched on.

use store::etcd::{Etcd, Login, Options};
use store::{Changes, Commit, Error, Expect, Store as _, Write};

use super::conformance;
use super::peer::Peer;

const PASSWORD: &str = "correct-horse";

/// A cluster where `tinwright` may do everything below the prefix, and nothing else.
async fn closed() -> Peer {
    let peer = Peer::start().await;
    for line in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "ours"],
        &["role", "grant-permission", "ours", "--prefix=true", "readwrite", "/tinwright/"],
        &["user", "add", &format!("tinwright:{PASSWORD}")],
        &["user", "grant-role", "tinwright", "ours"],
        &["auth", "enable"],
    ] {
        peer.tell(line);
    }
    peer
}

fn options(peer: &Peer, password: &str) -> Options {
    let login = Login { user: "tinwright".into(), password: password.into() };
    Options { login: Some(login), ..peer.options() }
}

/// Has etcd forget every token of ours, without touching a connection: the password is set to what it is.
fn forget(peer: &Peer) {
    let script = format!(
        "printf '%s\\n' '{PASSWORD}' | etcdctl --endpoints {} --user root:secret user passwd tinwright --interactive=false",
        peer.url()
    );
    let mut shell = std::process::Command::new("sh");
    let done = shell.env("ETCDCTL_API", "3").args(["-c", &script]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn once(key: &str) -> Commit {
    let writes = vec![Write::Put(key.into(), "v".into())];
    Commit { expect: vec![Expect::Absent(key.into())], writes }
}

#[tokio::test]
async fn conforms_with_a_login() {
    let peer = closed().await;
    conformance::all(&Etcd::connect(options(&peer, PASSWORD)).await.unwrap()).await;
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_refused_and_the_error_names_the_member() {
    let peer = closed().await;
    for options in [options(&peer, "wrong"), peer.options()] {
        let refused = Etcd::connect(options).await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
        let why = format!("{:#}", anyhow::Error::from(refused));
        assert!(why.contains(&format!("etcd at {}", peer.url())), "{why}");
        assert!(!why.contains("wrong"), "{why}");
    }
}

#[tokio::test]
async fn reads_and_writes_renew_a_token_that_etcd_no_longer_accepts() {
    let peer = closed().await;
    let store = Etcd::connect(options(&peer, PASSWORD)).await.unwrap();
    let before = store.commit(once("m/1")).await.unwrap();
    forget(&peer);
    let written = store.commit(once("m/2")).await.unwrap();
    let named = Changes::Keys { keys: vec!["m/2".into()], revision: written };
    assert_eq!(store.changed("m/", before).await.unwrap(), named);
    forget(&peer);
    assert!(store.get("m/1").await.unwrap().is_some());
}

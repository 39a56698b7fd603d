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

/// A cluster with the user `rack-7`, as docs/security.md says for an edge, and a user for everything.
async fn with_edge() -> Peer {
    let peer = Peer::start().await;
    for line in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "ours"],
        &["role", "grant-permission", "ours", "--prefix=true", "readwrite", "/tinwright/"],
        &["user", "add", &format!("tinwright:{PASSWORD}")],
        &["user", "grant-role", "tinwright", "ours"],
        &["role", "add", "edge"],
        &["role", "grant-permission", "edge", "--prefix=true", "readwrite", "/tinwright/netboot/"],
        &["role", "grant-permission", "edge", "read", "/tinwright/schema"],
        &["role", "grant-permission", "edge", "read", "/tinwright/site"],
        &["user", "add", &format!("rack-7:{PASSWORD}")],
        &["user", "grant-role", "rack-7", "edge"],
        &["auth", "enable"],
    ] {
        peer.tell(line);
    }
    peer
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

#[tokio::test]
async fn the_user_of_an_edge_reads_and_writes_the_keys_of_netboot_only() {
    let peer = with_edge().await;
    let owner = Etcd::connect(options(&peer, PASSWORD)).await.unwrap();
    for key in ["site", "hardware/1"] {
        owner.commit(once(key)).await.unwrap();
    }
    let schema = owner.commit(once("schema")).await.unwrap();
    let login = Login { user: "rack-7".into(), password: PASSWORD.into() };
    let followed = "netboot/".to_owned();
    let edge = Options { login: Some(login), followed, ..peer.options() };
    let edge = Etcd::connect(edge).await.unwrap();
    assert!(edge.get("site").await.unwrap().is_some());

    let fenced = |key: &str| {
        let expect = vec![Expect::At("schema".into(), schema), Expect::Absent(key.into())];
        Commit { expect, ..once(key) }
    };
    let before = edge.commit(fenced("netboot/1")).await.unwrap();
    let written = owner.commit(once("netboot/2")).await.unwrap();
    let named = Changes::Keys { keys: vec!["netboot/2".into()], revision: written };
    assert_eq!(edge.changed("netboot/", before).await.unwrap(), named);
    assert_eq!(edge.list("netboot/", "", 9).await.unwrap().pairs.len(), 2);
    let conflict = edge.commit(fenced("netboot/1")).await.unwrap_err();
    assert!(matches!(conflict, Error::Conflict(ref key) if key == "netboot/1"), "{conflict}");

    for key in ["hardware/1", "hardware/2", "netboos", "netboot0"] {
        assert!(edge.get(key).await.is_err(), "{key}");
        assert!(edge.commit(once(key)).await.is_err(), "{key}");
    }
    assert!(edge.list("", "", 9).await.is_err());
    assert!(edge.list("hardware/", "", 9).await.is_err());
    let over = Commit { writes: vec![Write::Put("schema".into(), "9".into())], ..once("x") };
    assert!(edge.commit(Commit { expect: vec![], ..over }).await.is_err());
    assert!(owner.get("hardware/2").await.unwrap().is_none());
}

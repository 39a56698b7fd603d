//! Documents beside the EC2 tree, on the wire.

use super::*;
use crate::fixture::LOOKUP;

#[tokio::test]
async fn documents_say_what_they_are() {
    for (path, kind) in [
        ("/metadata", "application/json"),
        ("/openstack/latest/meta_data.json", "application/json"),
        ("/nocloud/meta-data", "application/yaml"),
        ("/userdata", "application/octet-stream"),
    ] {
        let answer = site().get(path).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
    }
}

#[tokio::test]
async fn who_knows_the_machines_secret_name_may_ask_from_anywhere() {
    let site = site();
    let path = format!("/nocloud/{LOOKUP}/user-data");
    site.send(STRANGER, "GET", &path, &[]).await.says(USER_DATA);
    let wrong = format!("/nocloud/{}/user-data", LOOKUP.replace('f', "e"));
    site.send(STRANGER, "GET", &wrong, &[]).await.refused(404);
    site.send(STRANGER, "GET", "/nocloud/user-data", &[]).await.refused(404);
}

#[tokio::test]
async fn documents_are_kept_from_who_asks_through_the_machine() {
    let through = [("x-forwarded-for", "203.0.113.9")];
    for path in ["/metadata", "/userdata", "/nocloud/user-data", "/openstack/latest/user_data"] {
        site().send(NODE1, "GET", path, &through).await.refused(403);
    }
}

#[tokio::test]
async fn a_closed_tree_leaves_the_seed_open() {
    let site = site_of(TokenPolicy::Disabled);
    site.get("/latest/user-data").await.refused(403);
    site.get("/nocloud/user-data").await.says(USER_DATA);
}

#[tokio::test]
async fn a_password_is_not_kept() {
    site().get("/openstack/latest/password").await.says("");
    site().send(NODE1, "POST", "/openstack/latest/password", &[]).await.refused(409);
}

#[tokio::test]
async fn anybody_may_ask_how_the_service_is() {
    let site = site();
    let well = site.send(STRANGER, "GET", "/_packet/healthcheck", &[]).await;
    assert!(well.status == 200 && well.body.contains(r#""hardware_client_status":true"#));
    assert_eq!(site.send(STRANGER, "GET", "/_packet/version", &[]).await.status, 200);
    site.index.disconnect(std::time::Instant::now());
    assert_eq!(site.send(STRANGER, "GET", "/_packet/healthcheck", &[]).await.status, 500);
}

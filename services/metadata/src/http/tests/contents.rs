//! Documents besides the EC2 tree.

use super::*;
use crate::fixture::LOOKUP;

#[tokio::test]
async fn documents_have_a_type() {
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
async fn the_lookup_id_opens_the_seed_from_any_address() {
    let site = site();
    let path = format!("/nocloud/{LOOKUP}/user-data");
    site.send(UNKNOWN, "GET", &path, &[]).await.assert_body(USER_DATA);
    let wrong = format!("/nocloud/{}/user-data", LOOKUP.replace('f', "e"));
    site.send(UNKNOWN, "GET", &wrong, &[]).await.refused(404);
    site.send(UNKNOWN, "GET", "/nocloud/user-data", &[]).await.refused(404);
}

#[tokio::test]
async fn documents_are_refused_to_forwarded_requests() {
    let forwarded = [("x-forwarded-for", "203.0.113.9")];
    for path in ["/metadata", "/userdata", "/nocloud/user-data", "/openstack/latest/user_data"] {
        site().send(NODE1, "GET", path, &forwarded).await.refused(403);
    }
}

#[tokio::test]
async fn a_closed_tree_leaves_the_seed_open() {
    let site = site_of(TokenPolicy::Disabled);
    site.get("/latest/user-data").await.refused(403);
    site.get("/nocloud/user-data").await.assert_body(USER_DATA);
}

#[tokio::test]
async fn a_posted_password_is_not_stored() {
    site().get("/openstack/latest/password").await.assert_body("");
    site().send(NODE1, "POST", "/openstack/latest/password", &[]).await.refused(409);
}

#[tokio::test]
async fn any_caller_may_read_the_health_check() {
    let site = site();
    let healthy = site.send(UNKNOWN, "GET", "/_packet/healthcheck", &[]).await;
    assert!(healthy.status == 200 && healthy.body.contains(r#""hardware_client_status":true"#));
    assert_eq!(site.send(UNKNOWN, "GET", "/_packet/version", &[]).await.status, 200);
    site.index.disconnect(std::time::Instant::now());
    assert_eq!(site.send(UNKNOWN, "GET", "/_packet/healthcheck", &[]).await.status, 500);
}

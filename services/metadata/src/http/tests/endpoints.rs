//! Custom endpoints.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::*;
use crate::endpoints::Endpoints;
use crate::guard::Guard;

/// A service for `machine` with these paths and filters.
fn site_with_endpoints(machine: Machine, endpoints: &[(&str, &str)]) -> Site {
    let own = endpoints.iter().map(|(path, code)| ((*path).to_owned(), (*code).to_owned()));
    let endpoints =
        Endpoints::new(&own.collect::<BTreeMap<_, _>>(), crate::is_reserved_path).unwrap();
    let mut site = site_with(vec![machine], Reports::default(), Config::default());
    let service = Arc::get_mut(&mut site.service).unwrap();
    service.contents = Contents { endpoints, ..Contents::default() };
    site
}

const OWN: [(&str, &str); 5] = [
    ("/metadata", ".metadata.instance"),
    ("/own/id", ".metadata.instance.id, .id"),
    ("/own/data", "{data: .metadata.instance.userdata}"),
    ("/none", ".metadata.instance.nothing"),
    ("/broken", ".id.nothing"),
];

#[tokio::test]
async fn the_output_of_a_filter_is_served_at_its_path() {
    let site = site_with_endpoints(node1(), &OWN);
    let id = site.get("/own/id/").await;
    id.assert_body(&format!("i-0001\n{}", node1().id));
    assert_eq!(id.header("content-type"), Some("text/plain; charset=utf-8"));
    let data = site.get("/own/data").await;
    data.assert_body(&serde_json::json!({ "data": USER_DATA }).to_string());
    assert_eq!(data.header("content-type"), Some("application/json"));
    site.get("/own").await.refused(404);
    site.get("/none").await.refused(404);
    site.get("/broken").await.refused(500);
}

#[tokio::test]
async fn hegels_default_path_serves_the_instance() {
    let answer = site_with_endpoints(node1(), &OWN).get("/metadata").await;
    let document: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((&document["id"], &document["userdata"]), (&"i-0001".into(), &USER_DATA.into()));
}

#[tokio::test]
async fn a_custom_endpoint_is_guarded_like_every_path() {
    let site = site_with_endpoints(Machine { tokens: TokenPolicy::Required, ..node1() }, &OWN);
    site.get("/own/id").await.refused(401);
    let token = site.token().await;
    let answer = site.send(NODE1, "GET", "/own/id", &[(TOKEN, &token)]).await;
    assert_eq!(answer.status, 200);
    let site = site_with_endpoints(node1(), &OWN);
    site.send(UNKNOWN, "GET", "/own/id", &[]).await.refused(404);
    site.send(NODE1, "POST", "/own/id", &[]).await.refused(405);
    let forwarded = [("x-forwarded-for", "203.0.113.9")];
    site.send(NODE1, "GET", "/own/id", &forwarded).await.refused(403);
}

#[tokio::test]
async fn a_custom_endpoint_hides_the_password_and_user_data_after_its_window() {
    let (user_data_window, installed) = (Some(Duration::ZERO), Some(SystemTime::UNIX_EPOCH));
    let guard = Guard { user_data_window, installed, ..Guard::default() };
    let all = [("/all", ".."), ("/own/data", ".metadata.instance.userdata")];
    let site = site_with_endpoints(Machine { guard, ..node1() }, &all);
    assert!(!site.get("/all").await.body.contains("$6$salt"));
    site.get("/own/data").await.refused(404);
}

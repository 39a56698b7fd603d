//! The site's own paths, on the wire.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::endpoints::Endpoints;
use crate::guard::Guard;

/// A service for `machine` with these paths and filters.
fn site_of_own(machine: Machine, own: &[(&str, &str)]) -> Site {
    let own = own.iter().map(|(path, code)| ((*path).to_owned(), (*code).to_owned()));
    let endpoints =
        Endpoints::new(&own.collect::<BTreeMap<_, _>>(), crate::is_reserved_path).unwrap();
    let (index, told) = (Arc::new(Index::default()), Arc::new(Told::default()));
    index.replace([machine]);
    let service =
        Service::new(index.clone(), Tokens::new(&[7; 32]), told.clone(), Config::default());
    let service = Arc::new(service.with(Contents { endpoints, ..Contents::default() }));
    Site { index, told, service }
}

const OWN: [(&str, &str); 5] = [
    ("/metadata", ".metadata.instance"),
    ("/own/id", ".metadata.instance.id, .id"),
    ("/own/data", "{data: .metadata.instance.userdata}"),
    ("/none", ".metadata.instance.nothing"),
    ("/broken", ".id.nothing"),
];

#[tokio::test]
async fn what_a_filter_makes_of_the_machine_stands_at_its_path() {
    let site = site_of_own(node1(), &OWN);
    let id = site.get("/own/id/").await;
    id.says(&format!("i-0001\n{}", node1().id));
    assert_eq!(id.header("content-type"), Some("text/plain; charset=utf-8"));
    let data = site.get("/own/data").await;
    data.says(&serde_json::json!({ "data": USER_DATA }).to_string());
    assert_eq!(data.header("content-type"), Some("application/json"));
    site.get("/own").await.refused(404);
    site.get("/none").await.refused(404);
    site.get("/broken").await.refused(500);
}

#[tokio::test]
async fn at_hegels_default_path_stands_the_instance() {
    let answer = site_of_own(node1(), &OWN).get("/metadata").await;
    let said: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((&said["id"], &said["userdata"]), (&"i-0001".into(), &USER_DATA.into()));
}

#[tokio::test]
async fn an_own_path_is_guarded_as_every_other() {
    let site = site_of_own(Machine { tokens: TokenPolicy::Required, ..node1() }, &OWN);
    site.get("/own/id").await.refused(401);
    let token = site.token().await;
    let asked = site.send(NODE1, "GET", "/own/id", &[(TOKEN, &token)]).await;
    assert_eq!(asked.status, 200);
    let site = site_of_own(node1(), &OWN);
    site.send(STRANGER, "GET", "/own/id", &[]).await.refused(404);
    site.send(NODE1, "POST", "/own/id", &[]).await.refused(405);
    let through = [("x-forwarded-for", "203.0.113.9")];
    site.send(NODE1, "GET", "/own/id", &through).await.refused(403);
}

#[tokio::test]
async fn an_own_path_tells_no_password_and_user_data_for_its_time_only() {
    let (user_data_window, installed) = (Some(Duration::ZERO), Some(SystemTime::UNIX_EPOCH));
    let guard = Guard { user_data_window, installed, ..Guard::default() };
    let all = [("/all", ".."), ("/own/data", ".metadata.instance.userdata")];
    let site = site_of_own(Machine { guard, ..node1() }, &all);
    assert!(!site.get("/all").await.body.contains("$6$salt"));
    site.get("/own/data").await.refused(404);
}

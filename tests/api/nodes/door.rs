//! The ImageAPI at the gateway.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use reqwest::{Certificate, Identity, Method, StatusCode};
use runtime::authority::SiteAuthority;
use runtime::{Caller, Role};
use serde_json::{Value, json};

use super::agent::Agent;
use super::site::Site;
use crate::support::{RunningServer, until};

/// A client of the ImageAPI.
pub struct ImageApi {
    http: reqwest::Client,
    base: String,
}

impl ImageApi {
    /// A client with a certificate of `role` at the gateway of `server`.
    pub fn new(server: &RunningServer, role: Role) -> Self {
        let site = SiteAuthority::open(&server.secrets()).unwrap();
        let authority = Certificate::from_pem(site.authority().as_bytes()).unwrap();
        let own = site.client(&Caller::from(role)).unwrap();
        let pem = format!("{}{}", own.certificate, own.key.expose());
        let http = reqwest::Client::builder().tls_certs_only([authority]);
        let http = http.identity(Identity::from_pem(pem.as_bytes()).unwrap());
        Self { http: http.build().unwrap(), base: format!("https://{}", server.gateway) }
    }

    /// A client on a node, at the Unix socket `path`.
    pub fn at_socket(path: PathBuf) -> Self {
        let http = reqwest::Client::builder().unix_socket(path).build().unwrap();
        Self { http, base: "http://localhost".into() }
    }

    /// Makes a request. Returns the status and the body.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        assert_eq!(response.headers()["content-type"], "application/json");
        (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
    }
}

fn container(name: &str) -> Option<Value> {
    let rbd = json!({
        "monitors": ["10.0.0.1"], "pool": "p", "image": "i", "options": {"name": "n", "secret": "hunter2"},
    });
    let attach = json!({"fs_type": "xfs", "attach": {"kind": "rbd", "rbd": rbd}});
    Some(json!({"name": name, "command": "/init", "mount": {"kind": "attach", "attach": attach}}))
}

#[tokio::test]
async fn a_client_of_the_image_api_reaches_a_node_by_header_or_path() {
    let mut site = Site::start(2, None).await;
    let api = ImageApi::new(&site.server, Role::Operator);
    let path = "/nodes/n01/imageapi/v1/container";
    let (status, created) = api.send(Method::POST, path, &[], container("a")).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    assert_eq!((&created["id"], &created["name"]), (&json!(1), &json!("a")));
    assert!(!created.to_string().contains("hunter2"), "{created}");
    let by_id = format!("/nodes/{}/imageapi/v1/container/", site.machines[1].id);
    for (path, headers) in
        [(by_id.as_str(), &[][..]), ("/imageapi/v1/container", &[("Tinwright-Node", "n01")][..])]
    {
        let (status, listed) = api.send(Method::GET, path, headers, None).await;
        assert_eq!((status, &listed[0]["name"]), (StatusCode::OK, &json!("a")), "{path}");
    }
    let header = [("Tinwright-Node", "n00")];
    let (_, others) = api.send(Method::GET, "/imageapi/v1/container", &header, None).await;
    assert_eq!(others, json!([]));
    for (path, code) in [
        ("/imageapi/v1/container", 400),
        ("/nodes/n09/imageapi/v1/container", 404),
        ("/nodes/n00/imageapi/v1/nothing", 404),
        ("/nodes/n00/other", 404),
    ] {
        let (status, error) = api.send(Method::GET, path, &[], None).await;
        assert_eq!((status.as_u16(), &error["code"]), (code, &json!(code)), "{path}: {error}");
    }
    let viewer = ImageApi::new(&site.server, Role::Viewer);
    let (status, error) = viewer.send(Method::GET, path, &[], None).await;
    assert_eq!((status, &error["code"]), (StatusCode::FORBIDDEN, &json!(403)));
    // Without the stream.
    site.agents[1] = None;
    let is_away = async || site.nodes().await.iter().any(|node| node["connected"].is_null());
    until(is_away, "the stream has ended").await;
    let (status, error) = api.send(Method::GET, path, &[], None).await;
    assert_eq!((status, &error["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!(503)));
    site.server.end().await;
}

#[tokio::test]
async fn a_request_that_is_repeated_with_its_key_is_carried_out_once() {
    let mut site = Site::start(1, None).await;
    let api = ImageApi::new(&site.server, Role::Operator);
    let path = "/imageapi/v1/container";
    let key = [("Idempotency-Key", "order-7")];
    let (_, first) = api.send(Method::POST, path, &key, container("a")).await;
    site.agents[0] = None;
    let agent = Agent::connect(&site.server, &site.machines[0], &site.applying).await;
    site.agents[0] = Some(agent);
    let (status, again) = api.send(Method::POST, path, &key, container("a")).await;
    assert_eq!((status, &again), (StatusCode::CREATED, &first));
    assert_eq!(site.machines[0].carried_out.load(Ordering::SeqCst), 1);
    let list = json!({"filter": {"noun": "node"}, "page_size": 1000});
    let events = site.admin.call("EventService/ListEvents", list).await.unwrap();
    let is_call = |event: &&Value| event["kind"] == "EVENT_KIND_CALL";
    let call = events["events"].as_array().unwrap().iter().find(is_call).unwrap();
    assert_eq!(call["text"], "container \"a\" was created by a call");
    assert_eq!(
        (&call["via"], &call["call"]),
        (&json!("service:gateway"), &json!("NodeService/CallNode"))
    );
    site.server.end().await;
}

//! The platform: its requests, with every key of its types, and what it makes of the answers.

use std::net::Ipv4Addr;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};
use reqwest::{Body, Certificate, Method};
use runtime::authority::SiteAuthority;
use serde_json::{Value, json};

use super::{decode, leaks};
use crate::access::calls::SOON;
use crate::support::RunningServer;

pub const HUB: &str = "66b1f0c2a9d34e5b7c081f2a";
/// The time between two requests, for the limit of 20 in a second.
const PACE: Duration = Duration::from_millis(52);

/// A call of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Verify,
    Locations,
    Models,
    Configure,
    Provision,
    Status,
    Restart,
    Decommission,
    Allocate,
    Release,
}

impl Call {
    pub const ALL: [Self; 10] = [
        Self::Verify,
        Self::Locations,
        Self::Models,
        Self::Configure,
        Self::Provision,
        Self::Status,
        Self::Restart,
        Self::Decommission,
        Self::Allocate,
        Self::Release,
    ];

    /// Those that need credentials and a document.
    pub const WITH_REQUEST: [Self; 7] = [
        Self::Configure,
        Self::Provision,
        Self::Status,
        Self::Restart,
        Self::Decommission,
        Self::Allocate,
        Self::Release,
    ];

    pub fn path(self) -> &'static str {
        match self {
            Self::Verify => "/v1/auth/verify",
            Self::Locations => "/v1/infrastructure/provider/locations",
            Self::Models => "/v1/infrastructure/provider/server-models",
            Self::Configure => "/v1/location/configure",
            Self::Provision => "/v1/infrastructure/server/provision",
            Self::Status => "/v1/infrastructure/server/provision-status",
            Self::Restart => "/v1/infrastructure/server/restart",
            Self::Decommission => "/v1/infrastructure/server/decommission",
            Self::Allocate => "/v1/infrastructure/ip/allocate",
            Self::Release => "/v1/infrastructure/ip/release",
        }
    }

    /// Returns the methods of the path, as the header names them.
    pub fn methods(self) -> &'static str {
        let has_get = matches!(self, Self::Locations | Self::Models | Self::Status);
        if has_get { "GET, POST" } else { "POST" }
    }
}

/// An answer, which could be decoded.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
    pub value: Value,
}

impl Answer {
    /// Returns the data of an answer without error.
    pub fn data(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.value["data"].clone()
    }

    /// Asserts that it is refused with this code, because of what the pointer names.
    pub fn refused(&self, code: &str, source: Option<&str>, what: &str) {
        let error = &self.value["error"];
        assert_eq!(error["code"], code, "{what}: {}", self.body);
        assert_eq!(self.status.to_string(), code[..3], "{what}: {}", self.body);
        assert_eq!(error["status"], self.status, "{what}");
        assert_eq!(self.value.get("data"), Some(&Value::Null), "{what}");
        if source.is_some() {
            assert_eq!(error["source"].as_str(), source, "{what}: {}", self.body);
        }
    }

    /// Asserts that the call may be repeated after some seconds.
    pub fn names_a_delay(&self) {
        let delay = self.headers.get("retry-after").unwrap_or_else(|| panic!("{}", self.body));
        assert!(delay.to_str().unwrap().parse::<u32>().unwrap() > 0);
    }
}

/// The platform with the credentials of one customer.
#[derive(Clone)]
pub struct Platform {
    http: reqwest::Client,
    base: String,
    pub auth: Value,
    pace: Duration,
}

impl Platform {
    /// A platform whose requests have the object `auth`.
    pub fn new(server: &RunningServer, auth: Value) -> Self {
        Self::from_address(server, auth, Ipv4Addr::LOCALHOST)
    }

    /// The same from another address.
    pub fn from_address(server: &RunningServer, auth: Value, address: Ipv4Addr) -> Self {
        let authority = SiteAuthority::open(&server.secrets()).unwrap().authority();
        let authority = Certificate::from_pem(authority.as_bytes()).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([authority]).timeout(SOON);
        let http = http.local_address(Some(address.into())).build().unwrap();
        Self { http, base: format!("https://{}", server.gateway), auth, pace: PACE }
    }

    /// The same at another gateway.
    pub fn at(&self, base: String) -> Self {
        Self { base, ..self.clone() }
    }

    /// The same with other credentials.
    pub fn with_auth(&self, auth: Value) -> Self {
        Self { auth, ..self.clone() }
    }

    /// The same with other credentials for one key of them.
    pub fn with(&self, key: &str, value: Value) -> Self {
        let mut auth = self.auth.clone();
        auth[key] = value;
        self.with_auth(auth)
    }

    /// The same for another hub.
    pub fn of_hub(&self, hub: &str) -> Self {
        self.with("cycle", json!({"hub_name": "Other", "hub_id": hub}))
    }

    /// The same without a time between two requests.
    pub fn hurried(&self) -> Self {
        Self { pace: Duration::ZERO, ..self.clone() }
    }

    pub fn wrapped(&self, request: &Value) -> String {
        json!({"auth": self.auth, "request": request}).to_string()
    }

    /// Makes a call as the platform does.
    pub async fn call(&self, call: Call, request: &Value) -> Answer {
        self.send(call, Method::POST, call.path(), self.wrapped(request)).await
    }

    /// Sends JSON.
    pub async fn send(&self, call: Call, method: Method, path: &str, body: String) -> Answer {
        self.send_as(call, method, path, Some("application/json"), Some(body.into())).await
    }

    /// Sends any body, or none. The answer is decoded as one to `call`, and has no value of a credential.
    pub async fn send_as(
        &self,
        call: Call,
        method: Method,
        path: &str,
        media_type: Option<&str>,
        body: Option<Body>,
    ) -> Answer {
        tokio::time::sleep(self.pace).await;
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(media_type) = media_type {
            request = request.header(CONTENT_TYPE, media_type);
        }
        if let Some(body) = body {
            // Without this header the client sends no body of unknown length with a GET.
            if body.as_bytes().is_none() {
                request = request.header(TRANSFER_ENCODING, "chunked");
            }
            request = request.body(body);
        }
        Self::read(call, request).await
    }

    /// Sends a request without body, with a key as its header.
    pub async fn get(&self, call: Call, path: &str, key: &str) -> Answer {
        let request = self.http.get(format!("{}{path}", self.base)).bearer_auth(key);
        Self::read(call, request).await
    }

    /// Returns the JSON at a path that is no call.
    pub async fn document(&self, path: &str) -> Value {
        let response = self.http.get(format!("{}{path}", self.base)).send().await.unwrap();
        serde_json::from_str(&response.text().await.unwrap()).unwrap()
    }

    async fn read(call: Call, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.text().await.unwrap();
        assert_eq!(headers.get(CONTENT_TYPE).unwrap(), "application/json", "{body}");
        decode::decode(call, status, &body);
        let is_refused = status != 200;
        let shown = leaks::VALUES.iter().filter(|value| is_refused && body.contains(**value));
        assert_eq!(shown.count(), 0, "{body}");
        let value = serde_json::from_str(&body).unwrap();
        Answer { status, headers, body, value }
    }
}

/// Returns the platform's id of its machine `n`.
pub fn platform_id(n: usize) -> String {
    format!("66b204d7a9d34e5b7c08{n:04x}")
}

fn server_meta(n: usize) -> Value {
    json!({"server_id": platform_id(n), "model_class": "m2", "model_category": "bare-metal",
        "model_id": "66b1f3f0a9d34e5b7c082044", "location_id": "66b1f3a1a9d34e5b7c08200c"})
}

fn ip_meta(n: usize) -> Value {
    json!({"pool_id": null, "server_id": platform_id(n), "server_model_class": "m2",
        "server_model_category": "bare-metal", "location_id": "66b1f3a1a9d34e5b7c08200c"})
}

pub fn configure(location: &str) -> Value {
    json!({"location_id": location, "version": "", "configuration_current": null,
        "cycle": {"location_id": "66b1f3a1a9d34e5b7c08200c"}})
}

pub fn provision(n: usize, location: &str) -> Value {
    json!({"hostname": format!("edge-{n}.fleet-a.example.net"), "model_id": "m2", "location_id": location, "zone_id": null,
        "model_features": {"raid": "raid1", "hypervisor": true}, "provision_options": {"encrypt_storage": false},
        "location_configuration": null, "cycle": server_meta(n)})
}

pub fn status(n: usize, server: &str, location: &str) -> Value {
    json!({"server_id": server, "location_id": location, "zone_id": null,
        "model_features": {"raid": "raid1", "hypervisor": true}, "provision_options": {"encrypt_storage": false},
        "location_configuration": null, "extra": {}, "cycle": server_meta(n)})
}

/// A restart or a decommission.
pub fn change(n: usize, server: &str, location: &str) -> Value {
    json!({"server_id": server, "hostname": format!("edge-{n}.fleet-a.example.net"), "model_id": "m2", "location_id": location,
        "zone_id": null, "extra": null, "cycle": server_meta(n)})
}

pub fn allocate(n: usize, server: &str, location: &str) -> Value {
    json!({"kind": "ipv4", "server_id": server, "location_id": location, "zone_id": null, "location_configuration": null,
        "cycle": ip_meta(n)})
}

/// A release of what was allocated.
pub fn release(n: usize, server: &str, location: &str, allocated: &Value) -> Value {
    json!({"kind": "ipv4", "ip_id": allocated["ip_id"], "ip_assignment_id": allocated["ip_assignment_id"],
        "cidr": allocated["cidr"], "nat_private_ip": null, "zone_id": null, "server_id": server, "location_id": location,
        "location_configuration": null, "cycle": ip_meta(n)})
}

/// Returns a good request for each call that has one.
pub fn golden(call: Call, n: usize, server: &str, location: &str) -> Value {
    match call {
        Call::Verify | Call::Locations | Call::Models => Value::Null,
        Call::Configure => configure(location),
        Call::Provision => provision(n, location),
        Call::Status => status(n, server, location),
        Call::Restart | Call::Decommission => change(n, server, location),
        Call::Allocate => allocate(n, server, location),
        Call::Release => {
            let id = "01890a5d-ac96-774b-bcce-b302099a8057";
            let cidr = "198.51.100.52/32";
            let allocated = json!({"ip_id": format!("ip-{id}"), "ip_assignment_id": format!("ipa-{id}"), "cidr": cidr});
            release(n, server, location, &allocated)
        }
    }
}

//! The documents of the answers, and the envelope around them. Numbers are integers, except for a position on the Earth.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::Value;

use super::fault::{ErrorObject, Fault};

/// The envelope of every answer.
#[derive(Debug, Serialize)]
struct Envelope<'a, T> {
    data: Option<&'a T>,
    error: Option<ErrorObject<'a>>,
}

/// `auth/verify`
#[derive(Debug, Serialize)]
pub struct Verified {
    /// True if the credentials are good.
    pub valid: bool,
}

/// `location/configure`
#[derive(Debug, Serialize)]
pub struct Configured {
    /// True if machines can be provisioned.
    pub configured: bool,
    /// The version in force.
    pub version: Option<String>,
    /// The configuration in force.
    pub configuration_latest: Option<Value>,
}

/// `server/provision`
#[derive(Debug, Serialize)]
pub struct Provisioned {
    /// Our id of the machine.
    pub server_id: String,
    /// True if the platform has to configure the location again.
    pub location_modified: bool,
    /// Values that come back with the next calls.
    pub extra: Value,
}

/// `server/provision-status`
#[derive(Debug, PartialEq, Serialize)]
pub struct ProvisionStatus {
    /// Our id of the machine.
    pub server_id: String,
    /// True once the machine may boot.
    pub provisioned: bool,
    /// The identity that the machine presents when it boots.
    pub auth: Identity,
    /// Values that come back with the next calls.
    pub extra: Value,
}

/// The identity of a machine.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// SMBIOS UUID.
    pub uuid: Option<String>,
    /// Source addresses.
    pub initial_ips: Vec<String>,
    /// MAC of the interface it boots from.
    pub mac_addr: Option<String>,
}

/// `ip/allocate`
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Allocated {
    /// Our id of the address.
    pub ip_id: String,
    /// Our id of its binding to the machine.
    pub ip_assignment_id: String,
    /// The granted block.
    pub cidr: String,
    /// The gateway.
    pub gateway: Option<IpAddr>,
    /// The network of the gateway.
    pub network: Option<String>,
    /// The mask of the network; of IPv6, its prefix length.
    pub netmask: String,
    /// None: there is no NAT.
    pub nat_private_ip: Option<IpAddr>,
}

/// `provider/locations`
#[derive(Debug, Serialize)]
pub struct Locations {
    /// In the order of their ids.
    pub locations: Vec<Location>,
    /// The snapshot that it is made from.
    pub extra: Value,
}

/// A location.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Location {
    /// For people.
    pub name: String,
    /// The position; none if it is not known.
    pub geographic: Option<Geographic>,
    /// Its ids.
    pub provider: LocationProvider,
    /// Its features.
    pub features: LocationFeatures,
    /// A very short name.
    pub abbreviation: String,
    /// Notes for people.
    pub annotations: BTreeMap<String, String>,
    /// True if machines can be provisioned there.
    pub compatible: bool,
}

/// The position of a location.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Geographic {
    /// Decimal degrees.
    pub latitude: f64,
    /// Decimal degrees.
    pub longitude: f64,
    /// May be empty.
    pub city: String,
    /// May be empty.
    pub state: String,
    /// Two letters.
    pub country: String,
    /// A group of locations.
    pub region: String,
}

/// Our ids of a location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocationProvider {
    /// Our id.
    pub location_id: String,
    /// A short code.
    pub code: String,
    /// The zones.
    pub availability_zones: Vec<String>,
}

/// The features of a location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocationFeatures {
    /// The features that the location has.
    pub available: Vec<String>,
    /// The features that this door supports.
    pub supported: Vec<String>,
}

/// `provider/server-models`
#[derive(Debug, Serialize)]
pub struct Models {
    /// In the order of their ids.
    pub models: Vec<Model>,
    /// The snapshot that it is made from.
    pub extra: Value,
}

/// A model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// For people.
    pub name: String,
    /// Bundles of drivers; none if nothing special is needed.
    pub drivers: Option<Vec<String>>,
    /// For people.
    pub description: String,
    /// The parts.
    pub specs: Specs,
    /// Our ids, and where it is offered.
    pub provider: ModelProvider,
    /// Prices in mils.
    pub pricing: Pricing,
    /// True if a machine of it can run the platform's system.
    pub compatible: bool,
}

/// The parts of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Specs {
    /// Processors.
    pub cpu: Cpu,
    /// Null: the inventory says nothing of graphics processors.
    pub gpu: (),
    /// Memory.
    pub memory: Memory,
    /// Disks by kind.
    pub storage: Vec<Storage>,
    /// Interfaces.
    pub network: Vec<Network>,
    /// Features.
    pub features: ModelFeatures,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Sockets.
    pub count: u32,
    /// Cores of one socket.
    pub cores: Option<u32>,
    /// Threads of one core.
    pub threads: Option<u32>,
    /// Name of the processor.
    pub r#type: String,
    /// Never: whole machines are given.
    pub shared: Option<bool>,
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// GiB.
    pub size_gb: u64,
    /// Kind, such as ddr5; may be empty.
    pub r#type: String,
}

/// Disks of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Storage {
    /// Number.
    pub count: u32,
    /// GB of each.
    pub size_gb: u64,
    /// `nvme`, `ssd` or `hdd`.
    pub r#type: &'static str,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Network {
    /// `public` or `private`.
    pub scope: &'static str,
    /// `ethernet`
    pub r#type: &'static str,
    /// Such as `10Gbps`.
    pub throughput: String,
}

/// Features of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelFeatures {
    /// The arrangement of disks.
    pub raid: Option<String>,
    /// Virtual machines.
    pub hypervisor: Option<bool>,
    /// Further ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
}

/// Our ids of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelProvider {
    /// A broad group.
    pub category: String,
    /// A finer group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// Our id.
    pub model_id: String,
    /// Our ids of the locations where it is offered.
    pub locations: Vec<String>,
    /// The zones by location.
    pub availability_zones: BTreeMap<String, Vec<String>>,
}

/// Prices in mils: 1000 are a US dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pricing {
    /// For an hour.
    pub hourly: u64,
    /// For a month.
    pub monthly: u64,
}

/// Returns the text of an answer with `data`.
pub fn text<T: Serialize>(data: &T) -> String {
    encode(&Envelope { data: Some(data), error: None })
}

fn encode<T: Serialize>(envelope: &Envelope<'_, T>) -> String {
    // Maps have text keys only, and floats are finite, so nothing can fail; the platform gets an envelope in any case.
    serde_json::to_string(envelope).unwrap_or_else(|_| {
        r#"{"data":null,"error":{"status":500,"code":"500.unknown","title":"unexpected"}}"#.into()
    })
}

/// Returns the answer with `data`.
pub fn success<T: Serialize>(data: &T) -> Response {
    respond(StatusCode::OK, Body::from(text(data)))
}

/// Returns an answer with a body that is an envelope.
pub fn respond(status: StatusCode, body: Body) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let text = encode::<()>(&Envelope { data: None, error: Some(self.object()) });
        let status = StatusCode::from_u16(self.code.status());
        let mut response =
            respond(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Body::from(text));
        let headers = response.headers_mut();
        if let Some(delay) = self.retry_after {
            let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

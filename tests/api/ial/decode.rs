//! Answers, read into the platform's types: a key too many or too few is wrong, so is a null where the type has no pointer, and a fraction or
//! a sign where it is an unsigned integer.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde_json::{Map, Value};

use super::platform::Call;

type Extra = Map<String, Value>;
type Notes = BTreeMap<String, String>;

/// Reads a key that must be there, and may be null.
fn pointer<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(from)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "T: Deserialize<'de>")]
struct Envelope<T> {
    #[serde(deserialize_with = "pointer")]
    data: Option<T>,
    #[serde(deserialize_with = "pointer")]
    error: Option<ErrorObject>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorObject {
    status: u16,
    code: String,
    title: String,
    #[serde(default)]
    detail: String,
    source: Option<String>,
    #[serde(default)]
    extra: Extra,
}

/// The literal true.
struct True;

impl<'de> Deserialize<'de> for True {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if bool::deserialize(from)? { Ok(Self) } else { Err(D::Error::custom("false")) }
    }
}

/// An identifier of ours.
struct OurId;

impl<'de> Deserialize<'de> for OurId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let id = String::deserialize(from)?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        let is_id = (1..=128).contains(&id.len()) && id.bytes().all(allowed);
        if is_id { Ok(Self) } else { Err(D::Error::custom(format!("{id:?} is not an id"))) }
    }
}

/// An address with prefix length.
struct Cidr;

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let parsed = text.split_once('/').and_then(|(address, bits)| {
            let address: IpAddr = address.parse().ok()?;
            let bits: u8 = bits.parse().ok()?;
            (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some(Self)
        });
        parsed.ok_or_else(|| {
            D::Error::custom(format!("{text:?} is not an address with prefix length"))
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verified {
    valid: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Locations {
    locations: Vec<Location>,
    #[serde(deserialize_with = "pointer")]
    extra: Option<Extra>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Location {
    name: String,
    #[serde(deserialize_with = "pointer")]
    geographic: Option<Geographic>,
    provider: LocationProvider,
    features: LocationFeatures,
    abbreviation: String,
    #[serde(deserialize_with = "pointer")]
    annotations: Option<Notes>,
    #[serde(deserialize_with = "pointer")]
    compatible: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Geographic {
    latitude: f64,
    longitude: f64,
    city: String,
    state: String,
    country: String,
    region: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LocationProvider {
    location_id: OurId,
    code: String,
    #[serde(deserialize_with = "pointer")]
    availability_zones: Option<Vec<OurId>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LocationFeatures {
    #[serde(deserialize_with = "pointer")]
    available: Option<Vec<String>>,
    #[serde(deserialize_with = "pointer")]
    supported: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Models {
    models: Vec<Model>,
    #[serde(deserialize_with = "pointer")]
    extra: Option<Extra>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    name: String,
    #[serde(deserialize_with = "pointer")]
    drivers: Option<Vec<String>>,
    description: String,
    specs: Specs,
    provider: ModelProvider,
    pricing: Pricing,
    #[serde(deserialize_with = "pointer")]
    compatible: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelProvider {
    category: String,
    class: Option<String>,
    model_id: OurId,
    #[serde(deserialize_with = "pointer")]
    locations: Option<Vec<OurId>>,
    #[serde(deserialize_with = "pointer")]
    availability_zones: Option<BTreeMap<String, Option<Vec<OurId>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pricing {
    hourly: u64,
    monthly: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Specs {
    cpu: Cpu,
    #[serde(deserialize_with = "pointer")]
    gpu: Option<Gpu>,
    memory: Memory,
    #[serde(deserialize_with = "pointer")]
    storage: Option<Vec<Storage>>,
    #[serde(deserialize_with = "pointer")]
    network: Option<Vec<Network>>,
    features: ModelFeatures,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cpu {
    count: u64,
    #[serde(deserialize_with = "pointer")]
    cores: Option<u64>,
    #[serde(deserialize_with = "pointer")]
    threads: Option<u64>,
    r#type: String,
    #[serde(deserialize_with = "pointer")]
    shared: Option<bool>,
    #[serde(default)]
    extra: Notes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Gpu {
    count: u64,
    #[serde(deserialize_with = "pointer")]
    cores: Option<u64>,
    #[serde(deserialize_with = "pointer")]
    vram_gb: Option<u64>,
    r#type: String,
    #[serde(deserialize_with = "pointer")]
    shared: Option<bool>,
    #[serde(default)]
    extra: Notes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    size_gb: u64,
    r#type: String,
    #[serde(default)]
    extra: Notes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Storage {
    count: u64,
    size_gb: u64,
    r#type: String,
    #[serde(default)]
    extra: Notes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Network {
    scope: String,
    r#type: String,
    throughput: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFeatures {
    #[serde(deserialize_with = "pointer")]
    raid: Option<String>,
    #[serde(deserialize_with = "pointer")]
    hypervisor: Option<bool>,
    extra: Option<Extra>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configured {
    configured: bool,
    #[serde(deserialize_with = "pointer")]
    version: Option<String>,
    #[serde(deserialize_with = "pointer")]
    configuration_latest: Option<Extra>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Provisioned {
    server_id: OurId,
    location_modified: bool,
    #[serde(deserialize_with = "pointer")]
    extra: Option<Extra>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    server_id: OurId,
    provisioned: bool,
    auth: Identity,
    #[serde(deserialize_with = "pointer")]
    extra: Option<Extra>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    #[serde(deserialize_with = "pointer")]
    uuid: Option<String>,
    initial_ips: Vec<IpAddr>,
    #[serde(deserialize_with = "pointer")]
    mac_addr: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allocated {
    ip_id: OurId,
    ip_assignment_id: OurId,
    cidr: Cidr,
    #[serde(deserialize_with = "pointer")]
    gateway: Option<IpAddr>,
    #[serde(deserialize_with = "pointer")]
    network: Option<Cidr>,
    netmask: String,
    #[serde(deserialize_with = "pointer")]
    nat_private_ip: Option<IpAddr>,
}

/// Reads the body of an answer to `call`, which had this HTTP status.
pub fn decode(call: Call, status: u16, body: &str) {
    match call {
        Call::Verify => envelope::<Verified>(status, body),
        Call::Locations => envelope::<Locations>(status, body),
        Call::Models => envelope::<Models>(status, body),
        Call::Configure => envelope::<Configured>(status, body),
        Call::Provision => envelope::<Provisioned>(status, body),
        Call::Status => envelope::<Status>(status, body),
        Call::Allocate => envelope::<Allocated>(status, body),
        Call::Restart | Call::Decommission | Call::Release => envelope::<True>(status, body),
    }
}

fn envelope<T: DeserializeOwned>(status: u16, body: &str) {
    let read: Result<Envelope<T>, _> = serde_json::from_str(body);
    let Envelope { data, error } = read.unwrap_or_else(|error| panic!("{error}: {body}"));
    assert_eq!((data.is_some(), error.is_none()), (status == 200, status == 200), "{body}");
    let Some(error) = error else { return };
    assert_eq!(error.status, status, "{body}");
    assert!(error.code.starts_with(&format!("{status}.")) && !error.title.is_empty(), "{body}");
    assert!(error.source.is_none_or(|source| source.starts_with('/')), "{body}");
}

#[test]
fn other_types_than_the_platforms_are_wrong() {
    let models = r#"{"data":{"models":[{"name":"M2","drivers":null,"description":"","specs":{"cpu":{"count":1,"cores":16,"threads":2,
        "type":"EPYC","shared":false},"gpu":null,"memory":{"size_gb":128,"type":"ddr5"},"storage":[{"count":2,"size_gb":960,"type":"nvme"}],
        "network":[],"features":{"raid":null,"hypervisor":true}},"provider":{"category":"bare-metal","model_id":"m2","locations":["kir1"],
        "availability_zones":{"kir1":["a"]}},"pricing":{"hourly":410,"monthly":0},"compatible":true}],"extra":{}},"error":null}"#;
    let status = r#"{"data":{"server_id":"s","provisioned":true,"auth":{"uuid":null,"initial_ips":["198.51.100.37"],"mac_addr":null},
        "extra":null},"error":null}"#;
    let refused =
        r#"{"data":null,"error":{"status":403,"code":"403.invalid-state","title":"gone"}}"#;
    let is_wrong = |call, number, body: String| {
        std::panic::catch_unwind(|| decode(call, number, &body)).is_err()
    };
    for (call, number, body, part, instead) in [
        (Call::Models, 200, models, "960", "960.0"),
        (Call::Models, 200, models, "960", "-960"),
        (Call::Models, 200, models, "410", "\"410\""),
        (Call::Models, 200, models, r#""gpu":null,"#, ""),
        (Call::Models, 200, models, r#""description":"""#, r#""description":null"#),
        (Call::Models, 200, models, r#""model_id":"m2""#, r#""model_id":"m 2""#),
        (Call::Status, 200, status, r#""extra":null"#, r#""extra":null,"more":1"#),
        (Call::Status, 200, status, r#""uuid":null,"#, ""),
        (Call::Status, 200, status, r#"["198.51.100.37"]"#, "null"),
        (Call::Status, 200, status, r#"198.51.100.37"#, "198.51.100.37/32"),
        (Call::Status, 200, status, r#","error":null"#, ""),
        (Call::Status, 403, refused, r#""data":null"#, r#""data":{}"#),
        (Call::Status, 403, refused, "403.invalid-state", "404.uri"),
        (Call::Status, 403, refused, r#""title":"gone""#, r#""title":"gone","meta":1"#),
        (Call::Restart, 200, r#"{"data":true,"error":null}"#, "true", "false"),
    ] {
        assert!(!is_wrong(call, number, body.to_owned()), "{body}");
        let changed = body.replacen(part, instead, 1);
        assert!(changed != body && is_wrong(call, number, changed), "{part}: {instead}");
    }
}

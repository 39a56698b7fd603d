//! The services behind the gateway: each answers its calls with one object, by a name or an id.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use http_body_util::{BodyExt as _, Full};
use prost::Message;
use runtime::Channel;
use runtime::{Caller, LocalServices, Role};
use tinwright::address::v1 as addr;
use tinwright::hardware::v1 as hw;
use tinwright::identity::v1 as id;
use tinwright::instance::v1 as inst;
use tinwright::power;
use tonic::Status;

use super::corpus::{BUILDING, GRANT, HUB, KEY, ORDERED, SERVER};

/// The location, and the model.
const LOCATION: &str = "kir1";
const MODEL: &str = "m2.16c128";
const ZONES: [&str; 2] = ["kir1-a", "kir1-b"];

/// Starts the services. Returns the channel to them.
pub(super) fn start() -> anyhow::Result<Channel> {
    let door = Caller::new(Role::Door, "service:gateway")?;
    Ok(LocalServices::of(Router::new().fallback(answer)).channel(door))
}

async fn answer(request: Request) -> Response {
    let call = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    // The message is behind a head of five octets.
    let message = body.ok().filter(|body| body.len() >= 5).map(|body| body.slice(5..));
    let message = message.ok_or_else(|| Status::internal("no message"));
    match message.and_then(|message| reply(&call, message)) {
        Ok(message) => framed(&message),
        Err(refused) => refused.into_http(),
    }
}

/// Returns the response with a message.
fn framed(message: &[u8]) -> Response {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let frame = [&[0], &length.to_be_bytes()[..], message].concat();
    let end = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    let trailers = async move { Some(Ok(HeaderMap::from_iter([end]))) };
    let mut response = Response::new(Body::new(Full::<Bytes>::from(frame).with_trailers(trailers)));
    let media_type = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

fn decode<T: Message + Default>(message: Bytes) -> Result<T, Status> {
    T::decode(message).map_err(|error| Status::internal(error.to_string()))
}

/// Returns the response to a call.
fn reply(call: &str, message: Bytes) -> Result<Vec<u8>, Status> {
    match call {
        "Authenticate" => authenticate(&decode(message)?),
        "GetLocation" | "ListLocations" | "GetModel" | "ListModels" | "ListModelOffers" => {
            catalogue(call, message)
        }
        "GetLocationBinding" | "CreateGrant" | "GetGrant" | "ListGrants" | "AttachGrant"
        | "ConfirmGrant" | "ReleaseGrant" => addresses(call, message),
        "GetInstance" | "ListInstances" | "CreateInstance" | "RestartInstance"
        | "DeleteInstance" | "ListPowerJobs" => instances(call, message),
        other => Err(Status::unimplemented(other)),
    }
}

fn authenticate(request: &id::AuthenticateRequest) -> Result<Vec<u8>, Status> {
    if request.fields.get("api_key").map(String::as_str) != Some(KEY) {
        return Err(Status::unauthenticated("no such credential"));
    }
    let caller = "tinwright:operator?subject=credential:c1&tenant=acme".into();
    let credential = Some(id::Credential::default());
    Ok(id::AuthenticateResponse { caller, credential }.encode_to_vec())
}

fn catalogue(call: &str, message: Bytes) -> Result<Vec<u8>, Status> {
    match call {
        "GetLocation" => {
            let wanted: hw::GetLocationRequest = decode(message)?;
            let is_it = wanted.by == Some(hw::get_location_request::By::Name(LOCATION.into()));
            let location = is_it.then(location).ok_or_else(|| Status::not_found("location"))?;
            Ok(hw::GetLocationResponse { location: Some(location) }.encode_to_vec())
        }
        "GetModel" => {
            let wanted: hw::GetModelRequest = decode(message)?;
            let is_it = wanted.by == Some(hw::get_model_request::By::Name(MODEL.into()));
            let model = is_it.then(model).ok_or_else(|| Status::not_found("model"))?;
            Ok(hw::GetModelResponse { model: Some(model) }.encode_to_vec())
        }
        "ListLocations" => {
            let locations = vec![location()];
            Ok(hw::ListLocationsResponse { locations, ..Default::default() }.encode_to_vec())
        }
        "ListModels" => {
            let models = vec![model()];
            Ok(hw::ListModelsResponse { models, ..Default::default() }.encode_to_vec())
        }
        _ => Ok(hw::ListModelOffersResponse { offers: vec![offer()] }.encode_to_vec()),
    }
}

fn location() -> hw::Location {
    let zone = |name: &str| hw::Zone { name: name.into(), ..hw::Zone::default() };
    hw::Location {
        id: "l".into(),
        name: LOCATION.into(),
        zones: ZONES.map(zone).into(),
        boot_url: "http://192.0.2.1/boot.ipxe".into(),
        ..hw::Location::default()
    }
}

fn model() -> hw::Model {
    let constraints = hw::ModelConstraints { architecture: "x86_64".into(), ..Default::default() };
    let notes = [("ial/raid", "raid1"), ("ial/hypervisor", "true")];
    hw::Model {
        id: "m".into(),
        name: MODEL.into(),
        constraints: Some(constraints),
        annotations: notes.map(|(key, text)| (key.into(), text.into())).into(),
        ..hw::Model::default()
    }
}

fn offer() -> hw::ModelOffer {
    let disk = hw::DiskGroup { count: 2, size_bytes: 960_197_124_096, ..hw::DiskGroup::default() };
    hw::ModelOffer {
        model_id: "m".into(),
        model_name: MODEL.into(),
        location_id: "l".into(),
        location_name: LOCATION.into(),
        zones: ZONES.map(str::to_owned).into(),
        available: true,
        machines: 1,
        free: 1,
        parts: Some(hw::MachineParts { disks: vec![disk], ..hw::MachineParts::default() }),
    }
}

fn addresses(call: &str, message: Bytes) -> Result<Vec<u8>, Status> {
    match call {
        "GetLocationBinding" => {
            let binding = addr::LocationBinding {
                id: "b".into(),
                version: 3,
                configuration: r#"{"vlan": 214}"#.into(),
                ..addr::LocationBinding::default()
            };
            Ok(addr::GetLocationBindingResponse { location_binding: Some(binding) }.encode_to_vec())
        }
        "CreateGrant" => {
            let wanted = decode::<addr::CreateGrantRequest>(message)?.grant.unwrap_or_default();
            let mut grant = addr::Grant { labels: wanted.labels, ..grant() };
            if wanted.family == addr::AddressFamily::Ipv6 as i32 {
                [grant.block, grant.network] = ["2001:db8:1::/64", "2001:db8::/56"].map(Into::into);
                grant.gateway.clear();
            }
            let grant = Some(grant);
            Ok(addr::CreateGrantResponse { grant }.encode_to_vec())
        }
        "GetGrant" => {
            let wanted: addr::GetGrantRequest = decode(message)?;
            let is_it = wanted.by == Some(addr::get_grant_request::By::Id(GRANT.into()));
            let grant = is_it.then(grant).ok_or_else(|| Status::not_found("grant"))?;
            Ok(addr::GetGrantResponse { grant: Some(grant) }.encode_to_vec())
        }
        "ListGrants" => {
            // That of the machine which may boot has an address left.
            let wanted: addr::ListGrantsRequest = decode(message)?;
            let is_of = wanted.labels.get("ial/instance").is_some_and(|id| id == SERVER);
            let grants = is_of.then(grant).into_iter().collect();
            Ok(addr::ListGrantsResponse { grants, ..Default::default() }.encode_to_vec())
        }
        "AttachGrant" => Ok(addr::AttachGrantResponse { grant: Some(grant()) }.encode_to_vec()),
        "ConfirmGrant" => Ok(addr::ConfirmGrantResponse { grant: Some(grant()) }.encode_to_vec()),
        _ => {
            let wanted: addr::ReleaseGrantRequest = decode(message)?;
            let is_it = wanted.id == GRANT;
            let released = is_it.then(|| addr::ReleaseGrantResponse {}.encode_to_vec());
            released.ok_or_else(|| Status::not_found("grant"))
        }
    }
}

fn grant() -> addr::Grant {
    let labels = [("ial/instance", SERVER), ("ial/location_id", LOCATION), ("ial/hub", HUB)];
    addr::Grant {
        id: GRANT.into(),
        tenant: "acme".into(),
        labels: labels.map(|(key, text)| (key.into(), text.into())).into(),
        block: "198.51.100.52/32".into(),
        network: "198.51.100.32/27".into(),
        gateway: "198.51.100.33".into(),
        state: addr::GrantState::Active.into(),
        confirm_time: Some(prost_types::Timestamp::default()),
        ..addr::Grant::default()
    }
}

fn instances(call: &str, message: Bytes) -> Result<Vec<u8>, Status> {
    match call {
        "GetInstance" => {
            let found = find(decode(message)?).ok_or_else(|| Status::not_found("instance"))?;
            Ok(inst::GetInstanceResponse { instance: Some(found) }.encode_to_vec())
        }
        "ListInstances" => {
            let instances = vec![instance(SERVER), instance(BUILDING)];
            Ok(inst::ListInstancesResponse { instances, ..Default::default() }.encode_to_vec())
        }
        "CreateInstance" => {
            let wanted = decode::<inst::CreateInstanceRequest>(message)?.instance;
            let instance = wanted.map(|wanted| inst::Instance { id: "srv-new".into(), ..wanted });
            Ok(inst::CreateInstanceResponse { instance, ..Default::default() }.encode_to_vec())
        }
        "RestartInstance" => Ok(inst::RestartInstanceResponse::default().encode_to_vec()),
        "DeleteInstance" => Ok(inst::DeleteInstanceResponse::default().encode_to_vec()),
        _ => Ok(power::v1::ListPowerJobsResponse::default().encode_to_vec()),
    }
}

fn find(request: inst::GetInstanceRequest) -> Option<inst::Instance> {
    match request.by? {
        inst::get_instance_request::By::Id(id) => {
            [SERVER, BUILDING].contains(&id.as_str()).then(|| instance(&id))
        }
        inst::get_instance_request::By::ExternalId(id) => {
            (id.external_id == format!("ial/{ORDERED}")).then(|| instance(SERVER))
        }
        inst::get_instance_request::By::HardwareId(_)
        | inst::get_instance_request::By::Address(_) => None,
    }
}

/// Returns a machine, with a host name of its own.
fn instance(id: &str) -> inst::Instance {
    let notes = [("ial/location_id", LOCATION), ("ial/model_id", MODEL), ("ial/zone_id", "kir1-b")];
    let gate = inst::BootGate {
        open: true,
        uuid: "4c4c4544-0051-3610-8052-b4c04f4d3532".into(),
        mac: "b4:96:91:0a:7e:21".into(),
        initial_ips: vec!["198.51.100.37".into()],
        open_time: Some(prost_types::Timestamp::default()),
    };
    inst::Instance {
        id: id.into(),
        tenant: "acme".into(),
        hostname: format!("{id}.example.net"),
        state: inst::State::Provisioning.into(),
        labels: [("ial/hub".into(), HUB.into())].into(),
        annotations: notes.map(|(key, text)| (key.into(), text.into())).into(),
        boot_gate: (id == SERVER).then_some(gate),
        ..inst::Instance::default()
    }
}

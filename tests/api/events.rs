//! Events: what callers change, and what they are refused, through the server's listener.

use runtime::forwarding::ForwardCaller;
use runtime::{Caller, Channel, Role};
use tinwright::event::v1 as pb;
use tinwright::event::v1::event_service_client::EventServiceClient;
use tinwright::event::v1::owner_event_service_client::OwnerEventServiceClient;
use tinwright::event::v1::watch_events_response::Event as SiteEvent;
use tinwright::event::v1::watch_owner_events_response::Event as WatchEvent;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::{
    CreateHardwareRequest, Hardware, Interface, SetHardwareStateRequest, State,
    UpdateHardwareRequest,
};
use tinwright::identity::v1::tenant_service_client::TenantServiceClient;
use tinwright::identity::v1::{CreateTenantRequest, Tenant};
use tonic::Code;
use tonic::service::interceptor::InterceptedService;

fn create(name: &str) -> CreateHardwareRequest {
    let mac = format!("02:00:00:00:00:{:02x}", name.bytes().last().unwrap_or_default());
    let interfaces = vec![Interface { mac, ..Interface::default() }];
    let hardware = Hardware { name: name.into(), interfaces, ..Hardware::default() };
    CreateHardwareRequest { hardware: Some(hardware), request_id: String::new() }
}

async fn events(client: &mut OwnerEventServiceClient<Channel>) -> Vec<pb::Event> {
    let request = pb::ListOwnerEventsRequest { owner: "hardware".into(), ..Default::default() };
    client.list_owner_events(request).await.unwrap().into_inner().events
}

fn line(event: &pb::Event) -> String {
    let pb::Event { call, subject, old_state, new_state, text, .. } = event;
    format!("{call} {subject} {old_state}>{new_state} {text}")
}

#[tokio::test]
async fn an_event_names_the_caller_the_call_and_the_change() {
    let server = crate::support::start().await;
    let mut operator = server.hardware(Role::Operator).await;
    let made = operator.create_hardware(create("n1")).await.unwrap().into_inner();
    let made = made.hardware.unwrap();
    let update = Hardware { manufacturer: "Acme".into(), ..made.clone() };
    let update = UpdateHardwareRequest { hardware: Some(update), update_mask: None, force: false };
    operator.update_hardware(update).await.unwrap();
    let id = made.id.clone();
    let to = State::Maintenance.into();
    let maintenance = SetHardwareStateRequest {
        id: id.clone(),
        state: to,
        reason: "new disk".into(),
        revision: 0,
    };
    operator.set_hardware_state(maintenance).await.unwrap();
    let mut log = OwnerEventServiceClient::new(server.channel(Some(Role::Admin)).await);
    let found = events(&mut log).await;
    assert!(found.iter().all(|event| event.object_id == id && event.role == "operator"));
    assert!(found.iter().all(|event| event.object_name == "n1"));
    let expected = [
        "HardwareService/CreateHardware person:operator >enrolled created",
        "HardwareService/UpdateHardware person:operator enrolled>enrolled changed manufacturer",
        "HardwareService/SetHardwareState person:operator enrolled>maintenance new disk",
    ];
    assert_eq!(found.iter().map(line).collect::<Vec<_>>(), expected);
    server.end().await;
}

#[tokio::test]
async fn a_refused_call_and_new_events_reach_a_watcher() {
    let server = crate::support::start().await;
    let mut log = OwnerEventServiceClient::new(server.channel(Some(Role::Admin)).await);
    let request = pb::WatchOwnerEventsRequest { owner: "hardware".into(), filter: None };
    let mut watch = log.watch_owner_events(request).await.unwrap().into_inner();
    let synced = watch.message().await.unwrap().unwrap().event.unwrap();
    assert!(matches!(synced, WatchEvent::Synced(_)), "{synced:?}");
    let mut viewer = server.hardware(Role::Viewer).await;
    let refused = viewer.create_hardware(create("n1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let Some(WatchEvent::Added(event)) = watch.message().await.unwrap().unwrap().event else {
        panic!("no event");
    };
    assert_eq!((event.kind(), event.subject.as_str()), (pb::EventKind::Refusal, "person:viewer"));
    assert_eq!(event.call, "HardwareService/CreateHardware");
    server.hardware(Role::Operator).await.create_hardware(create("n1")).await.unwrap();
    let Some(WatchEvent::Added(event)) = watch.message().await.unwrap().unwrap().event else {
        panic!("no event");
    };
    assert_eq!((event.kind(), event.new_state.as_str()), (pb::EventKind::Call, "enrolled"));
    drop(watch);
    server.end().await;
}

#[tokio::test]
async fn a_refused_call_of_a_doors_client_is_an_event_of_the_client_and_names_the_door() {
    let server = crate::support::start().await;
    let door = Caller::new(Role::Door, "service:gateway").unwrap();
    let channel = server.channel_of(Some(door)).await;
    let client: Caller = "tinwright:viewer?subject=credential:7&tenant=acme".parse().unwrap();
    let channel = InterceptedService::new(channel, ForwardCaller::new(&client));
    let mut hardware = HardwareServiceClient::new(channel);
    let refused = hardware.create_hardware(create("n1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut log = OwnerEventServiceClient::new(server.channel(Some(Role::Admin)).await);
    let mut found = Vec::new();
    let is_recorded = async || {
        found = events(&mut log).await;
        !found.is_empty()
    };
    crate::support::until(is_recorded, "the refusal is recorded").await;
    let pb::Event { subject, role, via, tenant, call, .. } = found.remove(0);
    assert_eq!((subject.as_str(), role.as_str()), ("credential:7", "viewer"));
    assert_eq!((via.as_str(), tenant.as_str()), ("service:gateway", "acme"));
    assert_eq!(call, "HardwareService/CreateHardware");
    server.end().await;
}

#[tokio::test]
async fn an_unknown_owner_is_not_found() {
    let server = crate::support::start().await;
    let mut log = OwnerEventServiceClient::new(server.channel(Some(Role::Admin)).await);
    let request = pb::ListOwnerEventsRequest { owner: "kitchen".into(), ..Default::default() };
    assert_eq!(log.list_owner_events(request).await.unwrap_err().code(), Code::NotFound);
    server.end().await;
}

#[tokio::test]
async fn a_viewer_gets_the_events_of_all_owners_in_the_order_of_time() {
    let server = crate::support::start().await;
    server.hardware(Role::Operator).await.create_hardware(create("n1")).await.unwrap();
    let mut tenants = TenantServiceClient::new(server.channel(Some(Role::Operator)).await);
    let tenant = Tenant { name: "acme".into(), ..Tenant::default() };
    let tenant = CreateTenantRequest { tenant: Some(tenant), request_id: String::new() };
    tenants.create_tenant(tenant).await.unwrap();
    server.hardware(Role::Operator).await.create_hardware(create("n2")).await.unwrap();
    let mut site = EventServiceClient::new(server.channel(Some(Role::Viewer)).await);
    let (mut token, mut nouns) = (String::new(), Vec::new());
    loop {
        let request = pb::ListEventsRequest { filter: None, page_size: 1, page_token: token };
        let page = site.list_events(request).await.unwrap().into_inner();
        nouns.extend(page.events.into_iter().map(|event| event.noun));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(nouns, ["hardware", "tenant", "hardware"]);
    server.end().await;
}

#[tokio::test]
async fn a_watch_sends_stored_events_then_synced_then_each_new_one_once() {
    let server = crate::support::start().await;
    let mut operator = server.hardware(Role::Operator).await;
    operator.create_hardware(create("n1")).await.unwrap();
    let mut site = EventServiceClient::new(server.channel(Some(Role::Viewer)).await);
    let start_time = Some(std::time::UNIX_EPOCH.into());
    let filter = Some(pb::EventFilter { start_time, ..pb::EventFilter::default() });
    let request = pb::WatchEventsRequest { filter };
    let mut watch = site.watch_events(request).await.unwrap().into_inner();
    let mut next = async || match watch.message().await.unwrap().unwrap().event.unwrap() {
        SiteEvent::Synced(_) => "synced".to_owned(),
        SiteEvent::Added(event) => event.object_id,
    };
    let first = next().await;
    assert_ne!(first, "synced");
    assert_eq!(next().await, "synced");
    let second = operator.create_hardware(create("n2")).await.unwrap().into_inner();
    assert_eq!(next().await, second.hardware.unwrap().id);
    drop(watch);
    server.end().await;
}

//! Locations, models and the filters of machines, as clients call them: over TLS through the server's listener.

use std::collections::BTreeSet;

use crate::support::{RunningServer, start};
use runtime::{Caller, Channel, Role};
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::location_service_client::LocationServiceClient;
use tinwright::hardware::v1::model_service_client::ModelServiceClient;
use tinwright::hardware::v1::watch_locations_response::Event;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::instance::v1::{CreateInstanceRequest, Instance};
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic_types::StatusExt as _;

/// A server and the clients of an admin.
struct Site {
    server: RunningServer,
    hardware: HardwareServiceClient<Channel>,
    locations: LocationServiceClient<Channel>,
    models: ModelServiceClient<Channel>,
}

impl Site {
    async fn start() -> Self {
        let server = start().await;
        let channel = server.channel(Some(Role::Admin)).await;
        let hardware = HardwareServiceClient::new(channel.clone());
        let locations = LocationServiceClient::new(channel.clone());
        let models = ModelServiceClient::new(channel);
        Self { server, hardware, locations, models }
    }

    async fn location(&mut self, name: &str, zones: &[&str]) -> pb::Location {
        let zone = |name: &&str| pb::Zone { name: (*name).into(), ..pb::Zone::default() };
        let geography =
            pb::Geography { country: "SE".into(), latitude: 67.9, ..Default::default() };
        let location = pb::Location {
            name: name.into(),
            zones: zones.iter().map(zone).collect(),
            geography: Some(geography),
            boot_url: "http://192.0.2.1/boot".into(),
            ..pb::Location::default()
        };
        let request = pb::CreateLocationRequest { location: Some(location), ..Default::default() };
        self.locations.create_location(request).await.unwrap().into_inner().location.unwrap()
    }

    async fn model(&mut self, name: &str, rack: &str) -> pb::Model {
        let labels = [("rack".to_owned(), rack.to_owned())].into();
        let constraints = Some(pb::ModelConstraints { labels, ..Default::default() });
        let model = pb::Model { name: name.into(), constraints, ..pb::Model::default() };
        let request = pb::CreateModelRequest { model: Some(model), ..Default::default() };
        self.models.create_model(request).await.unwrap().into_inner().model.unwrap()
    }

    async fn machine(
        &mut self,
        number: u8,
        rack: &str,
        (location_id, zone): (&str, &str),
        state: pb::State,
    ) -> Result<pb::Hardware, tonic::Status> {
        let mac = format!("02:00:00:00:00:{number:02x}");
        let machine = pb::Hardware {
            name: format!("m{number}"),
            labels: [("rack".into(), rack.into())].into(),
            interfaces: vec![pb::Interface { mac, ..pb::Interface::default() }],
            location_id: location_id.into(),
            zone: zone.into(),
            state: state.into(),
            ..pb::Hardware::default()
        };
        let request = pb::CreateHardwareRequest { hardware: Some(machine), ..Default::default() };
        Ok(self.hardware.create_hardware(request).await?.into_inner().hardware.unwrap())
    }

    /// Returns the names of the machines that a list shows on pages of two.
    async fn listed(&mut self, request: pb::ListHardwareRequest) -> BTreeSet<String> {
        let mut request = pb::ListHardwareRequest { page_size: 2, ..request };
        let mut names = BTreeSet::new();
        loop {
            let page = self.hardware.list_hardware(request.clone()).await.unwrap().into_inner();
            assert!(page.hardware.len() <= 2);
            for machine in page.hardware {
                assert!(names.insert(machine.name.clone()), "{} is listed twice", machine.name);
            }
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                return names;
            }
        }
    }
}

#[tokio::test]
async fn machines_are_listed_by_state_location_zone_and_model_on_any_page() {
    let mut site = Site::start().await;
    let kiruna = site.location("kir1", &["a", "b"]).await.id;
    let lulea = site.location("lla1", &["a"]).await.id;
    let model = site.model("first", "r1").await.id;
    let (ready, new) = (pb::State::Provisionable, pb::State::Enrolled);
    for (number, rack, place, state) in [
        (1, "r1", (kiruna.as_str(), "a"), ready),
        (2, "r2", (kiruna.as_str(), "b"), ready),
        (3, "r1", (kiruna.as_str(), "a"), new),
        (4, "r1", (kiruna.as_str(), ""), ready),
        (5, "r1", (lulea.as_str(), "a"), ready),
        (6, "r1", ("", ""), ready),
    ] {
        site.machine(number, rack, place, state).await.unwrap();
    }
    let all = pb::ListHardwareRequest::default;
    let in_kiruna = || pb::ListHardwareRequest { location_id: kiruna.clone(), ..all() };
    let in_zone = || pb::ListHardwareRequest { zone: "A".into(), ..in_kiruna() };
    let of_model = || pb::ListHardwareRequest { model_id: model.clone(), ..all() };
    let state = ready.into();
    let rack = [("rack".to_owned(), "r2".to_owned())].into();
    for (request, expected) in [
        (all(), &["m1", "m2", "m3", "m4", "m5", "m6"][..]),
        (in_kiruna(), &["m1", "m2", "m3", "m4"]),
        (in_zone(), &["m1", "m3"]),
        (of_model(), &["m1", "m3", "m4", "m5", "m6"]),
        (pb::ListHardwareRequest { state, ..all() }, &["m1", "m2", "m4", "m5", "m6"]),
        (pb::ListHardwareRequest { state, ..in_zone() }, &["m1"]),
        (pb::ListHardwareRequest { model_id: model.clone(), ..in_kiruna() }, &["m1", "m3", "m4"]),
        (pb::ListHardwareRequest { labels: rack, ..in_kiruna() }, &["m2"]),
    ] {
        let names = site.listed(request.clone()).await;
        assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{request:?}");
    }
    for (request, code, field) in [
        (pb::ListHardwareRequest { zone: "a".into(), ..all() }, Code::InvalidArgument, "zone"),
        (pb::ListHardwareRequest { state: 77, ..all() }, Code::InvalidArgument, "state"),
        (
            pb::ListHardwareRequest { location_id: "kir1".into(), ..all() },
            Code::InvalidArgument,
            "location_id",
        ),
        (pb::ListHardwareRequest { model_id: kiruna.clone(), ..all() }, Code::NotFound, ""),
    ] {
        let refused = site.hardware.list_hardware(request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{request:?}");
        let named =
            refused.get_details_bad_request().map(|it| it.field_violations[0].field.clone());
        assert_eq!(named.unwrap_or_default(), field);
    }
    site.server.end().await;
}

#[tokio::test]
async fn a_location_with_a_machine_is_not_deleted_and_neither_is_its_zone() {
    let mut site = Site::start().await;
    let location = site.location("kir1", &["a", "b"]).await;
    let machine = site.machine(1, "r1", (&location.id, "a"), pb::State::Enrolled).await.unwrap();
    let watch = pb::WatchLocationsRequest { id: location.id.clone(), ..Default::default() };
    let mut events = site.locations.watch_locations(watch).await.unwrap().into_inner();
    let zones = vec![location.zones[1].clone()];
    let without_zone = pb::Location { zones, ..location.clone() };
    let paths = vec!["zones".to_owned()];
    let update = pb::UpdateLocationRequest {
        location: Some(without_zone),
        update_mask: Some(prost_types::FieldMask { paths }),
    };
    let delete = pb::DeleteLocationRequest { id: location.id.clone(), revision: 0 };
    let zone = site.locations.update_location(update.clone()).await.unwrap_err();
    let whole = site.locations.delete_location(delete.clone()).await.unwrap_err();
    for (refused, reason) in [(zone, "ZONE_IN_USE"), (whole, "LOCATION_IN_USE")] {
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(refused.get_details_error_info().unwrap().reason, reason);
        assert!(refused.message().ends_with("such as m1"), "{refused}");
    }
    let nowhere = site.machine(2, "r1", (&location.id, "c"), pb::State::Enrolled).await;
    assert_eq!(nowhere.unwrap_err().code(), Code::InvalidArgument);
    let delete_machine = pb::DeleteHardwareRequest { id: machine.id, revision: 0 };
    site.hardware.delete_hardware(delete_machine).await.unwrap();
    site.locations.update_location(update).await.unwrap();
    site.locations.delete_location(delete.clone()).await.unwrap();
    assert_eq!(site.locations.delete_location(delete).await.unwrap_err().code(), Code::NotFound);
    let gone = Some(Event::DeletedId(location.id));
    let until_gone = async { while events.next().await.unwrap().unwrap().event != gone {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), until_gone).await.unwrap();
    site.server.end().await;
}

#[tokio::test]
async fn the_machines_of_a_model_are_counted_with_those_that_instances_occupy() {
    let mut site = Site::start().await;
    let (first, second) = (site.model("first", "r1").await, site.model("second", "r2").await);
    let mut machines = Vec::new();
    for number in 1..=4 {
        let made = site.machine(number, "r1", ("", ""), pb::State::Provisionable).await;
        machines.push(made.unwrap().id);
    }
    let mut instances = InstanceServiceClient::new(site.server.channel(Some(Role::Admin)).await);
    let hardware_id = machines[0].clone();
    let instance = Instance { hardware_id, reserve_only: true, ..Instance::default() };
    let request = CreateInstanceRequest { instance: Some(instance), ..Default::default() };
    instances.create_instance(request).await.unwrap();
    let failed = pb::SetHardwareStateRequest {
        id: machines[1].clone(),
        state: pb::State::Failed.into(),
        ..Default::default()
    };
    site.hardware.set_hardware_state(failed).await.unwrap();
    let list = |count_machines| pb::ListModelsRequest { count_machines, ..Default::default() };
    let listed = site.models.list_models(list(true)).await.unwrap().into_inner();
    assert_eq!(listed.models, [first.clone(), second.clone()]);
    let expected = pb::ModelCounts { machines: 4, free: 2, occupied: 1, failed: 1 };
    assert_eq!(listed.counts[&first.id], expected);
    assert_eq!(listed.counts[&second.id], pb::ModelCounts::default());
    let plain = site.models.list_models(list(false)).await.unwrap().into_inner();
    assert!(plain.counts.is_empty());
    site.server.end().await;
}

#[tokio::test]
async fn a_tenant_sees_of_locations_and_models_what_it_needs_to_order() {
    let mut site = Site::start().await;
    let (location, model) = (site.location("kir1", &["a"]).await, site.model("first", "r1").await);
    let caller = Caller::new(Role::Operator, "person:anna").unwrap();
    let caller = caller.with_tenant("acme".parse().unwrap()).unwrap();
    let channel = site.server.channel_of(Some(caller)).await;
    let mut locations = LocationServiceClient::new(channel.clone());
    let mut models = ModelServiceClient::new(channel);
    let visible = pb::Location {
        id: location.id.clone(),
        name: location.name,
        zones: location.zones,
        geography: location.geography,
        ..pb::Location::default()
    };
    let by = Some(pb::get_location_request::By::Name("KIR1".into()));
    let got = locations.get_location(pb::GetLocationRequest { by }).await.unwrap().into_inner();
    assert_eq!(got.location, Some(visible.clone()));
    let listed = locations.list_locations(pb::ListLocationsRequest::default()).await.unwrap();
    assert_eq!(listed.into_inner().locations, [visible]);
    let visible = pb::Model {
        id: model.id.clone(),
        name: model.name,
        constraints: Some(pb::ModelConstraints::default()),
        ..pb::Model::default()
    };
    let by = Some(pb::get_model_request::By::Id(model.id));
    let got = models.get_model(pb::GetModelRequest { by }).await.unwrap().into_inner();
    assert_eq!(got.model, Some(visible.clone()));
    let list = |count_machines| pb::ListModelsRequest { count_machines, ..Default::default() };
    let listed = models.list_models(list(false)).await.unwrap();
    assert_eq!(listed.into_inner().models, [visible]);
    let refused = models.list_models(list(true)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let delete = pb::DeleteLocationRequest { id: location.id, revision: 0 };
    assert_eq!(locations.delete_location(delete).await.unwrap_err().code(), Code::PermissionDenied);
    site.server.end().await;
}

#[tokio::test]
async fn the_models_of_a_machine_are_listed() {
    let mut site = Site::start().await;
    site.model("first", "r1").await;
    site.model("second", "r2").await;
    let id = site.machine(1, "r2", ("", ""), pb::State::Enrolled).await.unwrap().id;
    let of = |hardware_id: &str| pb::ListModelsRequest {
        hardware_id: hardware_id.into(),
        ..pb::ListModelsRequest::default()
    };
    let listed = site.models.list_models(of(&id)).await.unwrap().into_inner().models;
    let names: Vec<_> = listed.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["second"]);
    let absent = site.models.list_models(of(&listed[0].id)).await.unwrap_err();
    assert_eq!(absent.code(), Code::NotFound);
    site.server.end().await;
}

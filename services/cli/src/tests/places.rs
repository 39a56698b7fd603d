//! Locations and models: what commands send, and what tables show.

use std::sync::{Arc, Mutex};

use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::location_service_server::{LocationService, LocationServiceServer};
use tinwright::hardware::v1::model_service_server::{ModelService, ModelServiceServer};
use tokio_stream::Empty;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::{fake, tinwright};

const IDS: [&str; 2] =
    ["01990000-0000-7000-8000-00000000000a", "01aa0000-0000-7000-8000-00000000000b"];

/// A site with the locations kir1 and lla1 and models of the same ids, which records what is changed.
#[derive(Clone, Default)]
struct Site(Arc<Mutex<Vec<String>>>);

fn location(place: usize) -> pb::Location {
    let zones = vec![pb::Zone { name: "a".into(), description: "hall 1".into() }];
    let name = ["kir1", "lla1"][place].into();
    pb::Location { id: IDS[place].into(), name, zones, revision: 7, ..pb::Location::default() }
}

fn model(place: usize) -> pb::Model {
    let name = ["m1", "m2"][place].into();
    pb::Model { id: IDS[place].into(), name, ..pb::Model::default() }
}

/// Describes the policy of `model` for enrolled machines.
fn policy(model: &pb::Model) -> String {
    match &model.accept_enrolled {
        None => "nothing".into(),
        Some(accept) if accept.location_ids.is_empty() => "anywhere".into(),
        Some(accept) => accept.location_ids.join(" "),
    }
}

impl Site {
    fn record(&self, call: String) {
        self.0.lock().unwrap().push(call);
    }

    /// Runs a command. Returns its output, its result, and the changes that it asked for.
    async fn run(&self, arguments: &str) -> (String, Result<(), String>, Vec<String>) {
        let server = Server::builder()
            .add_service(LocationServiceServer::new(self.clone()))
            .add_service(ModelServiceServer::new(self.clone()));
        let (printed, result) = tinwright(arguments, server).await;
        (printed, result, std::mem::take(&mut *self.0.lock().unwrap()))
    }
}

fn found(place: Option<usize>) -> Result<usize, Status> {
    place.ok_or_else(|| Status::not_found("nothing"))
}

fake! {
    impl LocationService for Site {
        type WatchLocationsStream = Empty<Result<pb::WatchLocationsResponse, Status>>;

        async fn watch_locations(
            &self,
            _: Request<pb::WatchLocationsRequest>,
        ) -> Result<Response<Self::WatchLocationsStream>, Status> {
            Err(Status::unimplemented("watch_locations"))
        }

        async fn get_location(
            &self,
            request: Request<pb::GetLocationRequest>,
        ) -> Result<Response<pb::GetLocationResponse>, Status> {
            use pb::get_location_request::By;
            let place = match request.into_inner().by.unwrap() {
                By::Id(id) => IDS.iter().position(|it| *it == id),
                By::Name(name) => (0..2).find(|place| location(*place).name == name),
            };
            let location = Some(location(found(place)?));
            Ok(Response::new(pb::GetLocationResponse { location }))
        }

        async fn list_locations(
            &self,
            _: Request<pb::ListLocationsRequest>,
        ) -> Result<Response<pb::ListLocationsResponse>, Status> {
            let locations = vec![location(0), location(1)];
            Ok(Response::new(pb::ListLocationsResponse { locations, ..Default::default() }))
        }

        async fn create_location(
            &self,
            request: Request<pb::CreateLocationRequest>,
        ) -> Result<Response<pb::CreateLocationResponse>, Status> {
            let location = request.into_inner().location;
            self.record(format!("create {}", location.as_ref().unwrap().name));
            Ok(Response::new(pb::CreateLocationResponse { location }))
        }

        async fn update_location(
            &self,
            request: Request<pb::UpdateLocationRequest>,
        ) -> Result<Response<pb::UpdateLocationResponse>, Status> {
            let pb::UpdateLocationRequest { location, update_mask } = request.into_inner();
            let update = location.as_ref().unwrap();
            let zones: Vec<_> = update.zones.iter().map(|zone| zone.name.as_str()).collect();
            let mask = update_mask.map(|it| it.paths.join(" ")).unwrap_or_default();
            self.record(format!("update {} at {}: {mask}: {}", update.id, update.revision, zones.join(" ")));
            Ok(Response::new(pb::UpdateLocationResponse { location }))
        }

        async fn delete_location(
            &self,
            request: Request<pb::DeleteLocationRequest>,
        ) -> Result<Response<pb::DeleteLocationResponse>, Status> {
            self.record(format!("delete {}", request.into_inner().id));
            Ok(Response::new(pb::DeleteLocationResponse {}))
        }
    }
    refuses {}
}

fake! {
    impl ModelService for Site {
        type WatchModelsStream = Empty<Result<pb::WatchModelsResponse, Status>>;

        async fn watch_models(
            &self,
            _: Request<pb::WatchModelsRequest>,
        ) -> Result<Response<Self::WatchModelsStream>, Status> {
            Err(Status::unimplemented("watch_models"))
        }

        async fn list_models(
            &self,
            request: Request<pb::ListModelsRequest>,
        ) -> Result<Response<pb::ListModelsResponse>, Status> {
            let models = vec![model(0), model(1)];
            let count = pb::ModelCounts { machines: 9, free: 5, occupied: 3, failed: 1 };
            let counts = match request.into_inner().count_machines {
                true => [(IDS[0].to_owned(), count)].into(),
                false => Default::default(),
            };
            Ok(Response::new(pb::ListModelsResponse { models, counts, ..Default::default() }))
        }

        async fn list_model_offers(
            &self,
            request: Request<pb::ListModelOffersRequest>,
        ) -> Result<Response<pb::ListModelOffersResponse>, Status> {
            let pb::ListModelOffersRequest { model_id, location_id } = request.into_inner();
            self.record(format!("offers of {model_id} in {location_id}"));
            let offer = pb::ModelOffer {
                model_name: "gold".into(),
                location_name: "lla1".into(),
                zones: vec!["a".into(), "b".into()],
                available: true,
                machines: 9,
                free: 5,
                parts: Some(pb::MachineParts { memory_bytes: 64 << 30, ..Default::default() }),
                ..pb::ModelOffer::default()
            };
            Ok(Response::new(pb::ListModelOffersResponse { offers: vec![offer] }))
        }

        async fn get_model(
            &self,
            request: Request<pb::GetModelRequest>,
        ) -> Result<Response<pb::GetModelResponse>, Status> {
            use pb::get_model_request::By;
            let place = match request.into_inner().by.unwrap() {
                By::Id(id) => IDS.iter().position(|it| *it == id),
                By::Name(name) => (0..2).find(|place| model(*place).name == name),
            };
            let model = Some(model(found(place)?));
            Ok(Response::new(pb::GetModelResponse { model }))
        }

        async fn create_model(
            &self,
            request: Request<pb::CreateModelRequest>,
        ) -> Result<Response<pb::CreateModelResponse>, Status> {
            let model = request.into_inner().model;
            let created = model.as_ref().unwrap();
            self.record(format!("create {}: {}", created.name, policy(created)));
            Ok(Response::new(pb::CreateModelResponse { model }))
        }

        async fn update_model(
            &self,
            request: Request<pb::UpdateModelRequest>,
        ) -> Result<Response<pb::UpdateModelResponse>, Status> {
            let pb::UpdateModelRequest { model, update_mask } = request.into_inner();
            let update = model.as_ref().unwrap();
            let mask = update_mask.map(|it| it.paths.join(" ")).unwrap_or_default();
            self.record(format!("update {}: {mask}: {}", update.name, policy(update)));
            Ok(Response::new(pb::UpdateModelResponse { model }))
        }
    }
    refuses {
        delete_model: DeleteModelRequest => DeleteModelResponse,
    }
}

#[tokio::test]
async fn a_location_is_found_by_name_id_and_the_beginning_of_an_id_that_is_unique() {
    let site = Site::default();
    for name in ["lla1", IDS[1], "01AA"] {
        let (printed, result, changes) = site.run(&format!("location delete {name}")).await;
        assert_eq!(result, Ok(()));
        assert_eq!(printed, "location lla1 deleted\n");
        assert_eq!(changes, [format!("delete {}", IDS[1])]);
    }
    let (_, result, changes) = site.run("location delete 01").await;
    assert_eq!(result.unwrap_err(), "2 ids begin with 01: give more of it");
    assert_eq!(changes, [""; 0]);
    let (_, result, _) = site.run("location delete abc").await;
    assert_eq!(result.unwrap_err(), "nothing");
}

#[tokio::test]
async fn zones_are_added_and_removed_at_the_revision_that_was_read_and_settings_at_any() {
    let site = Site::default();
    let (_, result, changes) =
        site.run("location update kir1 --zone b=two --remove-zone A --city Kiruna").await;
    assert_eq!(result, Ok(()));
    assert_eq!(changes, [format!("update {} at 7: geography zones: b", IDS[0])]);
    let (_, _, changes) = site.run("location update kir1 --boot-url http://192.0.2.1").await;
    assert_eq!(changes, [format!("update {} at 0: boot_url: a", IDS[0])]);
    let (_, result, _) = site.run("location update kir1 --remove-zone c").await;
    assert_eq!(result.unwrap_err(), "location kir1 has no zone \"c\"");
    let (_, result, _) = site.run("location update kir1").await;
    assert_eq!(result.unwrap_err(), "nothing to change: give a setting");
}

#[tokio::test]
async fn applied_files_create_what_is_new_and_replace_what_exists() {
    let site = Site::default();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locations.yaml");
    std::fs::write(&file, "{name: KIR1, zones: [{name: c}]}\n---\n{name: osl1}\n").unwrap();
    let (_, result, changes) = site.run(&format!("location apply -f {}", file.display())).await;
    assert_eq!(result, Ok(()));
    assert_eq!(
        changes,
        [format!("update {} at 0: name zones: c", IDS[0]), "create osl1".to_owned()]
    );
}

#[tokio::test]
async fn models_are_listed_with_the_numbers_of_their_machines() {
    let (printed, result, _) = Site::default().run("model list").await;
    assert_eq!(result, Ok(()));
    let rows: Vec<Vec<_>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1][1..6], ["m1", "9", "5", "3", "1"]);
    assert_eq!(rows[2][1..6], ["m2", "0", "0", "0", "0"]);
}

#[tokio::test]
async fn offers_of_a_model_in_a_location_are_listed_with_their_numbers() {
    let command = "model offers --model m1 --location lla1";
    let (printed, result, calls) = Site::default().run(command).await;
    assert_eq!(result, Ok(()));
    assert_eq!(calls, [format!("offers of {} in {}", IDS[0], IDS[1])]);
    let row: Vec<_> = printed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["gold", "lla1", "a,b", "yes", "5", "9", "64", "GiB"]);
    let (printed, ..) = Site::default().run("model offers -o name").await;
    assert_eq!(printed, "modeloffer/gold\n");
}

#[tokio::test]
async fn a_model_gets_and_loses_its_policy_for_enrolled_machines() {
    let site = Site::default();
    let (_, result, changes) =
        site.run("model update m2 --accept-enrolled --accept-location kir1").await;
    assert_eq!(result, Ok(()));
    assert_eq!(changes, [format!("update m2: accept_enrolled: {}", IDS[0])]);
    let (_, _, changes) = site.run("model update m2 --accept-enrolled").await;
    assert_eq!(changes, ["update m2: accept_enrolled: anywhere"]);
    let (_, _, changes) = site.run("model update m2 --no-accept-enrolled").await;
    assert_eq!(changes, ["update m2: accept_enrolled: nothing"]);
    let (_, _, changes) =
        site.run("model update m2 --boot-silent-minutes 45 --boot-step-minutes 0").await;
    assert_eq!(changes, ["update m2: boot_silent_minutes boot_step_minutes: nothing"]);
    let (_, result, _) = site.run("model update m2").await;
    assert_eq!(result.unwrap_err(), "nothing to change: give a setting");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("models.yaml");
    std::fs::write(&file, "{name: m3}\n").unwrap();
    let command = format!("model create --accept-enrolled -f {}", file.display());
    assert_eq!(site.run(&command).await.2, ["create m3: anywhere"]);
}

#[test]
fn the_examples_in_the_documents_can_be_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/");
    let read = |name: &str| crate::files::objects(format!("{folder}{name}").as_ref()).unwrap();
    for object in read("models.yaml") {
        object.message::<pb::Model>().unwrap();
    }
    for object in read("locations.yaml") {
        object.message::<pb::Location>().unwrap();
    }
}

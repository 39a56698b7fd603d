//! Orders that come at the same time as another one, which gets the last machine.

use std::sync::{Mutex, PoisonError};

use tinwright::hardware::v1 as hw;
use tinwright::instance::v1 as inst;
use tinwright::status::exhausted;

use super::*;
use crate::ial::session::LOCATION;

const PROVISION: &str = "/v1/infrastructure/server/provision";

/// The services of a site whose last machine another order gets, just before each order.
struct Site {
    /// What the other order creates.
    other: inst::Instance,
    instances: Mutex<Vec<inst::Instance>>,
}

impl Site {
    fn instances(&self) -> Vec<inst::Instance> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn respond(self: Arc<Self>, request: Request) -> Response {
        let path = request.uri().path().to_owned();
        let located = hw::Location { id: "l".into(), name: "kir1".into(), ..Default::default() };
        let location = hw::Location { boot_url: "http://boot".into(), ..located };
        let model = hw::Model { id: "m".into(), name: "m2".into(), ..Default::default() };
        match path.rsplit('/').next().unwrap() {
            "GetLocation" => reply(&hw::GetLocationResponse { location: Some(location) }),
            "GetModel" => reply(&hw::GetModelResponse { model: Some(model) }),
            "ListModelOffers" => {
                let offers = vec![hw::ModelOffer::default()];
                reply(&hw::ListModelOffersResponse { offers })
            }
            "ListInstances" => {
                let instances = self.instances();
                reply(&inst::ListInstancesResponse { instances, ..Default::default() })
            }
            "GetInstance" => match self.instances().pop() {
                Some(it) if it.external_id == "ial/p1" => {
                    reply(&inst::GetInstanceResponse { instance: Some(it) })
                }
                Some(_) | None => Status::not_found("no such instance").into_http(),
            },
            "CreateInstance" => {
                let mut instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
                instances.push(self.other.clone());
                exhausted("NO_MACHINE_FITS", Default::default(), None, "none").into_http()
            }
            _ => service(request).await,
        }
    }
}

/// Orders a machine when the last one goes to another order. Returns the envelope.
async fn order(other_id: &str, other_name: &str, request: Value) -> Value {
    let notes = [(LOCATION, "kir1"), ("ial/model_id", "m2"), ("ial/location_modified", "true")];
    let other = inst::Instance {
        id: "srv-1".into(),
        tenant: "acme".into(),
        external_id: other_id.into(),
        hostname: other_name.into(),
        labels: [("ial/hub".to_owned(), "h1".to_owned())].into(),
        annotations: notes.map(|(key, text)| (key.to_owned(), text.to_owned())).into(),
        ..Default::default()
    };
    let site = Arc::new(Site { other, instances: Mutex::default() });
    let services = Router::new().fallback(move |request| site.clone().respond(request));
    post(&gateway_of(services, true, Clock::system()), PROVISION, &wrapped(request)).await
}

fn request(cycle: Value) -> Value {
    json!({"hostname": "web", "model_id": "m2", "location_id": "kir1", "model_features": {}, "cycle": cycle})
}

#[tokio::test]
async fn the_last_machine_goes_to_one_order_of_a_host_name() {
    for cycle in [json!({"server_id": "p1"}), json!(null)] {
        let taken = order("ial/p2", "web", request(cycle.clone())).await;
        assert_eq!(refusal(&taken), code("409.duplicate-found", "/request/hostname"), "{cycle}");
        let occupied = order("ial/p2", "db", request(cycle.clone())).await;
        assert_eq!(refusal(&occupied).0, "503.not-ready", "{cycle}");
    }
}

#[tokio::test]
async fn an_order_that_comes_twice_at_once_has_one_answer() {
    let answered = order("ial/p1", "web", request(json!({"server_id": "p1"}))).await;
    let data = json!({"server_id": "srv-1", "location_modified": true, "extra": {}});
    assert_eq!(answered, json!({"data": data, "error": null}));
}

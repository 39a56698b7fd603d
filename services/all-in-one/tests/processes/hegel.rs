//! Hegel's calls and custom endpoints, called from a machine.

use std::net::SocketAddr;

use runtime::Channel;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hegel::hegel_client::HegelClient;
use tinwright::hegel::{GetRequest, SubscribeRequest, SubscribeResponse};
use tonic::transport::Endpoint;
use tonic::{Code, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::process::{Place, Process, arguments, free_address, get, machine, soon};

const OWN: &str = r#"{"/metadata": ".metadata.instance", "/own/id": ".id"}"#;

/// Everything in one process.
struct Site {
    process: Process,
    http: SocketAddr,
    grpc: SocketAddr,
}

async fn site() -> Site {
    let [http, grpc] = [0, 1].map(|_| free_address());
    let (listen, calls) = (http.to_string(), grpc.to_string());
    let listens = ["--metadata-listen", &listen, "--metadata-grpc-listen", &calls];
    let flags = [&listens[..], &["--metadata-custom-endpoints", OWN]].concat();
    Site { process: Place::new().start(&arguments(&flags)).await, http, grpc }
}

impl Site {
    async fn hardware(&self) -> HardwareServiceClient<Channel> {
        HardwareServiceClient::new(self.process.channel().await)
    }

    /// Creates a machine at 127.0.0.1.
    async fn machine(&self) -> hw::Hardware {
        let mut hardware = self.hardware().await;
        let made = hardware.create_hardware(machine("02:00:00:00:00:01", "127.0.0.1")).await;
        made.unwrap().into_inner().hardware.unwrap()
    }

    /// Returns a client as a machine has it.
    async fn calls(&self) -> Channel {
        Endpoint::try_from(format!("http://{}", self.grpc)).unwrap().connect().await.unwrap().into()
    }
}

async fn next_document(stream: &mut Streaming<SubscribeResponse>) -> Option<String> {
    soon(stream.message()).await.unwrap().map(|message| message.json)
}

#[tokio::test]
async fn a_machine_is_told_of_its_hardware_and_of_each_change_until_the_server_ends() {
    let site = site().await;
    let health = HealthCheckRequest { service: "hegel.Hegel".into() };
    let mut watch = HealthClient::new(site.calls().await).watch(health).await.unwrap().into_inner();
    let served = async {
        while watch.message().await.unwrap().expect("a status").status() != ServingStatus::Serving {
        }
    };
    soon(served).await;
    let mut hegel = HegelClient::new(site.calls().await);
    assert_eq!(hegel.get(GetRequest {}).await.unwrap_err().code(), Code::NotFound);

    let mut machine = site.machine().await;
    let known = async {
        while hegel.get(GetRequest {}).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        }
    };
    soon(known).await;
    let request = SubscribeRequest { id: machine.id.clone() };
    let mut stream = hegel.subscribe(request).await.unwrap().into_inner();
    assert!(next_document(&mut stream).await.unwrap().contains(&machine.id));
    assert_eq!(get(site.http, "/own/id").await.as_ref(), Some(&machine.id));

    machine.interfaces[0].dhcp.as_mut().unwrap().hostname = "changed".into();
    let change = hw::UpdateHardwareRequest { hardware: Some(machine), ..Default::default() };
    site.hardware().await.update_hardware(change).await.unwrap();
    assert!(next_document(&mut stream).await.unwrap().contains(r#""hostname":"changed""#));

    let ending = tokio::task::spawn_blocking(|| site.process.terminate());
    assert_eq!(next_document(&mut stream).await, None);
    ending.await.unwrap();
}

#[tokio::test]
async fn the_api_and_hegels_calls_are_served_apart() {
    let site = site().await;
    let mut hegel = HegelClient::new(site.process.channel().await);
    assert_eq!(hegel.get(GetRequest {}).await.unwrap_err().code(), Code::Unimplemented);
    let mut hardware = HardwareServiceClient::new(site.calls().await);
    let refused = hardware.list_hardware(hw::ListHardwareRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_bad_filter_is_no_start_and_its_path_and_reason_are_told() {
    let flags =
        ["--metadata-listen", "127.0.0.1:0", "--metadata-custom-endpoints", r#"{"/a": ".b |"}"#];
    let why = Place::new().refused(&arguments(&flags)).await;
    assert!(why.contains("metadata_custom_endpoints: /a: filter: term expected"), "{why}");
}

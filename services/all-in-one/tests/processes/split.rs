//! Services in separate processes.

use std::net::SocketAddr;

use runtime::authority::SiteAuthority;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::metadata::v1::metadata_service_client::MetadataServiceClient;
use tinwright::metadata::v1::{self as md, explain_metadata_request};
use tonic::Code;

use super::process::{Place, Process, arguments, free_address, get, machine, soon};

/// The processes of hardware, of instances, and of metadata.
struct Site {
    owners: Process,
    instance: Process,
    metadata: Process,
    address: SocketAddr,
}

async fn site() -> Site {
    let (owners, instance) = (Place::new(), Place::new());
    let (at_owners, at_instance) =
        (format!("https://{}", owners.grpc), format!("instance=https://{}", instance.grpc));
    let owners = owners
        .start(&arguments(&[
            "--only",
            "address,hardware,identity,power,workflow",
            "--peers",
            &at_instance,
        ]))
        .await;
    let instance = instance
        .with_secrets_of(&owners.place, &[])
        .start(&arguments(&["--only", "instance", "--peers", &at_owners]))
        .await;
    let address = free_address();
    let peers = format!("{at_instance},{at_owners}");
    let listen = address.to_string();
    let flags = ["--only", "metadata", "--metadata-listen", &listen, "--peers", &peers];
    let metadata = Place::new()
        .with_secrets_of(&owners.place, &["ca-key.pem", "admin.pem", "admin-key.pem"])
        .start(&arguments(&flags))
        .await;
    Site { owners, instance, metadata, address }
}

impl Site {
    /// A machine at 127.0.0.1.
    async fn machine(&self) -> hw::Hardware {
        let mut owners = HardwareServiceClient::new(self.owners.channel().await);
        let made = owners.create_hardware(machine("02:00:00:00:00:01", "127.0.0.1")).await;
        made.unwrap().into_inner().hardware.unwrap()
    }

    async fn instances(&self) -> InstanceServiceClient<runtime::Channel> {
        InstanceServiceClient::new(self.instance.channel().await)
    }

    /// Waits until the metadata of a system at 127.0.0.1 is `expected`.
    async fn until_served(&self, path: &str, expected: &str) {
        let served = async {
            while get(self.address, path).await.as_deref() != Some(expected) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        soon(served).await;
    }
}

#[tokio::test]
async fn records_of_one_process_are_seen_and_heeded_by_the_others() {
    let site = site().await;
    let machine = site.machine().await;
    site.until_served("/latest/meta-data/instance-id", &machine.id).await;

    let mut accepted = hw::SetHardwareStateRequest { id: machine.id.clone(), ..Default::default() };
    accepted.set_state(hw::State::Provisionable);
    let mut owners = HardwareServiceClient::new(site.owners.channel().await);
    owners.set_hardware_state(accepted).await.unwrap();
    let instance = inst::Instance {
        hardware_id: machine.id.clone(),
        hostname: "split".into(),
        reserve_only: true,
        ..Default::default()
    };
    let request = inst::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
    let mut instances = site.instances().await;
    let made = instances.create_instance(request).await.unwrap().into_inner().instance.unwrap();
    site.until_served("/latest/meta-data/instance-id", &made.id).await;

    // The reconciler of instances reads the machine; the hardware service reads the instance that occupies it.
    let moved_on = async {
        loop {
            let by = Some(inst::get_instance_request::By::Id(made.id.clone()));
            let request = inst::GetInstanceRequest { by, ..Default::default() };
            let now = instances.get_instance(request).await.unwrap().into_inner().instance.unwrap();
            if now.state() != inst::State::Queued {
                return now;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let now = soon(moved_on).await;
    assert!(now.state() != inst::State::Failed, "{}", now.state_reason);
    let mut owners = HardwareServiceClient::new(site.owners.channel().await);
    let delete = hw::DeleteHardwareRequest { id: machine.id, revision: 0 };
    let refused = owners.delete_hardware(delete).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains(&made.id), "{refused}");
}

#[tokio::test]
async fn a_service_that_is_elsewhere_is_not_served_here() {
    let site = site().await;
    let mut wrong = HardwareServiceClient::new(site.instance.channel().await);
    let refused = wrong.list_hardware(hw::ListHardwareRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    // The edge stores nothing, and has no key to issue a certificate.
    let mut edge = HardwareServiceClient::new(site.metadata.channel_of(&site.owners).await);
    let refused = edge.list_hardware(hw::ListHardwareRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(!site.metadata.place.secrets().join("ca-key.pem").exists());
    assert!(!site.metadata.place.path("data/store").exists());
}

#[tokio::test]
async fn a_process_that_only_tells_systems_says_whom_it_takes_an_address_for() {
    let site = site().await;
    let machine = site.machine().await;
    site.until_served("/latest/meta-data/instance-id", &machine.id).await;
    let mut edge = MetadataServiceClient::new(site.metadata.channel_of(&site.owners).await);
    let by = Some(explain_metadata_request::By::Address("127.0.0.1".into()));
    let explained =
        edge.explain_metadata(md::ExplainMetadataRequest { by }).await.unwrap().into_inner();
    assert_eq!((explained.hardware_id, explained.sources[0].answered), (machine.id, true));
}

#[tokio::test]
async fn a_store_on_disk_is_refused_with_another_sites_key() {
    let server = Place::new().start(&[]).await;
    let other = tempfile::tempdir().unwrap();
    SiteAuthority::open(other.path()).unwrap();
    let place = server.terminate();
    std::fs::copy(other.path().join("site.key"), place.secrets().join("site.key")).unwrap();
    let why = place.refused(&[]).await;
    assert!(why.contains("the store belongs to another site than these secrets"), "{why}");
}

#[tokio::test]
async fn an_edge_without_the_sites_secrets_says_which_to_copy() {
    let flags = ["--only", "metadata", "--peers", "https://127.0.0.1:1"];
    let flags = [&flags[..], &["--metadata-listen", "127.0.0.1:0"]].concat();
    let why = Place::new().refused(&arguments(&flags)).await;
    assert!(why.contains("copy site.key, service-key.pem, service.pem and ca.pem"), "{why}");
}

//! Virtual media of sushy-emulator, which fetches the image from a file server of the test.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use power::{Jobs, Login, Timing};
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::{Drive, InsertMedia, What};
use tinwright::power::v1::power_job::State;
use tokio::net::TcpListener;

use crate::emulator::Emulator;
use crate::ipmi::IpmiSim;
use crate::proxy::{Extras, Proxy};
use crate::site::{self, TIMING, bmc, work};

struct Rig {
    jobs: Jobs,
    hardware: HardwareId,
    /// The emulator's own address.
    url: String,
    _emulator: Emulator,
    _proxy: Option<Proxy>,
}

impl Rig {
    async fn new(extras: Option<Extras>) -> Self {
        let emulator = Emulator::open(&["node1".into()]);
        let proxy = match extras {
            Some(extras) => Some(Proxy::start(&emulator.url, extras).await),
            None => None,
        };
        let at = proxy.as_ref().map_or(&emulator.url, |proxy| &proxy.url);
        let (jobs, hardware) = (site::jobs(Arc::new(MemoryStore::default())), HardwareId::new());
        jobs.bmcs.create(bmc(hardware, at, ""), Login::Try, None).await.unwrap();
        Self { jobs, hardware, url: emulator.url.clone(), _emulator: emulator, _proxy: proxy }
    }

    async fn job(&self, operations: Vec<pb::Operation>) -> pb::PowerJob {
        let timing =
            Timing { effect_timeout: Duration::from_millis(500), max_attempts: 4, ..TIMING };
        let made = self.jobs.create(site::job(self.hardware, operations), None).await;
        work(&self.jobs, self.hardware, timing).await.unwrap();
        self.jobs.get(made.unwrap().id.parse().unwrap()).await.unwrap()
    }

    async fn success(&self, operation: pb::Operation) -> pb::PowerJob {
        let job = self.job(vec![operation]).await;
        assert_eq!(job.state(), State::Success, "{}", job.state_reason);
        job
    }

    /// The image in the drive, as the emulator shows it.
    async fn image(&self, drive: &str) -> Option<String> {
        let id = crate::emulator::id(0);
        let url = format!("{}/redfish/v1/Systems/{id}/VirtualMedia/{drive}", self.url);
        let body = reqwest::get(url).await.unwrap().bytes().await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        (body["Inserted"] == true).then(|| body["Image"].as_str().unwrap().to_owned())
    }
}

/// Serves images, and returns the URL below which they are.
async fn images() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().route("/{token}/osie.iso", get(async || "an image"));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

fn insert(image_url: String, drive: Drive) -> pb::Operation {
    let media = InsertMedia { image_url, drive: drive.into() };
    pb::Operation { what: Some(What::InsertMedia(media)), ..Default::default() }
}

fn eject(drive: Drive) -> pb::Operation {
    pb::Operation { what: Some(What::EjectMedia(drive.into())), ..Default::default() }
}

/// Inserts two images one after the other, and ejects the second, with the requests of each step.
async fn passes(rig: &Rig) {
    let images = images().await;
    let [first, second] = ["one", "two"].map(|token| format!("{images}/{token}/osie.iso"));
    rig.success(insert(first.clone(), Drive::Cd)).await;
    assert_eq!(rig.image("Cd").await, Some(first.clone()));
    let again = rig.success(insert(first, Drive::Unspecified)).await;
    assert_eq!(again.attempt, 0, "it is there already");
    rig.success(insert(second.clone(), Drive::Cd)).await;
    assert_eq!(rig.image("Cd").await, Some(second));
    rig.success(eject(Drive::Cd)).await;
    assert_eq!(rig.image("Cd").await, None);
    rig.success(eject(Drive::Cd)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_inserted_replaced_and_ejected_at_the_drives_of_the_system() {
    let rig = Rig::new(None).await;
    passes(&rig).await;
    let usb = format!("{}/three/osie.iso", images().await);
    rig.success(insert(usb.clone(), Drive::Usb)).await;
    assert_eq!((rig.image("Floppy").await, rig.image("Cd").await), (Some(usb), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_drives_of_an_older_service_are_at_its_manager_and_changed_by_patch() {
    let rig = Rig::new(Some(Extras { old_media: true, ..Extras::default() })).await;
    passes(&rig).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_fetched_fails_the_job_and_its_url_is_not_in_the_reason() {
    let rig = Rig::new(None).await;
    let missing = format!("{}/SecretToken/none.iso", images().await);
    let job = rig.job(vec![insert(missing, Drive::Cd)]).await;
    assert_eq!(job.state(), State::Failed);
    assert!(!job.state_reason.starts_with("operation "), "{}", job.state_reason);
    assert!(!job.state_reason.contains("SecretToken"), "{}", job.state_reason);
    assert_eq!(rig.image("Cd").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_ipmi_the_reason_says_that_there_are_no_virtual_media() {
    let sim = IpmiSim::start();
    let hardware = HardwareId::new();
    let jobs = site::jobs(Arc::new(MemoryStore::default()));
    jobs.bmcs.create(sim.bmc(hardware), Login::Try, None).await.unwrap();
    let made = jobs.create(site::job(hardware, vec![eject(Drive::Cd)]), None).await.unwrap();
    work(&jobs, hardware, TIMING).await.unwrap();
    let job = jobs.get(made.id.parse().unwrap()).await.unwrap();
    assert_eq!(job.state(), State::Failed);
    assert!(job.state_reason.contains("IPMI has no virtual media"), "{}", job.state_reason);
}

//! A process whose store, or whose images, are on a small disk that becomes full.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use runtime::Channel;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::image::v1::{DeleteImageRequest, ImageState};
use tonic::Code;

use super::process::{Place, Process, arguments, free_address, machine, soon};
use super::{edge_images, images};

struct Site {
    /// The process with a file system of 24 MiB.
    server: Process,
    /// The process that owns the records, if that is another one.
    _owner: Option<Process>,
    hardware: HardwareServiceClient<Channel>,
}

impl Site {
    /// A server whose store is on the small disk.
    async fn new() -> Self {
        let place = Place::with_small_disk("data/store");
        let server = place.start(&arguments(&["--drain-seconds", "1"])).await;
        let hardware = HardwareServiceClient::new(server.channel().await);
        Self { server, _owner: None, hardware }
    }

    /// An edge whose feed cache is on the small disk.
    async fn with_edge() -> Self {
        let owner = Place::new().start(&[]).await;
        let (peers, listen) = (format!("https://{}", owner.place.grpc), free_address().to_string());
        let edge = ["--only", "metadata", "--metadata-listen", &listen, "--peers", &peers];
        let edge = [&edge[..], &["--drain-seconds", "1"]].concat();
        let place = Place::with_small_disk("data/feeds").with_secrets_of(&owner.place, &[]);
        let server = place.start(&arguments(&edge)).await;
        let hardware = HardwareServiceClient::new(owner.channel().await);
        Self { server, _owner: Some(owner), hardware }
    }

    /// Keeps the disk full and changes a record until the process ends, and returns its log.
    async fn until_it_ends(mut self) -> String {
        let machine = self.create(1).await.unwrap();
        let mut value = 0;
        let ended = async {
            loop {
                self.fill();
                value += 1;
                let _may_fail = self.update(&machine, value).await;
                match self.server.ended() {
                    Some(ended) => return ended,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        assert_eq!(soon(ended).await.code(), Some(1), "{}", self.server.log());
        self.server.log()
    }

    async fn create(&mut self, n: u8) -> Result<hw::Hardware, tonic::Status> {
        let request = machine(&format!("02:00:00:00:00:{n:02x}"), &format!("198.51.100.{n}"));
        let created = self.hardware.create_hardware(request).await?;
        Ok(created.into_inner().hardware.unwrap())
    }

    /// Changes a label of `machine`.
    async fn update(&mut self, machine: &hw::Hardware, value: u32) -> Result<(), tonic::Status> {
        let labels = [("n".to_owned(), value.to_string())].into();
        let hardware = hw::Hardware { id: machine.id.clone(), labels, ..Default::default() };
        let update_mask = Some(prost_types::FieldMask { paths: vec!["labels".into()] });
        let request =
            hw::UpdateHardwareRequest { hardware: Some(hardware), update_mask, force: false };
        self.hardware.update_hardware(request).await.map(drop)
    }

    /// The file that fills the disk.
    fn filler(&self) -> PathBuf {
        self.server.small_disk().join("filler")
    }

    /// Takes all space that is left on the disk.
    fn fill(&self) {
        let filler = File::options().create(true).append(true).open(self.filler());
        let Ok(mut filler) = filler else { return }; // the disk went with its process
        while filler.write_all(&[7; 4096]).is_ok() {}
    }
}

#[tokio::test]
async fn a_full_disk_refuses_new_records_and_takes_deletes() {
    let mut site = Site::new().await;
    let first = site.create(1).await.unwrap();
    let second = site.create(2).await.unwrap();
    site.fill();
    for _ in 0..20 {
        let refused = site.create(3).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    }
    site.update(&second, 1).await.unwrap();
    let delete = hw::DeleteHardwareRequest { id: first.id, revision: 0 };
    site.hardware.delete_hardware(delete).await.unwrap();
    assert!(site.server.is_ready().await);
    std::fs::remove_file(site.filler()).unwrap();
    site.create(3).await.unwrap();
    assert!(site.server.ended().is_none());
}

#[tokio::test]
async fn a_server_that_cannot_write_any_more_ends_with_an_error() {
    let log = Site::new().await.until_it_ends().await;
    assert!(log.contains("the store failed"), "{log}");
}

#[tokio::test]
async fn an_edge_that_cannot_write_its_feed_cache_any_more_ends_with_an_error() {
    let log = Site::with_edge().await.until_it_ends().await;
    assert!(log.contains("the store failed"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_to_a_full_disk_gets_507_and_leaves_nothing() {
    let place = Place::with_small_disk("data/images");
    let scratch = place.path("scratch").display().to_string();
    let server = place.start(&arguments(&["--images-scratch", &scratch])).await;
    let site = images::Site::of(server);
    let mut client = site.images(None).await;
    let large = images::create(&mut client, "large", images::upload("disk.raw"), "").await;
    let file = site.file("large.raw", &edge_images::disk().repeat(2));
    let mut curl = site.curl(&format!("/uploads/{}", large.id));
    curl.args(["--http1.1", "--write-out", "%{http_code}", "--upload-file"]).arg(file);
    let answer = String::from_utf8(curl.output().unwrap().stdout).unwrap();
    assert_eq!(answer, "the object store is full\n507");
    client.delete_image(DeleteImageRequest { id: large.id, revision: 0 }).await.unwrap();
    let uploads = site.server.small_disk().join("uploads");
    soon(async {
        while std::fs::read_dir(&uploads).unwrap().count() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;

    let small = images::create(&mut client, "small", images::upload("disk.raw"), "").await;
    assert_eq!(site.upload(&small.id, &site.file("small.raw", &images::disk())), "201");
    let small = images::settled(&mut client, &small.id).await;
    assert_eq!(small.state(), ImageState::Ready, "{}", small.state_reason);
    drop(site.server.terminate());
}

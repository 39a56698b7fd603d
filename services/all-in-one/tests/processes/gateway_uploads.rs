//! Uploads of images through the gateway: in the process of the image service, and in one of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tinwright::image::v1 as pb;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::door::client_output;
use super::images::{self, create, disk, settled, sha256, upload};
use super::process::{Place, Process, arguments, free_address, soon};

/// The services of a site without images.
const WITHOUT_IMAGES: &str = "address,hardware,identity,instance,power,workflow";

/// A site, and a gateway without TLS.
pub(super) struct Site {
    pub(super) site: images::Site,
    /// The process of the gateway, if it is another one.
    door: Option<Process>,
    pub(super) gateway: SocketAddr,
}

impl Site {
    /// A site whose gateway is in the process of the image service.
    pub(super) async fn in_one_process() -> Self {
        let gateway = free_address();
        let listen = gateway.to_string();
        let flags = ["--gateway-plaintext", "--gateway-listen", &listen];
        let server = Place::new().start(&arguments(&flags)).await;
        Self { site: images::Site::of(server), door: None, gateway }
    }

    /// A site with these `services`, and a gateway in a process of its own.
    async fn with_door(services: &str) -> Self {
        let control = Place::new().start(&arguments(&["--only", services])).await;
        let (place, gateway) = (Place::new(), free_address());
        let secrets = place.secrets();
        let words = ["identity", "issue", "--role", "door", "--subject", "service:gateway"];
        let words = [&words[..], &["--out", secrets.to_str().unwrap()]].concat();
        client_output(&control, &words);
        let (url, listen) = (format!("https://{}", control.place.grpc), gateway.to_string());
        let flags = ["--only", "gateway", "--peers", &url, "--gateway-plaintext"];
        let flags = [&flags[..], &["--gateway-listen", &listen]].concat();
        let door = Some(place.start(&arguments(&flags)).await);
        Self { site: images::Site::of(control), door, gateway }
    }

    /// Returns a new API key with `role`, in a tenant or for the site.
    pub(super) fn key(&self, role: &str, tenant: Option<&str>) -> String {
        let mut words = vec!["identity", "credential", "create", "--role", role];
        words.extend(tenant.iter().flat_map(|tenant| ["--tenant", *tenant]));
        let issued = client_output(&self.site.server, &words);
        issued.trim().rsplit_once("shown only once: ").unwrap().1.to_owned()
    }

    /// Makes a request about the image `id`. Returns the headers and the body of the response.
    fn curl(&self, id: &str, key: Option<&str>, further: &[&str]) -> String {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--include"]).args(further);
        let header = key.map(|key| format!("X-Api-Key: {key}"));
        command.args(header.iter().flat_map(|header| ["--header", header.as_str()]));
        command.arg(format!("http://{}/uploads/{id}", self.gateway));
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
    }

    /// Sends `file` as the image `id`. Returns the HTTP status.
    fn put(&self, id: &str, key: Option<&str>, file: &Path) -> u16 {
        status(&self.curl(id, key, &["--upload-file", file.to_str().unwrap()]))
    }

    /// Sends the beginning of `content`, and breaks off once it is in the file of the upload.
    async fn break_off(&self, id: &str, key: &str, content: &[u8], length: usize) {
        let mut stream = TcpStream::connect(self.gateway).await.unwrap();
        let head = format!(
            "PATCH /uploads/{id} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {key}\r\nTus-Resumable: 1.0.0\r\n\
             Upload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\n\
             Content-Length: {}\r\n\r\n",
            content.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&content[..length]).await.unwrap();
        let file = self.site.server.place.path("data/images/uploads").join(id);
        soon(async {
            while std::fs::metadata(&file).map_or(0, |it| it.len()) < length as u64 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// Sends the rest of the image `id` from its offset on, as soon as nobody else does.
    async fn go_on(&self, id: &str, key: &str, content: &[u8]) -> u16 {
        let head = ["--head", "--header", "Tus-Resumable: 1.0.0"];
        let kind = "Content-Type: application/offset+octet-stream";
        soon(async {
            loop {
                let offset = header(&self.curl(id, Some(key), &head), "upload-offset");
                let rest = self.site.file("rest", &content[offset.parse::<usize>().unwrap()..]);
                let data = format!("@{}", rest.display());
                let offset = format!("Upload-Offset: {offset}");
                let patch = ["--request", "PATCH", "--header", head[2], "--header", &offset];
                let patch = [&patch[..], &["--header", kind, "--data-binary", &data]].concat();
                let status = status(&self.curl(id, Some(key), &patch));
                if status != 423 {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
    }

    pub(super) fn end(self) {
        drop(self.door.map(Process::terminate));
        drop(self.site.server.terminate());
    }
}

/// Returns the status of a response. An interim response comes before it.
fn status(response: &str) -> u16 {
    let lines = response.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 "));
    let mut codes = lines.filter_map(|line| line.split(' ').next()?.parse().ok());
    codes.next_back().unwrap_or_else(|| panic!("{response}"))
}

fn header(response: &str, name: &str) -> String {
    let mut values = response.lines().filter_map(|line| line.split_once(": "));
    let found = values.find(|(it, _)| it.eq_ignore_ascii_case(name));
    found.unwrap_or_else(|| panic!("no {name}: {response}")).1.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_key_uploads_an_image_of_its_tenant_only() {
    let site = Site::in_one_process().await;
    for tenant in ["acme", "other"] {
        client_output(&site.site.server, &["tenant", "create", tenant]);
    }
    let mut images = site.site.images(Some("acme")).await;
    let image = create(&mut images, "disk", upload("disk.raw"), "").await;
    let file = site.site.file("disk.raw", &disk());
    let key = site.key("operator", Some("acme"));
    assert_eq!(site.put(&image.id, None, &file), 401);
    assert_eq!(site.put(&image.id, Some("wrong"), &file), 401);
    let (viewer, other) = (site.key("viewer", Some("acme")), site.key("operator", Some("other")));
    assert_eq!(site.put(&image.id, Some(&viewer), &file), 403);
    assert_eq!(site.put(&image.id, Some(&other), &file), 404);
    assert_eq!(site.put(&image.id, Some(&key), &file), 201);
    let ready = settled(&mut images, &image.id).await;
    assert_eq!(ready.state(), pb::ImageState::Ready, "{}", ready.state_reason);
    assert_eq!(ready.sha256, sha256(&disk()));
    let again = site.curl(&image.id, Some(&key), &["--upload-file", file.to_str().unwrap()]);
    assert!(status(&again) == 409 && again.contains("is not being uploaded: ready"), "{again}");
    assert_eq!(header(&again, "content-type"), "application/problem+json");
    assert!(
        site.site.server.log().contains("answered door=uploads method=PUT"),
        "{}",
        site.site.server.log()
    );
    site.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_breaks_off_goes_on_where_it_was() {
    let services = format!("{WITHOUT_IMAGES},image,builder");
    for site in [Site::in_one_process().await, Site::with_door(&services).await] {
        let mut images = site.site.images(None).await;
        let image = create(&mut images, "disk", upload("disk.raw"), "").await;
        let (disk, key) = (disk(), site.key("operator", None));
        let length = format!("Upload-Length: {}", disk.len());
        let version = "Tus-Resumable: 1.0.0";
        let begin = ["--request", "POST", "--header", version, "--header", &length];
        let begun = site.curl(&image.id, Some(&key), &begin);
        assert_eq!(status(&begun), 201, "{begun}");
        assert_eq!(header(&begun, "location"), format!("/uploads/{}", image.id));
        let half = disk.len() / 2;
        site.break_off(&image.id, &key, &disk, half).await;
        let head = site.curl(&image.id, Some(&key), &["--head", "--header", version]);
        assert_eq!(header(&head, "upload-offset"), half.to_string(), "{head}");
        assert_eq!(site.go_on(&image.id, &key, &disk).await, 204);
        let ready = settled(&mut images, &image.id).await;
        assert_eq!(ready.state(), pb::ImageState::Ready, "{}", ready.state_reason);
        assert_eq!(ready.sha256, sha256(&disk));
        site.end();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_without_an_image_service_has_no_uploads() {
    let site = Site::with_door(WITHOUT_IMAGES).await;
    let (key, file) = (site.key("operator", None), site.site.file("disk.raw", &disk()));
    assert_eq!(site.put("0198c0de-0000-7000-8000-000000000001", Some(&key), &file), 404);
    site.end();
}

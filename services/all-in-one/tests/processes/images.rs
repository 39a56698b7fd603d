//! Images through the whole server: a client uploads or names a file, and the builder of the
//! process converts and stores it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use runtime::{Caller, Channel, Role};
use sha2::{Digest as _, Sha256};
use tinwright::identity::v1::tenant_service_client::TenantServiceClient;
use tinwright::identity::v1::{CreateTenantRequest, Tenant};
use tinwright::image::v1 as pb;
use tinwright::image::v1::image_service_client::ImageServiceClient;
use tinwright::image::v1::image_source::Source;
use tonic::Code;
use tower::{Service as _, ServiceExt as _};

use super::process::{Place, Process, arguments, soon};

/// Size of the disk in bytes: one block with data, one with zeros, and a part of a block.
const DISK_BYTES: usize = (8 << 20) + 512;

/// A server, and files for it.
pub(super) struct Site {
    pub(super) server: Process,
    files: tempfile::TempDir,
}

impl Site {
    pub(super) async fn start() -> Self {
        let arguments = arguments(&["--images-allow-networks", "127.0.0.0/8"]);
        Self::of(Place::new().start(&arguments).await)
    }

    /// The site of `server`.
    pub(super) fn of(server: Process) -> Self {
        Self { server, files: tempfile::tempdir().unwrap() }
    }

    pub(super) async fn images(&self, tenant: Option<&str>) -> ImageServiceClient<Channel> {
        let caller = Caller::new(Role::Admin, "person:anna").unwrap();
        let caller = match tenant {
            Some(tenant) => caller.with_tenant(tenant.parse().unwrap()).unwrap(),
            None => caller,
        };
        ImageServiceClient::new(self.server.channel_as(&self.server, &caller).await)
    }

    /// Writes a file, and returns its path.
    pub(super) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.files.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Returns curl with a request for `path`, as an admin of the site.
    pub(super) fn curl(&self, path: &str) -> Command {
        let secrets = self.server.place.secrets();
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--cacert"]);
        command.arg(secrets.join("ca.pem")).arg("--cert").arg(secrets.join("admin.pem"));
        command.arg("--key").arg(secrets.join("admin-key.pem"));
        command.arg(format!("https://{}{path}", self.server.place.grpc));
        command
    }

    /// Uploads `file` to the image `id`. Returns the text of the answer, and the HTTP status.
    pub(super) fn upload(&self, id: &str, file: &Path) -> String {
        let mut command = self.curl(&format!("/uploads/{id}"));
        command.args(["--write-out", "%{http_code}", "--upload-file"]).arg(file);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }

    /// Downloads the content `digest`.
    pub(super) fn blob(&self, digest: &str) -> Vec<u8> {
        self.try_blob(digest).unwrap_or_else(|| panic!("{digest}: {}", self.server.log()))
    }

    /// Downloads the content `digest`. None: the request failed.
    pub(super) fn try_blob(&self, digest: &str) -> Option<Vec<u8>> {
        let output = self.curl(&format!("/blobs/{digest}")).arg("--fail").output().unwrap();
        output.status.success().then_some(output.stdout)
    }

    /// Requests the file `name` of an image as a boot server does.
    async fn boot_file(&self, name: &str) -> (u16, Vec<u8>) {
        let netboot = Caller::new(Role::Service, "service:netboot").unwrap();
        let mut channel = self.server.channel_as(&self.server, &netboot).await;
        let request = axum::http::Request::get(format!("/images/{name}"));
        let request = request.body(tonic::body::Body::empty()).unwrap();
        let response = channel.ready().await.unwrap().call(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::Body::new(response.into_body());
        (status, axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec())
    }

    /// Returns the names of the files below a directory of images.
    pub(super) fn stored(&self, folder: &str) -> Vec<String> {
        let folder = self.server.place.path("data/images").join(folder);
        let mut folders = vec![folder];
        let mut names = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => names.push(entry.file_name().into_string().unwrap()),
                }
            }
        }
        names
    }
}

/// Returns a disk with a boot sector.
pub(super) fn disk() -> Vec<u8> {
    let mut disk = vec![0; DISK_BYTES];
    disk[..4096].fill(0x5a);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[DISK_BYTES - 512..].fill(7);
    disk
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(super) async fn create(
    images: &mut ImageServiceClient<Channel>,
    name: &str,
    source: Source,
    checksum: &str,
) -> pb::Image {
    let (source, checksum) = (Some(source), checksum.to_owned());
    let source = Some(pb::ImageSource { source, checksum, format: String::new() });
    let image = pb::Image { name: name.to_owned(), source, ..pb::Image::default() };
    let request = pb::CreateImageRequest { image: Some(image), request_id: String::new() };
    images.create_image(request).await.unwrap().into_inner().image.unwrap()
}

pub(super) fn upload(file_name: &str) -> Source {
    Source::Upload(pb::UploadSource { file_name: file_name.to_owned() })
}

async fn get(images: &mut ImageServiceClient<Channel>, id: &str) -> Result<pb::Image, Code> {
    let by = Some(pb::get_image_request::By::Id(id.to_owned()));
    let found = images.get_image(pb::GetImageRequest { by, tenant: String::new() }).await;
    found.map(|found| found.into_inner().image.unwrap()).map_err(|status| status.code())
}

/// Waits until the image `id` has a state that lasts.
pub(super) async fn settled(images: &mut ImageServiceClient<Channel>, id: &str) -> pb::Image {
    soon(async {
        loop {
            let image = get(images, id).await.unwrap();
            let is_settled =
                matches!(image.state(), pb::ImageState::Ready | pb::ImageState::Failed);
            if is_settled {
                return image;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await
}

/// Serves `folder` over HTTP until the result is dropped.
pub(super) async fn serve(folder: &Path) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let folder = folder.to_owned();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let file = move |axum::extract::Path(name): axum::extract::Path<String>| {
        let read = std::fs::read(folder.join(name));
        async move { read.map_err(|_| axum::http::StatusCode::NOT_FOUND) }
    };
    let app = axum::Router::new().route("/{name}", axum::routing::get(file));
    let served = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (address, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uploaded_disk_becomes_ready_and_is_stored_as_zstd_with_its_map() {
    let site = Site::start().await;
    let mut images = site.images(None).await;
    let image = create(&mut images, "disk", upload("disk.raw"), "").await;
    assert_eq!(image.state(), pb::ImageState::Uploading);
    let disk = disk();
    assert_eq!(site.upload(&image.id, &site.file("disk.raw", &disk)), "201");
    let ready = settled(&mut images, &image.id).await;
    assert_eq!(ready.state(), pb::ImageState::Ready, "{}{}", ready.state_reason, site.server.log());
    assert_eq!(ready.sha256, sha256(&disk));
    assert_eq!((ready.size_bytes, &ready.source_sha256), (DISK_BYTES as u64, &sha256(&disk)));
    let stored = site.blob(&ready.stored_sha256);
    assert_eq!(sha256(&stored), ready.stored_sha256);
    let file = site.file("disk.zst", &stored);
    let output = Command::new("zstd").arg("-dcq").arg(file).output().unwrap();
    assert!(output.stdout == disk, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(sha256(&site.blob(&ready.map_sha256)), ready.map_sha256);
    let refused = site.upload(&image.id, &site.file("x", b"x"));
    assert_eq!(refused, "image disk is not being uploaded: ready\n409");
    assert_eq!(site.stored("uploads"), [""; 0]);
    check_boot_files(&site, &mut images, ready, &stored).await;
    drop(site.server.terminate());
}

/// Boot servers get the files of the image `ready` once it is public.
async fn check_boot_files(
    site: &Site,
    images: &mut ImageServiceClient<Channel>,
    ready: pb::Image,
    stored: &[u8],
) {
    let name = |suffix: &str| format!("{}{suffix}", ready.stored_sha256);
    assert_eq!(site.boot_file(&name(".map")).await.0, 404, "it is not public");
    let image = Some(pb::Image { public: true, ..ready.clone() });
    let update_mask = Some(prost_types::FieldMask { paths: vec!["public".into()] });
    images.update_image(pb::UpdateImageRequest { image, update_mask }).await.unwrap();
    assert!(site.boot_file(&name(".raw.zst")).await == (200, stored.to_vec()));
    let (status, map) = site.boot_file(&name(".map")).await;
    assert_eq!((status, sha256(&map)), (200, ready.map_sha256.clone()));
    let (status, bmap) = site.boot_file(&name(".bmap")).await;
    assert_eq!(status, 200);
    let folder = site.files.path();
    let (bmap, file) = (site.file("disk.bmap", &bmap), site.file("disk.raw.zst", stored));
    let copy = folder.join("copy");
    let mut command = Command::new("bmaptool");
    command.args(["copy", "--bmap"]).arg(bmap).arg(file).arg(&copy);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read(copy).unwrap() == disk());
    assert_eq!(site.boot_file(&format!("{}.map", "0".repeat(64))).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_content_of_two_tenants_is_stored_once_and_neither_sees_the_others_image() {
    let site = Site::start().await;
    let mut tenants = TenantServiceClient::new(site.server.channel().await);
    for name in ["acme", "other"] {
        let tenant = Some(Tenant { name: name.into(), ..Tenant::default() });
        let request = CreateTenantRequest { tenant, request_id: String::new() };
        tenants.create_tenant(request).await.unwrap();
    }
    let (address, _served) = serve(site.files.path()).await;
    site.file("disk.raw", &disk());
    let qcow2 = site.files.path().join("disk.qcow2");
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-f", "raw", "-O", "qcow2"]);
    convert.arg(site.files.path().join("disk.raw")).arg(&qcow2);
    assert!(convert.status().unwrap().success());
    let checksum = format!("sha256:{}", sha256(&std::fs::read(&qcow2).unwrap()));
    let mut ready = Vec::new();
    for (tenant, file, checksum) in
        [("acme", "disk.raw", ""), ("other", "disk.qcow2", checksum.as_str())]
    {
        let mut images = site.images(Some(tenant)).await;
        let url = Source::Url(pb::UrlSource { url: format!("http://{address}/{file}") });
        let image = create(&mut images, "disk", url, checksum).await;
        let image = settled(&mut images, &image.id).await;
        assert_eq!(image.state(), pb::ImageState::Ready, "{}", image.state_reason);
        ready.push(image);
    }
    let [acme, other] = ready.as_slice() else { unreachable!() };
    assert_eq!(acme.stored_sha256, other.stored_sha256);
    assert_eq!(site.stored("blobs").len(), 2, "the content and its map");
    assert_eq!((acme.source_format.as_str(), other.source_format.as_str()), ("raw", "qcow2"));
    let mut of_other = site.images(Some("other")).await;
    assert_eq!(get(&mut of_other, &acme.id).await, Err(Code::NotFound));
    let delete = pb::DeleteImageRequest { id: acme.id.clone(), revision: 0 };
    assert_eq!(of_other.delete_image(delete).await.unwrap_err().code(), Code::NotFound);
    let sign = pb::AddSignatureRequest { image_id: acme.id.clone(), text: "x".into() };
    assert_eq!(of_other.add_signature(sign).await.unwrap_err().code(), Code::NotFound);
    drop(site.server.terminate());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_disk_fails_with_its_reason_and_leaves_nothing() {
    let site = Site::start().await;
    let mut images = site.images(None).await;
    let (address, _served) = serve(site.files.path()).await;
    let secret = site.file("secret", &[0x42; 4096]);
    let backed = site.files.path().join("backed.qcow2");
    let mut create_backed = Command::new("qemu-img");
    create_backed.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]);
    assert!(create_backed.arg(&secret).arg(&backed).arg("1M").status().unwrap().success());
    site.file("page.html", b"<!DOCTYPE html><title>not found</title>");
    site.file("disk.raw", &disk());
    let url = |file: &str| Source::Url(pb::UrlSource { url: format!("http://{address}/{file}") });
    for (name, source, checksum, reason) in [
        ("backed", url("backed.qcow2"), String::new(), "backing"),
        ("page", url("page.html"), String::new(), "HTML"),
        ("sum", url("disk.raw"), format!("sha256:{}", "0".repeat(64)), "checksum"),
        ("absent", url("absent.raw"), String::new(), "404"),
        (
            "private",
            Source::Url(pb::UrlSource { url: "http://10.0.0.1/disk.raw".into() }),
            String::new(),
            "10.0.0.1",
        ),
    ] {
        let image = create(&mut images, name, source, &checksum).await;
        let failed = settled(&mut images, &image.id).await;
        assert_eq!(failed.state(), pb::ImageState::Failed, "{name}");
        assert!(failed.state_reason.contains(reason), "{name}: {}", failed.state_reason);
        assert!(!failed.state_reason.contains('\n'), "{name}: {}", failed.state_reason);
    }
    for folder in ["blobs", "uploads"] {
        assert_eq!(site.stored(folder), [""; 0], "{folder}");
    }
    let scratch = site.stored("scratch");
    assert!(scratch.iter().all(|name| name.contains("lock")), "{scratch:?}");
    drop(site.server.terminate());
}

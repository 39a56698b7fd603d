//! Images from OCI registries: Debian's docker-registry, to which skopeo copies artifacts.

mod arguments;
mod cuts;
mod registry;

use std::process::Command;

use runtime::Channel;
use tinwright::event::v1 as ev;
use tinwright::event::v1::event_service_client::EventServiceClient;
use tinwright::image::v1 as pb;
use tinwright::image::v1::build_service_client::BuildServiceClient;
use tinwright::image::v1::image_service_client::ImageServiceClient;
use tinwright::image::v1::image_source::Source;

use self::arguments::ArgumentWatch;
use self::cuts::Cuts;
use self::registry::{PASSWORD, Registry, USER, tar};
use super::images::{Site, create, disk, settled, sha256, upload};
use super::process::{Place, arguments, soon};

const DISK: &str = "application/octet-stream";
/// Begins a digest in a pinned reference.
const PINNED: &str = "@sha256:";
const TAR: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Returns `bytes` in base64, by the program of Debian's coreutils.
fn base64(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bytes");
    std::fs::write(&file, bytes).unwrap();
    let output = Command::new("base64").arg("--wrap=0").arg(file).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The artifact `name` at `registry`, without TLS and login.
fn oci(registry: impl std::fmt::Display, name: &str) -> pb::OciSource {
    let reference = format!("{registry}/{name}");
    pb::OciSource { reference, plain_http: true, ..pb::OciSource::default() }
}

fn pinned(image: &pb::Image) -> String {
    match image.source.clone().and_then(|it| it.source) {
        Some(Source::Oci(oci)) => oci.pinned_reference,
        other => panic!("{other:?}"),
    }
}

async fn imported(
    images: &mut ImageServiceClient<Channel>,
    name: &str,
    source: pb::OciSource,
) -> pb::Image {
    let image = create(images, name, Source::Oci(source), "").await;
    settled(images, &image.id).await
}

fn check_ready(image: &pb::Image, disk: &[u8]) {
    assert_eq!(image.state(), pb::ImageState::Ready, "{}", image.state_reason);
    assert_eq!(image.sha256, sha256(disk));
}

/// Imports the disk of a guarded registry by the command line. Returns the output, or the errors.
fn import(site: &Site, name: &str, registry: &Registry, password: &str) -> Result<String, String> {
    let file = site.file("password", format!("{password}\n").as_bytes());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    command.args(["image", "import", name, "--username", USER, "--password-file"]).arg(file);
    command.arg(format!("oci://{}/lab/disk:12", registry.address)).args(["--output", "name"]);
    command.arg("--secrets").arg(site.server.place.secrets());
    command.args(["--server", &format!("https://{}", site.server.place.grpc)]);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_artifact_has_the_content_of_an_upload_and_its_password_is_nowhere() {
    let registry = Registry::guarded();
    let digest = registry.push("lab/disk:12", &[(DISK, "disk.raw", &disk())]);
    let mut settings = arguments(&["--images-allow-networks", "127.0.0.0/8", "--log", "debug"]);
    settings.extend(["--images-ca".into(), registry.certificate().display().to_string()]);
    let site = Site::of(Place::new().start(&settings).await);
    let mut images = site.images(None).await;
    let uploaded = create(&mut images, "uploaded", upload("disk.raw"), "").await;
    let mut send = site.curl(&format!("/uploads/{}", uploaded.id));
    send.arg("--fail").arg("--upload-file").arg(site.file("disk.raw", &disk()));
    assert!(send.status().unwrap().success());
    let uploaded = settled(&mut images, &uploaded.id).await;
    check_ready(&uploaded, &disk());

    let watch = ArgumentWatch::start();
    let printed = import(&site, "imported", &registry, PASSWORD);
    let lines = watch.end();
    assert!(lines.iter().any(|line| line.contains(" image import imported ")));
    assert_eq!(lines.iter().find(|line| line.contains(PASSWORD)), None);
    assert_eq!(printed, Ok("image/imported\n".to_owned()));
    let by = Some(pb::get_image_request::By::Name("imported".into()));
    let request = pb::GetImageRequest { by, tenant: String::new() };
    let image = images.get_image(request).await.unwrap().into_inner().image.unwrap();
    check_ready(&image, &disk());
    assert_eq!(image.stored_sha256, uploaded.stored_sha256);
    assert_eq!(pinned(&image), format!("{}/lab/disk:12@{digest}", registry.address));

    let refused = import(&site, "refused", &registry, &format!("wr0ng {PASSWORD}"));
    let refused = refused.unwrap_err();
    let problem = "/manifests/12: the server answered 401 Unauthorized: wrong user or password";
    assert!(refused.contains(problem), "{refused}");
    let source = pb::OciSource { plain_http: false, ..oci(registry.address, "lab/disk:12") };
    let failed = imported(&mut images, "anonymous", source).await;
    let problem = "401 Unauthorized: a user and a password needed";
    assert!(failed.state_reason.ends_with(problem), "{}", failed.state_reason);
    check_nowhere(&site).await;
    drop(site.server.terminate());
}

/// Checks that the password is in no answer, event or file of the server.
async fn check_nowhere(site: &Site) {
    let channel = site.server.channel().await;
    let mut builds = BuildServiceClient::new(channel.clone());
    let builds = builds.list_builds(pb::ListBuildsRequest::default()).await.unwrap().into_inner();
    assert_eq!(builds.builds.len(), 4);
    let request = ev::ListEventsRequest { page_size: 1000, ..Default::default() };
    let events = EventServiceClient::new(channel).list_events(request).await.unwrap().into_inner();
    assert!(!events.events.is_empty());
    let answers = [
        tinwright::json::write(&builds).unwrap().to_string(),
        tinwright::json::write(&events).unwrap().to_string(),
    ];
    let encoded = base64(format!("{USER}:{PASSWORD}").as_bytes());
    for secret in [PASSWORD, &encoded] {
        for answer in &answers {
            assert!(!answer.contains(secret), "{answer}");
        }
        assert_eq!(files_with(site, secret), "");
    }
    // The search finds what is stored in clear.
    assert_ne!(files_with(site, &format!("lab/disk:12{PINNED}")), "");
    assert!(site.server.log().contains("build leased"), "the log has the builds");
}

/// Returns the names of the server's files that have `text`.
fn files_with(site: &Site, text: &str) -> String {
    let mut grep = Command::new("grep");
    grep.args(["--recursive", "--files-with-matches", "--text", "--fixed-strings", text]);
    let found = grep.arg(site.server.place.path("")).output().unwrap();
    String::from_utf8(found.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_in_a_tar_and_one_of_several_architectures_are_imported() {
    let (registry, site) = (Registry::open(), Site::start().await);
    let mut images = site.images(None).await;
    let disk = disk();
    let mut other = disk.clone();
    other[0] = 1;
    let container = tar(&[("disk/system.img", &disk), ("etc/motd", b"hello")]);
    registry.push("lab/container:12", &[(TAR, "", &container)]);
    let image = imported(&mut images, "container", oci(registry.address, "lab/container:12")).await;
    check_ready(&image, &disk);
    let index = registry.push_index(
        "lab/index",
        &[("arm64", (DISK, "arm.raw", &other)), ("amd64", (DISK, "amd.raw", &disk))],
    );
    let source = oci(registry.address, "lab/index");
    let image = imported(&mut images, "amd64", source.clone()).await;
    check_ready(&image, &disk);
    assert_eq!(pinned(&image), format!("{}/lab/index:latest@{index}", registry.address));
    let of = |architecture: &str| {
        let reference = format!("{}/lab/index@{index}", registry.address);
        pb::OciSource { reference, architecture: architecture.into(), ..source.clone() }
    };
    check_ready(&imported(&mut images, "arm64", of("arm64")).await, &other);
    let failed = imported(&mut images, "riscv64", of("riscv64")).await;
    let problem = "linux/riscv64: not in the index, which has linux/arm64, linux/amd64";
    assert!(failed.state_reason.ends_with(problem), "{}", failed.state_reason);
    drop(site.server.terminate());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_artifact_with_one_disk_fails_with_its_reason() {
    let (registry, site) = (Registry::open(), Site::start().await);
    let mut images = site.images(None).await;
    let disk = disk();
    let without = tar(&[("etc/motd", b"hello")]);
    let with_two = tar(&[("disk/a.img", &disk), ("disk/b.img", &disk)]);
    registry.push("lab/layers:1", &[(DISK, "a.raw", &disk), (DISK, "b.raw", &disk[..512])]);
    registry.push("lab/text:1", &[(DISK, "a.raw", b"no disk, but a text")]);
    registry.push("lab/without:1", &[(TAR, "", &without)]);
    registry.push("lab/two:1", &[(TAR, "", &with_two)]);
    for (name, problem) in [
        ("layers:1", "2 layers: expected one, with the disk"),
        ("text:1", "source: unsupported format: text"),
        ("without:1", "source: tar: no file below disk/: expected exactly one image"),
        ("two:1", ": expected exactly one image"),
        ("absent:1", "the server answered 404 Not Found: not in the registry"),
        ("layers:2", "the server answered 404 Not Found: not in the registry"),
    ] {
        let source = oci(registry.address, &format!("lab/{name}"));
        let failed = imported(&mut images, &name.replace(':', "-"), source).await;
        assert_eq!(failed.state(), pb::ImageState::Failed, "{name}");
        assert!(failed.state_reason.ends_with(problem), "{name}: {}", failed.state_reason);
    }
    for folder in ["blobs", "uploads"] {
        assert_eq!(site.stored(folder), [""; 0], "{folder}");
    }
    let scratch = site.stored("scratch");
    assert!(scratch.iter().all(|name| name.contains("lock")), "{scratch:?}");
    drop(site.server.terminate());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_import_goes_on_with_the_digest_that_the_tag_had() {
    let registry = Registry::open();
    let (first, mut second) = (disk(), disk());
    second[0] = 1;
    let digest = registry.push("lab/disk:12", &[(DISK, "disk.raw", &first)]);
    let proxy = Cuts::start(registry.address, &[]).await;
    let settings = arguments(&["--images-allow-networks", "127.0.0.0/8"]);
    let site = Site::of(Place::new().start(&settings).await);
    let source = Source::Oci(oci(proxy.address, "lab/disk:12"));
    let image = create(&mut site.images(None).await, "disk", source, "").await;
    let has_requests = async |number: usize| {
        while proxy.requests().len() < number {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon(has_requests(1)).await;
    let place = site.server.kill();
    registry.push("lab/disk:12", &[(DISK, "disk.raw", &second)]);
    let site = Site::of(place.start(&settings).await);
    soon(has_requests(2)).await;
    proxy.open();
    let ready = settled(&mut site.images(None).await, &image.id).await;
    check_ready(&ready, &first);
    assert_eq!(pinned(&ready), format!("{}/lab/disk:12@{digest}", proxy.address));
    drop(site.server.terminate());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_is_cut_twice_goes_on() {
    let (registry, site) = (Registry::open(), Site::start().await);
    registry.push("lab/disk:12", &[(DISK, "disk.raw", &disk())]);
    let proxy = Cuts::start(registry.address, &[3_000_000, 2_000_000]).await;
    proxy.open();
    let mut images = site.images(None).await;
    let image = imported(&mut images, "disk", oci(proxy.address, "lab/disk:12")).await;
    check_ready(&image, &disk());
    let requests = proxy.requests();
    let range = |request: &String| {
        request
            .split_once("\nrange: bytes=")
            .map(|(_, rest)| rest.split_once('-').unwrap().0.parse::<u64>().unwrap())
    };
    let ranges: Vec<_> = requests.iter().map(range).collect();
    assert_eq!((ranges.len(), ranges[0]), (3, None), "{requests:?}");
    assert!(ranges[1] > Some(2_900_000) && ranges[2] > Some(4_800_000), "{ranges:?}");
    drop(site.server.terminate());
}

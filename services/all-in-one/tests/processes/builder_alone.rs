//! A builder in a process of its own, with the certificate of a builder only.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::StreamExt as _;
use tinwright::image::v1 as pb;
use tinwright::image::v1::image_source::Source;
use tokio::task::JoinHandle;

use super::edge::client_output;
use super::images::{Site, create, disk, settled, sha256, upload};
use super::process::{Place, Process, arguments, get, soon};

/// The services of the control plane, which has no builder.
const CONTROL: &str = "address,hardware,identity,instance,power,workflow";
/// Bytes of the disk that the server sends before it stalls.
const BEGIN_BYTES: usize = 1 << 20;

/// A control plane, the images in a process of their own with its flags, and the place and flags of a builder.
pub(super) struct Split {
    pub(super) control: Process,
    pub(super) images: Site,
    pub(super) image_flags: Vec<String>,
    pub(super) builder: Place,
    pub(super) flags: Vec<String>,
}

impl Split {
    pub(super) async fn start() -> Self {
        let (control, image) = (Place::new(), Place::new());
        let (to_control, to_image) =
            (format!("https://{}", control.grpc), format!("image=https://{}", image.grpc));
        let control = control.start(&arguments(&["--only", CONTROL, "--peers", &to_image])).await;
        let image = image.with_secrets_of(&control.place, &[]);
        let image_flags = arguments(&["--only", "image", "--peers", &to_control]);
        let image = image.start(&image_flags).await;
        let builder = Place::new();
        issue(&control, &builder);
        let peers = format!("{to_control},{to_image}");
        let flags = ["--only", "builder", "--peers", &peers];
        let flags = [&flags[..], &["--images-allow-networks", "127.0.0.0/8"]].concat();
        let flags = arguments(&flags);
        Self { control, images: Site::of(image), image_flags, builder, flags }
    }
}

/// Issues a builder into the secrets of `place`.
fn issue(control: &Process, place: &Place) {
    let (address, secrets) = (place.grpc.ip().to_string(), place.secrets());
    let words = ["identity", "issue", "--role", "builder", "--server-name", &address];
    let words = [&words[..], &["--out", secrets.to_str().unwrap()]].concat();
    client_output(control, &words);
}

/// A server of one disk. It stalls within the disk for the first request, and sends all of it to the
/// others.
struct DiskServer {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    served: JoinHandle<()>,
}

impl DiskServer {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<AtomicUsize>::default();
        let counted = requests.clone();
        let file = move || {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            async move { body(number > 0) }
        };
        let app = axum::Router::new().route("/disk.raw", axum::routing::get(file));
        let served = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, requests, served }
    }

    fn source(&self) -> Source {
        Source::Url(pb::UrlSource { url: format!("http://{}/disk.raw", self.address) })
    }
}

impl Drop for DiskServer {
    fn drop(&mut self) {
        self.served.abort();
    }
}

/// Returns the disk, or its beginning without an end.
fn body(is_whole: bool) -> Body {
    let mut disk = Bytes::from(disk());
    if is_whole {
        return Body::from(disk);
    }
    let begin = futures_util::stream::iter([Ok::<_, std::io::Error>(disk.split_to(BEGIN_BYTES))]);
    Body::from_stream(begin.chain(futures_util::stream::pending()))
}

/// Returns the directories of attempts in the scratch directory of a builder.
fn attempts(builder: &Place) -> Vec<String> {
    let scratch = builder.path("data/images/scratch");
    let entries = std::fs::read_dir(scratch).unwrap().map(Result::unwrap);
    let directories = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    directories.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Waits until readiness of `process` has a line that begins with `beginning`. Returns the line.
async fn readiness_line(process: &Process, beginning: &str) -> String {
    soon(async {
        loop {
            let text = get(process.place.vitals, "/readyz").await.expect("it stays ready");
            match text.lines().find(|line| line.starts_with(beginning)) {
                Some(line) => return line.to_owned(),
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await
}

fn check_ready(image: &pb::Image, builder: &Process) {
    let why = || format!("{}{}", image.state_reason, builder.log());
    assert_eq!(image.state(), pb::ImageState::Ready, "{}", why());
    assert_eq!(image.sha256, sha256(&disk()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_builder_with_its_own_certificate_builds_and_goes_on_after_a_kill() {
    let Split { control, images: site, builder, flags, .. } = Split::start().await;
    let mut images = site.images(None).await;
    let uploaded = create(&mut images, "uploaded", upload("disk.raw"), "").await;
    assert_eq!(site.upload(&uploaded.id, &site.file("disk.raw", &disk())), "201");

    let builder = builder.start(&flags).await;
    check_ready(&settled(&mut images, &uploaded.id).await, &builder);
    let server = DiskServer::start().await;
    let imported = create(&mut images, "imported", server.source(), "").await;
    let begun = async {
        while server.requests.load(Ordering::Relaxed) == 0 || attempts(&builder.place).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(begun).await;
    let builder = builder.kill();
    assert_eq!(attempts(&builder).len(), 1, "the files of the build are left");

    let builder = builder.start(&flags).await;
    check_ready(&settled(&mut images, &imported.id).await, &builder);
    assert!(server.requests.load(Ordering::Relaxed) > 1);
    assert!(builder.log().contains("scratch of an earlier build removed"), "{}", builder.log());
    soon(async {
        while !attempts(&builder.place).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(!site.server.place.path("data/images/scratch").exists(), "nothing is built there");
    check_secrets(&builder.place);
    drop((control, builder));
}

/// Checks that the builder has its certificate only, and no store.
fn check_secrets(builder: &Place) {
    let mut names: Vec<_> = std::fs::read_dir(builder.secrets())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["builder-key.pem", "builder.pem", "ca.pem"]);
    assert!(!builder.path("data/store").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secrets_of_a_builder_are_for_a_builder_only() {
    let control = Place::new().start(&arguments(&["--only", CONTROL])).await;
    let place = Place::new();
    issue(&control, &place);
    let peers = format!("https://{}", control.place.grpc);
    let why = place.refused(&arguments(&["--only", "builder,image", "--peers", &peers])).await;
    assert!(why.contains("has the secrets of a builder, which serves builder only"), "{why}");
    let why = Place::new().refused(&arguments(&["--only", "builder", "--peers", &peers])).await;
    assert!(why.contains("--role builder for a builder"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_says_how_the_sandbox_is_limited() {
    assert!(rustix::process::geteuid().is_root(), "cgroups are root's: run tests as root");
    let server = Place::new().start(&[]).await;
    let line = readiness_line(&server, "sandbox of the builder: ").await;
    assert!(line.contains("memory and processes: cgroup, "), "{line}");
    assert!(line.contains("user: unprivileged id"), "{line}");

    let without = Place::new().start(&arguments(&["--only", CONTROL])).await;
    let text = get(without.place.vitals, "/readyz").await.unwrap();
    assert!(!text.contains("sandbox"), "it has no builder: {text}");
}

/// Returns a place whose process begins with the commands `before`, in a user namespace of its own.
fn in_user_namespace(before: &str) -> Place {
    let place = Place::new();
    let script = place.path("program");
    let program = env!("CARGO_BIN_EXE_tinwright");
    let inner = format!("set -e; {before}; exec \"$0\" \"$@\"");
    let text = format!(
        "#!/bin/sh\nexec unshare --user --map-root-user --mount sh -c '{inner}' {program} \"$@\"\n"
    );
    write_program(&script, &text);
    place.with_program(script)
}

fn write_program(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_user_namespaces_is_named_by_readiness_and_builds_nothing() {
    let place = in_user_namespace("echo 0 > /proc/sys/user/max_user_namespaces");
    let server = place.start(&[]).await;
    let line = readiness_line(&server, "no image is built: ").await;
    assert!(line.contains("/proc/sys/user/max_user_namespaces is 0"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_delegated_cgroup_readiness_names_rlimits() {
    // An empty file system in the place of the cgroups, which only this process sees.
    let place = in_user_namespace("mount -t tmpfs none /sys/fs/cgroup");
    let server = place.start(&[]).await;
    let line = readiness_line(&server, "sandbox of the builder: ").await;
    assert!(line.contains("rlimits, because no cgroup is delegated"), "{line}");
}

//! Imports of which one process is killed at each step: the server, the image service, the builder, or a process of the sandbox.
//!
//! ```text
//! create ─▶ upload ─▶ build (sandbox) ─▶ READY ─▶ delete ─▶ gone      a process that is killed is started again,
//!    └─────────┴──────────┴────────────────┴─────────┘                and the client repeats what was not answered
//! ```
//!
//! Whatever the moment, the import ends with the bytes of the disk, and nothing of it is left: no file, no process, no group, and a day later no object.

mod leftovers;
mod server_steps;

use std::collections::BTreeMap;
use std::time::Duration;

use runtime::Channel;
use rustix::process::{Pid, Signal, kill_process};
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;
use tinwright::image::v1::image_service_client::ImageServiceClient;
use tokio::sync::Mutex;
use tokio::task::{block_in_place, spawn_blocking};
use tonic::{Code, Status};
use uuid::Uuid;

use super::builder_alone::Split;
use super::images::{Site, disk, sha256, upload};
use super::process::{Place, Process};
use super::tracer::{Step, Trace, Tracer};
use server_steps::ServerSteps;

/// Number of kills at the steps of one name: at each step, if there are not more, and else at steps that are spread over them.
const MAX_KILLS: usize = 40;
/// Moments in the life of a sandbox at which its processes are killed.
const SANDBOX_MOMENTS: u32 = 20;
/// Time between two of these moments.
const MOMENT: Duration = Duration::from_millis(4);
/// The time limit of an import. It is longer than a builder's lease, which may have to end.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The right to run a test: it looks for the sandboxes of all servers.
static ALONE: Mutex<()> = Mutex::const_new(());

/// An import of a client, which may be interrupted and repeated.
struct Import {
    name: String,
    request_id: String,
    disk: Vec<u8>,
}

impl Import {
    /// The import number `number`. No other one has its disk.
    fn new(number: u32) -> Self {
        let mut disk = disk();
        disk[..4].copy_from_slice(&number.to_be_bytes());
        Self { name: format!("disk-{number}"), request_id: Uuid::new_v4().to_string(), disk }
    }

    /// Imports the disk, checks what is stored, and deletes the image. Begins with what an interrupted one has left.
    async fn run(&self, site: &Site) -> Result<(), Status> {
        let mut images = site.images(None).await;
        let Some(id) = self.create(&mut images).await? else { return Ok(()) };
        let file = site.file(&self.name, &self.disk);
        while let Some(image) = found(&mut images, &id).await? {
            match image.state() {
                ImageState::Uploading => drop(block_in_place(|| site.upload(&id, &file))),
                ImageState::Ready => {
                    self.check(site, &image);
                    let request = pb::DeleteImageRequest { id: id.clone(), revision: 0 };
                    images.delete_image(request).await?;
                }
                ImageState::Unspecified
                | ImageState::Processing
                | ImageState::Failed
                | ImageState::Damaged => assert!(!has_failed(&image), "{}", image.state_reason),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Creates the image, or finds the one that an interrupted request has created. Returns its id. None: it was deleted.
    async fn create(
        &self,
        images: &mut ImageServiceClient<Channel>,
    ) -> Result<Option<String>, Status> {
        let source = Some(upload("disk.raw"));
        let source = Some(pb::ImageSource { source, ..pb::ImageSource::default() });
        let image = pb::Image { name: self.name.clone(), source, ..pb::Image::default() };
        let request_id = self.request_id.clone();
        let request = pb::CreateImageRequest { image: Some(image), request_id };
        match images.create_image(request).await {
            Ok(created) => Ok(created.into_inner().image.map(|image| image.id)),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Checks the digests and the bytes of a READY image.
    fn check(&self, site: &Site, image: &pb::Image) {
        assert_eq!(image.sha256, sha256(&self.disk));
        for digest in [&image.stored_sha256, &image.map_sha256] {
            // The server may be killed.
            if let Some(blob) = site.try_blob(digest) {
                assert_eq!(&sha256(&blob), digest);
            }
        }
    }
}

fn has_failed(image: &pb::Image) -> bool {
    matches!(image.state(), ImageState::Failed | ImageState::Damaged)
}

/// Returns the image `id`. None: it was deleted.
async fn found(
    images: &mut ImageServiceClient<Channel>,
    id: &str,
) -> Result<Option<pb::Image>, Status> {
    let by = Some(pb::get_image_request::By::Id(id.to_owned()));
    match images.get_image(pb::GetImageRequest { by, tenant: String::new() }).await {
        Ok(found) => Ok(found.into_inner().image),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

/// Kills a process of the next build's sandbox, `moment` after it is seen: the keeper, its child, or the job below that. True if it was still there.
async fn kill_in_sandbox(site: &Site, depth: usize, moment: Duration) -> bool {
    let process = loop {
        // The server checks the host in a sandbox without a build.
        let found = leftovers::descendant(site.server.id(), depth);
        if let Some(process) = found.filter(|_| !leftovers::builds(&site.server.place).is_empty()) {
            break process.cast_signed();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    tokio::time::sleep(moment).await;
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).is_ok()
}

/// A site of which one process is killed again and again.
struct Sweep {
    site: Option<Site>,
    /// The builder, if it is apart from the images.
    builder: Option<Process>,
    /// The control plane, if the images are apart.
    _control: Option<Process>,
    is_builder_killed: bool,
    /// The flags of the process that is killed.
    flags: Vec<String>,
    imports: u32,
}

impl Sweep {
    /// One server, which is killed.
    async fn start() -> Self {
        let site = Some(Site::of(Place::new().start(&[]).await));
        let (builder, control) = (None, None);
        Self {
            site,
            builder,
            _control: control,
            is_builder_killed: false,
            flags: vec![],
            imports: 0,
        }
    }

    /// Images and builder in processes of their own, of which one is killed.
    async fn split(is_builder_killed: bool) -> Self {
        let Split { control, images, image_flags, builder, flags } = Split::start().await;
        Self {
            site: Some(images),
            builder: Some(builder.start(&flags).await),
            _control: Some(control),
            is_builder_killed,
            flags: if is_builder_killed { flags } else { image_flags },
            imports: 0,
        }
    }

    fn site(&self) -> &Site {
        self.site.as_ref().unwrap()
    }

    fn builder(&self) -> &Process {
        self.builder.as_ref().unwrap_or(&self.site().server)
    }

    /// Returns the process that is killed.
    fn victim(&self) -> &Process {
        if self.is_builder_killed { self.builder() } else { &self.site().server }
    }

    fn next_import(&mut self) -> Import {
        self.imports += 1;
        Import::new(self.imports)
    }

    /// Starts the process again that was killed.
    async fn restart(&mut self) {
        if self.is_builder_killed {
            let place = self.builder.take().unwrap().kill();
            self.builder = Some(place.start(&self.flags).await);
        } else {
            let place = self.site.take().unwrap().server.kill();
            self.site = Some(Site::of(place.start(&self.flags).await));
        }
    }

    /// Has a client import a disk while a process is traced, and killed at `kill_at` or stopped in order. The client goes on with the next
    /// process. Checks that nothing is left.
    async fn import(&mut self, kill_at: Option<Step>) -> Trace {
        let import = self.next_import();
        let process = self.victim().id().cast_signed();
        let data = self.victim().place.path("data");
        let (attached, is_attached) = tokio::sync::oneshot::channel();
        let mut trace = spawn_blocking(move || {
            let tracer = Tracer::attach(process, ServerSteps::of(process, data), kill_at);
            attached.send(()).unwrap();
            tracer.run()
        });
        is_attached.await.unwrap();
        let outcome = tokio::select! {
            outcome = limited(import.run(self.site())) => outcome,
            ended = &mut trace => return self.recover(&import, ended.unwrap()).await,
        };
        // It may be killed at its end. Waiting for it takes the tracer's reports away.
        kill_process(Pid::from_raw(process).unwrap(), Signal::TERM).unwrap();
        let trace = trace.await.unwrap();
        assert!(trace.is_killed || outcome.is_ok(), "{outcome:?}");
        self.restart().await;
        self.recovered(&import).await;
        trace
    }

    /// Goes on after the process was killed.
    async fn recover(&mut self, import: &Import, trace: Trace) -> Trace {
        assert!(trace.is_killed, "it ended by itself: {}", self.victim().log());
        self.restart().await;
        self.recovered(import).await;
        trace
    }

    /// Has the client end its import. Nothing is left of it.
    async fn recovered(&self, import: &Import) {
        let outcome = limited(import.run(self.site())).await;
        outcome.unwrap_or_else(|status| panic!("{status}\n{}", self.victim().log()));
        leftovers::gone(&self.site().server.place, &self.builder().place).await;
    }

    /// Kills at each step of an import that runs without a kill. A day later, no object is left.
    async fn run(mut self) {
        let steps = self.import(None).await.steps;
        let (mut killed, mut missed) = (0, 0);
        for step in kills(&steps) {
            println!("{step:?}");
            let trace = self.import(Some(step)).await;
            *if trace.is_killed { &mut killed } else { &mut missed } += 1;
        }
        println!("killed at {killed} steps; {missed} did not come again");
        assert!(killed > 4 * missed, "killed at {killed} steps, {missed} did not come");
        self.end().await;
    }

    /// A day later, no object is left.
    async fn end(mut self) {
        let place = block_in_place(|| self.site.take().unwrap().server.terminate());
        assert!(leftovers::files(&place.path("data/images/blobs")) > 0, "they are kept for a day");
        leftovers::collected_a_day_later(&place).await;
        place.check_store();
    }
}

async fn limited<T>(import: impl Future<Output = T>) -> T {
    tokio::time::timeout(IMPORT_TIMEOUT, import).await.expect("the import ends")
}

/// Returns the steps at which the server is killed.
fn kills(steps: &[Step]) -> Vec<Step> {
    let mut counts = BTreeMap::<_, usize>::new();
    for (name, _) in steps {
        *counts.entry(*name).or_default() += 1;
    }
    println!("{counts:?}");
    let spread = |(name, count): (&'static str, usize)| {
        let kills = count.min(MAX_KILLS);
        (0..kills).map(move |kill| (name, kill * count / kills))
    };
    counts.into_iter().flat_map(spread).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo rack test --long imports"]
async fn an_import_whose_server_is_killed_at_any_step_ends_and_leaves_nothing() {
    let _alone = ALONE.lock().await;
    Sweep::start().await.run().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo rack test --long imports"]
async fn an_import_whose_image_service_is_killed_at_any_step_ends_and_leaves_nothing() {
    let _alone = ALONE.lock().await;
    Sweep::split(false).await.run().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo rack test --long imports"]
async fn an_import_whose_builder_is_killed_at_any_step_ends_and_leaves_nothing() {
    let _alone = ALONE.lock().await;
    Sweep::split(true).await.run().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo rack test --long imports"]
async fn an_import_whose_sandbox_is_killed_at_any_moment_ends_and_leaves_nothing() {
    let _alone = ALONE.lock().await;
    let mut sweep = Sweep::start().await;
    let mut killed = BTreeMap::<_, u32>::new();
    for (depth, name) in (1..).zip(["keeper", "builder", "job"]) {
        for moment in (0..SANDBOX_MOMENTS).map(|number| number * MOMENT) {
            let import = sweep.next_import();
            let recovered = sweep.recovered(&import);
            let ((), is_killed) =
                tokio::join!(recovered, kill_in_sandbox(sweep.site(), depth, moment));
            *killed.entry(name).or_default() += u32::from(is_killed);
        }
    }
    println!("of {SANDBOX_MOMENTS} moments, it was there at: {killed:?}");
    assert!(killed.values().all(|count| *count > 0), "{killed:?}");
    sweep.end().await;
}

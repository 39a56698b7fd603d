//! A process without the authority's key runs longer than its certificate is valid: it presents the one that was copied meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt as _;
use runtime::authority::{MAX_CLIENT_VALIDITY, SiteAuthority};
use runtime::{Channel, Clock};
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::metadata::v1::ExplainMetadataRequest;
use tinwright::metadata::v1::explain_metadata_request::By;
use tinwright::metadata::v1::metadata_service_client::MetadataServiceClient;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::peer::loopback;
use super::process::{Place, Process, arguments, free_address, machine, soon};

/// The least time from the issue of the process's first certificate to its end. The process has to start in it.
const LEAST_LIFETIME: Duration = Duration::from_secs(45);
/// What is added to it, as a multiple of the time in which another process has started: the host may be busy.
const STARTS: u32 = 10;
/// The certificate of split-off processes.
const FILES: [&str; 2] = ["service-key.pem", "service.pem"];

/// Issues a certificate that ends at `end` with the authority of `control`, and stores it in `place`.
fn issue(control: &Place, place: &Place, end: SystemTime) {
    let issuer = Place::new().with_secrets_of(control, &FILES);
    let clock = Clock::manual(end - MAX_CLIENT_VALIDITY);
    let site = SiteAuthority::open_at(&issuer.secrets(), clock).unwrap();
    site.ensure_service_certificate(&[loopback().to_string()]).unwrap();
    copy(&issuer, place);
}

/// Copies the certificate of split-off processes.
fn copy(from: &Place, to: &Place) {
    for file in FILES {
        std::fs::copy(from.secrets().join(file), to.secrets().join(file)).unwrap();
    }
}

/// Returns the id of the machine that is identified by 127.0.0.1.
async fn explain(edge: Channel) -> Result<String, Status> {
    let by = Some(By::Address("127.0.0.1".into()));
    let mut metadata = MetadataServiceClient::new(edge);
    let found = metadata.explain_metadata(ExplainMetadataRequest { by }).await?;
    Ok(found.into_inner().hardware_id)
}

/// Calls `edge` over `open`, and over a new connection each time, until `stop`.
async fn call(
    edge: Arc<Process>,
    control: Arc<Process>,
    open: Channel,
    answered: Arc<AtomicUsize>,
    stop: CancellationToken,
) -> Result<(), Status> {
    while !stop.is_cancelled() {
        explain(open.clone()).await?;
        // Panics if it does not connect.
        explain(edge.channel_of(&control).await).await?;
        answered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Waits until `count` has grown by a few, or `calls` have failed.
async fn until_more(count: &AtomicUsize, calls: &JoinHandle<Result<(), Status>>) {
    let wanted = count.load(Ordering::Relaxed) + 5;
    let reached = async {
        while count.load(Ordering::Relaxed) < wanted && !calls.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(reached).await;
}

/// Asserts that a process has logged the end of both of its certificates, and not that of the authority.
fn assert_warned(log: &str) {
    let is_warned = |use_of: &str| {
        let parts = [
            " WARN tinwright: certificate ends soon ",
            &format!("certificate={use_of} "),
            " days=0 remedy=\"copy service.pem",
        ];
        log.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    };
    assert!(is_warned("server") && is_warned("service") && !is_warned("authority"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_lives_through_the_end_of_its_certificate() {
    let control = Place::new();
    let peer = format!("https://{}", control.grpc);
    let flags = arguments(&["--only", "address,hardware,identity,instance,power,workflow"]);
    let begun = Instant::now();
    let control = Arc::new(control.start(&flags).await);
    let lifetime = LEAST_LIFETIME + STARTS * begun.elapsed();
    let edge = Place::new().with_secrets_of(&control.place, &["ca-key.pem"]);
    let end = SystemTime::now() + lifetime;
    issue(&control.place, &edge, end);
    let listen = free_address().to_string();
    let own = ["--only", "metadata", "--metadata-listen", &listen, "--peers", &peer];
    let edge = Arc::new(edge.start(&arguments(&own)).await);

    let open = edge.channel_of(&control).await;
    let watch = HealthClient::new(open.clone()).watch(HealthCheckRequest::default()).await;
    let mut watch = watch.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    let (answered, stop) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
    let calls = call(edge.clone(), control.clone(), open.clone(), answered.clone(), stop.clone());
    let calls = tokio::spawn(calls);
    until_more(&answered, &calls).await;
    assert!(SystemTime::now() < end, "the process started too late");
    assert_warned(&edge.log());
    copy(&control.place, &edge.place);
    Clock::system().sleep_until(end + Duration::from_secs(1)).await;
    until_more(&answered, &calls).await;
    stop.cancel();
    calls.await.unwrap().unwrap();
    println!("{answered:?} calls");
    assert!(watch.message().now_or_never().is_none(), "the watch is open");

    // As a client of others, it connects again with the certificate that was copied.
    let control = Arc::into_inner(control).unwrap().kill().start(&flags).await;
    let mut hardware = HardwareServiceClient::new(control.channel().await);
    let made = hardware.create_hardware(machine("02:00:00:00:00:01", "127.0.0.1")).await;
    let made = made.unwrap().into_inner().hardware.unwrap();
    let followed = async {
        while explain(open.clone()).await.unwrap() != made.id {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(followed).await;
}

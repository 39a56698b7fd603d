//! Trust between worker and control plane.

use std::fs;
use std::time::Duration;

use runtime::{Caller, Role};

use crate::disk::LoopDisk;
use crate::files::Files;
use crate::machine::{Machine, until};
use crate::plane::ControlPlane;
use crate::work::shell;

/// The lifetime of certificates whose renewal or end is awaited. A worker on a busy host starts, or renews its certificate, in half of it.
const LIFETIME: Duration = Duration::from_secs(16);

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_logged_on_the_console() {
    let plane = ControlPlane::serve([]).await;
    plane.update(|state| state.refuse_token = true);
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let machine = Machine::boot(&plane, &files);
    machine.until_logged("boot token refused").await;
    let state = plane.state();
    assert_eq!((state.redeems.len(), state.polls.len()), (1, 0));
    assert_eq!(state.redeems[0].boot_token, "TOKEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_authority_with_another_fingerprint_is_not_trusted() {
    let (plane, other) = (ControlPlane::serve([]).await, ControlPlane::serve([]).await);
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let cmdline = format!(
        "boot_url={} grpc_authority={} boot_token=TOKEN ca_sha256={}",
        files.boot_url(),
        plane.address,
        other.ca_sha256()
    );
    let machine = Machine::boot_with(&cmdline);
    machine.until_logged("certificate authority of the site not trusted").await;
    assert!(machine.console().contains(&other.ca_sha256()));
    assert!(plane.state().redeems.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_authority_gets_no_token() {
    let (plane, other) = (ControlPlane::serve([]).await, ControlPlane::serve([]).await);
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let cmdline = format!(
        "boot_url={} grpc_authority={} boot_token=TOKEN ca_sha256={}",
        files.boot_url(),
        other.address,
        plane.ca_sha256()
    );
    let machine = Machine::boot_with(&cmdline);
    machine.until_logged("invalid peer certificate").await;
    assert!(other.state().redeems.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_before_it_expires_and_the_new_one_is_used() {
    let plane = ControlPlane::serve([]).await;
    plane.update(|state| state.lifetime = Some(LIFETIME));
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let _machine = Machine::boot(&plane, &files);
    let (first, renewed) = (Role::worker(plane.hardware), Role::worker(plane.renewed));
    let shows = |role| {
        move |state: &crate::plane::State| {
            state.polls.iter().any(|(_, caller)| *caller == Caller::from(role))
        }
    };
    plane.until(shows(first)).await;
    plane.until(shows(renewed)).await;
    let state = plane.until(|state| state.renewals.len() > 1).await;
    assert_eq!(state.renewals[..2], [Caller::from(first), Caller::from(renewed)]);
    assert_eq!(state.redeems.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_certificate_expired_reboots() {
    let mut plane = ControlPlane::serve([]).await;
    plane.update(|state| state.lifetime = Some(LIFETIME));
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    plane.until(|state| !state.polls.is_empty()).await;
    plane.kill().await;
    assert!(machine.ended().await);
    let console = machine.console();
    assert!(console.contains("certificate expired") && console.contains("would reboot"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_action_ends_before_a_machine_without_a_valid_certificate_reboots() {
    let (disk, gate) = (LoopDisk::ext4(), tempfile::tempdir().unwrap());
    let [begun, open, end] = ["begun", "open", "end"].map(|name| gate.path().join(name));
    let wait = format!("until [ -e {} ]; do sleep 0.1; done", open.display());
    let line = format!(": > {}; {wait}; echo end > {}", begun.display(), end.display());
    let mut plane = ControlPlane::serve([shell("l1", &disk, &line)]).await;
    plane.update(|state| state.lifetime = Some(LIFETIME));
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    until(|| begun.exists()).await;
    plane.kill().await;
    machine.until_logged("certificate expired").await;
    assert!(!machine.console().contains("would reboot"));
    fs::write(&open, "").unwrap();
    assert!(machine.ended().await);
    assert!(machine.console().contains("would reboot"));
    assert_eq!(fs::read_to_string(&end).unwrap(), "end\n");
}

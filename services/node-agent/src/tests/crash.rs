//! Crashes of the node at every journal write and every kernel step, before it and after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tinwright::node::v1::container::State;
use tinwright::node::v1::image_call::{Call, DeleteContainer, SetContainerState};
use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::image_result::Result as Outcome;
use tokio::sync::Notify;

use super::Bench;
use super::requests::{call, reaches, running, stack};
use crate::Node;

/// Lets a node go on until it comes to the place with the number `at`; nothing happens after that.
#[derive(Clone, Debug)]
pub(crate) struct CrashPoint(Arc<Counter>);

#[derive(Debug)]
struct Counter {
    at: usize,
    passed: AtomicUsize,
    reached: Notify,
}

impl CrashPoint {
    fn new(at: usize) -> Self {
        Self(Arc::new(Counter { at, passed: AtomicUsize::new(0), reached: Notify::new() }))
    }

    async fn reached(&self) {
        self.0.reached.notified().await;
    }
}

/// Passes one place, unless the node has crashed there or before.
pub(crate) async fn pass(crash: &Option<CrashPoint>, _place: &str) {
    let Some(CrashPoint(counter)) = crash else { return };
    if counter.passed.fetch_add(1, Ordering::SeqCst) >= counter.at {
        counter.reached.notify_one();
        std::future::pending::<()>().await;
    }
}

/// Runs `life` as the only life of a node in a runtime of its own, which ends with it.
fn in_runtime<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(life)
}

const CREATE: &str = "call-create";
const STOP: &str = "call-stop";
const DELETE: &str = "call-delete";

fn create_call() -> Call {
    Call::CreateContainer(running("c", stack()))
}

fn stop_call() -> Call {
    let name = Some("c".into());
    Call::SetContainerState(SetContainerState { id: None, name, state: State::Exited.into() })
}

fn delete_call(force: bool) -> Call {
    Call::DeleteContainer(DeleteContainer { id: None, name: Some("c".into()), force })
}

/// The answers that a caller got before the crash.
#[derive(Clone, Copy, Debug, Default)]
struct Answered {
    created: bool,
    deleted: bool,
}

/// Creates the stack, stops and deletes the container, and waits for the collection.
async fn whole_life(node: &Node, answered: &mut Answered) {
    let Ok(Outcome::Container(container)) = call(node, Some(CREATE), create_call()).await else {
        panic!("not created")
    };
    answered.created = true;
    call(node, Some(STOP), stop_call()).await.unwrap();
    reaches(node, container.id, State::Exited).await;
    call(node, Some(DELETE), delete_call(false)).await.unwrap();
    answered.deleted = true;
    node.idle().await;
}

/// Creates the stack, and deletes it by force while the container runs.
async fn forced_life(node: &Node, answered: &mut Answered) {
    call(node, Some(CREATE), create_call()).await.unwrap();
    answered.created = true;
    call(node, Some(DELETE), delete_call(true)).await.unwrap();
    answered.deleted = true;
    node.idle().await;
}

/// Asserts that the kernel has exactly what the objects of `node` say.
fn assert_consistent(node: &Node, bench: &Bench, at: usize) {
    let (snapshot, tables) = (node.snapshot(), bench.kernel.tables());
    let mut mounted: Vec<_> =
        tables.mounts.iter().map(|m| m.mountpoint.to_string_lossy().into_owned()).collect();
    mounted.sort();
    let mut expected: Vec<_> = snapshot.mounts.iter().map(|m| m.mountpoint.clone()).collect();
    expected.sort();
    assert_eq!(mounted, expected, "crash {at}: mounts");
    let devices: Vec<_> =
        tables.devices.keys().map(|file| file.to_string_lossy().into_owned()).collect();
    let expected: Vec<_> = snapshot.attachments.iter().map(|a| a.device_file.clone()).collect();
    assert_eq!(devices, expected, "crash {at}: devices");
    let overlays = snapshot.mounts.iter().filter(|mount| {
        matches!(mount.definition, Some(tinwright::node::v1::mount::Definition::Overlay(_)))
    });
    let directories = snapshot.mounts.len() + 2 * overlays.count();
    assert_eq!(tables.directories.len(), directories, "crash {at}: directories");
    let alive = |state| matches!(state, State::Running | State::Stopping);
    let containers = snapshot.containers.iter().filter(|c| alive(c.state()));
    // A container whose last process has ended is stopping until that is recorded.
    let live = bench.kernel.live_runs().len();
    assert!(live <= containers.count(), "crash {at}: {live} runs");
}

/// The ids, names, states and counts of all objects.
fn summary(node: &Node) -> Vec<(i64, i64, String, State)> {
    let snapshot = node.snapshot();
    let attachments = snapshot
        .attachments
        .iter()
        .map(|a| (a.id, a.refs, a.device_file.clone(), State::Unspecified));
    let mounts =
        snapshot.mounts.iter().map(|m| (m.id, m.refs, m.mountpoint.clone(), State::Unspecified));
    let containers = snapshot.containers.iter().map(|c| (c.id, c.refs, c.name.clone(), c.state()));
    let mut all: Vec<_> = attachments.chain(mounts).chain(containers).collect();
    all.sort_by_key(|object| object.0);
    all
}

/// Runs the life of a node until the crash with the number `at`. False if it ended before.
fn crashes(bench: &mut Bench, at: usize, forced: bool, answered: &mut Answered) -> bool {
    let crash = CrashPoint::new(at);
    bench.options.crash = Some(crash.clone());
    bench.kernel.set_crash(Some(crash.clone()));
    let crashed = in_runtime(async {
        let life = async {
            let node = bench.open().await;
            match forced {
                true => forced_life(&node, answered).await,
                false => whole_life(&node, answered).await,
            }
        };
        tokio::select! {
            () = life => false,
            () = crash.reached() => true,
        }
    });
    bench.options.crash = None;
    bench.kernel.set_crash(None);
    crashed
}

/// Opens the node after a crash, and repeats the calls until everything is gone.
fn recover(bench: &Bench, at: usize, answered: Answered) {
    let first_id = in_runtime(async {
        let node = bench.reopen().await;
        node.idle().await;
        assert_consistent(&node, bench, at);
        let found = summary(&node);
        assert!(found.is_empty() || found.len() == 5, "crash {at}: {found:?}");
        assert!(!answered.deleted || found.is_empty(), "crash {at}: deleted, but there");
        let created = call(&node, Some(CREATE), create_call()).await.unwrap();
        let Outcome::Container(created) = created else { panic!("{created:?}") };
        if answered.created || !found.is_empty() {
            assert_eq!(summary(&node), found, "crash {at}: created a second time");
        }
        created.id
    });
    in_runtime(async {
        let node = bench.reopen().await;
        node.idle().await;
        assert_consistent(&node, bench, at);
        // It is stopped, or it is deleted already.
        let stopped = call(&node, Some(STOP), stop_call()).await;
        assert!(matches!(stopped, Ok(_) | Err(Reason::NotFound)), "crash {at}: {stopped:?}");
        if !node.snapshot().containers.is_empty() {
            reaches(&node, first_id, State::Exited).await;
        }
        let outcome = call(&node, Some(DELETE), delete_call(false)).await;
        assert!(matches!(outcome, Ok(Outcome::Container(_))), "crash {at}: {outcome:?}");
        let repeated = call(&node, Some(DELETE), delete_call(false)).await;
        assert_eq!(repeated, outcome, "crash {at}");
        assert_eq!(call(&node, None, delete_call(false)).await, Err(Reason::NotFound));
        node.idle().await;
        assert_eq!(bench.kernel.tables(), Default::default(), "crash {at}");
        assert!(summary(&node).is_empty(), "crash {at}");
    });
}

fn crash_everywhere(forced: bool) {
    let mut places = 0;
    for at in 0.. {
        let (mut bench, mut answered) = (Bench::new(), Answered::default());
        if !crashes(&mut bench, at, forced, &mut answered) {
            break;
        }
        places += 1;
        recover(&bench, at, answered);
    }
    // Five objects are attached, mounted or started, and removed again, with a journal write before and after each.
    assert!(places > 60, "only {places} places");
}

#[test]
fn a_crash_anywhere_in_the_life_of_a_stack_leaks_nothing_and_loses_nothing() {
    crash_everywhere(false);
}

#[test]
fn a_crash_anywhere_in_a_forced_deletion_leaks_nothing_and_loses_nothing() {
    crash_everywhere(true);
}

#[test]
fn a_crash_with_a_torn_write_is_as_one_before_the_write() {
    for at in (0..60).step_by(3) {
        let (mut bench, mut answered) = (Bench::new(), Answered::default());
        assert!(crashes(&mut bench, at, false, &mut answered));
        let mut file =
            std::fs::OpenOptions::new().append(true).open(&bench.options.journal).unwrap();
        std::io::Write::write_all(&mut file, b"FRAM\x40\0\0\0half").unwrap();
        drop(file);
        recover(&bench, at, answered);
    }
}

#[test]
fn a_crash_during_the_recovery_is_recovered_from() {
    for first in (4..70).step_by(11) {
        for second in 0..12 {
            let (mut bench, mut answered) = (Bench::new(), Answered::default());
            if !crashes(&mut bench, first, true, &mut answered) {
                continue;
            }
            let crash = CrashPoint::new(second);
            bench.options.crash = Some(crash.clone());
            bench.kernel.set_crash(Some(crash.clone()));
            in_runtime(async {
                let life = async {
                    let node = bench.reopen().await;
                    node.idle().await;
                };
                tokio::select! {
                    () = life => {}
                    () = crash.reached() => {}
                }
            });
            bench.options.crash = None;
            bench.kernel.set_crash(None);
            recover(&bench, first, answered);
        }
    }
}

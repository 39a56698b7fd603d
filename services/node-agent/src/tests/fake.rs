//! A kernel that is simulated: it refuses what Linux refuses, and records the order of steps. Steps can fail and hang.

mod processes;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tokio::sync::watch;

use super::{CrashPoint, pass};
use crate::kernel::{Exit, KernelError, KernelErrorKind, RunId};

/// A kernel that is simulated.
#[derive(Debug)]
pub(crate) struct FakeKernel {
    state: Mutex<State>,
    /// Changes with each change of the state.
    version: watch::Sender<u64>,
}

/// The tables of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    /// Devices by their files, with the directory of a loop device's file.
    pub(crate) devices: BTreeMap<PathBuf, FakeDevice>,
    /// In the order in which they were mounted.
    pub(crate) mounts: Vec<FakeMount>,
    pub(crate) directories: BTreeSet<PathBuf>,
    pub(crate) runs: BTreeMap<RunId, FakeRun>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FakeDevice {
    pub(crate) mark: String,
    pub(crate) base: Option<PathBuf>,
    /// The image of an RBD device.
    pub(crate) image: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FakeMount {
    pub(crate) mountpoint: PathBuf,
    /// The device, or the directories that it shows.
    pub(crate) uses: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FakeRun {
    pub(crate) root: PathBuf,
    pub(crate) exit: Option<Exit>,
}

#[derive(Debug, Default)]
struct State {
    tables: Tables,
    logs: BTreeMap<PathBuf, Vec<String>>,
    operations: Vec<String>,
    failing: BTreeMap<String, KernelErrorKind>,
    hanging: BTreeSet<String>,
    /// The device file of a new attachment does not appear.
    no_device_file: bool,
    ignored_signals: Vec<crate::kernel::StopSignal>,
    failure_rate: Option<(TestRng, f64)>,
    next_device: u32,
    crash: Option<CrashPoint>,
}

impl Default for FakeKernel {
    fn default() -> Self {
        Self { state: Mutex::default(), version: watch::Sender::new(0) }
    }
}

impl FakeKernel {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.version.send_modify(|version| *version += 1);
        result
    }

    async fn wait_for<T>(&self, mut find: impl FnMut(&State) -> Option<T>) -> T {
        let mut changed = self.version.subscribe();
        loop {
            let found = find(&self.state());
            match found {
                Some(found) => return found,
                None => changed.changed().await.unwrap(),
            }
        }
    }

    /// Begins the step `name`: it may hang, fail, or be the last thing that happens.
    async fn begin(&self, name: &str) -> Result<(), KernelError> {
        self.state().operations.push(name.to_owned());
        tokio::task::yield_now().await;
        self.crash_point(&format!("before {name}")).await;
        self.wait_for(|state| (!state.hanging.contains(name)).then_some(())).await;
        let mut state = self.state();
        let random = state.failure_rate.as_mut();
        let fails = random.is_some_and(|(random, rate)| {
            f64::from(random.next_u32()) < *rate * f64::from(u32::MAX)
        });
        let kind = state.failing.get(name).copied();
        match kind.or(fails.then_some(KernelErrorKind::Failed)) {
            Some(kind) => Err(KernelError::new(kind, format!("{name} fails as told"))),
            None => Ok(()),
        }
    }

    /// Ends the step `name`, whose effect has happened.
    async fn end(&self, name: &str) {
        self.crash_point(&format!("after {name}")).await;
    }

    async fn crash_point(&self, place: &str) {
        let crash = self.state().crash.clone();
        pass(&crash, place).await;
    }

    pub(crate) fn set_crash(&self, crash: Option<CrashPoint>) {
        self.state().crash = crash;
    }

    /// Lets the step `name` fail until [`FakeKernel::heal`].
    pub(crate) fn fail(&self, name: &str, kind: KernelErrorKind) {
        self.state().failing.insert(name.to_owned(), kind);
    }

    /// Lets each step fail with the probability `rate`.
    pub(crate) fn fail_at_random(&self, seed: u8, rate: f64) {
        self.state().failure_rate =
            Some((TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]), rate));
    }

    /// Lets the step `name` hang until [`FakeKernel::heal`].
    pub(crate) fn hang(&self, name: &str) {
        self.state().hanging.insert(name.to_owned());
    }

    /// Lets all steps succeed again.
    pub(crate) fn heal(&self) {
        self.change(|state| {
            state.failing.clear();
            state.hanging.clear();
            state.ignored_signals.clear();
            (state.failure_rate, state.no_device_file) = (None, false);
        });
    }

    pub(crate) fn lose_device_files(&self) {
        self.state().no_device_file = true;
    }

    /// Lets all containers ignore `signal`.
    pub(crate) fn ignore(&self, signal: crate::kernel::StopSignal) {
        self.state().ignored_signals.push(signal);
    }

    /// Returns the steps since the last call.
    pub(crate) fn take_operations(&self) -> Vec<String> {
        std::mem::take(&mut self.state().operations)
    }

    /// Returns those steps since the last call that change storage.
    pub(crate) fn take_storage_operations(&self) -> Vec<String> {
        let changes = ["attach", "detach", "mount", "unmount"];
        let mut operations = self.take_operations();
        operations.retain(|name| changes.contains(&name.split(' ').next().unwrap()));
        operations
    }

    pub(crate) fn tables(&self) -> Tables {
        self.state().tables.clone()
    }

    pub(crate) fn logs(&self) -> BTreeMap<PathBuf, Vec<String>> {
        self.state().logs.clone()
    }

    /// Ends the first program of the container with `mark`.
    pub(crate) fn exit(&self, run: &RunId, exit: Exit) {
        self.change(|state| state.tables.runs.get_mut(run).unwrap().exit = Some(exit));
    }

    /// Returns the runs that have processes.
    pub(crate) fn live_runs(&self) -> Vec<RunId> {
        let tables = self.tables();
        let live = tables.runs.into_iter().filter(|(_, run)| run.exit.is_none());
        live.map(|(run, _)| run).collect()
    }

    /// Loses everything, as a reboot of the machine does.
    pub(crate) fn reboot(&self) {
        self.change(|state| state.tables = Tables::default());
    }

    /// Adds what nobody knows of.
    pub(crate) fn change_tables(&self, change: impl FnOnce(&mut Tables)) {
        self.change(|state| change(&mut state.tables));
    }
}

impl Tables {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if a mount, a device or a process needs `path`.
    fn is_used(&self, path: &Path) -> bool {
        self.mounts.iter().any(|mount| mount.uses.iter().any(|used| used == path))
            || self.devices.values().any(|device| device.base.as_deref() == Some(path))
            || self.runs.values().any(|run| run.exit.is_none() && run.root == path)
    }

    fn is_mounted(&self, path: &Path) -> bool {
        self.mounts.iter().any(|mount| mount.mountpoint == path)
    }
}

fn busy(what: &Path) -> KernelError {
    KernelError::new(KernelErrorKind::Busy, format!("{} is in use", what.display()))
}

fn failed(cause: &str) -> KernelError {
    KernelError::new(KernelErrorKind::Failed, cause)
}

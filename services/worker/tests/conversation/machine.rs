//! The worker program, started as init starts it, but with dry runs of reboots.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tinwright::workflow::v1::{Action, Assignment};
use tokio::process::{Child, Command};

use crate::STEP_TIMEOUT;
use crate::files::Files;
use crate::plane::ControlPlane;

/// A machine that runs the program, which is killed when dropped.
pub(crate) struct Machine {
    folder: TempDir,
    cmdline: String,
    worker: Option<Child>,
}

impl Machine {
    /// Starts the program on a machine that was booted from `files`, for the control plane `plane`.
    pub(crate) fn boot(plane: &ControlPlane, files: &Files) -> Self {
        Self::boot_with(&Self::cmdline(plane, files))
    }

    /// Returns the kernel command line of a machine that was booted from `files`, for the control plane `plane`.
    pub(crate) fn cmdline(plane: &ControlPlane, files: &Files) -> String {
        format!(
            "quiet boot_url={} grpc_authority={} boot_token=TOKEN ca_sha256={}\n",
            files.boot_url(),
            plane.address,
            plane.ca_sha256()
        )
    }

    /// Starts the program on a machine with the kernel command line `cmdline`.
    pub(crate) fn boot_with(cmdline: &str) -> Self {
        let mut machine = Self::new(cmdline);
        machine.start();
        machine
    }

    /// Creates a machine with the kernel command line `cmdline`, whose program is not started.
    pub(crate) fn new(cmdline: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let machine = Self { folder, cmdline: cmdline.to_owned(), worker: None };
        let disk = machine.path("root/sys/block/vda");
        fs::create_dir_all(&disk).unwrap();
        fs::write(disk.join("size"), "2048\n").unwrap();
        fs::write(disk.join("serial"), "ROOT1\n").unwrap();
        machine
    }

    /// Adds the network interface `name` with this index and a link.
    pub(crate) fn add_interface(&self, name: &str, index: u32) {
        let folder = self.path("root/sys/class/net").join(name);
        fs::create_dir_all(folder.join("device")).unwrap();
        for (file, content) in
            [("ifindex", &*index.to_string()), ("carrier", "1"), ("address", "02:00:00:00:00:01")]
        {
            fs::write(folder.join(file), content).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the program, the first time or again.
    pub(crate) fn start(&mut self) {
        fs::write(self.path("cmdline"), &self.cmdline).unwrap();
        let console = File::options().create(true).append(true).open(self.path("console")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright-worker"));
        command.arg("--cmdline").arg(self.path("cmdline"));
        command.arg("--journal").arg(self.path("journal"));
        command.arg("--roots").arg(self.path("absent")).arg("--no-reboot");
        command.arg("--root").arg(self.path("root")).arg("--disk-links");
        command.stdin(Stdio::null()).stderr(console.try_clone().unwrap()).stdout(console);
        self.worker = Some(command.kill_on_drop(true).spawn().unwrap());
    }

    /// Kills the program.
    pub(crate) async fn kill(&mut self) {
        self.worker.take().unwrap().kill().await.unwrap();
    }

    /// Waits for the end of the program. Returns true if it succeeded.
    pub(crate) async fn ended(&mut self) -> bool {
        let ended = tokio::time::timeout(STEP_TIMEOUT, self.worker.as_mut().unwrap().wait()).await;
        ended.unwrap().unwrap().success()
    }

    /// Returns the log of the program.
    pub(crate) fn console(&self) -> String {
        fs::read_to_string(self.path("console")).unwrap()
    }

    /// Waits until the console log contains `text`.
    pub(crate) async fn until_logged(&self, text: &str) {
        until(|| self.console().contains(text)).await;
    }

    /// Returns the device that the link `name` in by-id leads to.
    pub(crate) fn disk_link(&self, name: &str) -> PathBuf {
        fs::read_link(self.path("root/dev/disk/by-id").join(name)).unwrap()
    }

    /// Returns the current attempt in the journal.
    pub(crate) fn attempt(&self) -> Option<String> {
        fs::read_to_string(self.path("journal/attempt.json")).ok()
    }
}

impl Drop for Machine {
    /// Also kills its commands, which have their own process groups.
    fn drop(&mut self) {
        let Some(id) = self.worker.as_ref().and_then(Child::id) else { return };
        let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        let children = threads
            .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
        for child in children.collect::<String>().split_whitespace() {
            if let Some(group) = child.parse().ok().and_then(Pid::from_raw) {
                let _gone_already = kill_process_group(group, Signal::KILL);
            }
        }
    }
}

/// Polls until `condition` holds.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let polling = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, polling).await.unwrap();
}

/// Returns an assignment whose lease id is its name.
pub(crate) fn assignment(lease: &str, image: &str, environment: &[(&str, &str)]) -> Assignment {
    let action = Action {
        id: "7".into(),
        task_name: "install".into(),
        name: lease.into(),
        image: image.into(),
        environment: environment.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        ..Action::default()
    };
    let (lease_id, workflow_id) = (lease.into(), "workflow".into());
    Assignment { lease_id, workflow_id, action: Some(action), instance_id: String::new() }
}

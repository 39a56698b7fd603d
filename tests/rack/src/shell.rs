//! A shell for root on a machine's second serial port, which the parameter `debug_shell` of a node's kernel opens.
//!
//! It reads the tables of the kernel: the ImageAPI does not show what is left behind.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::lab::wait;

/// Maximum time of a command, and until the port is there.
const SHELL_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection with the shell.
#[derive(Debug)]
pub struct Shell {
    port: UnixStream,
    /// Number of commands so far.
    commands: u64,
}

/// The tables of a node's kernel, and the directories, that attachments, mounts and containers change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Mounts, without their numbers.
    pub mounts: String,
    /// Files of loop devices.
    pub loop_files: String,
    /// iSCSI sessions.
    pub iscsi_sessions: String,
    /// Mapped images of Ceph.
    pub rbd_devices: String,
    /// Mount points, and the directories of overlays.
    pub directories: String,
    /// Control groups.
    pub control_groups: String,
    /// Names of processes in PID namespaces of containers.
    pub processes: String,
}

impl Shell {
    /// Connects with the serial port at the socket `path`, once it is there. The shell may start later.
    pub fn connect(path: &Path) -> anyhow::Result<Self> {
        let connected = wait("the serial port", SHELL_TIMEOUT, || UnixStream::connect(path).ok());
        Ok(Self { port: connected?, commands: 0 })
    }

    /// Runs `line`. Returns what it prints; a status other than 0 is an error.
    pub fn run(&mut self, line: &str) -> anyhow::Result<String> {
        self.commands += 1;
        let number = self.commands;
        // The terminal echoes the command: its marks differ from the printed ones.
        let framed =
            format!("echo \"=begin $(({number}))=\"; {line}; echo \"=end $(({number}))= $?=\"\n");
        self.port.write_all(framed.as_bytes())?;
        let (begin, end) = (format!("=begin {number}=\r\n"), format!("=end {number}= "));
        let text = self.read_until(|text| text.split_once(&end)?.1.contains("=\r\n").then_some(()));
        let text = text.with_context(|| format!("in the node's shell: {line}"))?;
        let (_, printed) = text.split_once(&begin).context("no begin of the output")?;
        let (printed, status) = printed.split_once(&end).context("no end of the output")?;
        let printed = printed.replace('\r', "");
        anyhow::ensure!(status.starts_with("0="), "in the node's shell: {line}: {printed}{status}");
        Ok(printed)
    }

    /// Reads until `complete` finds all in the text.
    fn read_until(&mut self, complete: impl Fn(&str) -> Option<()>) -> anyhow::Result<String> {
        let until = Instant::now() + SHELL_TIMEOUT;
        self.port.set_read_timeout(Some(Duration::from_secs(1)))?;
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match self.port.read(&mut buffer) {
                Ok(0) => anyhow::bail!("the serial port was closed"),
                Ok(length) => bytes.extend(buffer.iter().take(length)),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if complete(&text).is_some() {
                return Ok(text);
            }
            anyhow::ensure!(Instant::now() < until, "no complete output: {text}");
        }
    }

    /// Returns the names in `folder`. `ls` would fail if one of them is removed meanwhile.
    fn names(&mut self, folder: &str) -> anyhow::Result<String> {
        self.run(&format!("(cd {folder} && echo *)"))
    }

    /// Reads the kernel's tables.
    pub fn tables(&mut self) -> anyhow::Result<Tables> {
        Ok(Tables {
            mounts: self.run("cut -d' ' -f3- /proc/1/mountinfo | sort")?,
            loop_files: self.run("cat /sys/block/loop*/loop/backing_file 2>/dev/null; true")?,
            iscsi_sessions: self.names("/sys/class/iscsi_session")?,
            rbd_devices: self.names("/sys/bus/rbd/devices")?,
            directories: self.names("/run/imageapi/mounts")?,
            control_groups: self.run("find /sys/fs/cgroup -type d | sort")?,
            processes: self.run(
                "for it in /proc/[0-9]*; do p=$(readlink $it/ns/pid) && [ \"$p\" != \"$(readlink /proc/1/ns/pid)\" ] && cat $it/comm; done; true",
            )?,
        })
    }
}

//! The supervisor while its container lives: one loop over descriptors that do not block.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use shared_child::unix::SharedChildExt;

use super::control::Clients;
use super::handshake::{Handshake, StartProgress, send};
use super::setup::InitProcess;
use super::stop::{StopPlan, StopSignal};
use crate::cgroup::Cgroup;
use crate::log::output::Output;
use crate::log::unix_seconds;
use crate::record::{Fault, InStep, Init, Phase, Record, RunDirectory};
use crate::spec::Spec;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// SIGRTMIN+3: systemd halts (systemd(1), "Signals"). glibc uses the first two real-time signals, 32 and 33, itself.
const SYSTEMD_HALT: i32 = 34 + 3;

/// A container and everything that its supervisor holds.
pub(super) struct Supervisor {
    pub(super) spec: Spec,
    pub(super) directory: RunDirectory,
    pub(super) lock: File,
    pub(super) record: Record,
    pub(super) image: File,
    pub(super) cgroup: Cgroup,
    pub(super) init: InitProcess,
    /// Present until the image's program executes.
    pub(super) handshake: Option<Handshake>,
    /// Present until the daemon knows that the start succeeded or failed.
    pub(super) report: Option<UnixStream>,
    pub(super) output: Output,
    pub(super) clients: Clients,
    pub(super) terminate: UnixStream,
    pub(super) stop: StopPlan,
    pub(super) fault: Option<Fault>,
}

impl Supervisor {
    /// Runs until no process of the container is left and that is recorded.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut drained = true;
        loop {
            self.wait(drained)?;
            drained = self.output.drain(Instant::now(), SystemTime::now());
            self.advance_handshake();
            self.serve_requests();
            if let Some(status) = self.init.child.try_wait()? {
                return self.finish(status);
            }
        }
    }

    /// Waits until there is something to do; not at all unless the output is `drained`.
    fn wait(&self, drained: bool) -> io::Result<()> {
        let timeout =
            if drained { self.stop.timeout(Instant::now()) } else { Some(Duration::ZERO) };
        let timeout = timeout.map(timespec);
        let fixed = [self.init.descriptor.as_fd(), self.terminate.as_fd()];
        let optional = self
            .output
            .pipe()
            .into_iter()
            .chain(self.handshake.as_ref().map(Handshake::descriptor));
        let all = fixed.into_iter().chain(optional).chain(self.clients.descriptors());
        let mut descriptors: Vec<PollFd<'_>> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes stop requests, and sends SIGKILL when it is due.
    fn serve_requests(&mut self) {
        let mut graces = self.clients.read();
        if self.terminate.read(&mut [0; 64]).is_ok_and(|length| length > 0) {
            graces.push(self.spec.stop_grace());
        }
        for grace in graces {
            self.request_stop(grace);
        }
        if let Some(signal) = self.stop.due(Instant::now()) {
            self.signal(signal);
        }
        self.clients.acknowledge();
    }

    fn request_stop(&mut self, grace: Duration) {
        // Before the image's program executes there is nobody to ask.
        let grace = if self.handshake.is_some() { Duration::ZERO } else { grace };
        let Some(signal) = self.stop.request(Instant::now(), grace) else { return };
        if let Phase::Running(init) = self.record.phase {
            self.record.phase = Phase::Stopping(init);
            // Not being able to write it down is no reason to go on running.
            let _written = self.directory.write_record(&self.record);
        }
        self.output.line(SystemTime::now(), "stop requested");
        self.signal(signal);
    }

    fn signal(&self, signal: StopSignal) {
        let number = match signal {
            StopSignal::Kill => SIGKILL,
            StopSignal::Ask if self.spec.systemd => SYSTEMD_HALT,
            StopSignal::Ask => SIGTERM,
        };
        // ESRCH: it ended by itself.
        let _sent = self.init.child.send_signal(number);
    }

    /// Follows the child until it executes the image's program.
    pub(super) fn advance_handshake(&mut self) {
        let Some(handshake) = &mut self.handshake else { return };
        let result = match handshake.advance() {
            StartProgress::Pending => return,
            StartProgress::MapIds => map_ids(self.init.child.id())
                .and_then(|()| handshake.confirm_maps())
                .in_step("id maps"),
            StartProgress::Executed => self.record_start().in_step("record"),
            StartProgress::Failed(fault) => Err(fault),
        };
        if let Err(fault) = result {
            self.fault = Some(fault);
            self.handshake = None;
            self.signal(StopSignal::Kill);
        }
    }

    fn record_start(&mut self) -> io::Result<()> {
        self.handshake = None;
        let started_at = unix_seconds(SystemTime::now());
        self.record.phase = Phase::Running(Init { process: self.init.identity, started_at });
        self.directory.write_record(&self.record)?;
        if let Some(report) = self.report.take() {
            // The daemon may be gone; it finds the run by its directory.
            let _sent = send(&report, &self.record.phase);
        }
        Ok(())
    }
}

/// Maps each id of the process's user namespace to itself, as far as this process's own namespace has it.
fn map_ids(pid: u32) -> io::Result<()> {
    for map in ["uid_map", "gid_map"] {
        let own = fs::read_to_string(format!("/proc/self/{map}"))?;
        let lines = own.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [inside, _outside, count] = fields[..] else { return None };
            Some(format!("{inside} {inside} {count}\n"))
        });
        fs::write(format!("/proc/{pid}/{map}"), lines.collect::<String>())?;
    }
    Ok(())
}

fn timespec(duration: Duration) -> Timespec {
    // The greatest grace is a day. One millisecond more, so that the deadline has passed after it.
    let duration = duration + Duration::from_millis(if duration.is_zero() { 0 } else { 1 });
    Timespec { tv_sec: duration.as_secs().cast_signed(), tv_nsec: duration.subsec_nanos().into() }
}

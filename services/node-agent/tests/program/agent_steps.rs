//! The steps of the program: what it writes to its journal, and what it changes in the kernel.

use std::collections::HashSet;
use std::fs;
use std::process::{Command, Stdio};

use nix::libc::{self, c_long};
use nix::unistd::Pid;

use crate::agent::{Agent, command};
use crate::host::{Host, until};
use crate::tracer::{Call, Steps, begins_process};

/// Calls that change directories or mounts.
const CHANGES: [(c_long, &str); 16] = [
    (libc::SYS_mount, "mount"),
    (libc::SYS_umount2, "umount2"),
    (libc::SYS_open_tree, "open_tree"),
    (libc::SYS_move_mount, "move_mount"),
    (libc::SYS_fsopen, "fsopen"),
    (libc::SYS_fsconfig, "fsconfig"),
    (libc::SYS_fsmount, "fsmount"),
    (libc::SYS_mount_setattr, "mount_setattr"),
    (libc::SYS_mkdir, "mkdir"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_rmdir, "rmdir"),
    (libc::SYS_unlink, "unlink"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_rename, "rename"),
    (libc::SYS_renameat, "renameat"),
    (libc::SYS_renameat2, "renameat2"),
];
/// Requests that change loop devices (linux/loop.h).
const LOOP_REQUESTS: [(u64, &str); 4] = [
    (0x4c01, "LOOP_CLR_FD"),
    (0x4c04, "LOOP_SET_STATUS64"),
    (0x4c0a, "LOOP_CONFIGURE"),
    (0x4c82, "LOOP_CTL_GET_FREE"),
];

/// The steps of one program.
pub(crate) struct AgentSteps {
    program: i32,
    /// The threads that synchronize the journal.
    syncing: HashSet<Pid>,
    /// The descriptors of connections to supervisors, the only ones that the program begins.
    supervisors: HashSet<u64>,
}

/// Starts the program stopped, for a tracer.
pub(crate) fn launch_stopped(host: &Host, flags: &[&str]) -> Agent {
    let mut program = command(host);
    program.args(flags);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).arg(program.get_program());
    shell.args(program.get_args()).stdin(Stdio::null()).stdout(Stdio::null());
    let agent = Agent::spawn(host, &mut shell);
    let status = format!("/proc/{}/status", agent.pid());
    let is_stopped = || fs::read_to_string(&status).unwrap().contains("\nState:\tT");
    until("the program is stopped", is_stopped);
    agent
}

impl AgentSteps {
    pub(crate) fn of(program: i32) -> Self {
        Self { program, syncing: HashSet::new(), supervisors: HashSet::new() }
    }

    /// True if the program has the journal as descriptor `descriptor`.
    fn is_journal(&self, descriptor: u64) -> bool {
        let link = fs::read_link(format!("/proc/{}/fd/{descriptor}", self.program));
        link.is_ok_and(|path| path.ends_with("state/journal"))
    }
}

impl Steps for AgentSteps {
    fn entered(&mut self, call: &Call) -> Option<&'static str> {
        let [first, second, _] = call.arguments;
        match call.number {
            libc::SYS_fdatasync => {
                if self.is_journal(first) {
                    self.syncing.insert(call.thread);
                }
                None
            }
            libc::SYS_write if self.is_journal(first) => Some("before a journal write"),
            libc::SYS_write | libc::SYS_writev | libc::SYS_sendto | libc::SYS_sendmsg => {
                self.supervisors.contains(&first).then_some("request to a supervisor")
            }
            libc::SYS_connect => {
                self.supervisors.insert(first);
                Some("connect")
            }
            libc::SYS_close => {
                self.supervisors.remove(&first);
                None
            }
            libc::SYS_ioctl => find(&LOOP_REQUESTS, second),
            _ if begins_process(call) => Some("clone"),
            number => find(&CHANGES, number),
        }
    }

    fn left(&mut self, thread: Pid) -> Option<&'static str> {
        self.syncing.remove(&thread).then_some("after a journal write")
    }
}

fn find<T: PartialEq>(names: &[(T, &'static str)], value: T) -> Option<&'static str> {
    names.iter().find(|(named, _)| *named == value).map(|(_, name)| *name)
}

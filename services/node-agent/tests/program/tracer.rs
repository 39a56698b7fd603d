//! A tracer that kills the program exactly before or after one of its system calls (ptrace(2)).
//!
//! It follows the threads of the program and not its processes: supervisors and containers run untraced, and neither delay nor count.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc::{self, c_long};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::agent::{Agent, command};
use crate::host::{Host, until};

/// Calls that change directories, mounts or processes.
const CHANGES: [(c_long, &str); 18] = [
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
    (libc::SYS_fork, "clone"),
    (libc::SYS_vfork, "clone"),
];
/// Requests that change loop devices (linux/loop.h).
const LOOP_REQUESTS: [(u64, &str); 4] = [
    (0x4c01, "LOOP_CLR_FD"),
    (0x4c04, "LOOP_SET_STATUS64"),
    (0x4c0a, "LOOP_CONFIGURE"),
    (0x4c82, "LOOP_CTL_GET_FREE"),
];
/// Reports the threads that this thread traces, without taking the report away.
const WAIT_FLAGS: WaitPidFlag = WaitPidFlag::WEXITED
    .union(WaitPidFlag::WSTOPPED)
    .union(WaitPidFlag::__WALL)
    .union(WaitPidFlag::__WNOTHREAD)
    .union(WaitPidFlag::WNOWAIT);

/// A place in the life of the program: the name of a step, and the number of the steps of that name before it.
pub(crate) type Step = (&'static str, usize);

/// The life of a traced program.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The steps that the program came to. It was killed at the last one, if it was.
    pub(crate) steps: Vec<Step>,
    pub(crate) is_killed: bool,
}

/// Starts the program stopped, for [`trace`].
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

/// Lets the stopped program `program` go on, and kills it when it comes to the step `kill_at`. Returns when the program has ended, which its
/// parent can still wait for. `has_ended` is true then.
pub(crate) fn trace(program: i32, kill_at: Option<Step>, has_ended: &AtomicBool) -> Trace {
    let program = Pid::from_raw(program);
    let options =
        Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::seize(program, options).expect("ptrace is allowed");
    kill(program, Signal::SIGCONT).unwrap();
    let mut tracer = Tracer {
        program,
        kill_at,
        trace: Trace::default(),
        syncing: HashMap::new(),
        supervisors: HashSet::new(),
    };
    while tracer.next() {}
    has_ended.store(true, Ordering::SeqCst);
    tracer.trace
}

struct Tracer {
    program: Pid,
    kill_at: Option<Step>,
    trace: Trace,
    /// The threads in a system call, and if it synchronizes the journal.
    syncing: HashMap<Pid, bool>,
    /// The descriptors of connections to supervisors, the only ones that the program begins.
    supervisors: HashSet<u64>,
}

impl Tracer {
    /// Handles one stop of one thread. False if the program has ended.
    fn next(&mut self) -> bool {
        // Not taken away: the end of the program is its parent's, a thread of this process.
        let peeked = match waitid(Id::All, WAIT_FLAGS) {
            Ok(status) => status,
            Err(Errno::ECHILD) => return false,
            Err(error) => panic!("waitid: {error}"),
        };
        let thread = peeked.pid().unwrap();
        let is_end = matches!(peeked, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
        if is_end && thread == self.program {
            return false;
        }
        let signal = match waitpid(thread, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::PtraceSyscall(_)) => {
                self.system_call(thread);
                None
            }
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            Ok(WaitStatus::PtraceEvent(..)) => None,
            Ok(_) | Err(_) => {
                // The thread is gone; another one may get its number.
                self.syncing.remove(&thread);
                return true;
            }
        };
        match ptrace::syscall(thread, signal) {
            // It has been killed meanwhile.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => panic!("ptrace: {error}"),
        }
        true
    }

    /// Handles the entry into a system call, or the return from it.
    fn system_call(&mut self, thread: Pid) {
        if let Some(is_sync) = self.syncing.remove(&thread) {
            if is_sync {
                self.step("after a journal write");
            }
            return;
        }
        let Ok(registers) = ptrace::getregs(thread) else { return };
        let number = registers.orig_rax.cast_signed();
        let arguments = [registers.rdi, registers.rsi];
        self.syncing.insert(thread, number == libc::SYS_fdatasync && self.is_journal(arguments[0]));
        if let Some(step) = self.entered(thread, number, arguments) {
            self.step(step);
        }
    }

    /// Returns the name of the step that begins with a system call, if one does.
    fn entered(
        &mut self,
        thread: Pid,
        number: c_long,
        [first, second]: [u64; 2],
    ) -> Option<&'static str> {
        match number {
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
            libc::SYS_clone => is_process(first).then_some("clone"),
            libc::SYS_clone3 => {
                // The flags are the first field of `clone_args`.
                let flags = ptrace::read(thread, first as ptrace::AddressType).ok()?;
                is_process(flags.cast_unsigned()).then_some("clone")
            }
            libc::SYS_ioctl => find(&LOOP_REQUESTS, second),
            _ => find(&CHANGES, number),
        }
    }

    /// True if the program has the journal as descriptor `descriptor`.
    fn is_journal(&self, descriptor: u64) -> bool {
        let link = fs::read_link(format!("/proc/{}/fd/{descriptor}", self.program));
        link.is_ok_and(|path| path.ends_with("state/journal"))
    }

    /// Counts a step, and kills the program if it is the one. The system call before which it is killed does not happen.
    fn step(&mut self, name: &'static str) {
        if self.trace.is_killed {
            return;
        }
        let step = (name, self.trace.steps.iter().filter(|(other, _)| *other == name).count());
        self.trace.steps.push(step);
        if self.kill_at == Some(step) {
            self.trace.is_killed = true;
            kill(self.program, Signal::SIGKILL).unwrap();
        }
    }
}

fn find<T: PartialEq>(names: &[(T, &'static str)], value: T) -> Option<&'static str> {
    names.iter().find(|(named, _)| *named == value).map(|(_, name)| *name)
}

/// True if `clone` with these flags begins a process, and no thread.
const fn is_process(flags: u64) -> bool {
    flags & libc::CLONE_THREAD as u64 == 0
}

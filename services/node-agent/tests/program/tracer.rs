//! A tracer that kills a process exactly before or after one of its system calls (ptrace(2)).
//!
//! It follows the threads of the process, and no processes that these start: they run untraced, and neither delay nor count.

use std::collections::{HashMap, HashSet};
use std::fs;

use nix::errno::Errno;
use nix::libc::{self, c_long};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

/// Reports the threads that this thread traces, without taking the report away.
const WAIT_FLAGS: WaitPidFlag = WaitPidFlag::WEXITED
    .union(WaitPidFlag::WSTOPPED)
    .union(WaitPidFlag::__WALL)
    .union(WaitPidFlag::__WNOTHREAD)
    .union(WaitPidFlag::WNOWAIT);
/// What is traced: system calls, and threads that begin. The process ends with the tracer.
const OPTIONS: Options = Options::PTRACE_O_TRACESYSGOOD
    .union(Options::PTRACE_O_TRACECLONE)
    .union(Options::PTRACE_O_EXITKILL);

/// A place in the life of a process: the name of a step, and the number of the steps of that name before it.
pub(crate) type Step = (&'static str, usize);

/// The life of a traced process.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The steps that the process came to. It was killed at the last one, if it was.
    pub(crate) steps: Vec<Step>,
    pub(crate) is_killed: bool,
}

/// A system call of a thread, with its first arguments.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) thread: Pid,
    pub(crate) number: c_long,
    pub(crate) arguments: [u64; 3],
}

/// Says which system calls are steps.
pub(crate) trait Steps {
    /// Returns the name of the step that begins with `call`, if one does.
    fn entered(&mut self, call: &Call) -> Option<&'static str>;

    /// Returns the name of the step that begins when the call of `thread` has ended, if one does.
    fn left(&mut self, _thread: Pid) -> Option<&'static str> {
        None
    }
}

/// A tracer of one process. It belongs to the thread that made it.
pub(crate) struct Tracer<S> {
    process: Pid,
    steps: S,
    kill_at: Option<Step>,
    trace: Trace,
    /// The threads in a system call.
    calling: HashSet<Pid>,
    counts: HashMap<&'static str, usize>,
}

impl<S: Steps> Tracer<S> {
    /// Begins to trace the threads of `process`, which may be stopped. It goes on in [`run`](Self::run).
    pub(crate) fn attach(process: i32, steps: S, kill_at: Option<Step>) -> Self {
        let process = Pid::from_raw(process);
        let (mut seized, mut before) = (HashSet::new(), None);
        // A thread may begin meanwhile.
        while before != Some(seized.len()) {
            before = Some(seized.len());
            threads(process).into_iter().filter(|it| seized.insert(*it)).for_each(seize);
        }
        let (trace, calling, counts) = (Trace::default(), HashSet::new(), HashMap::new());
        Self { process, steps, kill_at, trace, calling, counts }
    }

    /// Lets the process go on, and kills it when it comes to the step `kill_at`. Returns when the process has ended, which its parent can still wait for.
    pub(crate) fn run(mut self) -> Trace {
        kill(self.process, Signal::SIGCONT).unwrap();
        while self.next() {}
        self.trace
    }

    /// Handles one stop of one thread. False if the process has ended.
    fn next(&mut self) -> bool {
        // Not taken away: the end of the process is its parent's, a thread of this process.
        let peeked = match waitid(Id::All, WAIT_FLAGS) {
            Ok(status) => status,
            Err(Errno::ECHILD) => return false,
            Err(error) => panic!("waitid: {error}"),
        };
        let thread = peeked.pid().unwrap();
        let is_end = matches!(peeked, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
        if is_end && thread == self.process {
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
                self.calling.remove(&thread);
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
        let step = if self.calling.remove(&thread) {
            self.steps.left(thread)
        } else {
            let Ok(registers) = ptrace::getregs(thread) else { return };
            self.calling.insert(thread);
            let number = registers.orig_rax.cast_signed();
            let arguments = [registers.rdi, registers.rsi, registers.rdx];
            self.steps.entered(&Call { thread, number, arguments })
        };
        if let Some(name) = step {
            self.step(name);
        }
    }

    /// Counts a step, and kills the process if it is the one. The system call before which it is killed does not happen.
    fn step(&mut self, name: &'static str) {
        if self.trace.is_killed {
            return;
        }
        let count = self.counts.entry(name).or_default();
        let step = (name, *count);
        *count += 1;
        self.trace.steps.push(step);
        if self.kill_at == Some(step) {
            self.trace.is_killed = true;
            kill(self.process, Signal::SIGKILL).unwrap();
        }
    }
}

/// Returns the threads of `process`.
fn threads(process: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let names = tasks.map(|task| task.unwrap().file_name());
    names.map(|name| Pid::from_raw(name.to_str().unwrap().parse().unwrap())).collect()
}

/// Begins to trace `thread`, and stops it. It may have ended, or be traced since it began.
fn seize(thread: Pid) {
    match ptrace::seize(thread, OPTIONS) {
        Ok(()) => drop(ptrace::interrupt(thread)),
        Err(Errno::ESRCH | Errno::EPERM) => {}
        Err(error) => panic!("ptrace has to be allowed: {error}"),
    }
}

/// True if `call` begins a process, and no thread.
pub(crate) fn begins_process(call: &Call) -> bool {
    let flags = match call.number {
        libc::SYS_clone => call.arguments[0],
        libc::SYS_clone3 => {
            // The flags are the first field of `clone_args`.
            let arguments = call.arguments[0] as ptrace::AddressType;
            let Ok(flags) = ptrace::read(call.thread, arguments) else { return false };
            flags.cast_unsigned()
        }
        number => return number == libc::SYS_fork || number == libc::SYS_vfork,
    };
    flags & libc::CLONE_THREAD as u64 == 0
}

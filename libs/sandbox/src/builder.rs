//! The second process: enters the cgroup, the namespaces and the file tree, starts the job in them
//! and reports its end.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixStream;

use nix::sched::{CloneFlags, unshare};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::system::sethostname;

use crate::groups;
use crate::identity;
use crate::link::{Fault, InStep, Message, Order, receive, send};
use crate::process::{self, Process};
use crate::root;

/// Name of the job's process.
pub(crate) const JOB: &str = "job";
/// Host name inside.
const HOST_NAME: &[u8] = b"sandbox";

/// Sets up the sandbox and runs the job.
pub(crate) fn main() -> io::Result<()> {
    process::close_inherited()?;
    let keeper = process::take_link()?;
    die_with_parent()?;
    let mut order: Order = receive(&keeper)?;
    match start_job(&mut order) {
        Ok(job) => supervise(&keeper, job),
        Err(fault) => send(&keeper, &Message::Unavailable(fault)),
    }
}

/// Has the kernel kill this process when its parent dies. The parent has a single thread: the
/// signal is sent when the thread that started this process ends.
///
/// A parent that died before is noticed by the end of the link.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

fn start_job(order: &mut Order) -> Result<Process, Fault> {
    // A delegated group may refuse members. Then rlimits replace it.
    order.confinement.cgroup =
        !order.cgroup.is_empty() && groups::enter(&order.cgroup, &order.limits()).is_ok();
    order.confinement.dropped_root = identity::can_become(order.user);
    let program = if order.layers.namespaces {
        enter_namespaces(order)?;
        hide_host(order);
        root::PROGRAM
    } else {
        if order.confinement.dropped_root {
            identity::become_user(order.user).in_step("dropping root")?;
        }
        "/proc/self/exe"
    };
    // Changed ids have cleared it.
    die_with_parent().in_step("death signal")?;
    let job = Process::start(OsStr::new(program), JOB, order).in_step("starting the job")?;
    // The job's output ends with the job.
    process::take_output().in_step("closing the output")?;
    Ok(job)
}

/// Enters all namespaces and the file tree. As root, the tree is built before root is dropped,
/// so that files in private directories can be bound.
fn enter_namespaces(order: &Order) -> Result<(), Fault> {
    let own_process = identity::open_own_process().in_step("opening /proc/self")?;
    let enter_user_namespace =
        || identity::enter_user_namespace(&own_process).in_step("user namespace");
    if order.confinement.dropped_root {
        unshare(CloneFlags::CLONE_NEWNS).in_step("mount namespace")?;
        root::enter(order.job.as_ref(), true)?;
        identity::become_user_with_capabilities(order.user).in_step("dropping root")?;
        enter_user_namespace()?;
    } else {
        enter_user_namespace()?;
        unshare(CloneFlags::CLONE_NEWNS).in_step("mount namespace")?;
        root::enter(order.job.as_ref(), false)?;
    }
    // The next child is PID 1 of the new PID namespace.
    let others = CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWCGROUP;
    unshare(others).in_step("namespaces")?;
    sethostname(HOST_NAME).in_step("host name")?;
    identity::drop_bounding_set().in_step("capability bounding set")
}

/// Replaces the host's paths in the order by those that the job sees.
fn hide_host(order: &mut Order) {
    order.cgroup.clear();
    if let Some(job) = &mut order.job {
        job.scratch = root::SCRATCH.into();
        for (source, target) in &mut job.read_only {
            source.clone_from(target);
        }
    }
}

/// Reports the job's messages and its end. Kills it if the keeper asks for that.
fn supervise(keeper: &UnixStream, mut job: Process) -> io::Result<()> {
    identity::drop_capabilities()?;
    let mut is_linked = true;
    loop {
        let mut descriptors =
            vec![PollFd::new(&job.descriptor, PollFlags::IN), PollFd::new(keeper, PollFlags::IN)];
        if is_linked {
            descriptors.push(PollFd::new(&job.link, PollFlags::IN));
        }
        poll(&mut descriptors, None)?;
        let events = |index: usize| descriptors.get(index).map(PollFd::revents);
        let is_ready = |index| events(index).is_some_and(|events| !events.is_empty());
        let (ended, stopped, linked) = (is_ready(0), is_ready(1), is_ready(2));
        if linked {
            match receive::<Message>(&job.link) {
                Ok(message) => send(keeper, &message)?,
                Err(_) => is_linked = false,
            }
        } else if ended || stopped {
            job.kill();
            return send(keeper, &Message::Ended(job.wait()?));
        }
    }
}

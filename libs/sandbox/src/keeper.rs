//! The first process: stays in the host's namespaces, watches the clock and the scratch quota, and
//! removes the cgroup. It is apart from the program, so that all this survives the program's death.

use std::ffi::OsStr;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use containers::cgroup::Cgroup;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::setsid;

use crate::groups;
use crate::identity;
use crate::link::{InStep, Message, Order, Outcome, Stop, receive, send};
use crate::process::{self, Process};
use crate::quota::{self, Quota};

/// Name of the builder's process.
pub(crate) const BUILDER: &str = "builder";
/// Interval of counting the scratch directory.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of the check of the host, which has no job with a limit.
const CHECK_TIMEOUT: Duration = Duration::from_mins(1);
/// Time that a builder gets to stop its job. Then the builder is killed, and the job with it.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs one order, and reports once nothing of it is left.
pub(crate) fn main() -> io::Result<()> {
    process::close_inherited()?;
    // A terminal's signals are for the program: it decides what happens to its jobs.
    let _session = setsid();
    let caller = process::take_link()?;
    let mut order: Order = receive(&caller)?;
    let group =
        if order.layers.cgroup { groups::create(&order.group, &order.limits()) } else { None };
    order.cgroup = group.as_ref().map_or_else(Vec::new, |group| group.directories().to_vec());
    let outcome = run(&caller, &order, group.as_ref());
    if let Some(group) = group {
        group.destroy();
    }
    match outcome {
        Ok(outcome) => send(&caller, &Message::Finished(outcome)),
        Err(message) => send(&caller, &message),
    }
}

/// Runs the order to its end. The error is the message for the caller.
fn run(caller: &UnixStream, order: &Order, group: Option<&Cgroup>) -> Result<Outcome, Message> {
    let quota = prepare(order).map_err(Message::Unavailable)?;
    let builder = Process::start(OsStr::new("/proc/self/exe"), BUILDER, order)
        .in_step("starting the builder")
        .map_err(Message::Unavailable)?;
    // The job's output ends with the job.
    process::take_output().in_step("closing the output").map_err(Message::Unavailable)?;
    let timeout = order.job.as_ref().map_or(CHECK_TIMEOUT, |job| job.limits.wall_clock);
    let deadline = Instant::now() + timeout;
    let mut watch = Watch { caller, builder, quota, deadline, outcome: Outcome::default() };
    let unavailable = watch.until_end();
    watch.end_builder();
    if let Some(message) = unavailable {
        return Err(message);
    }
    // A job may exceed the quota and end before it is counted.
    watch.outcome.stop = watch.outcome.stop.take().or_else(|| watch.exceeded());
    watch.outcome.out_of_memory = group.is_some_and(groups::was_out_of_memory);
    Ok(watch.outcome)
}

/// Gives the scratch directory to the job's user, and opens it for counting.
fn prepare(order: &Order) -> Result<Option<Quota>, crate::link::Fault> {
    let Some(job) = &order.job else { return Ok(None) };
    if identity::can_become(order.user) {
        quota::give(&job.scratch, order.user.uid, order.user.gid).in_step("scratch")?;
    }
    let quota = Quota::open(&job.scratch, &job.limits).in_step("scratch")?;
    Ok(order.layers.quota.then_some(quota))
}

/// A running job.
struct Watch<'a> {
    caller: &'a UnixStream,
    builder: Process,
    quota: Option<Quota>,
    deadline: Instant,
    outcome: Outcome,
}

impl Watch<'_> {
    /// Waits until the job has ended or is to be stopped. Returns the builder's message if the
    /// sandbox is unavailable.
    fn until_end(&mut self) -> Option<Message> {
        let mut next_count = Instant::now();
        loop {
            let (from_builder, from_caller) = self.wait(next_count.min(self.deadline));
            if from_builder {
                match receive(&self.builder.link) {
                    Ok(Message::Ended(end)) => {
                        self.outcome.end = Some(end);
                        return None;
                    }
                    Ok(message @ (Message::Unavailable(_) | Message::UnknownJob(_))) => {
                        return Some(message);
                    }
                    // A caller that is gone is noticed by its socket.
                    Ok(message) => _ = send(self.caller, &message),
                    Err(_) => return None,
                }
                continue;
            }
            let now = Instant::now();
            if now >= next_count {
                next_count = now + COUNT_INTERVAL;
                self.outcome.stop = self.exceeded();
            }
            let is_late = now >= self.deadline;
            let other = from_caller.then_some(Stop::Caller).or(is_late.then_some(Stop::Timeout));
            self.outcome.stop = self.outcome.stop.take().or(other);
            if self.outcome.stop.is_some() {
                return None;
            }
        }
    }

    fn exceeded(&self) -> Option<Stop> {
        self.quota.as_ref()?.exceeded(self.builder.id())
    }

    /// Waits until `until` for a message of the builder, and for the end of the caller.
    fn wait(&self, until: Instant) -> (bool, bool) {
        wait(&self.builder.link, Some(self.caller), until)
    }

    /// Has the builder kill the job, and waits for the end of both.
    fn end_builder(&mut self) {
        let _shut = self.builder.link.shutdown(Shutdown::Write);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while wait(&self.builder.link, None, deadline).0 {
            match receive(&self.builder.link) {
                Ok(Message::Ended(end)) => self.outcome.end = Some(end),
                Ok(_) => {}
                // The builder ended.
                Err(_) => break,
            }
        }
        self.builder.kill();
        let _end = self.builder.wait();
    }
}

/// Waits until `until`. Tells which of the sockets are readable or closed.
fn wait(builder: &UnixStream, caller: Option<&UnixStream>, until: Instant) -> (bool, bool) {
    let mut descriptors = vec![PollFd::new(builder, PollFlags::IN)];
    descriptors.extend(caller.map(|caller| PollFd::new(caller, PollFlags::IN)));
    let timeout = until.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(timeout).ok();
    // Interrupted: nothing is readable, and the caller looks at the clock.
    let _count = poll(&mut descriptors, timeout.as_ref());
    let is_ready = |index: usize| {
        descriptors.get(index).is_some_and(|descriptor| !descriptor.revents().is_empty())
    };
    (is_ready(0), is_ready(1))
}

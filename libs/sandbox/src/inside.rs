//! The third process: PID 1 of the sandbox. Takes the last rights from itself and runs the job.

use std::io;

use rustix::process::chdir;
use rustix::thread::set_no_new_privs;

use crate::builder::die_with_parent;
use crate::context::Context;
use crate::identity;
use crate::job::Confinement;
use crate::landlock_rules;
use crate::link::{Fault, InStep, Message, Order, receive, send};
use crate::process;
use crate::rlimits;
use crate::seccomp;

/// Function of a job. An error's text goes to the caller.
pub type JobFunction = fn(&mut Context) -> Result<Vec<u8>, String>;

/// Runs the ordered job, one of `jobs`.
pub(crate) fn main(jobs: &[(&str, JobFunction)]) -> io::Result<()> {
    die_with_parent()?;
    let builder = process::take_link()?;
    let output = process::take_output()?;
    let order: Order = receive(&builder)?;
    let (job, function) = match &order.job {
        None => (None, None),
        Some(job) => match jobs.iter().find(|(name, _)| *name == job.name) {
            Some((_, function)) => (Some(job), Some(function)),
            None => return send(&builder, &Message::UnknownJob(job.name.clone())),
        },
    };
    match confine(&order) {
        Ok(confinement) => send(&builder, &Message::Ready(confinement))?,
        Err(fault) => return send(&builder, &Message::Unavailable(fault)),
    }
    // From here on nothing that this process writes is trusted.
    drop(builder);
    if let (Some(job), Some(function)) = (job, function) {
        let mut context = Context::new(job.input.clone(), job.scratch.clone(), output);
        let result = function(&mut context);
        context.finish(result)?;
    }
    Ok(())
}

/// Takes the last rights from this process.
fn confine(order: &Order) -> Result<Confinement, Fault> {
    let job = order.job.as_ref();
    let layers = order.layers;
    let mut confinement = order.confinement;
    if let Some(job) = job {
        chdir(&job.scratch).in_step("scratch directory")?;
    }
    identity::drop_capabilities().in_step("capabilities")?;
    set_no_new_privs(true).in_step("no_new_privs")?;
    if let Some(job) = job.filter(|_| layers.rlimits) {
        rlimits::apply(&job.limits, confinement.cgroup)?;
    }
    if layers.landlock {
        confinement.landlock = landlock_rules::apply(job).in_step("Landlock")?;
    }
    if layers.seccomp {
        seccomp::apply(job.is_some_and(|job| job.programs_allowed)).in_step("seccomp")?;
    }
    Ok(confinement)
}

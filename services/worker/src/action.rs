//! Running a built-in action.

use crate::builtin::Builtin;
use crate::context::{ActionOutcome, Context, Terminal};
use crate::environment::Environment;
use crate::error::{Error, one_line};
use crate::{archive2disk, cexec, grub2disk, image2disk, kexec, rootio, wipe, writefile};

/// Runs `action` with the variables in `environment`. To end it early, cancel the context and wait for
/// [`ActionOutcome::Cancelled`]: dropping the future would leave its threads running.
#[tracing::instrument(skip_all, fields(%action))]
pub async fn run(action: Builtin, environment: &Environment, context: &Context) -> ActionOutcome {
    let (result, terminal) = match action {
        Builtin::Archive2Disk => (Box::pin(archive2disk::run(environment, context)).await, None),
        Builtin::Cexec => (cexec::run(environment, context).await, None),
        Builtin::Grub2Disk => (grub2disk::run(environment, context).await, None),
        Builtin::Image2Disk => (Box::pin(image2disk::run(environment, context)).await, None),
        Builtin::Kexec => (kexec::run(environment, context).await, Some(Terminal::Kexec)),
        Builtin::Terminal(terminal) => (Ok(()), Some(terminal)),
        Builtin::Rootio(step) => (Box::pin(rootio::run(step, environment, context)).await, None),
        Builtin::Wipe => (wipe::run(environment, context).await, None),
        Builtin::WriteFile => (writefile::run(environment).await, None),
    };
    match result {
        Ok(()) => terminal.map_or(ActionOutcome::Success, ActionOutcome::Terminal),
        Err(Error::Cancelled) => ActionOutcome::Cancelled,
        Err(error) => ActionOutcome::Failure(format!("{action}: {}", one_line(&error))),
    }
}

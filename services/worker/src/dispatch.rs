//! Carries out each built-in action by the module that has it.

use crate::action::{Context, Error, Failure, Outcome, Terminal, one_line};
use crate::builtin::Builtin;
use crate::environment::{self, Environment};
use crate::{archive2disk, cexec, grub2disk, image2disk, kexec, rootio, wipe, writefile};

/// Carries out `action` with the variables in `environment`. To end it early, cancel the context and wait for
/// [`Outcome::Cancelled`]: dropping the future would leave its threads at work.
#[tracing::instrument(skip_all, fields(%action))]
pub async fn run(action: Builtin, environment: &Environment, context: &Context) -> Outcome {
    let (ended, then) = match action {
        Builtin::Archive2Disk => (Box::pin(archive2disk::run(environment, context)).await, None),
        Builtin::Cexec => (cexec::run(environment, context).await, None),
        Builtin::Grub2Disk => (grub2disk::run(environment, context).await, None),
        Builtin::Image2Disk => (Box::pin(image2disk::run(environment, context)).await, None),
        Builtin::Kexec => (kexec::run(environment, context).await, Some(Terminal::Kexec)),
        Builtin::PowerOff => (Ok(()), Some(Terminal::PowerOff)),
        Builtin::Reboot => (Ok(()), Some(Terminal::Reboot)),
        Builtin::Rootio(what) => (Box::pin(rootio::run(what, environment, context)).await, None),
        Builtin::Wipe => (wipe::run(environment, context).await, None),
        Builtin::WriteFile => (writefile::run(environment).await, None),
    };
    match ended {
        Ok(()) => then.map_or(Outcome::Success, Outcome::Terminal),
        Err(Error::Cancelled) => Outcome::Cancelled,
        Err(error) => Outcome::Failure(failure(action, &error)),
    }
}

fn failure(action: Builtin, error: &Error) -> Failure {
    let output =
        if let Error::Command(error) = error { error.output().to_owned() } else { String::new() };
    let exit_code = match (action, error) {
        // As the cexec image has them: a variable that says nonsense, one that is missing, and all else.
        (Builtin::Cexec, Error::Input(environment::Error::Invalid { .. })) => 10,
        (Builtin::Cexec, Error::Input(environment::Error::Missing(_))) => 20,
        (Builtin::Cexec, _) => 30,
        _ => 1,
    };
    Failure { reason: format!("{action}: {}", one_line(error)), output, exit_code }
}

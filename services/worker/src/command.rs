//! Runs the commands of an action, one at a time. When a command ends or is cancelled, its process group is killed.

mod output;

use std::env::split_paths;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::environment::Environment;
use crate::error::Error;
use crate::progress::Progress;
use output::Pipes;

/// The search path, unless the template sets `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs commands with the action's variables, in the root directory of the calling thread.
#[derive(Debug)]
pub(crate) struct Runner {
    variables: Vec<(String, String)>,
    stop: CancellationToken,
    progress: Arc<dyn Progress>,
}

impl Runner {
    /// Creates the runner of an action with the variables in `environment`.
    pub(crate) fn new(environment: &Environment, context: &Context) -> Self {
        let variables = environment.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let path = (environment.optional("PATH").is_none()).then(|| ("PATH".into(), PATH.into()));
        Self {
            variables: path.into_iter().chain(variables).collect(),
            stop: context.stop.clone(),
            progress: context.progress.clone(),
        }
    }

    /// Returns the first existing program with one of these `names`.
    pub(crate) fn find(&self, names: &[&str]) -> Option<PathBuf> {
        let path = self.variables.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or(PATH, |(_, path)| path);
        let candidates =
            names.iter().flat_map(|name| split_paths(path).map(move |dir| dir.join(name)));
        let is_program = |candidate: &PathBuf| {
            candidate
                .metadata()
                .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        };
        candidates.into_iter().find(is_program)
    }

    /// Runs the program and its arguments in `words`, and waits for its end.
    pub(crate) async fn run(&self, words: &[String]) -> Result<(), Error> {
        let mut child = self.start(words)?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let mut pipes = Pipes::default();
        pipes.follow(child.stdout.take(), &self.progress);
        pipes.follow(child.stderr.take(), &self.progress);
        let status = self.stop.run_until_cancelled(child.wait()).await;
        // Kills processes left behind, so that they do not write to the disk any more. Maybe there are none.
        let _already_ended = group.map(|group| kill_process_group(group, Signal::KILL));
        if status.is_none() {
            let _reaped = child.wait().await;
        }
        pipes.drain().await;
        let command = words.join(" ");
        let Some(status) = status else { return Err(Error::Cancelled) };
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Error::CommandFailed { command, ending: ending(status) }),
            Err(source) => Err(Error::CommandStart { command, source }),
        }
    }

    fn start(&self, words: &[String]) -> Result<Child, Error> {
        let (program, arguments) =
            words.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(self.variables.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.process_group(0).kill_on_drop(true).spawn();
        child.map_err(|source| Error::CommandStart { command: words.join(" "), source })
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended for an unknown reason".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_and_signals_are_named() {
        assert_eq!(ending(ExitStatus::from_raw(100 << 8)), "ended with exit code 100");
        assert_eq!(ending(ExitStatus::from_raw(9)), "was killed by signal 9");
    }
}

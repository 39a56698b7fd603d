//! Commands, run one at a time: each is killed with all that it started when it ends or is to stop, and its last words
//! are kept.

mod output;

use std::env::split_paths;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::action::{self, Context};
use crate::environment::Environment;
use crate::progress::Progress;
use output::Tail;

/// Where a program is looked for if the template does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot start `{command}`")]
    Start { command: String, source: io::Error },
    #[error("`{command}` {ending}")]
    Failed { command: String, ending: String, output: String },
}

impl Error {
    /// What it printed last.
    pub(crate) fn output(&self) -> &str {
        if let Self::Failed { output, .. } = self { output } else { "" }
    }
}

/// What runs an action's commands: with the action's variables, in the root directory of the thread that asks.
#[derive(Debug)]
pub(crate) struct Runner {
    variables: Vec<(String, String)>,
    stop: CancellationToken,
    progress: Arc<dyn Progress>,
}

impl Runner {
    /// One for an action with the variables in `environment`.
    pub(crate) fn new(environment: &Environment, context: &Context) -> Self {
        let variables = environment.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let path = (environment.optional("PATH").is_none()).then(|| ("PATH".into(), PATH.into()));
        Self {
            variables: path.into_iter().chain(variables).collect(),
            stop: context.stop.clone(),
            progress: context.progress.clone(),
        }
    }

    /// The first program called one of `names` that there is.
    pub(crate) fn find(&self, names: &[&str]) -> Option<PathBuf> {
        let path = self.variables.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or(PATH, |(_, path)| path);
        let places = names.iter().flat_map(|name| split_paths(path).map(move |dir| dir.join(name)));
        let is_program = |place: &PathBuf| {
            place.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        };
        places.into_iter().find(is_program)
    }

    /// Runs the program and its arguments in `words` to its end.
    pub(crate) async fn run(&self, words: &[String]) -> Result<(), action::Error> {
        let mut child = self.start(words)?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let mut tail = Tail::default();
        tail.follow(child.stdout.take(), &self.progress);
        tail.follow(child.stderr.take(), &self.progress);
        let status = self.stop.run_until_cancelled(child.wait()).await;
        // What it left behind must not write to the disk any more. The group may be gone with its leader.
        let _none_left = group.map(|group| kill_process_group(group, Signal::KILL));
        let Some(status) = status else {
            let _reaped = child.wait().await;
            return Err(action::Error::Cancelled);
        };
        let (command, output) = (words.join(" "), tail.last().await);
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Error::Failed { command, ending: ending(status), output }.into()),
            Err(source) => Err(Error::Start { command, source }.into()),
        }
    }

    fn start(&self, words: &[String]) -> Result<Child, Error> {
        let (program, arguments) =
            words.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(self.variables.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.process_group(0).kill_on_drop(true).spawn();
        child.map_err(|source| Error::Start { command: words.join(" "), source })
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in no known way".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_apart() {
        assert_eq!(ending(ExitStatus::from_raw(100 << 8)), "ended with exit code 100");
        assert_eq!(ending(ExitStatus::from_raw(9)), "was killed by signal 9");
    }
}

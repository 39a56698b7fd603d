//! Runs a command in the installed system.
//!
//! | variable | meaning |
//! |---|---|
//! | `BLOCK_DEVICE`, `FS_TYPE` | needed; the partition with the system, and its file system |
//! | `CMD_LINE` | needed; commands separated by `;`, their words by spaces, without quoting |
//! | `DEFAULT_INTERPRETER` | what runs the whole line instead, as one argument: `/bin/sh -c` for example |
//! | `CHROOT` | any text: the system is the command's root, with `/dev`, `/proc`, `/sys`; absent: at `/mountAction` |
//! | `UPDATE_RESOLV_CONF` | true: the command sees this machine's resolv.conf; the disk's own is only covered |
//!
//! `JSON_OUTOUT` is accepted and without effect. The command and all it started in its process group are killed when
//! it ends or is cancelled. Failures have the image's exit codes: 10 nonsense in a variable, 20 one missing, 30 else.

mod output;
mod resolver;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::action::{self, Context};
use crate::environment::{self, Environment};
use crate::installed::{Installed, View};
use crate::progress::Progress;
use output::Tail;

/// Where a command is looked for if the template does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why the command did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot show it this machine's resolv.conf")]
    Resolver(#[source] io::Error),
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

/// A checked request.
struct Order {
    installed: Installed,
    commands: Vec<Vec<String>>,
    chroot: bool,
    resolver: bool,
    variables: Vec<(String, String)>,
}

impl Order {
    fn read(environment: &Environment) -> Result<Self, environment::Error> {
        let disk = environment.required("BLOCK_DEVICE")?.into();
        let fs_type = Some(environment.required("FS_TYPE")?.to_owned());
        let line = environment.required("CMD_LINE")?;
        let commands = commands(line, environment.optional("DEFAULT_INTERPRETER"));
        if commands.is_empty() {
            let (name, value) = ("CMD_LINE", line.to_owned());
            return Err(environment::Error::Invalid { name, value, wanted: "a command" });
        }
        let variables = environment.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Self {
            installed: Installed { disk, fs_type },
            commands,
            chroot: environment.optional("CHROOT").is_some(),
            resolver: environment.flag("UPDATE_RESOLV_CONF"),
            variables: std::iter::once(("PATH".to_owned(), PATH.to_owned()))
                .chain(variables)
                .collect(),
        })
    }
}

/// The commands in `line`, each as its words.
fn commands(line: &str, interpreter: Option<&str>) -> Vec<Vec<String>> {
    let words = |text: &str| {
        text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    match interpreter {
        Some(interpreter) => {
            vec![words(interpreter).into_iter().chain([line.to_owned()]).collect()]
        }
        None => line.split(';').map(words).filter(|words| !words.is_empty()).collect(),
    }
}

/// Runs the commands, one after the other, until one fails.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), action::Error> {
    let Order { installed, commands, chroot, resolver, variables } = Order::read(environment)?;
    let (runtime, stop, progress) =
        (Handle::current(), context.stop.clone(), context.progress.clone());
    // Read here: inside, this file is the installed system's.
    let servers =
        if resolver && chroot { resolver::ours().map_err(Error::Resolver)? } else { None };
    let view = if chroot { View::System } else { View::Beside };
    let work = move || {
        let covered = servers
            .map(|servers| resolver::cover(&servers))
            .transpose()
            .map_err(Error::Resolver)?;
        let run = async {
            for words in &commands {
                Job { words, variables: &variables }.run(&stop, &progress).await?;
            }
            Ok(())
        };
        // On this very thread, whose root and mounts a command inherits.
        let ended = runtime.block_on(run);
        drop(covered);
        ended
    };
    installed.visit(view, work).await?
}

/// One command to run.
struct Job<'a> {
    words: &'a [String],
    variables: &'a [(String, String)],
}

impl Job<'_> {
    async fn run(
        &self,
        stop: &CancellationToken,
        progress: &Arc<dyn Progress>,
    ) -> Result<(), action::Error> {
        let mut child = self.start()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let mut tail = Tail::default();
        tail.follow(child.stdout.take(), progress);
        tail.follow(child.stderr.take(), progress);
        let status = stop.run_until_cancelled(child.wait()).await;
        // What it left behind must not write to the disk any more. The group may be gone with its leader.
        let _none_left = group.map(|group| kill_process_group(group, Signal::KILL));
        let Some(status) = status else {
            let _reaped = child.wait().await;
            return Err(action::Error::Cancelled);
        };
        let (command, output) = (self.words.join(" "), tail.last().await);
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Error::Failed { command, ending: ending(status), output }.into()),
            Err(source) => Err(Error::Start { command, source }.into()),
        }
    }

    fn start(&self) -> Result<Child, Error> {
        let (program, arguments) =
            self.words.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(self.variables.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.process_group(0).kill_on_drop(true).spawn();
        child.map_err(|source| Error::Start { command: self.words.join(" "), source })
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
    fn without_an_interpreter_a_line_is_split_at_semicolons_and_spaces() {
        assert_eq!(
            commands("apt-get update ; useradd  'a b';", None),
            [vec!["apt-get", "update"], vec!["useradd", "'a", "b'"],]
        );
    }

    #[test]
    fn an_interpreter_gets_the_whole_line_as_one_argument() {
        assert_eq!(commands("a && b; c", Some("/bin/sh -c")), [["/bin/sh", "-c", "a && b; c"]]);
    }

    #[test]
    fn endings_are_told_apart() {
        assert_eq!(ending(ExitStatus::from_raw(100 << 8)), "ended with exit code 100");
        assert_eq!(ending(ExitStatus::from_raw(9)), "was killed by signal 9");
    }
}

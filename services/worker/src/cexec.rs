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

mod resolver;

use std::io;

use tokio::runtime::Handle;

use crate::action::{self, Context};
use crate::command::Runner;
use crate::environment::{self, Environment};
use crate::installed::{Installed, View};

/// Why the command was not even tried.
#[derive(Debug, thiserror::Error)]
#[error("cannot show it this machine's resolv.conf")]
pub(crate) struct Error(#[source] io::Error);

impl From<Error> for action::Error {
    fn from(error: Error) -> Self {
        Self::own(error)
    }
}

/// Where commands run, checked.
struct Place {
    installed: Installed,
    chroot: bool,
    resolver: bool,
}

impl Place {
    fn read(environment: &Environment) -> Result<Self, environment::Error> {
        let disk = environment.required("BLOCK_DEVICE")?.into();
        let fs_type = Some(environment.required("FS_TYPE")?.to_owned());
        Ok(Self {
            installed: Installed { disk, fs_type },
            chroot: environment.optional("CHROOT").is_some(),
            resolver: environment.flag("UPDATE_RESOLV_CONF"),
        })
    }
}

/// The commands that the variables name.
fn ordered(environment: &Environment) -> Result<Vec<Vec<String>>, environment::Error> {
    let line = environment.required("CMD_LINE")?;
    let commands = commands(line, environment.optional("DEFAULT_INTERPRETER"));
    if commands.is_empty() {
        let (name, value) = ("CMD_LINE", line.to_owned());
        return Err(environment::Error::Invalid { name, value, wanted: "a command" });
    }
    Ok(commands)
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
    let (place, commands) = (Place::read(environment)?, ordered(environment)?);
    run_in(place, commands, environment, context).await
}

/// Runs `command`, its program and arguments, where the variables say, in the place of theirs.
pub(crate) async fn run_other(
    command: &[String],
    environment: &Environment,
    context: &Context,
) -> Result<(), action::Error> {
    run_in(Place::read(environment)?, vec![command.to_vec()], environment, context).await
}

async fn run_in(
    place: Place,
    commands: Vec<Vec<String>>,
    environment: &Environment,
    context: &Context,
) -> Result<(), action::Error> {
    let Place { installed, chroot, resolver } = place;
    let (runtime, runner) = (Handle::current(), Runner::new(environment, context));
    // Read here: inside, this file is the installed system's.
    let servers = if resolver && chroot { resolver::ours().map_err(Error)? } else { None };
    let view = if chroot { View::System } else { View::Beside };
    let work = move || {
        let covered =
            servers.map(|servers| resolver::cover(&servers)).transpose().map_err(Error)?;
        let run = async {
            for words in &commands {
                runner.run(words).await?;
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
}

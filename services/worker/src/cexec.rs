//! Runs a command in the installed system.
//!
//! | variable | meaning |
//! |---|---|
//! | `BLOCK_DEVICE`, `FS_TYPE` | required; the partition with the system, and its file system |
//! | `CMD_LINE` | required; commands separated by `;`, their words by spaces, without quoting |
//! | `DEFAULT_INTERPRETER` | gets the whole line as one argument instead; for example `/bin/sh -c` |
//! | `CHROOT` | any text: the system is the command's root directory, with `/dev`, `/proc`, `/sys`; default: mounted at `/mountAction` |
//! | `UPDATE_RESOLV_CONF` | true: this machine's resolv.conf is mounted over that of the installed system |
//!
//! `JSON_OUTOUT` is accepted and has no effect. The process group of a command is killed when the command ends or is
//! cancelled.

mod resolver;

use std::io;

use tokio::runtime::Handle;

use crate::command::Runner;
use crate::context::Context;
use crate::environment::{self, Environment};
use crate::error;
use crate::mounted_root::{TargetFilesystem, View};

/// This machine's resolv.conf could not be mounted.
#[derive(Debug, thiserror::Error)]
#[error("cannot mount this machine's resolv.conf")]
pub(crate) struct Error(#[source] io::Error);

impl crate::error::StepError for Error {}

/// The file system that commands run in, and the way it is mounted; from the variables.
struct CommandRoot {
    filesystem: TargetFilesystem,
    chroot: bool,
    resolver: bool,
}

impl CommandRoot {
    fn parse(environment: &Environment) -> Result<Self, environment::Error> {
        let filesystem = TargetFilesystem::parse(environment, "BLOCK_DEVICE")?;
        environment.required("FS_TYPE")?;
        Ok(Self {
            filesystem,
            chroot: environment.optional("CHROOT").is_some(),
            resolver: environment.flag("UPDATE_RESOLV_CONF"),
        })
    }
}

/// Returns the commands in the variables.
fn configured_commands(environment: &Environment) -> Result<Vec<Vec<String>>, environment::Error> {
    let line = environment.required("CMD_LINE")?;
    let commands = commands(line, environment.optional("DEFAULT_INTERPRETER"));
    let invalid = || environment::Error::invalid("CMD_LINE", line, "a command");
    if commands.is_empty() { Err(invalid()) } else { Ok(commands) }
}

/// Splits `line` into commands, and these into words.
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

/// Runs the commands one after the other, until one fails.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), error::Error> {
    let (root, commands) = (CommandRoot::parse(environment)?, configured_commands(environment)?);
    run_in(root, commands, environment, context).await
}

/// Runs `command` instead of the commands in the variables.
pub(crate) async fn run_other(
    command: &[String],
    environment: &Environment,
    context: &Context,
) -> Result<(), error::Error> {
    run_in(CommandRoot::parse(environment)?, vec![command.to_vec()], environment, context).await
}

async fn run_in(
    root: CommandRoot,
    commands: Vec<Vec<String>>,
    environment: &Environment,
    context: &Context,
) -> Result<(), error::Error> {
    let CommandRoot { filesystem, chroot, resolver } = root;
    let (runtime, runner) = (Handle::current(), Runner::new(environment, context));
    // Read now: after the change of root, this path is the installed system's file.
    let servers = if resolver && chroot { resolver::read_own().map_err(Error)? } else { None };
    let view = if chroot { View::System } else { View::MountedAside };
    let work = move || {
        let covered =
            servers.map(|servers| resolver::cover(&servers)).transpose().map_err(Error)?;
        let run = async {
            for words in &commands {
                runner.run(words).await?;
            }
            Ok(())
        };
        // Runs on this thread, because a command inherits its root directory and mounts.
        let result = runtime.block_on(run);
        drop(covered);
        result
    };
    filesystem.with_mounted(view, work).await?
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

//! waitdaemon: a container in Tinkerbell's templates that starts another image after a while.
//!
//! Templates have it around actions that end the boot: it reports its success first, since nobody
//! is left to report that of a reboot. The worker here does the same for each of these actions, so
//! the action itself takes waitdaemon's place. The variable `IMAGE` names it, or the command, which
//! waitdaemon passes on:
//!
//! ```text
//! IMAGE: quay.io/tinkerbell/actions/kexec:v1.0.0                     kexec
//! IMAGE: alpine                              command: [reboot]       reboot
//! IMAGE: busybox                             command: [poweroff, -f] poweroff
//! ```

use crate::check::{Environment, UnknownAction, short_name};

/// Name of the image.
const WAITDAEMON: &str = "waitdaemon";
/// Variable with the image that is started.
const IMAGE: &str = "IMAGE";
/// Variables of waitdaemon itself, which the action in its place does not have.
const VARIABLES: [&str; 5] = ["CONTAINER_RUNTIME", IMAGE, "PHASE", "WAIT_SECONDS", "WAIT_TIME"];
/// Built-in actions that end the boot.
const STARTED: [&str; 3] = ["kexec", "poweroff", "reboot"];
/// Programs that do what a built-in action of their name does.
const PROGRAMS: [&str; 2] = ["poweroff", "reboot"];
/// Shells that run the line after `-c`.
const SHELLS: [&str; 3] = ["ash", "bash", "sh"];
/// Options of reboot(8) and poweroff(8) that do not say what is done.
const FLAGS: [&str; 4] = ["--force", "-f", "-ff", "-n"];

/// True for a reference to waitdaemon.
pub fn is_waitdaemon(image: &str) -> bool {
    short_name(image) == WAITDAEMON
}

/// True for the name of a variable of waitdaemon itself.
pub fn is_waitdaemon_variable(name: &str) -> bool {
    VARIABLES.contains(&name)
}

/// Returns the image that waitdaemon would start; empty if it is not set.
pub fn waitdaemon_image(environment: &Environment) -> &str {
    environment.get(IMAGE).map_or("", String::as_str)
}

/// Returns the image of the built-in action, without a command, that takes the place of waitdaemon
/// with `command` and `environment`.
pub fn in_place_of_waitdaemon<'a>(
    command: &[String],
    environment: &'a Environment,
) -> Result<&'a str, UnknownAction> {
    let image = waitdaemon_image(environment);
    let words: Vec<_> = command.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
    let found = match words.as_slice() {
        _ if image.is_empty() => None,
        [] => STARTED.contains(&short_name(image)).then_some(image),
        // Any image has these programs.
        words => program(words),
    };
    let unknown = || UnknownAction::Start { image: image.to_owned(), command: words.join(" ") };
    found.ok_or_else(unknown)
}

/// Returns the built-in action that does what a command does.
fn program(words: &[&str]) -> Option<&'static str> {
    let words: Vec<_> = match words {
        [shell, "-c", line] if SHELLS.contains(&file_name(shell)) => {
            line.split_whitespace().collect()
        }
        words => words.to_vec(),
    };
    let words = words.strip_prefix(&["busybox"]).unwrap_or(&words);
    let (program, arguments) = words.split_first()?;
    let name = PROGRAMS.into_iter().find(|name| *name == file_name(program))?;
    arguments.iter().all(|argument| FLAGS.contains(argument)).then_some(name)
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

//! What a template wants run after an action failed, or took too long: another command in the action's image, with the
//! action's variables (control-plane specification, section 1.8).
//!
//! | image | its command |
//! |---|---|
//! | a built-in with this command, such as rootio with `wipe` | that built-in |
//! | cexec | run in the installed system, in the place of `CMD_LINE` |
//! | any other built-in | run here, in the installation environment |

use crate::action::{self, Context, Outcome};
use crate::builtin::{Builtin, Policy};
use crate::cexec;
use crate::command::Runner;
use crate::dispatch;
use crate::environment::Environment;

/// Runs `command` in the place of the command of `image`. How it ends is only for a log: one line where it did not do well.
/// To end it early, cancel the context and wait.
pub async fn react(
    image: &str,
    command: &[String],
    environment: &Environment,
    context: &Context,
) -> Result<(), String> {
    if let Some(builtin) = Builtin::named(image, command, Policy::Only) {
        return match dispatch::run(builtin, environment, context).await {
            Outcome::Success => Ok(()),
            // Leaving this boot is for the workflow to say.
            Outcome::Terminal(_) => Err(format!("{builtin}: is not left to a reaction")),
            Outcome::Failure(failure) => Err(failure.reason),
            Outcome::Cancelled => Err("stopped".into()),
        };
    }
    let ended = match Builtin::named(image, &[], Policy::Only) {
        Some(Builtin::Cexec) => cexec::run_other(command, environment, context).await,
        Some(_) | None => Runner::new(environment, context).run(command).await,
    };
    ended.map_err(|error| action::one_line(&error))
}

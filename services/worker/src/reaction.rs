//! The template's `on-failure` and `on-timeout` commands: another command in the action's image, with the action's
//! variables (docs/reference/actions.md).
//!
//! | image | its command |
//! |---|---|
//! | a built-in with this command, such as rootio with `wipe` | that built-in |
//! | cexec | runs in the installed system, instead of `CMD_LINE` |
//! | any other built-in | runs in the installation environment |

use crate::action;
use crate::builtin::Builtin;
use crate::cexec;
use crate::command::Runner;
use crate::context::{ActionOutcome, Context};
use crate::environment::Environment;
use crate::error::one_line;

/// Runs `command` instead of the usual command of `image`. Returns a failure as one line for the log. To end it early,
/// cancel the context and wait for the result.
pub async fn react(
    image: &str,
    command: &[String],
    environment: &Environment,
    context: &Context,
) -> Result<(), String> {
    if let Some(builtin) = Builtin::find(image, command) {
        return match action::run(builtin, environment, context).await {
            ActionOutcome::Success => Ok(()),
            // Only an action of a workflow may end this boot, not a reaction.
            ActionOutcome::Terminal(_) => Err(format!("{builtin}: not allowed as a reaction")),
            ActionOutcome::Failure(reason) => Err(reason),
            ActionOutcome::Cancelled => Err("cancelled".into()),
        };
    }
    let result = match Builtin::find(image, &[]) {
        Some(Builtin::Cexec) => cexec::run_other(command, environment, context).await,
        Some(_) | None => Runner::new(environment, context).run(command).await,
    };
    result.map_err(|error| one_line(&error))
}

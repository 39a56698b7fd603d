//! Prints the logs of a workflow's actions, byte for byte, on standard output; their names on standard error.

use anyhow::Context as _;
use runtime::Channel;
use tinwright::workflow::v1 as pb;
use tokio_stream::StreamExt as _;

use super::table;
use crate::connect::{Io, stream};
use crate::follow;
use crate::output::print_bytes;

/// Prints the logs of `workflow`: of all actions in the order they run, or of one. With `follow`, waits for each to
/// start and to end; after an interruption it continues when the server is back, and prints no byte twice.
pub(super) async fn print(
    workflow: &pb::Workflow,
    action: Option<&str>,
    follow: bool,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let chosen = match action {
        Some(name) => vec![find_action(workflow, name)?],
        None => workflow.actions.iter().collect(),
    };
    let alone = chosen.len() == 1;
    for action in chosen {
        let follow = follow && wait_for_start(io.channel, &workflow.id, &action.id).await?;
        if !alone {
            eprintln!("==> {} <==", table::name(action));
        }
        let (workflow_id, action_id) = (workflow.id.clone(), action.id.clone());
        log(pb::ReadLogRequest { workflow_id, action_id, attempt: 0, follow }, io).await?;
    }
    Ok(())
}

/// Finds an action by its id or name.
fn find_action<'a>(workflow: &'a pb::Workflow, name: &str) -> anyhow::Result<&'a pb::Action> {
    let has_name = |action: &&pb::Action| {
        action.id == name || action.name == name || table::name(action) == name
    };
    let mut found = workflow.actions.iter().filter(has_name);
    let first = found.next().with_context(|| {
        let names: Vec<_> = workflow.actions.iter().map(table::name).collect();
        format!("no action {name:?}: there are {}", names.join(", "))
    })?;
    anyhow::ensure!(
        found.next().is_none(),
        "several tasks have an action {name:?}: give TASK/NAME"
    );
    Ok(first)
}

/// Waits until the action has started. Returns false if it will not, because the workflow has ended.
async fn wait_for_start(channel: &Channel, workflow: &str, action: &str) -> anyhow::Result<bool> {
    use pb::ActionState as State;
    let started = |workflow: Option<pb::Workflow>| {
        let Some(workflow) = workflow else { return Some(Ok(false)) };
        let state = workflow.actions.iter().find(|one| one.id == action).map(pb::Action::state);
        let waits = matches!(state, Some(State::Unspecified | State::Pending | State::Leased));
        (!waits || workflow.state().is_terminal()).then_some(Ok(!waits))
    };
    follow::until(channel, workflow, started).await
}

/// Prints the log of one action, its attempts one after another.
async fn log(request: pb::ReadLogRequest, io: &mut Io<'_>) -> anyhow::Result<()> {
    let mut printed = Printed::default();
    follow::while_unavailable(request.follow, async |failures| {
        let mut chunks = stream(io.channel, request.clone()).await?;
        while let Some(chunk) = chunks.next().await {
            print_bytes(io.out, printed.new_bytes(&chunk?))?;
            *failures = 0;
        }
        Ok(())
    })
    .await
}

/// The part of a log that was printed: the attempt, and its bytes.
#[derive(Debug, Default)]
struct Printed {
    attempt: i32,
    end: u64,
}

impl Printed {
    /// Returns the bytes of `chunk` that were not printed yet, and counts them as printed. Attempts come in order.
    fn new_bytes<'a>(&mut self, chunk: &'a pb::ReadLogResponse) -> &'a [u8] {
        if chunk.attempt < self.attempt {
            return &[];
        }
        if chunk.attempt > self.attempt {
            *self = Self { attempt: chunk.attempt, end: 0 };
        }
        let printed = usize::try_from(self.end.saturating_sub(chunk.offset)).unwrap_or(usize::MAX);
        self.end = self.end.max(chunk.offset.saturating_add(chunk.data.len() as u64));
        chunk.data.get(printed..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(attempt: i32, offset: u64, data: &str) -> pb::ReadLogResponse {
        pb::ReadLogResponse { attempt, offset, data: data.into() }
    }

    #[test]
    fn bytes_that_are_read_again_are_not_printed_again() {
        let mut printed = Printed::default();
        let chunks = [
            chunk(1, 0, "one "),
            chunk(2, 0, "two "),
            chunk(1, 0, "one "),
            chunk(2, 0, "two and "),
            chunk(2, 8, "three"),
        ];
        let bytes: Vec<u8> =
            chunks.iter().flat_map(|chunk| printed.new_bytes(chunk).to_vec()).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), "one two and three");
    }

    #[test]
    fn an_action_is_found_by_its_name_if_it_is_unique() {
        let action = |task: &str, name: &str| pb::Action {
            task_name: task.into(),
            name: name.into(),
            ..pb::Action::default()
        };
        let actions = vec![action("os", "write"), action("os", "boot"), action("data", "write")];
        let workflow = pb::Workflow { actions, ..pb::Workflow::default() };
        assert_eq!(find_action(&workflow, "boot").unwrap().task_name, "os");
        assert_eq!(find_action(&workflow, "data/write").unwrap().task_name, "data");
        let several = find_action(&workflow, "write").unwrap_err().to_string();
        assert_eq!(several, "several tasks have an action \"write\": give TASK/NAME");
        let none = find_action(&workflow, "wipe").unwrap_err().to_string();
        assert_eq!(none, "no action \"wipe\": there are os/write, os/boot, data/write");
    }
}

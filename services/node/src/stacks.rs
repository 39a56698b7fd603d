//! The stacks in the store.
//!
//! ```text
//! node/stack/<id>             the record
//! node/stack-name/<name>      ─▶ id
//! ```

use nouns::{Delete, Edit, Noun, Served};
use runtime::Clock;
use store::ScopedStore;
use store::records::{self, Change, Index, Kind, Records};
use tinwright::node::v1 as pb;
use tinwright::status::Violations;
use tinwright::{StackId, check, field_mask};

use crate::error::Error;
use crate::nodes::Nodes;
use crate::{definitions, versions};

/// The index of stacks by name.
const NAME_INDEX: &str = "stack-name";
/// The repetitions of a change that another writer preceded.
const MAX_REPETITIONS: usize = 16;

/// The kind of these records.
#[derive(Debug)]
pub enum StackKind {}

impl Kind for StackKind {
    type Record = pb::Stack;
    type Id = StackId;
    const KIND: &'static str = "stack";
    const INDEXES: &'static [&'static str] = &[NAME_INDEX];

    fn indexes(stack: &pb::Stack) -> Vec<Index> {
        vec![Index::unique(NAME_INDEX, &stack.name)]
    }

    fn state(stack: &pb::Stack) -> String {
        stack.rollout.as_ref().map(|rollout| rollout.state().word()).unwrap_or_default()
    }

    fn state_reason(stack: &pb::Stack) -> &str {
        stack.rollout.as_ref().map_or("", |rollout| &rollout.state_reason)
    }

    fn warning(stack: &pb::Stack) -> &str {
        let stopped = |it: &&pb::Rollout| it.state() == pb::RolloutState::Stopped;
        stack.rollout.as_ref().filter(stopped).map_or("", |rollout| &rollout.state_reason)
    }
}

impl Served for StackKind {
    const NAME_INDEX: &'static str = NAME_INDEX;
}

/// The stacks.
#[derive(Clone, Debug)]
pub struct Stacks {
    records: Records<StackKind>,
    nodes: Nodes,
    clock: Clock,
}

impl Stacks {
    /// The stacks in `store`, whose keys are the node service's. `clock` gives the times in records.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        let nodes = Nodes::new(store.clone(), clock.clone());
        Self { records: Records::new(store), nodes, clock }
    }

    /// Returns the stack with this id or name, if there is one.
    pub async fn find(&self, text: &str) -> Result<Option<pb::Stack>, Error> {
        Ok(match text.parse::<StackId>() {
            Ok(id) => self.records.get(&id.to_string()).await?,
            Err(_) => self.records.find(NAME_INDEX, text).await?,
        })
    }

    /// Replaces the fields of a stack that `paths` name; begins a rollout with `settings`, as [`versions::updated`] says.
    pub async fn update_with(
        &self,
        update: pb::Stack,
        paths: &[String],
        settings: Option<pb::RolloutSettings>,
    ) -> Result<pb::Stack, Error> {
        check_settings(settings.as_ref(), false)?;
        repeated(update.revision, || self.update_once(update.clone(), paths, settings.clone()))
            .await
    }

    async fn update_once(
        &self,
        mut update: pb::Stack,
        paths: &[String],
        settings: Option<pb::RolloutSettings>,
    ) -> Result<pb::Stack, Error> {
        let old = self.records.at(&update.id, update.revision).await?;
        versions::keep_secrets(&old, &mut update);
        let merged = checked(field_mask::merge(&old, &update, paths)?)?;
        let new = versions::updated(&old, merged, settings, self.clock.wall());
        self.replace_changed(&old, new).await
    }

    /// Begins the rollout of an earlier version.
    pub async fn roll_back(&self, request: pb::RollBackStackRequest) -> Result<pb::Stack, Error> {
        check_settings(request.rollout.as_ref(), true)?;
        repeated(request.revision, || self.roll_back_once(request.clone())).await
    }

    async fn roll_back_once(&self, request: pb::RollBackStackRequest) -> Result<pb::Stack, Error> {
        let pb::RollBackStackRequest { id, version, rollout, revision } = request;
        let id: StackId = Violations::parse("id", &id)?;
        let old = self.records.at(&id.to_string(), revision).await?;
        let settings = rollout.unwrap_or_default();
        let new = versions::rolled_back(&old, version, settings, self.clock.wall())?;
        self.replace_changed(&old, new).await
    }

    async fn replace_changed(&self, old: &pb::Stack, new: pb::Stack) -> Result<pb::Stack, Error> {
        if *old == new {
            return Ok(new);
        }
        let update_time = Some(self.clock.wall().into());
        Ok(self.records.replace(old, pb::Stack { update_time, ..new }).await?)
    }

    async fn delete_once(&self, id: StackId, revision: i64) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        if let Some(node) = self.nodes.one_with_stack(&old.id).await? {
            let text = format!("stack {} is the desired stack of node {node}", old.name);
            return Err(Error::precondition("STACK_IN_USE", "stack", &old.id, text));
        }
        self.records.commit(self.records.to_delete(&old)).await?;
        Ok(())
    }
}

impl Noun for Stacks {
    type Kind = StackKind;
    type Error = Error;

    fn records(&self) -> &Records<StackKind> {
        &self.records
    }
}

impl Edit for Stacks {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn checked(&self, stack: pb::Stack, _: Option<&pb::Stack>) -> Result<pb::Stack, Violations> {
        checked(stack)
    }

    async fn before_create(&self, stack: &mut pb::Stack) -> Result<Change, Error> {
        *stack = versions::with_first_version(std::mem::take(stack), self.clock.wall());
        Ok(Change::default())
    }

    async fn update(&self, update: pb::Stack, paths: &[String]) -> Result<pb::Stack, Error> {
        self.update_with(update, paths, None).await
    }
}

impl Delete for Stacks {
    /// Deletes a stack that no node has. One that is assigned at the same moment loses it with the next look at its instance.
    async fn delete(&self, id: StackId, revision: i64) -> Result<(), Error> {
        repeated(revision, || self.delete_once(id, revision)).await
    }
}

/// Repeats `attempt` while others change the stack at the same time, unless the caller wants one revision: a rollout changes the stack, and
/// nobody who asks for something else has to know that.
async fn repeated<T, F: Future<Output = Result<T, Error>>>(
    revision: i64,
    attempt: impl Fn() -> F,
) -> Result<T, Error> {
    for _ in 0..MAX_REPETITIONS {
        match attempt().await {
            Err(Error::Records(records::Error::Changed { .. })) if revision == 0 => {}
            outcome => return outcome,
        }
    }
    attempt().await
}

/// Returns `stack` in its stored form, if its fields are valid.
fn checked(mut stack: pb::Stack) -> Result<pb::Stack, Violations> {
    let mut wrong = Violations::default();
    wrong.normalize("stack.name", &mut stack.name, check::label);
    wrong.take("stack.labels", check::labels(&stack.labels));
    wrong.nest("stack", [&mut stack.containers], |containers, wrong| {
        definitions::normalize(containers, wrong);
    });
    wrong.into_result(stack)
}

fn check_settings(
    settings: Option<&pb::RolloutSettings>,
    roll_back: bool,
) -> Result<(), Violations> {
    let mut wrong = Violations::default();
    wrong.nest("rollout", settings, |settings, wrong| {
        versions::check_settings(settings, roll_back, wrong);
    });
    wrong.into_result(())
}

//! The nodes in the store.
//!
//! ```text
//! node/node/<hardware id>                 the record
//! node/node-name/<name>/<hardware id>     ─▶ hardware id; the hardware service has no name twice, but records follow it later
//! node/node-stack/<stack id>/<hardware id> ─▶ hardware id
//! ```

use nouns::Served;
use runtime::Clock;
use store::records::{self, Index, Kind, Records};
use store::{ScopedStore, Store as _};
use tinwright::NodeId;
use tinwright::node::v1::{AgentHello, Node, NodeObservation};

use crate::error::Error;
use crate::node_state::{self, Assignment, Machine};

/// The index of nodes by name.
const NAME_INDEX: &str = "node-name";
/// The index of nodes by their desired stack.
const STACK_INDEX: &str = "node-stack";
/// The repetitions of a change that another writer preceded.
const MAX_REPETITIONS: usize = 16;
/// Records that are read at a time.
const PAGE_RECORDS: usize = 500;

/// The kind of these records.
#[derive(Debug)]
pub enum NodeKind {}

impl Kind for NodeKind {
    type Record = Node;
    type Id = NodeId;
    const KIND: &'static str = "node";
    const INDEXES: &'static [&'static str] = &[NAME_INDEX, STACK_INDEX];

    fn indexes(node: &Node) -> Vec<Index> {
        let of = |index, value: &String| (!value.is_empty()).then(|| Index::shared(index, value));
        let indexes = [of(NAME_INDEX, &node.name), of(STACK_INDEX, &node.stack_id)];
        indexes.into_iter().flatten().collect()
    }

    fn reported_change(old: &Node, new: &Node) -> String {
        match (old.connected, new.connected) {
            (false, true) => {
                format!("connected, boot {}, agent {}", new.boot_id, new.agent_version)
            }
            (true, false) => "disconnected".into(),
            (true, true) if old.boot_id != new.boot_id => format!("booted: {}", new.boot_id),
            (true, true) | (false, false) => String::new(),
        }
    }
}

impl Served for NodeKind {}

/// The nodes.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// The underlying records.
    pub records: Records<NodeKind>,
    /// The clock of the records.
    pub clock: Clock,
}

impl Nodes {
    /// The nodes in `store`, whose keys are the node service's. `clock` gives the times in records.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        Self { records: Records::new(store), clock }
    }

    /// Returns the node `id`.
    pub async fn get(&self, id: NodeId) -> Result<Node, Error> {
        Ok(self.records.require(&id.to_string()).await?)
    }

    /// Returns the node with this id or name, or the only one if `text` is empty.
    pub async fn resolve(&self, text: &str) -> Result<Node, Error> {
        match (text, text.parse::<NodeId>()) {
            ("", _) => self.only_one().await,
            (_, Ok(id)) => self.get(id).await,
            (name, Err(_)) => self.by_name(name).await,
        }
    }

    async fn only_one(&self) -> Result<Node, Error> {
        let (mut first, more) = self.records.page("", "", 1).await?;
        let node = first.pop().ok_or(Error::NoNode)?;
        if more {
            let text = "there are several nodes: name one";
            return Err(Error::precondition("SEVERAL_NODES", "node", "", text));
        }
        Ok(node)
    }

    /// Returns the node with this name.
    pub async fn by_name(&self, name: &str) -> Result<Node, Error> {
        let missing = || records::Error::Missing { noun: "node", name: name.to_owned() };
        let mut found = Vec::new();
        for id in self.indexed(NAME_INDEX, name, 3).await? {
            let node = self.records.get(&id).await?;
            found.extend(node.filter(|node| node.name == name));
        }
        if found.len() > 1 {
            let text = format!("several nodes have the name {name}");
            return Err(Error::precondition("NAME_NOT_UNIQUE", "node", name, text));
        }
        Ok(found.pop().ok_or_else(missing)?)
    }

    /// Returns the name of a node with this desired stack, or its id if it has no name, if there is such a node.
    pub async fn one_with_stack(&self, stack: &str) -> Result<Option<String>, Error> {
        for id in self.indexed(STACK_INDEX, stack, PAGE_RECORDS).await? {
            let node = self.records.get(&id).await?;
            if let Some(node) = node.filter(|node| node.stack_id == stack) {
                return Ok(Some(if node.name.is_empty() { id } else { node.name }));
            }
        }
        Ok(None)
    }

    /// Returns at most `limit` ids in an index. A value with a slash is no name.
    async fn indexed(&self, index: &str, value: &str, limit: usize) -> Result<Vec<String>, Error> {
        if value.contains('/') {
            return Ok(Vec::new());
        }
        let prefix = format!("{index}/{value}/");
        let page = self.records.store().list(&prefix, "", limit).await?;
        let ids = page.pairs.iter().filter_map(|(key, _)| key.strip_prefix(&prefix));
        Ok(ids.map(str::to_owned).collect())
    }

    /// Returns all nodes that pass `keep`, as they are stored now.
    pub async fn all(&self, keep: impl Fn(&Node) -> bool) -> Result<Vec<Node>, Error> {
        let (mut after, mut kept) = (String::new(), Vec::new());
        loop {
            let (page, more) = self.records.page("", &after, PAGE_RECORDS).await?;
            let Some(last) = page.last().filter(|_| more).map(|node| node.id.clone()) else {
                kept.extend(page.into_iter().filter(|node| keep(node)));
                return Ok(kept);
            };
            kept.extend(page.into_iter().filter(|node| keep(node)));
            after = last;
        }
    }

    /// Records the hello of an agent to the process `server`. The record is created if there is none.
    pub async fn connect(
        &self,
        id: &str,
        machine: &Machine,
        hello: &AgentHello,
        boot_epoch: u64,
        server: &str,
    ) -> Result<Node, Error> {
        let now = self.clock.wall();
        let connected = |node| {
            let node = node_state::with_machine(node, machine);
            let node = node_state::connected(node, hello, boot_epoch, server, now);
            node.map_err(|refused| Error::Replaced(refused.to_string()))
        };
        self.put(id, machine, connected).await
    }

    /// Records that the last stream of the node `id` to the process `server` ended.
    pub async fn disconnect(&self, id: &str, server: &str) -> Result<(), Error> {
        let now = self.clock.wall();
        self.change(id, |node| Ok(node_state::disconnected(node, server, now))).await.map(drop)
    }

    /// Records that the process `server` has a stream of the node `id` in the boot `boot`, if another process removed that.
    pub async fn reconnect(&self, id: &str, boot: &str, server: &str) -> Result<(), Error> {
        let now = self.clock.wall();
        let reconnected = |node: Node| match node.boot_id == boot {
            true => Ok(node_state::reconnected(node, server, now)),
            false => Ok(node),
        };
        self.change(id, reconnected).await.map(drop)
    }

    /// Records what the agent of the node `id`, in the boot `boot`, observed. What an earlier boot observed is left out.
    pub async fn observe(
        &self,
        id: &str,
        boot: &str,
        observation: &NodeObservation,
    ) -> Result<(), Error> {
        let now = self.clock.wall();
        let observed = |node: Node| match node.boot_id == boot {
            true => Ok(node_state::observed(node, observation.clone(), now)),
            false => Ok(node),
        };
        self.change(id, observed).await.map(drop)
    }

    /// Records that the node `id` shall have `assignment`. The record is created if there is none.
    pub async fn assign(
        &self,
        id: &str,
        machine: &Machine,
        assignment: &Assignment,
    ) -> Result<Node, Error> {
        let now = self.clock.wall();
        let assigned = |node| {
            let node = node_state::with_machine(node, machine);
            Ok(node_state::assigned(node, assignment.clone(), false, now))
        };
        self.put(id, machine, assigned).await
    }

    /// Records the present name and labels of the machine of the node `id`, if there is such a node.
    pub async fn follow_machine(&self, id: &str, machine: &Machine) -> Result<(), Error> {
        let changed = self.change(id, |node| Ok(node_state::with_machine(node, machine)));
        changed.await.map(drop)
    }

    /// Forgets a node.
    pub async fn delete(&self, id: NodeId, revision: i64) -> Result<(), Error> {
        let node = self.records.at(&id.to_string(), revision).await?;
        let name = if node.name.is_empty() { &node.id } else { &node.name };
        if node.connected {
            let text = format!("node {name} is connected");
            return Err(Error::precondition("NODE_CONNECTED", "node", &node.id, text));
        }
        if !node.instance_id.is_empty() {
            let text = format!("node {name} has the instance {}", node.instance_id);
            return Err(Error::precondition("NODE_IN_USE", "node", &node.id, text));
        }
        self.records.commit(self.records.to_delete(&node)).await?;
        Ok(())
    }

    /// Changes the record `id`, or a new one.
    async fn put(
        &self,
        id: &str,
        machine: &Machine,
        change: impl Fn(Node) -> Result<Node, Error>,
    ) -> Result<Node, Error> {
        let mut repetitions = 0;
        loop {
            let stored = match self.records.get(id).await? {
                Some(old) => self.replace(&old, change(old.clone())?).await,
                None => {
                    let new = change(node_state::new_node(id, machine, self.clock.wall()))?;
                    self.records.create(&new, records::Change::default(), None).await
                }
            };
            match stored {
                Err(records::Error::Changed { .. } | records::Error::Exists { .. })
                    if repetitions < MAX_REPETITIONS =>
                {
                    repetitions += 1;
                }
                stored => return Ok(stored?),
            }
        }
    }

    /// Changes the record `id`, if it exists.
    async fn change(
        &self,
        id: &str,
        change: impl Fn(Node) -> Result<Node, Error>,
    ) -> Result<Option<Node>, Error> {
        let mut repetitions = 0;
        loop {
            let Some(old) = self.records.get(id).await? else { return Ok(None) };
            match self.replace(&old, change(old.clone())?).await {
                Err(records::Error::Changed { .. }) if repetitions < MAX_REPETITIONS => {
                    repetitions += 1;
                }
                stored => return Ok(Some(stored?)),
            }
        }
    }

    async fn replace(&self, old: &Node, new: Node) -> Result<Node, records::Error> {
        if *old == new {
            return Ok(new);
        }
        let update_time = Some(self.clock.wall().into());
        self.records.replace(old, Node { update_time, ..new }).await
    }
}

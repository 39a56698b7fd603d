//! A server with machines whose instances have a stack.

use std::sync::Arc;

use runtime::Role;
use serde_json::{Value, json};

use super::agent::{Agent, Applying, Machine};
use crate::access::calls::Client;
use crate::support::{RunningServer, start, until};

/// The containers of the first version.
pub fn containers(command: &str) -> Value {
    json!([{"name": "os", "command": command, "mount": {"nfs": {"host": "nas", "path": "/x"}}}])
}

/// A server, its machines in the order of their ids, and their agents.
pub struct Site {
    pub server: RunningServer,
    pub admin: Client,
    pub machines: Vec<Arc<Machine>>,
    pub agents: Vec<Option<Agent>>,
    pub applying: Arc<Applying>,
    pub stack: String,
}

impl Site {
    /// Starts a server with `count` nodes, n00 and so on, of which `broken` cannot run `/sbin/bad`. Each runs the stack `web`.
    pub async fn start(count: usize, broken: Option<usize>) -> Self {
        let server = start().await;
        let admin = Client::new(server.channel(Some(Role::Admin)).await);
        let stack = json!({"stack": {"name": "web", "containers": containers("/sbin/init")}});
        let created = admin.call("StackService/CreateStack", stack).await.unwrap();
        let stack = created["stack"]["id"].as_str().unwrap().to_owned();
        let mut machines = Vec::new();
        for n in 0..count {
            machines.push(Arc::new(machine(&admin, n, broken == Some(n)).await));
        }
        until_booted(&admin, count).await;
        let applying = Arc::new(Applying::default());
        let mut agents = Vec::new();
        for machine in &machines {
            agents.push(Some(Agent::connect(&server, machine, &applying).await));
        }
        let site = Self { server, admin, machines, agents, applying, stack };
        site.until_all("NODE_STATE_RUNNING", 1).await;
        site
    }

    /// Returns the nodes in id order.
    pub async fn nodes(&self) -> Vec<Value> {
        let listed = self.admin.call("NodeService/ListNodes", json!({})).await.unwrap();
        listed["nodes"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until all nodes have this state and this version of the stack.
    pub async fn until_all(&self, state: &str, version: i64) {
        let version = version.to_string();
        let are_so = async || {
            let nodes = self.nodes().await;
            let is_so = |node: &Value| node["state"] == state && node["stack_version"] == version;
            nodes.len() == self.machines.len() && nodes.iter().all(is_so)
        };
        until(are_so, "each node has the state").await;
    }

    /// Returns the instances.
    pub async fn instances(&self) -> Vec<Value> {
        instances(&self.admin).await
    }

    /// Waits for the end of the rollout, and returns it.
    pub async fn rollout_end(&self) -> Value {
        let get = json!({"id": self.stack});
        let read = async || {
            let found = self.admin.call("StackService/GetStack", get.clone()).await.unwrap();
            found["stack"]["rollout"].clone()
        };
        until(async || read().await["state"] != "ROLLOUT_STATE_RUNNING", "the rollout ends").await;
        read().await
    }
}

async fn instances(admin: &Client) -> Vec<Value> {
    let listed = admin.call("InstanceService/ListInstances", json!({})).await.unwrap();
    listed["instances"].as_array().cloned().unwrap_or_default()
}

/// Waits until `count` instances were booted as nodes: boots before that do not get their stacks.
pub async fn until_booted(admin: &Client, count: usize) {
    let are_booted = async || {
        let instances = instances(admin).await;
        instances.iter().filter(|instance| instance["install_time"].is_string()).count() == count
    };
    until(are_booted, "the machines are booted for their instances").await;
}

/// Creates the machine `n` and its instance.
async fn machine(admin: &Client, n: usize, is_broken: bool) -> Machine {
    let name = format!("n{n:02}");
    let interfaces = json!([{"mac": format!("02:00:00:00:00:{n:02x}")}]);
    let hardware = json!({
        "name": name, "state": "STATE_PROVISIONABLE", "interfaces": interfaces, "labels": {"rack": format!("r{}", n % 2)},
    });
    let create = json!({"hardware": hardware});
    let created = admin.call("HardwareService/CreateHardware", create).await.unwrap();
    let id = created["hardware"]["id"].as_str().unwrap();
    let instance = json!({"hardware_id": id, "image_stack": {"stack_id": "web"}});
    let create = json!({"instance": instance});
    admin.call("InstanceService/CreateInstance", create).await.unwrap();
    Machine::new(id, &name, if is_broken { "/sbin/bad" } else { "none" })
}

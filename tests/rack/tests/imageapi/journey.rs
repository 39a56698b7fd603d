//! The steps of a container's life, as a client of the ImageAPI takes them.

use std::time::Duration;

use rack::lab::{Lab, wait};
use rack::node::Node;
use rack::shell::Tables;
use serde_json::Value;

use crate::schemes::Scheme;
use crate::servers::Servers;

/// Maximum time until a system has written its report, and until it has ended.
const SYSTEM_TIMEOUT: Duration = Duration::from_secs(180);
/// Maximum time until the kernel's tables are as before.
const TEARDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// A node and the servers of its images.
pub(crate) struct Journey {
    node: Node,
    pub(crate) servers: Servers,
    pub(crate) lab: Lab,
}

/// A container that was started.
pub(crate) struct Running {
    name: &'static str,
    id: u64,
    /// The tables before it was created.
    before: Tables,
}

impl Journey {
    pub(crate) fn start(with_ceph: bool) -> Self {
        let mut lab = Lab::new().unwrap();
        let servers = Servers::start(&mut lab, with_ceph);
        let node = Node::boot(&mut lab).unwrap();
        Self { node, servers, lab }
    }

    /// Runs a container of `scheme` from its creation to its deletion.
    pub(crate) fn run(&mut self, scheme: &Scheme) {
        let running = self.start_container(scheme);
        self.stop_and_delete(running);
    }

    /// Calls the node's ImageAPI. The answer has to have this status.
    fn call(&self, method: &str, target: &str, body: Option<&Value>, expected: u16) -> Value {
        let body = body.map(Value::to_string);
        let (status, text) = self.node.call(&self.lab, method, target, body.as_deref()).unwrap();
        assert_eq!(status, expected, "{method} {target}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the container `name`.
    fn container(&self, name: &str) -> Value {
        self.call("GET", &format!("/container?name={name}"), None, 200)[0].clone()
    }

    /// Creates and starts a container, and waits until its system has started.
    pub(crate) fn start_container(&mut self, scheme: &Scheme) -> Running {
        let before = self.node.shell.tables().unwrap();
        let created = self.call("POST", "/container", Some(&scheme.body), 201);
        assert_eq!(created["state"], "running", "{created}");
        let root = created["mount"]["mountpoint"].as_str().unwrap();
        let command = format!("cat {root}/report 2>/dev/null || true");
        let started = || (self.node.shell.run(&command).unwrap() == scheme.start).then_some(());
        let has_started = wait(scheme.name, SYSTEM_TIMEOUT, started);
        has_started.unwrap_or_else(|error| panic!("{error}: {}", self.log(&created)));
        assert_ne!(self.node.shell.tables().unwrap(), before);
        Running { name: scheme.name, id: created["id"].as_u64().unwrap(), before }
    }

    /// Returns the log of a container.
    fn log(&mut self, container: &Value) -> String {
        let path = container["logfile"].as_str().unwrap();
        self.node.shell.run(&format!("cat {path}")).unwrap()
    }

    /// Stops and deletes a container, and waits until the kernel's tables are as before.
    pub(crate) fn stop_and_delete(&mut self, running: Running) {
        let Running { name, id, before } = running;
        self.call("PATCH", &format!("/container?name={name}&state=exited"), None, 200);
        let ended = || (self.container(name)["state"] == "exited").then_some(());
        wait(&format!("the end of {name}"), SYSTEM_TIMEOUT, ended).unwrap();
        self.call("DELETE", &format!("/container?id={id}"), None, 200);
        let mut after = self.node.shell.tables().unwrap();
        let _unchanged = wait("the end of mounts and attachments", TEARDOWN_TIMEOUT, || {
            after = self.node.shell.tables().unwrap();
            (after == before).then_some(())
        });
        assert_eq!(after, before, "after {name}");
        for kind in ["container", "mount", "attach"] {
            assert_eq!(self.call("GET", &format!("/{kind}"), None, 200), Value::Array(vec![]));
        }
    }

    /// Kills the agent while a container with systemd runs. The next agent finds it again, and it has not noticed.
    pub(crate) fn kill_agent(&mut self, running: &Running) {
        let (tables, init) =
            (self.node.shell.tables().unwrap(), self.node.shell.run("pidof systemd").unwrap());
        let agent = self.node.agent().unwrap();
        self.node.shell.run(&format!("kill -9 {agent}")).unwrap();
        let next = || self.node.agent().ok().filter(|pid| *pid != agent);
        wait("the next agent", SYSTEM_TIMEOUT, next).unwrap();
        self.node.wait_for_agent(&mut self.lab).unwrap();
        let found = self.container(running.name);
        assert_eq!((&found["id"], &found["state"]), (&running.id.into(), &"running".into()));
        let after = self.node.shell.tables().unwrap();
        assert_eq!((after.mounts, after.loop_files), (tables.mounts, tables.loop_files));
        assert_eq!(self.node.shell.run("pidof systemd").unwrap(), init);
    }

    /// Breaks the connection with the iSCSI target of a running container. The session has another one afterwards.
    pub(crate) fn break_iscsi_connection(&mut self) {
        let log = "dmesg | grep -c 'detected conn error' || true";
        assert_eq!(self.node.shell.run(log).unwrap(), "0\n");
        self.servers.replace_tgt(&mut self.lab);
        let has_broken = || (self.node.shell.run(log).unwrap() != "0\n").then_some(());
        wait("the broken connection", SYSTEM_TIMEOUT, has_broken).unwrap();
        let logged_in = || {
            (self.node.shell.run("cat /sys/class/iscsi_session/*/state").unwrap() == "LOGGED_IN\n")
                .then_some(())
        };
        wait("another connection", SYSTEM_TIMEOUT, logged_in).unwrap();
    }
}

//! The stack while the control plane is away, and after a restart of the machine.

use std::time::Duration;

use rack::shell::Tables;
use tinwright::node::v1::Node;
use tokio::task::block_in_place;

use crate::machine::{CONTAINER, NodeSite, STACK, is_running};

/// The number of comparisons while the control plane is away.
const COMPARISONS: u32 = 3;
/// Prints the process ids and start times of the first processes of containers, in clock ticks since the boot.
const INITS: &str = "for it in /proc/[0-9]*; do [ \"$(cat $it/comm 2>/dev/null)\" = init ] && echo ${it#/proc/} $(cut -d' ' -f22 $it/stat); done; true";

/// The state of a node that does not change while its containers run.
#[derive(Debug, PartialEq, Eq)]
struct Unchanged {
    /// Mounts, loop devices, sessions, mount points and control groups.
    tables: Tables,
    /// The containers' first processes.
    inits: String,
}

impl NodeSite {
    fn unchanged(&mut self) -> Unchanged {
        let shell = self.shell();
        // The container starts programs.
        let tables = Tables { processes: String::new(), ..shell.tables().unwrap() };
        let inits = shell.run(INITS).unwrap();
        assert_eq!(inits.lines().count(), 1, "{inits}");
        Unchanged { tables, inits }
    }

    /// Checks what the commands and the gateway show of the node.
    pub(crate) fn check_command_line(&self, node: &Node) {
        let listed = block_in_place(|| self.tinwright(&["node", "list"]));
        let row: Vec<_> = listed.lines().last().unwrap().split_whitespace().collect();
        let version = node.stack_version.to_string();
        assert!(node.id.starts_with(row[0]), "{listed}");
        let expected = [&self.machine.name, "yes", STACK, &version, "running"];
        assert_eq!(row[1..6], expected, "{listed}");
        self.check_stack(node);
    }

    /// Checks that the container of the stack runs, by the gateway and by the record.
    pub(crate) fn check_stack(&self, node: &Node) {
        let listed = block_in_place(|| self.gateway("/container"));
        let listed = listed.as_array().unwrap();
        let names: Vec<_> = listed.iter().map(|it| (&it["name"], &it["state"])).collect();
        assert_eq!(names, [(&CONTAINER.into(), &"running".into())]);
        let observed = node.observation.as_ref().unwrap();
        assert_eq!((observed.assignment, &observed.stack_id), (node.assignment, &node.stack_id));
        assert!(observed.containers.iter().all(|it| it.of_stack), "{observed:?}");
    }

    /// Kills the control plane, and starts it again after `outage`. Nothing changes on the node, which connects again.
    pub(crate) async fn stop_control_plane(&mut self, node: &Node, outage: Duration) {
        let before = block_in_place(|| self.unchanged());
        let last = self.until_node("the node is connected", is_running).await.last_seen_time;
        self.site.lab.kill("tinwright").unwrap();
        for _ in 0..COMPARISONS {
            tokio::time::sleep(outage / COMPARISONS).await;
            assert_eq!(block_in_place(|| self.unchanged()), before);
        }
        block_in_place(|| self.site.server.start(&mut self.site.lab)).unwrap();
        let is_back = |it: &Node| is_running(it) && it.last_seen_time != last;
        let after = self.until_node("the node connects again", is_back).await;
        let same = |it: &Node| (it.boot_id.clone(), it.process_id.clone(), it.assignment);
        assert_eq!(same(&after), same(node), "the same process with the same assignment");
        assert_eq!(block_in_place(|| self.unchanged()), before);
        println!("the control plane was away for {outage:?}");
        self.check_stack(&after);
    }

    /// Restarts the machine, and waits until it runs its stack again. No call is made meanwhile, except those that read the state.
    pub(crate) async fn restart(&mut self, node: &Node) -> Node {
        let run = self.site.hypervisor.run_of(&self.machine).unwrap();
        let instance = self.instance_id.as_str();
        block_in_place(|| self.tinwright(&["instance", "restart", instance, "--force"]));
        let is_another = |it: &Node| is_running(it) && it.boot_id != node.boot_id;
        let after = self.until_node("the node runs its stack again", is_another).await;
        assert_ne!(self.site.hypervisor.run_of(&self.machine).unwrap(), run, "switched off and on");
        assert_eq!((&after.stack_id, after.stack_version), (&node.stack_id, node.stack_version));
        println!(
            "node {} runs assignment {} in boot {}",
            after.name, after.assignment, after.boot_id
        );
        self.shell = None;
        after
    }
}

//! Machines, and the instances on them that name a stack, as other services have them.
//!
//! Nothing is assigned by what is not known to be so now: while a feed is cut, there is no view.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use runtime::Channel;
use runtime::feed::{self, FeedEvent};
use tinwright::HardwareId;
use tinwright::hardware::v1::get_hardware_request::By;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::{GetHardwareRequest, Hardware, WatchHardwareRequest};
use tinwright::instance::v1::instance::Os;
use tinwright::instance::v1::{Instance, State, WatchInstancesRequest};
use tinwright::node::v1::{Node, NodeState};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::node_state::Machine;
use crate::peers::answer;

/// An instance that names a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// Its id.
    pub instance_id: String,
    /// Its generation.
    pub generation: i64,
    /// Its state.
    pub state: State,
    /// Time at which the machine was booted for it; none before that.
    pub install_time: Option<SystemTime>,
    /// Id or name of the stack.
    pub stack: String,
}

impl Occupant {
    /// True if `node` has the stack of this instance, and its present boot began after the machine was booted for the instance.
    pub fn is_booted_on(&self, node: &Node) -> bool {
        let boot_time = node.boot_time.and_then(|time| SystemTime::try_from(time).ok());
        let times = boot_time.zip(self.install_time);
        node.instance_id == self.instance_id && times.is_some_and(|(boot, install)| boot >= install)
    }

    /// True if the instance waits for its stack, and `node` runs that.
    pub fn waits_for(&self, node: &Node) -> bool {
        let is_waiting = match self.state {
            State::Provisioning | State::Reinstalling => true,
            State::Queued
            | State::Active
            | State::Failed
            | State::Deprovisioning
            | State::DeprovisionFailed
            | State::Deleted
            | State::Unspecified => false,
        };
        is_waiting && node.state() == NodeState::Running && self.is_booted_on(node)
    }
}

/// A machine and its instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// The machine; none if it has no record.
    pub machine: Option<Machine>,
    /// Its instance, if that names a stack.
    pub occupant: Option<Occupant>,
}

/// What is known. Clones share it.
#[derive(Clone, Debug)]
pub struct Directory {
    hardware: Channel,
    instance: Channel,
    tables: Arc<RwLock<Tables>>,
    changes: mpsc::UnboundedSender<String>,
}

#[derive(Debug, Default)]
struct Tables {
    machines: HashMap<String, Machine>,
    are_machines_live: bool,
    /// By machine.
    occupants: HashMap<String, Occupant>,
    are_occupants_live: bool,
}

impl Directory {
    /// A directory by the services at these channels, and the ids of machines whose view changes.
    pub fn new(hardware: Channel, instance: Channel) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (changes, changed) = mpsc::unbounded_channel();
        (Self { hardware, instance, tables: Arc::default(), changes }, changed)
    }

    /// Follows machines and instances until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let (machines, instances) =
            (WatchHardwareRequest::default(), WatchInstancesRequest::default());
        let take_machine = |event| self.take_machine(event);
        let take_instance = |event| self.take_instance(event);
        tokio::join!(
            feed::follow_at("hardware", &self.hardware, machines, take_machine, stop.clone()),
            feed::follow_at("instances", &self.instance, instances, take_instance, stop),
        );
    }

    /// Returns the machine `id` and its instance; none while it is not known which they are now.
    pub fn view(&self, id: &str) -> Option<Occupancy> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let is_live = tables.are_machines_live && tables.are_occupants_live;
        is_live.then(|| Occupancy {
            machine: tables.machines.get(id).cloned(),
            occupant: tables.occupants.get(id).cloned(),
        })
    }

    /// Returns the instance on the machine `id` that names a stack, as it was when that was last known.
    pub fn last_occupant(&self, id: &str) -> Option<Occupant> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.occupants.get(id).cloned()
    }

    /// Returns the machines whose instance names the stack with this id or name.
    pub fn with_stack(&self, id: &str, name: &str) -> Vec<String> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let named = tables.occupants.iter().filter(|(_, it)| it.stack == id || it.stack == name);
        named.map(|(machine, _)| machine.clone()).collect()
    }

    /// Asks the hardware service for the machine `id`.
    pub async fn machine(&self, id: HardwareId) -> Result<Option<Machine>, Error> {
        let request = GetHardwareRequest { by: Some(By::Id(id.to_string())), ..Default::default() };
        let mut client = HardwareServiceClient::new(self.hardware.clone());
        let found = answer("hardware", client.get_hardware(request)).await?;
        Ok(found.and_then(|found| found.hardware).as_ref().map(machine))
    }

    /// Takes an event of the machines.
    pub fn take_machine(&self, event: FeedEvent<Hardware>) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let Tables { machines, are_machines_live, .. } = &mut *tables;
        let changed: BTreeSet<String> = match event {
            FeedEvent::Snapshot(all) => {
                let new = all.into_iter().map(|it| (it.id.clone(), machine(&it))).collect();
                let old = std::mem::replace(machines, new);
                *are_machines_live = true;
                old.into_keys().chain(machines.keys().cloned()).collect()
            }
            FeedEvent::Put(it) => {
                let new = machine(&it);
                let old = machines.insert(it.id.clone(), new.clone());
                if old.is_some_and(|old| old == new) {
                    return;
                }
                [it.id].into()
            }
            FeedEvent::Deleted(id) => {
                machines.remove(&id);
                [id].into()
            }
            FeedEvent::Disconnected => {
                *are_machines_live = false;
                return;
            }
        };
        drop(tables);
        self.announce(changed);
    }

    /// Takes an event of the instances.
    pub fn take_instance(&self, event: FeedEvent<Instance>) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let Tables { occupants, are_occupants_live, .. } = &mut *tables;
        let changed: BTreeSet<String> = match event {
            FeedEvent::Snapshot(all) => {
                let new = all.iter().filter_map(occupant).collect();
                let old = std::mem::replace(occupants, new);
                *are_occupants_live = true;
                old.into_keys().chain(occupants.keys().cloned()).collect()
            }
            FeedEvent::Put(instance) => {
                let mut changed = remove(occupants, &instance.id);
                if let Some((machine, occupant)) = occupant(&instance) {
                    occupants.insert(machine.clone(), occupant);
                    changed.insert(machine);
                }
                changed
            }
            FeedEvent::Deleted(id) => remove(occupants, &id),
            FeedEvent::Disconnected => {
                *are_occupants_live = false;
                return;
            }
        };
        drop(tables);
        self.announce(changed);
    }

    fn announce(&self, changed: BTreeSet<String>) {
        for id in changed {
            // Nobody listens while the process stops.
            let _stopping = self.changes.send(id);
        }
    }
}

/// Removes the instance `id`, and returns the machine that it was on.
fn remove(occupants: &mut HashMap<String, Occupant>, id: &str) -> BTreeSet<String> {
    let removed = occupants.extract_if(|_, occupant| occupant.instance_id == id);
    removed.map(|(machine, _)| machine).collect()
}

fn machine(hardware: &Hardware) -> Machine {
    Machine { name: hardware.name.clone(), labels: hardware.labels.clone() }
}

/// Returns the machine of `instance`, and what it names, if it names a stack and its machine is not being given back.
fn occupant(instance: &Instance) -> Option<(String, Occupant)> {
    let Some(Os::ImageStack(stack)) = &instance.os else { return None };
    match instance.state() {
        State::Queued
        | State::Provisioning
        | State::Active
        | State::Failed
        | State::Reinstalling
        | State::Unspecified => {}
        State::Deprovisioning | State::DeprovisionFailed | State::Deleted => return None,
    }
    let occupant = Occupant {
        instance_id: instance.id.clone(),
        generation: instance.generation,
        state: instance.state(),
        install_time: instance.install_time.and_then(|time| SystemTime::try_from(time).ok()),
        stack: stack.stack_id.clone(),
    };
    let is_there = !instance.hardware_id.is_empty() && !instance.released;
    is_there.then(|| (instance.hardware_id.clone(), occupant))
}

#[cfg(test)]
mod tests {
    use tinwright::instance::v1::ImageStack;

    use super::*;

    fn directory() -> (Directory, mpsc::UnboundedReceiver<String>) {
        Directory::new(Channel::unconnected(), Channel::unconnected())
    }

    fn instance(id: &str, machine: &str, state: State) -> Instance {
        Instance {
            id: id.into(),
            hardware_id: machine.into(),
            state: state.into(),
            os: Some(Os::ImageStack(ImageStack { stack_id: "web".into() })),
            ..Instance::default()
        }
    }

    fn hardware(id: &str, name: &str) -> Hardware {
        Hardware { id: id.into(), name: name.into(), ..Hardware::default() }
    }

    #[tokio::test]
    async fn there_is_a_view_while_both_feeds_are_live_only() {
        let (directory, mut changed) = directory();
        directory.take_machine(FeedEvent::Snapshot(vec![hardware("m", "n1")]));
        assert_eq!(directory.view("m"), None);
        directory.take_instance(FeedEvent::Snapshot(vec![instance("i", "m", State::Active)]));
        let view = directory.view("m").unwrap();
        assert_eq!(view.machine.unwrap().name, "n1");
        assert_eq!(view.occupant.unwrap().instance_id, "i");
        assert_eq!(directory.with_stack("x", "web"), ["m"]);
        assert_eq!([changed.try_recv().unwrap(), changed.try_recv().unwrap()], ["m", "m"]);
        directory.take_machine(FeedEvent::Put(hardware("m", "n1")));
        assert!(changed.try_recv().is_err(), "nothing that matters here has changed");
        directory.take_instance(FeedEvent::Disconnected);
        assert_eq!(directory.view("m"), None);
        assert_eq!(directory.last_occupant("m").unwrap().instance_id, "i");
    }

    #[tokio::test]
    async fn an_instance_that_is_given_back_or_moves_occupies_its_machine_no_more() {
        let (directory, mut changed) = directory();
        directory.take_machine(FeedEvent::Snapshot(Vec::new()));
        directory.take_instance(FeedEvent::Snapshot(vec![instance("i", "m", State::Active)]));
        changed.try_recv().unwrap();
        directory.take_instance(FeedEvent::Put(instance("i", "m", State::Deprovisioning)));
        assert_eq!(
            (directory.view("m").unwrap(), changed.try_recv().unwrap()),
            (Occupancy::default(), "m".into())
        );
        directory.take_instance(FeedEvent::Put(instance("j", "m", State::Queued)));
        directory.take_instance(FeedEvent::Deleted("i".into()));
        assert_eq!(directory.view("m").unwrap().occupant.unwrap().instance_id, "j");
        directory.take_instance(FeedEvent::Deleted("j".into()));
        assert_eq!(directory.view("m").unwrap(), Occupancy::default());
        assert_eq!(directory.last_occupant("m"), None);
    }

    fn time(seconds: i64) -> Option<prost_types::Timestamp> {
        Some(prost_types::Timestamp { seconds, nanos: 0 })
    }

    fn installed(state: State, install_time: Option<prost_types::Timestamp>) -> Occupant {
        occupant(&Instance { install_time, ..instance("i", "m", state) }).unwrap().1
    }

    #[test]
    fn a_node_is_booted_for_the_instance_of_its_stack_only_after_that_was_installed() {
        let node = |boot_time, instance_id: &str| {
            let instance_id = instance_id.to_owned();
            Node { boot_time, instance_id, ..Node::default() }
        };
        let occupant = installed(State::Active, time(10));
        assert!(occupant.is_booted_on(&node(time(10), "i")));
        for (boot_time, instance) in [(time(9), "i"), (None, "i"), (time(11), "j"), (time(11), "")]
        {
            assert!(!occupant.is_booted_on(&node(boot_time, instance)), "{boot_time:?} {instance}");
        }
        let not_booted = installed(State::Provisioning, None);
        assert!(!not_booted.is_booted_on(&node(time(11), "i")));
    }

    #[test]
    fn an_instance_waits_for_its_stack_until_it_is_active_or_fails() {
        let mut node = Node { boot_time: time(11), instance_id: "i".into(), ..Node::default() };
        node.set_state(NodeState::Running);
        for (state, waits) in [
            (State::Provisioning, true),
            (State::Reinstalling, true),
            (State::Queued, false),
            (State::Active, false),
            (State::Failed, false),
        ] {
            assert_eq!(installed(state, time(10)).waits_for(&node), waits, "{state:?}");
        }
        assert!(!installed(State::Provisioning, time(12)).waits_for(&node), "an earlier boot");
        for state in [NodeState::Unassigned, NodeState::Applying, NodeState::Failed] {
            node.set_state(state);
            assert!(!installed(State::Provisioning, time(10)).waits_for(&node), "{state:?}");
        }
    }
}

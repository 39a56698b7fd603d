//! Plans, carried out on a node that is only a table of states.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A node without a kernel.
#[derive(Debug, Default)]
struct Table {
    record: StackRecord,
    states: BTreeMap<i64, State>,
    last_id: i64,
}

fn container(name: &str, command: &str) -> Container {
    Container { name: name.into(), command: command.into(), ..Container::default() }
}

fn stack(assignment: i64, containers: Vec<Container>) -> DesiredStack {
    let stack_id = if containers.is_empty() { String::new() } else { "s".to_owned() };
    DesiredStack { assignment, stack_id, containers, ..DesiredStack::default() }
}

impl Table {
    /// Makes one step. Returns the state in which the stack rests, if it does.
    fn step(&mut self, desired: Option<&DesiredStack>) -> Option<NodeState> {
        let states = self.states.clone();
        match next_step(&self.record, desired, |id| states.get(&id).copied()) {
            StackStep::Rest(state) => return Some(state),
            StackStep::Begin(stack) => self.record.begin(stack),
            StackStep::Forget(name) => self.record.containers.retain(|it| it.name != name),
            StackStep::Stop(id) => drop(self.states.insert(id, State::Stopping)),
            StackStep::Delete { name, id } => {
                assert!(self.states.remove(&id).is_some_and(|state| state != State::Running));
                self.record.containers.retain(|it| it.name != name);
            }
            StackStep::Start { id, .. } => drop(self.states.insert(id, State::Running)),
            StackStep::Create(container) => {
                let name = container.name.clone();
                assert!(self.record.containers.iter().all(|it| it.name != name), "{name} twice");
                self.last_id += 1;
                self.states.insert(self.last_id, State::Running);
                let (call_id, id) = (String::new(), Some(self.last_id));
                let digest = digest(container);
                self.record.containers.push(StackContainer { name, digest, call_id, id });
            }
        }
        None
    }

    /// Makes steps until the stack rests in another state than `APPLYING`. What is stopping ends meanwhile.
    fn settle(&mut self, desired: Option<&DesiredStack>) -> NodeState {
        for _ in 0..100 {
            match self.step(desired) {
                Some(NodeState::Applying) => {
                    let stopping = |state: &&mut State| **state == State::Stopping;
                    self.states.values_mut().filter(stopping).for_each(|it| *it = State::Exited);
                }
                Some(state) => return state,
                None => {}
            }
        }
        panic!("it does not settle: {self:?}");
    }

    fn definitions(&self) -> Vec<(String, String)> {
        let made = self.record.containers.iter();
        let mut made: Vec<_> = made.map(|it| (it.name.clone(), it.digest.clone())).collect();
        made.sort();
        made
    }
}

fn definitions(stack: &DesiredStack) -> Vec<(String, String)> {
    let mut all: Vec<_> = stack.containers.iter().map(|it| (it.name.clone(), digest(it))).collect();
    all.sort();
    all
}

#[test]
fn a_new_version_replaces_only_what_it_changed() {
    let mut table = Table::default();
    let first = stack(1, vec![container("a", "/a"), container("b", "/b")]);
    assert_eq!(table.settle(Some(&first)), NodeState::Running);
    let id_of = |table: &Table, name: &str| {
        table.record.containers.iter().find(|it| it.name == name).unwrap().id.unwrap()
    };
    let kept = id_of(&table, "a");
    let second = stack(2, vec![container("a", "/a"), container("b", "/other")]);
    assert_eq!(table.settle(Some(&second)), NodeState::Running);
    assert_eq!(id_of(&table, "a"), kept);
    assert_eq!(table.definitions(), definitions(&second));
    assert_eq!(table.states.len(), 2);
}

#[test]
fn an_empty_assignment_removes_the_stack() {
    let mut table = Table::default();
    table.settle(Some(&stack(1, vec![container("a", "/a")])));
    assert_eq!(table.settle(Some(&stack(2, Vec::new()))), NodeState::Unassigned);
    assert!(table.states.is_empty() && table.record.containers.is_empty());
}

#[test]
fn without_a_control_plane_containers_are_kept_and_started_again() {
    let mut table = Table::default();
    table.settle(Some(&stack(1, vec![container("a", "/a")])));
    table.states.values_mut().for_each(|state| *state = State::Dead);
    assert_eq!(table.settle(None), NodeState::Running);
    // A server that was restored from an old copy knows an earlier assignment.
    assert_eq!(table.settle(Some(&stack(0, Vec::new()))), NodeState::Running);
    assert_eq!(table.states.values().collect::<Vec<_>>(), [&State::Running]);
}

#[test]
fn what_somebody_deleted_is_made_again() {
    let mut table = Table::default();
    let desired = stack(1, vec![container("a", "/a")]);
    table.settle(Some(&desired));
    table.states.clear();
    assert_eq!(table.settle(Some(&desired)), NodeState::Running);
    assert_eq!(table.states.len(), 1);
}

#[test]
fn an_interrupted_creation_is_completed_or_dropped() {
    let made = |name: &str| StackContainer {
        name: name.into(),
        digest: String::new(),
        call_id: name.into(),
        id: None,
    };
    let mut record = StackRecord { containers: vec![made("a"), made("b")], ..Default::default() };
    record.complete(|call| (call == "b").then(|| Container { id: 7, ..Container::default() }));
    let left: Vec<_> = record.containers.iter().map(|it| (it.name.as_str(), it.id)).collect();
    assert_eq!(left, [("b", Some(7))]);
}

#[test]
fn a_later_assignment_is_not_replaced_by_an_earlier_one() {
    let (desired, _) = watch::channel(None);
    let (_observer, observed) = watch::channel(NodeObservation::default());
    let port = StackPort { desired, observed };
    port.set_desired(stack(2, vec![container("a", "/a")]));
    port.set_desired(stack(1, Vec::new()));
    assert_eq!(port.desired.borrow().as_ref().map(|it| it.assignment), Some(2));
    assert!(port.observations().has_changed().unwrap());
}

proptest! {
    /// From any stack, interrupted after any number of steps, with containers that end and vanish at any time, the node gets what is desired.
    #[test]
    fn the_node_has_what_is_desired_whatever_was_before(
        stacks in prop::collection::vec(prop::collection::btree_map("[a-d]", "[x-z]", 0..4), 1..6),
        steps in prop::collection::vec((0..6_usize, any::<u64>()), 6),
    ) {
        let mut table = Table::default();
        for (n, (containers, (steps, fault))) in stacks.iter().zip(steps).enumerate() {
            let containers = containers.iter().map(|(name, command)| container(name, command));
            let desired = stack(i64::try_from(n).unwrap() + 1, containers.collect());
            for _ in 0..steps {
                table.step(Some(&desired));
            }
            let ids: Vec<_> = table.states.keys().copied().collect();
            match (ids.get(usize::try_from(fault % 5).unwrap()), fault % 3) {
                (Some(id), 0) => drop(table.states.remove(id)),
                (Some(id), 1) => drop(table.states.insert(*id, State::Dead)),
                _ => {}
            }
            let is_last = n + 1 == stacks.len();
            if is_last {
                table.settle(Some(&desired));
                prop_assert_eq!(table.definitions(), definitions(&desired));
                prop_assert_eq!(table.states.len(), desired.containers.len());
                prop_assert!(table.states.values().all(|state| *state == State::Running));
            }
        }
    }
}

use proptest::prelude::*;
use tinwright::node::v1::RolloutSettings;

use super::*;

fn rollout(max_concurrent: i32, max_failures: i32) -> Rollout {
    let settings = RolloutSettings { max_concurrent, max_failures, ..RolloutSettings::default() };
    let state = RolloutState::Running.into();
    Rollout { number: 3, version: 2, settings: Some(settings), state, ..Rollout::default() }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

/// A node with version 1 that is connected.
fn node(number: usize) -> Node {
    Node {
        id: format!("id-{number:02}"),
        name: format!("n{number}"),
        connected: true,
        stack_id: "s".into(),
        stack_version: 1,
        rollout_number: 1,
        state: NodeState::Running.into(),
        ..Node::default()
    }
}

/// Gives the version of `rollout` to the node `id`.
fn assign(nodes: &mut [Node], rollout: &Rollout, id: &str, now: SystemTime) {
    let node = nodes.iter_mut().find(|it| it.id == id).unwrap();
    node.stack_version = rollout.version;
    node.rollout_number = rollout.number;
    node.progress_time = Some(now.into());
    node.set_state(NodeState::Applying);
}

fn members(rollout: &Rollout, nodes: &[Node]) -> Vec<Member> {
    nodes.iter().filter_map(|node| Member::new(rollout, node)).collect()
}

#[test]
fn a_few_nodes_at_a_time_get_the_version_until_one_fails_too_many() {
    let rollout = rollout(2, 1);
    let mut nodes: Vec<_> = (0..6).map(node).collect();
    let first = step(&rollout, &members(&rollout, &nodes), at(0));
    assert_eq!((first.state, first.counts.pending), (RolloutState::Running, 6));
    assert_eq!(first.assign, ["id-00", "id-01"]);
    first.assign.iter().for_each(|id| assign(&mut nodes, &rollout, id, at(0)));
    let waiting = step(&rollout, &members(&rollout, &nodes), at(1));
    assert_eq!((waiting.assign.len(), waiting.due), (0, Some(at(600))));
    nodes[0].set_state(NodeState::Running);
    nodes[1].set_state(NodeState::Failed);
    nodes[1].state_reason = "no such image".into();
    let second = step(&rollout, &members(&rollout, &nodes), at(2));
    assert_eq!(second.assign, ["id-02", "id-03"], "one may fail");
    assert_eq!(second.reason, "1 failed, 1 may: n1: no such image");
    second.assign.iter().for_each(|id| assign(&mut nodes, &rollout, id, at(2)));
    nodes[2].set_state(NodeState::Failed);
    let stopped = step(&rollout, &members(&rollout, &nodes), at(3));
    assert_eq!((stopped.state, stopped.assign.len()), (RolloutState::Stopped, 0));
    assert_eq!(stopped.reason, "2 failed, 1 may: n1: no such image; n2: no cause given");
}

#[test]
fn a_node_without_news_for_ten_minutes_fails_and_news_begin_the_time_anew() {
    let rollout = rollout(1, 0);
    let mut nodes = [node(0), node(1)];
    assign(&mut nodes, &rollout, "id-00", at(0));
    assert_eq!(step(&rollout, &members(&rollout, &nodes), at(599)).state, RolloutState::Running);
    nodes[0].progress_time = Some(at(500).into());
    assert_eq!(step(&rollout, &members(&rollout, &nodes), at(600)).state, RolloutState::Running);
    nodes[0].connected = false;
    let late = step(&rollout, &members(&rollout, &nodes), at(1100));
    assert_eq!(late.state, RolloutState::Stopped);
    let cause = "n0: reported nothing new for 10 minutes, and is not connected";
    assert!(late.reason.contains(cause), "{}", late.reason);
}

#[test]
fn nodes_that_are_away_come_last_and_labels_select() {
    let mut rollout = rollout(1, 0);
    let mut nodes = [node(0), node(1), node(2)];
    nodes[0].connected = false;
    let first = step(&rollout, &members(&rollout, &nodes), at(0));
    assert_eq!(first.assign, ["id-01"]);
    nodes[2].labels.insert("rack".into(), "r1".into());
    rollout.settings.as_mut().unwrap().node_labels.insert("rack".into(), "r1".into());
    let selected = members(&rollout, &nodes);
    assert_eq!(selected.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["id-02"]);
}

#[test]
fn a_roll_back_is_for_the_nodes_that_took_a_newer_version_and_a_repeated_rollout_tries_failed_ones()
{
    let mut nodes = [node(0), node(1), node(2)];
    let forward = rollout(3, 0);
    assign(&mut nodes, &forward, "id-01", at(0));
    nodes[1].set_state(NodeState::Failed);
    let back = Rollout { number: 4, version: 1, roll_back: true, ..forward.clone() };
    let found = members(&back, &nodes);
    assert_eq!((found.len(), found[0].id.as_str()), (1, "id-01"));
    assert_eq!(found[0].progress, MemberProgress::Pending);
    let again = Rollout { number: 4, ..forward };
    let found = members(&again, &nodes);
    assert!(found.iter().all(|it| it.progress == MemberProgress::Pending), "{found:?}");
    assign(&mut nodes, &back, "id-01", at(1));
    nodes[1].set_state(NodeState::Running);
    let done = step(&back, &members(&back, &nodes), at(2));
    assert_eq!((done.state, done.counts.nodes, done.counts.running), (RolloutState::Done, 1, 1));
}

#[test]
fn without_nodes_it_is_done_at_once_and_by_default_a_tenth_of_them_apply() {
    let rollout = rollout(0, 0);
    assert_eq!(step(&rollout, &[], at(0)).state, RolloutState::Done);
    for (nodes, expected) in [(1, 1), (10, 1), (11, 2), (95, 10)] {
        let nodes: Vec<_> = (0..nodes).map(node).collect();
        let first = step(&rollout, &members(&rollout, &nodes), at(0));
        assert_eq!(first.assign.len(), expected, "{}", nodes.len());
    }
}

/// What happens between two steps.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Runs(usize),
    Fails(usize),
    Leaves(usize),
    Returns(usize),
    Passes(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (0..12usize).prop_map(Happening::Runs),
        1 => (0..12usize).prop_map(Happening::Fails),
        1 => (0..12usize).prop_map(Happening::Leaves),
        1 => (0..12usize).prop_map(Happening::Returns),
        1 => (0..400u64).prop_map(Happening::Passes),
    ]
}

fn apply(nodes: &mut [Node], rollout: &Rollout, happening: Happening, now: &mut SystemTime) {
    let count = nodes.len();
    let mut reports = |at: usize, state| {
        let node = &mut nodes[at % count];
        if node.rollout_number == rollout.number {
            node.set_state(state);
        }
    };
    match happening {
        Happening::Runs(at) => reports(at, NodeState::Running),
        Happening::Fails(at) => reports(at, NodeState::Failed),
        Happening::Leaves(at) => nodes[at % count].connected = false,
        Happening::Returns(at) => nodes[at % count].connected = true,
        Happening::Passes(seconds) => *now += Duration::from_secs(seconds),
    }
}

proptest! {
    /// Whatever nodes do: no more apply the version at a time than may, none gets it once too many failed, and each is counted once.
    #[test]
    fn a_rollout_keeps_its_limits(
        count in 1..12usize,
        max_concurrent in 0..5,
        max_failures in 0..4,
        happenings in proptest::collection::vec(happening(), 0..80),
    ) {
        let rollout = rollout(max_concurrent, max_failures);
        let (mut nodes, mut now) = ((0..count).map(node).collect::<Vec<_>>(), at(0));
        let most = if max_concurrent == 0 { count.div_ceil(10) } else { max_concurrent as usize };
        for happening in happenings {
            let next = step(&rollout, &members(&rollout, &nodes), now);
            let RolloutCounts { nodes: all, pending, applying, running, failed } = next.counts;
            prop_assert_eq!(all as usize, count);
            prop_assert_eq!(pending + applying + running + failed, all);
            prop_assert_eq!(next.state == RolloutState::Stopped, failed > max_failures);
            if next.state != RolloutState::Running {
                prop_assert!(next.assign.is_empty());
                prop_assert!(next.state == RolloutState::Stopped || pending + applying == 0);
                return Ok(());
            }
            prop_assert!(pending + applying > 0);
            prop_assert!(applying as usize + next.assign.len() <= most.max(applying as usize));
            for id in &next.assign {
                assign(&mut nodes, &rollout, id, now);
            }
            apply(&mut nodes, &rollout, happening, &mut now);
        }
    }

    /// If each node that gets the version runs it, the rollout is done after as many steps as there are groups of nodes.
    #[test]
    fn a_rollout_without_failures_comes_to_its_end(count in 0..40usize, max_concurrent in 1..6) {
        let rollout = rollout(max_concurrent, 0);
        let mut nodes: Vec<_> = (0..count).map(node).collect();
        for _ in 0..count.div_ceil(max_concurrent as usize) {
            let next = step(&rollout, &members(&rollout, &nodes), at(0));
            prop_assert_eq!(next.state, RolloutState::Running);
            for id in &next.assign {
                assign(&mut nodes, &rollout, id, at(0));
            }
            nodes.iter_mut().for_each(|node| node.set_state(NodeState::Running));
        }
        let end = step(&rollout, &members(&rollout, &nodes), at(0));
        prop_assert_eq!(end.state, RolloutState::Done);
        prop_assert_eq!(end.counts.running as usize, count);
    }
}

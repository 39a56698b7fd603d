use tinwright::node::v1::attachment::{Definition as Attached, Rbd, RbdOptions};
use tinwright::node::v1::mount::{AttachmentMount, Definition as Mounted};
use tinwright::node::v1::{Attachment, Mount};

use super::*;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

fn container(command: &str) -> Container {
    Container { name: "os".into(), command: command.into(), ..Container::default() }
}

fn stack() -> Stack {
    let stack = Stack { name: "web".into(), containers: vec![container("1")], ..Stack::default() };
    with_first_version(stack, NOW)
}

fn with_command(stack: &Stack, command: &str) -> Stack {
    Stack { containers: vec![container(command)], ..stack.clone() }
}

fn done(stack: &Stack) -> Stack {
    let counts = RolloutCounts::default();
    let state = RolloutState::Done;
    let step = RolloutStep { state, reason: String::new(), counts, assign: Vec::new(), due: None };
    after_step(stack, &step, 0, NOW)
}

fn numbers(stack: &Stack) -> Vec<i64> {
    stack.versions.iter().map(|version| version.number).collect()
}

fn running(stack: &Stack) -> (i64, i64, bool) {
    let rollout = stack.rollout.as_ref().unwrap();
    assert_eq!(rollout.state(), RolloutState::Running);
    (rollout.number, rollout.version, rollout.roll_back)
}

#[test]
fn other_containers_are_a_new_version_with_a_rollout_and_equal_ones_are_not() {
    let first = stack();
    assert_eq!(updated(&first, first.clone(), None, NOW), first);
    let second = updated(&first, with_command(&first, "2"), None, NOW);
    assert_eq!((numbers(&second), running(&second)), (vec![1, 2], (2, 2, false)));
    assert_eq!(second.base_version, 1, "until the rollout is done");
    let again = updated(&second, second.clone(), Some(RolloutSettings::default()), NOW);
    assert_eq!((numbers(&again), running(&again)), (vec![1, 2], (3, 2, false)));
}

#[test]
fn the_oldest_versions_are_dropped_but_not_that_of_nodes_that_no_rollout_reached() {
    let mut stack = stack();
    for command in 2..=14 {
        stack = updated(&stack, with_command(&stack, &command.to_string()), None, NOW);
    }
    assert_eq!(numbers(&stack), [1, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    assert!(containers(&stack, 1).is_some() && containers(&stack, 5).is_none());
}

#[test]
fn a_new_node_gets_the_version_of_a_rollout_that_is_done_and_selects_it() {
    let first = stack();
    let labels = [("rack".to_owned(), "r1".to_owned())].into();
    let settings = RolloutSettings { node_labels: labels, ..RolloutSettings::default() };
    let here = Node { labels: settings.node_labels.clone(), ..Node::default() };
    let second = updated(&first, with_command(&first, "2"), Some(settings), NOW);
    assert_eq!((version_for(&second, &here), version_for(&second, &Node::default())), (1, 1));
    let second = done(&second);
    assert_eq!((version_for(&second, &here), version_for(&second, &Node::default())), (2, 1));
    let third = done(&updated(&second, with_command(&second, "3"), None, NOW));
    assert_eq!((third.base_version, version_for(&third, &Node::default())), (3, 3));
    let back = done(&rolled_back(&third, 0, RolloutSettings::default(), NOW).unwrap());
    assert_eq!((back.base_version, version_for(&back, &here)), (2, 2));
}

#[test]
fn a_roll_back_is_to_the_version_before_or_to_a_named_one() {
    let first = stack();
    let settings = RolloutSettings::default;
    let refused = rolled_back(&first, 0, settings(), NOW).unwrap_err();
    assert!(matches!(refused, Error::Precondition { reason: "NO_EARLIER_VERSION", .. }));
    let second = updated(&first, with_command(&first, "2"), None, NOW);
    let third = updated(&second, with_command(&second, "3"), None, NOW);
    assert_eq!(running(&rolled_back(&third, 0, settings(), NOW).unwrap()), (4, 2, true));
    let back = rolled_back(&third, 1, settings(), NOW).unwrap();
    assert_eq!(running(&back), (4, 1, true));
    assert!(matches!(rolled_back(&back, 0, settings(), NOW), Err(Error::Precondition { .. })));
    let missing = rolled_back(&third, 9, settings(), NOW);
    assert!(matches!(missing, Err(Error::NoVersion { number: 9, .. })));
}

#[test]
fn counts_have_the_nodes_that_were_assigned_in_the_step() {
    let second = updated(&stack(), with_command(&stack(), "2"), None, NOW);
    let counts = RolloutCounts { nodes: 5, pending: 4, applying: 1, ..RolloutCounts::default() };
    let state = RolloutState::Running;
    let step = RolloutStep { state, reason: "r".into(), counts, assign: Vec::new(), due: None };
    let after = after_step(&second, &step, 2, NOW).rollout.unwrap();
    let counts = after.counts.unwrap();
    assert_eq!((counts.nodes, counts.pending, counts.applying), (5, 2, 3));
    assert_eq!(after.state_reason, "r");
}

#[test]
fn containers_of_a_basic_view_keep_the_stored_secrets() {
    let options = RbdOptions { secret: "key".into(), ..RbdOptions::default() };
    let rbd = Rbd { options: Some(options), ..Rbd::default() };
    let attach = Attachment { definition: Some(Attached::Rbd(rbd)), ..Attachment::default() };
    let attach = AttachmentMount { attach: Some(Box::new(attach)), ..AttachmentMount::default() };
    let mount = Mount { definition: Some(Mounted::Attach(Box::new(attach))), ..Mount::default() };
    let containers = vec![Container { mount: Some(mount), ..container("1") }];
    let old = with_first_version(Stack { containers, ..Stack::default() }, NOW);
    let mut written_back = old.clone().without_secrets();
    assert_ne!(written_back.containers, old.containers);
    keep_secrets(&old, &mut written_back);
    assert_eq!(written_back.containers, old.containers);
    let text = format!("{old:?}");
    assert!(!text.contains("key"), "{text}");
}

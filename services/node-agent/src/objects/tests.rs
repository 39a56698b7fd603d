use proptest::prelude::*;

use super::*;
use crate::tests::requests::{bind, bind_reference, container};

fn registry() -> Registry {
    Registry::new(1, 8)
}

/// Adds a finished mount over the mounts `holds`.
fn ready(registry: &mut Registry, over: Option<i64>) -> i64 {
    let definition = over.map_or_else(|| bind("/srv"), |id| bind_reference(id, "/"));
    if let Some(id) = over {
        registry.hold(id, ObjectType::Mount).unwrap();
    }
    let holds: Vec<i64> = over.into_iter().collect();
    let id = registry.insert(Definition::Mount(definition), &holds).unwrap();
    let object = registry.get_mut(id).unwrap();
    object.apply(Event::Created).unwrap();
    (object.owner, object.holds) = (true, 0);
    id
}

#[test]
fn a_hold_becomes_a_user_and_the_count_is_the_same() {
    let mut registry = registry();
    let base = ready(&mut registry, None);
    registry.hold(base, ObjectType::Mount).unwrap();
    assert_eq!(registry.get(base).unwrap().refs(), 2);
    let user = registry.insert(Definition::Mount(bind_reference(base, "/")), &[base]).unwrap();
    assert_eq!(registry.get(base).unwrap().refs(), 2);
    assert!(registry.remove(user).is_empty());
    assert_eq!(registry.get(base).unwrap().refs(), 1);
}

#[test]
fn an_object_that_is_removed_cannot_be_obtained_but_is_listed() {
    let mut registry = registry();
    let base = ready(&mut registry, None);
    registry.get_mut(base).unwrap().owner = false;
    assert!(registry.get_mut(base).unwrap().collect_if_unused());
    assert!(registry.hold(base, ObjectType::Mount).is_err());
    assert_eq!(registry.snapshot().mounts.len(), 1);
}

#[test]
fn an_object_of_another_type_is_not_found() {
    let mut registry = registry();
    let base = ready(&mut registry, None);
    assert!(registry.find(base, ObjectType::Attachment).is_err());
    assert!(registry.hold(base, ObjectType::Attachment).is_err());
    assert_eq!(registry.get(base).unwrap().refs(), 1);
}

#[test]
fn empty_names_are_not_reserved_and_others_are_while_the_container_is_created() {
    let mut registry = registry();
    let mut add =
        |name: &str| registry.insert(Definition::Container(container(name, bind("/"))), &[]);
    let (first, second) = (add("").unwrap(), add("").unwrap());
    assert_ne!(first, second);
    let named = add("n").unwrap();
    assert!(add("n").is_err());
    registry.remove(named);
    assert_eq!(registry.find_name("n"), None);
    registry.insert(Definition::Container(container("n", bind("/"))), &[]).unwrap();
}

#[test]
fn the_number_of_objects_and_the_depth_of_references_are_limited() {
    let mut registry = registry();
    for _ in 0..8 {
        ready(&mut registry, None);
    }
    assert!(registry.insert(Definition::Mount(bind("/")), &[]).is_err());
    let mut registry = Registry::new(1, 100);
    let mut last = ready(&mut registry, None);
    for _ in 1..MAX_DEPTH {
        last = ready(&mut registry, Some(last));
    }
    registry.hold(last, ObjectType::Mount).unwrap();
    let deeper = Definition::Mount(bind_reference(last, "/"));
    assert!(registry.insert(deeper, &[last]).is_err());
    assert!(!registry.release(last));
}

fn states() -> impl Strategy<Value = ObjectState> {
    prop_oneof![
        Just(ObjectState::Creating),
        Just(ObjectState::Ready),
        Just(ObjectState::Vanished),
        Just(ObjectState::Deleting { vanished: false }),
        Just(ObjectState::Deleting { vanished: true }),
        Just(ObjectState::Collecting),
    ]
}

proptest! {
    #[test]
    fn only_a_creation_makes_an_object_ready_unless_a_deletion_is_refused(state in states()) {
        for event in [Event::Failed, Event::Vanished, Event::Delete, Event::Unused] {
            if let Ok(after) = state.after(event) {
                prop_assert!(after != ObjectState::Ready && after != ObjectState::Creating);
            }
        }
        prop_assert_eq!(state.after(Event::Created).is_ok(), state == ObjectState::Creating);
        // A collection never ends but by removal.
        if let Ok(after) = ObjectState::Collecting.after(Event::Refused) {
            prop_assert_eq!(after, ObjectState::Collecting);
        }
    }
}

//! Random sequences of calls, compared with a simple model of objects and counts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tinwright::node::v1::container::State;
use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::{Container, Mount};

use super::Bench;
use super::requests::*;
use crate::Node;
use crate::definition::{Definition, ObjectType};

/// One call. Numbers choose an object among those that there are, modulo their count.
#[derive(Clone, Debug)]
enum Step {
    PostLocal,
    PostNfs,
    PostBind(usize),
    PostLoopMount(usize),
    PostAttachMount(usize),
    PostOverlay(Vec<usize>),
    PostStack { running: bool },
    PostContainer { mount: usize, running: bool },
    Delete { object: usize, force: bool },
    Set { container: usize, state: State },
    Restart,
}

fn steps() -> impl Strategy<Value = Step> {
    let object = || 0_usize..50;
    prop_oneof![
        1 => Just(Step::PostLocal),
        2 => Just(Step::PostNfs),
        2 => object().prop_map(Step::PostBind),
        2 => object().prop_map(Step::PostLoopMount),
        1 => object().prop_map(Step::PostAttachMount),
        2 => proptest::collection::vec(object(), 1..4).prop_map(Step::PostOverlay),
        1 => any::<bool>().prop_map(|running| Step::PostStack { running }),
        2 => (object(), any::<bool>()).prop_map(|(mount, running)| Step::PostContainer { mount, running }),
        6 => (object(), any::<bool>()).prop_map(|(object, force)| Step::Delete { object, force }),
        2 => (object(), prop_oneof![Just(State::Running), Just(State::Exited)])
            .prop_map(|(container, state)| Step::Set { container, state }),
        1 => Just(Step::Restart),
    ]
}

#[derive(Debug)]
struct Known {
    object_type: ObjectType,
    owner: bool,
    dependencies: Vec<i64>,
    /// The same, as often as they are named.
    references: Vec<i64>,
    /// Of a container.
    state: State,
    is_local: bool,
}

#[derive(Debug, Default)]
struct Model(BTreeMap<i64, Known>);

impl Model {
    fn choose(&self, number: usize) -> i64 {
        // Sometimes an id that was never used.
        let ids: Vec<i64> = self.0.keys().copied().chain([9999]).collect();
        ids[number % ids.len()]
    }

    fn has(&self, id: i64, object_type: ObjectType) -> bool {
        self.0.get(&id).is_some_and(|known| known.object_type == object_type)
    }

    fn users(&self, id: i64) -> impl Iterator<Item = &Known> {
        self.0.values().filter(move |known| known.dependencies.contains(&id))
    }

    fn refs(&self, id: i64) -> i64 {
        i64::from(self.0[&id].owner) + i64::try_from(self.users(id).count()).unwrap()
    }

    /// The length of the longest chain from `ids`, and the number of objects in their views.
    fn extent(&self, ids: &[i64]) -> (usize, usize) {
        let below = |id: &i64| self.0.get(id).map(|known| self.extent(&known.references));
        let extents: Vec<_> = ids.iter().filter_map(below).collect();
        let depth = extents.iter().map(|extent| extent.0).max().unwrap_or(0);
        (depth + 1, 1 + extents.iter().map(|extent| extent.1).sum::<usize>())
    }

    fn add(&mut self, mut object: Definition, owner: bool) {
        let state = match &object {
            Definition::Container(container) => container.state(),
            Definition::Attachment(_) | Definition::Mount(_) => State::Unspecified,
        };
        let is_local = matches!(&object, Definition::Attachment(attachment)
            if attachment.device_file == "/dev/sdb");
        let (id, object_type) = (object.id(), object.object_type());
        let (dependencies, references) = (object.dependencies(), object.references());
        for mut nested in object.nested() {
            let nested = nested.get();
            if !self.0.contains_key(&nested.id()) {
                self.add(nested, false);
            }
        }
        self.0.insert(id, Known { object_type, owner, dependencies, references, state, is_local });
    }

    /// True if the kernel refuses to remove `id`.
    fn is_busy(&self, id: i64) -> bool {
        let uses = |known: &Known| match known.object_type {
            ObjectType::Container => known.state == State::Running,
            ObjectType::Attachment | ObjectType::Mount => true,
        };
        !self.0[&id].is_local && self.users(id).any(uses)
    }

    fn remove(&mut self, id: i64) {
        let Some(known) = self.0.remove(&id) else { return };
        for dependency in known.dependencies {
            if self.0.contains_key(&dependency) && self.refs(dependency) == 0 {
                self.remove(dependency);
            }
        }
    }
}

/// Posts `mount`, whose dependencies are `ids` of the type `object_type`.
async fn post(model: &mut Model, node: &Node, mount: Mount, ids: &[i64], object_type: ObjectType) {
    let posted = post_mount(node, mount).await;
    let (depth, view_objects) = model.extent(ids);
    match ids.iter().all(|&id| model.has(id, object_type)) {
        true if depth > 32 || view_objects > 4096 => assert_eq!(posted, Err(Reason::Invalid)),
        true => model.add(Definition::Mount(posted.unwrap()), true),
        false => assert_eq!(posted, Err(Reason::NotFound)),
    }
}

async fn post_a_container(model: &mut Model, node: &Node, posted: Container) {
    let id = posted.mount.as_ref().unwrap().id;
    let found = id == 0 || model.has(id, ObjectType::Mount);
    let (depth, view_objects) = model.extent(&[id]);
    let created = post_container(node, posted).await;
    match found {
        true if depth > 32 || view_objects > 4096 => assert_eq!(created, Err(Reason::Invalid)),
        true => model.add(Definition::Container(created.unwrap()), true),
        false => assert_eq!(created, Err(Reason::NotFound)),
    }
}

async fn delete(model: &mut Model, node: &Node, id: i64, force: bool) {
    let Some(known) = model.0.get(&id) else {
        assert_eq!(delete_mount(node, id, force).await.err(), Some(Reason::NotFound));
        return;
    };
    let (refused, outcome) = match known.object_type {
        ObjectType::Container => {
            let refused = !force && known.state == State::Running;
            (refused, delete_container(node, id, force).await.map(|_| ()))
        }
        ObjectType::Attachment => {
            let refused = !force || model.is_busy(id);
            (refused, delete_attachment(node, id, force).await.map(|_| ()))
        }
        ObjectType::Mount => {
            let refused = !force || model.is_busy(id);
            (refused, delete_mount(node, id, force).await.map(|_| ()))
        }
    };
    match refused {
        true => assert_eq!(outcome, Err(Reason::Busy)),
        false => {
            assert_eq!(outcome, Ok(()));
            model.remove(id);
        }
    }
}

async fn set(model: &mut Model, node: &Node, id: i64, state: State) {
    if !model.has(id, ObjectType::Container) {
        assert_eq!(set_state(node, id, state).await, Err(Reason::NotFound));
        return;
    }
    let (before, mount) = (model.0[&id].state, model.0[&id].dependencies[0]);
    let outcome = set_state(node, id, state).await.map(|container| container.state());
    let (expected, after) = match (before, state) {
        (State::Running, State::Exited) => (Ok(State::Stopping), State::Exited),
        (State::Running, _) => (Ok(State::Running), State::Running),
        (_, State::Running) if !model.has(mount, ObjectType::Mount) => {
            (Err(Reason::Failed), State::Dead)
        }
        (_, State::Running) => (Ok(State::Running), State::Running),
        _ => (Ok(before), before),
    };
    assert_eq!(outcome, expected);
    reaches(node, id, after).await;
    model.0.get_mut(&id).unwrap().state = after;
}

fn compare(model: &Model, node: &Node, bench: &Bench) {
    let snapshot = node.snapshot();
    let mut counts = BTreeMap::new();
    counts.extend(snapshot.attachments.iter().map(|a| (a.id, a.refs)));
    counts.extend(snapshot.mounts.iter().map(|m| (m.id, m.refs)));
    counts.extend(snapshot.containers.iter().map(|c| (c.id, c.refs)));
    let expected: BTreeMap<_, _> = model.0.keys().map(|&id| (id, model.refs(id))).collect();
    assert_eq!(counts, expected);
    let tables = bench.kernel.tables();
    assert_eq!(tables.mounts.len(), snapshot.mounts.len());
    let devices = model
        .0
        .values()
        .filter(|known| known.object_type == ObjectType::Attachment && !known.is_local);
    assert_eq!(tables.devices.len(), devices.count());
    let live = model.0.values().filter(|known| known.state == State::Running).count();
    assert_eq!(bench.kernel.live_runs().len(), live);
}

async fn run(steps: Vec<Step>) {
    let (bench, mut model) = (Bench::new(), Model::default());
    let mut node = bench.open().await;
    let mut used = BTreeSet::new();
    for step in steps {
        match step {
            Step::PostLocal => {
                let posted = post_attachment(&node, local("/dev/sdb")).await.unwrap();
                model.add(Definition::Attachment(posted), true);
            }
            Step::PostNfs => post(&mut model, &node, nfs("/export"), &[], ObjectType::Mount).await,
            Step::PostBind(base) => {
                let id = model.choose(base);
                post(&mut model, &node, bind_reference(id, "/"), &[id], ObjectType::Mount).await;
            }
            Step::PostLoopMount(base) => {
                let id = model.choose(base);
                let mount = attach_mount(loopback(mount_reference(id), "/image"));
                post(&mut model, &node, mount, &[id], ObjectType::Mount).await;
            }
            Step::PostAttachMount(attachment) => {
                let id = model.choose(attachment);
                let mount = attach_mount(attachment_reference(id));
                post(&mut model, &node, mount, &[id], ObjectType::Attachment).await;
            }
            Step::PostOverlay(lower) => {
                let ids: Vec<i64> = lower.into_iter().map(|number| model.choose(number)).collect();
                let mount = overlay(ids.iter().map(|&id| mount_reference(id)).collect());
                post(&mut model, &node, mount, &ids, ObjectType::Mount).await;
            }
            Step::PostStack { running: false } => {
                post_a_container(&mut model, &node, container("", stack())).await;
            }
            Step::PostStack { running: true } => {
                post_a_container(&mut model, &node, running("", stack())).await;
            }
            Step::PostContainer { mount, running: is_running } => {
                let mount = mount_reference(model.choose(mount));
                let posted = if is_running { running("", mount) } else { container("", mount) };
                post_a_container(&mut model, &node, posted).await;
            }
            Step::Delete { object, force } => {
                let id = model.choose(object);
                delete(&mut model, &node, id, force).await;
            }
            Step::Set { container, state } => {
                let id = model.choose(container);
                set(&mut model, &node, id, state).await;
            }
            Step::Restart => {
                node.close().await;
                node = bench.reopen().await;
            }
        }
        node.idle().await;
        compare(&model, &node, &bench);
        used.extend(model.0.keys().copied());
    }
    let last = post_mount(&node, nfs("/export")).await.unwrap().id;
    assert!(used.last().is_none_or(|&highest| last > highest), "an id was used again");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_sequence_of_calls_does_what_the_model_says(steps in proptest::collection::vec(steps(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(steps));
    }
}

//! Deleted instances: what is shown of them, and what is never used again.

use std::sync::Arc;
use std::time::SystemTime;

use runtime::Clock;
use store::Store;
use store::memory::MemoryStore;
use store::records::requests::IdempotentRequest;
use tinwright::{HardwareId, Id};

use super::*;
use crate::state::Event;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn instances() -> (Instances, Clock, Arc<MemoryStore>) {
    let (store, clock) =
        (Arc::new(MemoryStore::default()), Clock::manual(SystemTime::UNIX_EPOCH + 1000 * DAY));
    (Instances::new(store.clone(), clock.clone()), clock, store)
}

/// An instance of `tenant` on a machine of its own.
fn of(tenant: &str, external_id: &str) -> pb::Instance {
    pb::Instance {
        hardware_id: HardwareId::new().to_string(),
        tenant: tenant.into(),
        external_id: external_id.into(),
        userdata: "hunter2".into(),
        ..pb::Instance::default()
    }
}

async fn create(instances: &Instances, instance: pb::Instance) -> pb::Instance {
    instances.create(instance, None).await.unwrap()
}

/// Deletes `instance`, whose machine needs no clean-up.
async fn delete(instances: &Instances, instance: &pb::Instance) -> pb::Instance {
    let deleting = instances.delete(instance.id.parse().unwrap(), 0, false).await.unwrap();
    instances.advance(&deleting, Event::Cleaned, "", |_| {}).await.unwrap()
}

/// Returns the stored keys, without keys of events.
async fn keys(store: &MemoryStore) -> Vec<String> {
    let page = store.list("", "", 100).await.unwrap();
    let keys = page.pairs.into_iter().map(|(key, _)| key);
    keys.filter(|key| !key.starts_with("instance/event/")).collect()
}

#[tokio::test]
async fn an_external_id_is_unique_in_its_tenant() {
    let (instances, ..) = instances();
    let first = create(&instances, of("acme", "vm-1")).await;
    for tenant in ["", "other"] {
        create(&instances, of(tenant, "vm-1")).await;
    }
    create(&instances, of("acme", "vm-2")).await;
    create(&instances, of("acme", "")).await;
    create(&instances, of("acme", "")).await;
    let taken = instances.create(of("acme", "vm-1"), None).await.unwrap_err().to_string();
    assert_eq!(taken, format!("external_id acme/vm-1 is taken by instance {}", first.id));
}

#[tokio::test]
async fn the_ids_of_a_deleted_instance_are_never_used_again() {
    let (instances, clock, _) = instances();
    let first = create(&instances, of("acme", "vm-1")).await;
    delete(&instances, &first).await;
    clock.advance(365 * DAY);
    instances.expire_deleted().await.unwrap();
    let by_external_id = Selector::Index(EXTERNAL_ID, external_value("acme", "vm-1"));
    for selector in [Selector::Id(first.id.clone()), by_external_id] {
        for (tenant, is_visible) in [(None, true), (Some("acme"), true), (Some("other"), false)] {
            let tenant = tenant.map(|name| name.parse().unwrap());
            let was_deleted = instances.was_deleted(&selector, tenant.as_ref()).await.unwrap();
            assert_eq!(was_deleted, is_visible, "{selector:?} {tenant:?}");
        }
    }
    for selector in [
        Selector::Id(InstanceId::new().to_string()),
        Selector::Index(EXTERNAL_ID, external_value("acme", "vm-2")),
        Selector::Index(OCCUPANT, first.hardware_id.clone()),
    ] {
        assert!(!instances.was_deleted(&selector, None).await.unwrap(), "{selector:?}");
    }
    let by_id = pb::Instance { id: first.id.clone(), ..of("other", "") };
    let text = instances.create(by_id, None).await.unwrap_err().to_string();
    let was = "is that of an instance that was deleted: it is not used again";
    assert_eq!(text, format!("instance id {} {was}", first.id));
    let text = instances.create(of("acme", "vm-1"), None).await.unwrap_err().to_string();
    assert_eq!(text, format!("external_id vm-1 {was}"));
    create(&instances, of("other", "vm-1")).await;
}

#[tokio::test]
async fn a_repeated_request_of_a_deleted_instance_creates_none() {
    let (instances, ..) = instances();
    let request = || IdempotentRequest::new("r", &pb::CreateInstanceRequest::default());
    let instance = of("", "");
    let first = instances.create(instance.clone(), request()).await.unwrap();
    delete(&instances, &first).await;
    let refused = instances.create(instance, request()).await.unwrap_err();
    assert!(matches!(refused, Error::Retired(_)), "{refused}");
}

#[tokio::test]
async fn the_record_of_a_deleted_instance_is_shown_for_thirty_days_without_secrets() {
    let (instances, clock, store) = instances();
    let first = create(&instances, of("acme", "vm-1")).await;
    assert!(instances.deleted(&first.id).await.unwrap().is_none());
    delete(&instances, &first).await;
    let shown = instances.deleted(&first.id).await.unwrap().unwrap();
    assert_eq!(shown.state(), pb::State::Deleted);
    assert_eq!((shown.userdata.as_str(), shown.lookup_id.as_str()), ("", ""));
    assert_eq!(shown.delete_time, Some(clock.wall().into()));
    assert!(instances.records.get(&first.id).await.unwrap().is_none());
    let left = [
        format!("instance/deleted/{}", first.id),
        "instance/retired/external_id/acme/vm-1".into(),
        format!("instance/retired/id/{}", first.id),
    ];
    assert_eq!(keys(&store).await, left);
    clock.advance(30 * DAY);
    assert_eq!(instances.expire_deleted().await.unwrap(), 0);
    clock.advance(Duration::from_secs(1));
    assert_eq!(instances.expire_deleted().await.unwrap(), 1);
    assert_eq!(keys(&store).await, left[1..]);
}

#[tokio::test]
async fn pages_with_deleted_instances_have_every_instance_once_in_id_order() {
    let (instances, ..) = instances();
    let mut ids = Vec::new();
    for n in 0..9_u8 {
        let id: InstanceId = Id::from_bytes([n + 1; 16]);
        let instance = pb::Instance { id: id.to_string(), ..of("", "") };
        let created = create(&instances, instance).await;
        if n % 3 == 0 || n > 6 {
            delete(&instances, &created).await;
        }
        ids.push(created.id);
    }
    for limit in [1, 2, 4, 100] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = instances.list_with_deleted(&after, limit, |_| true).await.unwrap();
            assert!(page.records.len() <= limit);
            found.extend(page.records.into_iter().map(|it| it.id));
            let Some(next) = page.next else { break };
            after = next;
        }
        assert_eq!(found, ids, "{limit}");
    }
    let live = instances.records.list("", 100, |_| true).await.unwrap().records;
    assert_eq!(live.len(), 4);
}

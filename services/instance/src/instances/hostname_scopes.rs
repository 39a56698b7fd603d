//! The migration that indexes host names, and gives the instances of IAL's door the scope of theirs.
//!
//! Before it, two orders with one host name could both succeed. The second one of such instances
//! keeps no scope, and stays as it is.

use std::sync::Arc;

use store::records::{self, Records};
use store::schema::Migration;
use store::{ScopedStore, Store};
use tinwright::instance::v1 as pb;

use super::InstanceKind;

/// The label with the hub of a door's instances.
const HUB: &str = "ial/hub";
/// The annotation with their location, as the hub knows it.
const LOCATION: &str = "ial/location_id";
/// Records that are read at a time.
const PAGE_RECORDS: usize = 500;

/// Adds the index entries of host names, and scopes of host names.
pub fn scope_hostnames() -> Migration {
    Migration::new("index host names", |store| async move {
        let migrated = migrate(store).await?;
        tracing::info!(records = migrated, "host names indexed");
        Ok(())
    })
}

async fn migrate(store: Arc<dyn Store>) -> Result<usize, records::Error> {
    let records = Records::<InstanceKind>::new(ScopedStore::new(store, "instance"));
    // The entries of records as they are: no record has a scope yet, unless this is repeated.
    records.check(true).await?;
    let (mut after, mut migrated) = (String::new(), 0);
    loop {
        let page = records.list(&after, PAGE_RECORDS, |it| it.hostname_scope.is_empty()).await?;
        for old in &page.records {
            let Some(hostname_scope) = scope_of(old) else { continue };
            let new = pb::Instance { hostname_scope, ..old.clone() };
            match records.commit(records.to_replace(old, &new)).await {
                Ok(_) => migrated += 1,
                Err(records::Error::Taken { by, .. }) => {
                    tracing::warn!(instance.id = old.id, by, "host name is used twice");
                }
                // Another process migrates the store, too.
                Err(records::Error::Changed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match page.next {
            Some(next) => after = next,
            None => return Ok(migrated),
        }
    }
}

/// Returns the scope that IAL's door gives to new instances like `instance`; none if it is not one of
/// that door.
fn scope_of(instance: &pb::Instance) -> Option<String> {
    let hub = instance.labels.get(HUB)?;
    let location = instance.annotations.get(LOCATION)?;
    Some(format!("ial/{hub}/{location}"))
}

#[cfg(test)]
mod tests {
    use store::memory::MemoryStore;
    use tinwright::{HardwareId, InstanceId};

    use super::*;
    use crate::state::State;

    /// An instance as an earlier version stored it.
    fn former(hostname: &str, location: &str) -> pb::Instance {
        let mut instance = pb::Instance {
            id: InstanceId::new().to_string(),
            hardware_id: HardwareId::new().to_string(),
            hostname: hostname.into(),
            labels: [(HUB.to_owned(), "h".to_owned())].into(),
            annotations: [(LOCATION.to_owned(), location.to_owned())].into(),
            ..pb::Instance::default()
        };
        State::Queued.write(&mut instance);
        instance
    }

    #[tokio::test]
    async fn instances_of_the_door_get_a_scope_but_no_two_with_one_name() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let records = Records::<InstanceKind>::new(ScopedStore::new(store.clone(), "instance"));
        let [own, other] = [former("own", "a"), former("own", "b")];
        let [first, second] = [former("twice", "a"), former("twice", "a")];
        let site = pb::Instance { labels: Default::default(), ..former("own", "a") };
        for instance in [&own, &other, &first, &second, &site] {
            records.commit(records.to_create(instance)).await.unwrap();
        }
        for _ in 0..2 {
            migrate(store.clone()).await.unwrap();
            let scope = async |id: &str| records.require(id).await.unwrap().hostname_scope;
            assert_eq!(scope(&own.id).await, "ial/h/a");
            assert_eq!(scope(&other.id).await, "ial/h/b");
            assert_eq!(scope(&site.id).await, "");
            let scopes = [scope(&first.id).await, scope(&second.id).await];
            assert!(scopes.contains(&"ial/h/a".to_owned()) && scopes.contains(&String::new()));
            assert!(records.check(false).await.unwrap().is_clean());
        }
        let named = records.list_indexed("hostname", "twice", "", 10, |_| true).await.unwrap();
        assert_eq!(named.records.len(), 2);
    }
}

//! Tenants in a store: created, found, changed and deleted.

pub(crate) mod deletion;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use store::memory::MemoryStore;

use super::*;

struct Fixture {
    store: ScopedStore,
    clock: Clock,
    tenants: Tenants,
}

fn fixture() -> Fixture {
    let store = ScopedStore::new(Arc::new(MemoryStore::default()), "identity");
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let tenants = Tenants::new(store.clone(), clock.clone());
    Fixture { store, clock, tenants }
}

fn named(name: &str) -> pb::Tenant {
    pb::Tenant { name: name.into(), ..pb::Tenant::default() }
}

#[tokio::test]
async fn a_tenant_is_found_by_its_name_and_has_it_alone() {
    let Fixture { tenants, .. } = fixture();
    let made = tenants.create(named("acme"), None).await.unwrap();
    assert_eq!(tenants.records().require_by(NAME_INDEX, "acme").await.unwrap(), made);
    let second = tenants.create(named("acme"), None).await.unwrap_err();
    assert!(matches!(second, crate::Error::Records(Error::Taken { by, .. }) if by == made.id));
}

#[test]
fn names_are_lower_case_letters_digits_and_inner_hyphens() {
    for right in ["a", "0", "a-b", "acme-2", &"a".repeat(63)] {
        assert!(checked(named(right)).is_ok(), "{right}");
    }
    for wrong in ["", "-a", "a-", "A", "a_b", "a.b", "a/b", "ä", "a b", &"a".repeat(64)] {
        let error = checked(named(wrong)).unwrap_err().to_string();
        assert!(error.starts_with("tenant.name: ") && error.contains("hyphens"), "{error}");
    }
}

#[test]
fn every_wrong_field_is_named() {
    let labels = [(String::new(), "x".to_owned())].into();
    let tenant = pb::Tenant { labels, description: "x".repeat(1025), ..named("-") };
    let wrong = checked(tenant).unwrap_err();
    let fields: Vec<_> = wrong.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["tenant.name", "tenant.labels", "tenant.description"]);
}

#[tokio::test]
async fn an_update_changes_the_description_but_not_the_name() {
    let Fixture { tenants, clock, .. } = fixture();
    let made = tenants.create(named("acme"), None).await.unwrap();
    clock.advance(Duration::from_secs(60));
    let update = pb::Tenant { description: "rockets".into(), ..made.clone() };
    let changed = tenants.update(update, &["description".into()]).await.unwrap();
    assert_eq!((changed.description.as_str(), changed.name.as_str()), ("rockets", "acme"));
    assert!(changed.update_time.unwrap().seconds == made.update_time.unwrap().seconds + 60);
    let renamed = tenants.update(changed.clone(), &["name".into()]).await.unwrap_err();
    assert!(
        renamed.to_string().contains("\"name\" is not a field that can be updated"),
        "{renamed}"
    );
    let stale = pb::Tenant { revision: made.revision, ..changed };
    let stale = tenants.update(stale, &[]).await.unwrap_err();
    let is_changed = matches!(stale, crate::Error::Records(Error::Changed { .. }));
    assert!(is_changed, "{stale}");
}

#[tokio::test]
async fn an_update_without_changes_writes_nothing() {
    let Fixture { tenants, clock, .. } = fixture();
    let made = tenants.create(named("acme"), None).await.unwrap();
    clock.advance(Duration::from_secs(60));
    assert_eq!(tenants.update(made.clone(), &[]).await.unwrap(), made);
}

#[tokio::test]
async fn a_deleted_tenant_leaves_only_its_name_which_is_not_used_again() {
    let Fixture { tenants, store, .. } = fixture();
    let objects = deletion::no_objects();
    let made = tenants.create(named("acme"), None).await.unwrap();
    let id = made.id.parse().unwrap();
    let stale = tenants.delete(id, made.revision + 1, &objects).await;
    assert!(matches!(stale, Err(crate::Error::Records(Error::Changed { .. }))));
    tenants.delete(id, made.revision, &objects).await.unwrap();
    let left = store.list("", "", 100).await.unwrap().pairs.into_iter().map(|(key, _)| key);
    let left: Vec<_> = left.filter(|key| !key.starts_with("event/")).collect();
    assert_eq!(left, ["retired/tenant/acme"]);
    let second = tenants.create(named("acme"), None).await.unwrap_err();
    assert!(matches!(&second, crate::Error::Retired(name) if name == "acme"), "{second}");
    tenants.create(named("acme-2"), None).await.unwrap();
    let again = tenants.delete(id, 0, &objects).await;
    assert!(matches!(again, Err(crate::Error::Records(Error::Missing { .. }))));
}

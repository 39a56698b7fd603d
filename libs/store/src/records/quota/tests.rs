//! A kind whose tenants have at most three objects of ten bytes in all.

use std::sync::Arc;

use async_trait::async_trait;
use tinwright::secret::Sealable;

use super::*;
use crate::memory::MemoryStore;
use crate::records::requests::IdempotentRequest;
use crate::{Changes, Page, ScopedStore, Store, Versioned};

#[derive(Clone, PartialEq, prost::Message)]
struct Disk {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int64, tag = "2")]
    revision: i64,
    #[prost(string, tag = "3")]
    tenant: String,
    #[prost(uint64, tag = "4")]
    size: u64,
}

impl Sealable for Disk {}

impl tinwright::Stored for Disk {
    const SINGULAR: &'static str = "disk";
    const QUOTA: Option<Quota> =
        Some(Quota { index: "disk-tenant", plural: "disks", max_objects: 3, max_bytes: 10 });

    fn id(&self) -> &str {
        &self.id
    }

    fn revision_mut(&mut self) -> &mut i64 {
        &mut self.revision
    }

    fn owning_tenant(&self) -> &str {
        &self.tenant
    }

    fn counted_bytes(&self) -> u64 {
        self.size
    }
}

#[derive(Debug)]
enum Disks {}

impl Kind for Disks {
    type Record = Disk;
    type Id = String;
    const KIND: &'static str = "disk";
}

/// Lets other tasks run between a count and the commit after it.
#[derive(Default)]
struct Interleaved(MemoryStore);

#[async_trait]
impl Store for Interleaved {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, crate::Error> {
        self.0.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, crate::Error> {
        let page = self.0.list(prefix, after, limit).await;
        tokio::task::yield_now().await;
        page
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, crate::Error> {
        self.0.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, crate::Error> {
        self.0.changed(prefix, after).await
    }
}

fn disks() -> Records<Disks> {
    Records::new(ScopedStore::new(Arc::new(Interleaved::default()), "disks"))
}

async fn create(disks: &Records<Disks>, id: &str, tenant: &str, size: u64) -> Result<Disk, Error> {
    let disk = Disk { id: id.into(), tenant: tenant.into(), size, revision: 0 };
    disks.create(&disk, Change::default(), None).await
}

#[tokio::test]
async fn a_tenant_has_at_most_its_number_also_when_it_asks_at_the_same_time() {
    let disks = disks();
    let mut orders = tokio::task::JoinSet::new();
    for number in 0..8 {
        for tenant in ["acme", "other"] {
            let disks = disks.clone();
            orders.spawn(
                async move { create(&disks, &format!("{tenant}-{number}"), tenant, 1).await },
            );
        }
    }
    let made = orders.join_all().await;
    assert_eq!(made.iter().filter(|result| result.is_ok()).count(), 6);
    for refused in made.into_iter().filter_map(Result::err) {
        assert!(refused.to_string().ends_with(" may have 3 disks, and has 3"), "{refused}");
    }
    let freed = disks.list_indexed("disk-tenant", "acme", "", 1, |_| true).await.unwrap();
    disks.commit(disks.to_delete(&freed.records[0])).await.unwrap();
    create(&disks, "again", "acme", 1).await.unwrap();
}

#[tokio::test]
async fn the_sizes_of_a_tenant_are_added_and_may_not_grow_over_its_maximum() {
    let disks = disks();
    let first = create(&disks, "first", "acme", 6).await.unwrap();
    let refused = create(&disks, "second", "acme", 5).await.unwrap_err();
    assert_eq!(refused.to_string(), "tenant acme may have 10 bytes in disks, and has 6");
    create(&disks, "second", "acme", 4).await.unwrap();
    let refused = disks.replace(&first, Disk { size: 7, ..first.clone() }).await.unwrap_err();
    assert!(matches!(refused, Error::Quota { has: 10, .. }), "{refused}");
    disks.replace(&first, Disk { size: 5, ..first.clone() }).await.unwrap();
}

#[tokio::test]
async fn objects_of_the_site_are_not_counted() {
    let disks = disks();
    for number in 0..5 {
        create(&disks, &number.to_string(), "", 5).await.unwrap();
    }
}

#[tokio::test]
async fn a_repeated_request_gets_its_object_although_it_took_the_last_place() {
    let disks = disks();
    for id in ["first", "second"] {
        create(&disks, id, "acme", 1).await.unwrap();
    }
    let disk = |id: &str| Disk { id: id.into(), tenant: "acme".into(), size: 1, revision: 0 };
    let request = IdempotentRequest::new("r", &disk("")).unwrap();
    let order = async |id| disks.create(&disk(id), Change::default(), Some(&request)).await;
    let (one, other) = tokio::join!(order("third"), order("fourth"));
    assert_eq!(one.unwrap(), other.unwrap());
}

#[tokio::test]
async fn an_object_that_gets_another_tenant_counts_for_that_one() {
    let disks = disks();
    for number in 0..3 {
        create(&disks, &format!("acme-{number}"), "acme", 1).await.unwrap();
    }
    let moved = create(&disks, "moved", "other", 1).await.unwrap();
    let refused = disks.replace(&moved, Disk { tenant: "acme".into(), ..moved.clone() }).await;
    assert!(matches!(refused, Err(Error::Quota { has: 3, .. })), "{refused:?}");
}

/// The tenant `big` may have five disks; the limits of `unknown` are not known.
#[derive(Debug)]
struct OwnLimits;

#[async_trait]
impl TenantQuotas for OwnLimits {
    async fn of(&self, tenant: &str, default: Quota) -> Result<Quota, Status> {
        match tenant {
            "big" => Ok(Quota { max_objects: 5, ..default }),
            "unknown" => Err(Status::unavailable("no answer")),
            _ => Ok(default),
        }
    }
}

#[tokio::test]
async fn a_tenant_may_have_limits_of_its_own() {
    let disks = disks().with_quotas(Arc::new(OwnLimits));
    for (tenant, limit) in [("big", 5), ("acme", 3)] {
        for number in 0..limit {
            create(&disks, &format!("{tenant}-{number}"), tenant, 1).await.unwrap();
        }
        let refused = create(&disks, &format!("{tenant}-more"), tenant, 1).await.unwrap_err();
        let expected = format!("tenant {tenant} may have {limit} disks, and has {limit}");
        assert_eq!(refused.to_string(), expected);
    }
}

#[tokio::test]
async fn nothing_is_counted_against_limits_that_are_not_known() {
    let disks = disks().with_quotas(Arc::new(OwnLimits));
    let refused = Status::from(create(&disks, "one", "unknown", 1).await.unwrap_err());
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert_eq!(refused.message(), "the limits of tenant unknown are not known: no answer");
    create(&disks, "one", "", 1).await.unwrap();
}

//! Subnets with ranges, and a clock of the test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nouns::Edit as _;
use runtime::Clock;
use store::memory::MemoryStore;
use store::{ScopedStore, Store};
use tinwright::address::v1 as pb;

use crate::Error;
use crate::grants::Grants;

pub(super) struct Bench {
    pub(super) grants: Grants,
    pub(super) clock: Clock,
    pub(super) store: Arc<dyn Store>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::over(Arc::new(MemoryStore::default()))
    }

    pub(super) fn over(store: Arc<dyn Store>) -> Self {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        let grants = Grants::new(ScopedStore::new(store.clone(), "address"), clock.clone());
        Self { grants, clock, store }
    }

    pub(super) async fn subnet(&self, name: &str, cidr: &str) -> pb::Subnet {
        self.create_subnet(pb::Subnet {
            name: name.into(),
            cidr: cidr.into(),
            ..Default::default()
        })
        .await
    }

    pub(super) async fn create_subnet(&self, subnet: pb::Subnet) -> pb::Subnet {
        self.grants.subnets.create(subnet, None).await.unwrap()
    }

    pub(super) async fn range(&self, subnet: &pb::Subnet, text: &str, bits: u32) -> pb::Range {
        self.try_range(subnet, text, bits, pb::RangeKind::Static).await.unwrap()
    }

    pub(super) async fn try_range(
        &self,
        subnet: &pb::Subnet,
        text: &str,
        prefix_length: u32,
        kind: pb::RangeKind,
    ) -> Result<pb::Range, Error> {
        let (first, last) = text.split_once('-').unwrap();
        let name = format!("r{}", first.replace(['.', ':'], "-").trim_end_matches('-'));
        let range = pb::Range {
            name,
            subnet_id: subnet.id.clone(),
            first: first.into(),
            last: last.into(),
            prefix_length,
            kind: kind.into(),
            ..pb::Range::default()
        };
        self.grants.ranges.create(range, None).await
    }

    pub(super) async fn grant(&self, wanted: pb::Grant) -> Result<pb::Grant, Error> {
        self.grants.create(wanted).await
    }

    pub(super) async fn release(&self, grant: &pb::Grant) {
        self.grants.release(grant.id.parse().unwrap(), 0, None).await.unwrap();
    }

    /// Moves the clock on, and frees the grants whose state has ended then.
    pub(super) async fn after(&self, minutes: u64) -> usize {
        self.clock.advance(Duration::from_secs(minutes * 60));
        self.grants.end_due().await.unwrap()
    }

    /// Returns the number of keys of each kind.
    pub(super) async fn content(&self) -> BTreeMap<String, usize> {
        let scoped = ScopedStore::new(self.store.clone(), "address");
        let (mut pages, mut found) = (scoped.pages(""), BTreeMap::new());
        while let Some(pairs) = pages.next().await.unwrap() {
            for (key, _) in pairs {
                let kind = key.split('/').next().unwrap().to_owned();
                *found.entry(kind).or_default() += 1;
            }
        }
        found
    }
}

/// Wants any block of a range.
pub(super) fn of_range(range: &pb::Range) -> pb::Grant {
    pb::Grant { range_id: range.id.clone(), ..pb::Grant::default() }
}

/// Wants this block.
pub(super) fn exactly(block: &str) -> pb::Grant {
    pb::Grant { block: block.into(), ..pb::Grant::default() }
}

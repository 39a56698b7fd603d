//! The migrations of BMC records: from the time when every BMC served Redfish, and from that when several could have one address.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost_types::Timestamp;
use store::records::{self, Index, Kind, Records};
use store::schema::Migration;
use store::{ScopedStore, Store};
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Redfish;
use tinwright::secret::Sealable;

use crate::address::Address;
use crate::stored::Bmc;

/// The records that are read at a time.
const PAGE_SIZE: usize = 500;

/// A BMC's record, with the former and the present fields.
#[derive(Clone, PartialEq, prost::Message)]
struct FormerBmc {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    labels: BTreeMap<String, String>,
    #[prost(int64, tag = "3")]
    revision: i64,
    #[prost(message, optional, tag = "4")]
    create_time: Option<Timestamp>,
    #[prost(message, optional, tag = "5")]
    update_time: Option<Timestamp>,
    #[prost(string, tag = "6")]
    hardware_id: String,
    #[prost(string, tag = "7")]
    redfish_url: String,
    #[prost(string, tag = "8")]
    system_id: String,
    #[prost(string, tag = "9")]
    username: String,
    #[prost(string, tag = "11")]
    certificate_sha256: String,
    #[prost(message, optional, tag = "12")]
    redfish: Option<Redfish>,
}

impl FormerBmc {
    fn is_https(&self) -> bool {
        self.redfish_url.starts_with("https:")
    }
}

// A BMC's password is in a record of its own.
impl Sealable for FormerBmc {}

tinwright::stored_record!(FormerBmc, "BMC", id);

impl Kind for FormerBmc {
    type Record = Self;
    type Id = tinwright::BmcId;
    const KIND: &'static str = "bmc";
    const INDEXES: &'static [&'static str] = &["hardware"];

    fn indexes(bmc: &Self) -> Vec<Index> {
        vec![Index::unique("hardware", &bmc.hardware_id)]
    }
}

/// Moves the address, the system and the certificate of each BMC into its field `redfish`.
pub fn name_the_protocol() -> Migration {
    Migration::new("name the protocol of BMCs", |store| async move {
        let migrated = migrate(store).await?;
        tracing::info!(records = migrated, "protocols of BMCs named");
        Ok(())
    })
}

async fn migrate(store: Arc<dyn Store>) -> Result<usize, records::Error> {
    let records = Records::<FormerBmc>::new(ScopedStore::new(store, "power"));
    let (mut after, mut migrated) = (String::new(), 0);
    loop {
        let page = records.list(&after, PAGE_SIZE, |_| true).await?;
        for old in page.records.iter().filter(|old| !old.redfish_url.is_empty()) {
            let mut new = old.clone();
            new.redfish = Some(Redfish {
                url: std::mem::take(&mut new.redfish_url),
                system_id: std::mem::take(&mut new.system_id),
                signed_by_root: old.certificate_sha256.is_empty() && old.is_https(),
                certificate_sha256: std::mem::take(&mut new.certificate_sha256),
                ..Redfish::default()
            });
            match records.commit(records.to_replace(old, &new)).await {
                Ok(_) => migrated += 1,
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

/// BMC records as they were indexed before their addresses were unique.
#[derive(Debug)]
enum UnclaimedBmc {}

impl Kind for UnclaimedBmc {
    type Record = pb::Bmc;
    type Id = tinwright::BmcId;
    const KIND: &'static str = Bmc::KIND;
    const INDEXES: &'static [&'static str] = &["hardware"];

    fn indexes(bmc: &pb::Bmc) -> Vec<Index> {
        vec![Index::unique("hardware", &bmc.hardware_id)]
    }

    fn warning(bmc: &pb::Bmc) -> &str {
        &bmc.warning
    }
}

/// Indexes the addresses of BMCs. Of several records that may have one machine all but the oldest
/// are marked, with an alarm: they stay as they are.
pub fn claim_addresses() -> Migration {
    Migration::new("index the addresses of BMCs", |store| async move {
        let store = ScopedStore::new(store, "power");
        let shared = mark_shared_addresses(&store).await?;
        let checked = Records::<Bmc>::new(store).check(true).await?;
        tracing::info!(records = checked.records, shared, "addresses of BMCs indexed");
        Ok(())
    })
}

/// Marks the records whose machine an earlier one may have, too. Returns their number.
async fn mark_shared_addresses(store: &ScopedStore) -> Result<usize, records::Error> {
    let records = Records::<UnclaimedBmc>::new(store.clone());
    let (mut after, mut marked) = (String::new(), 0);
    // The earlier records of each BMC without those that are marked: these hold no address.
    let mut holders = BTreeMap::<String, Vec<(Address, String)>>::new();
    loop {
        // In the order of their ids, which is that of their creation.
        let page = records.list(&after, PAGE_SIZE, |_| true).await?;
        for old in &page.records {
            let Some(address) = Address::of(old) else { continue };
            let earlier = holders.entry(address.endpoint_key()).or_default();
            let holder = earlier.iter().find(|(other, _)| other.may_share_machine(&address));
            let holder = holder.map(|(_, id)| id.clone());
            if holder.is_none() && !old.shares_address {
                earlier.push((address, old.id.clone()));
            }
            let Some(holder) = holder.filter(|_| !old.shares_address) else { continue };
            let warning = format!("BMC {holder} has the same address: one of them is wrong");
            let new = pb::Bmc { shares_address: true, warning, ..old.clone() };
            match records.commit(records.to_replace(old, &new)).await {
                Ok(_) => marked += 1,
                // Another process migrates the store, too.
                Err(records::Error::Changed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match page.next {
            Some(next) => after = next,
            None => return Ok(marked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bmcs::{Bmcs, PlaintextHttp};
    use runtime::Clock;
    use runtime::seal::Seal;
    use runtime::secret::SiteKey;
    use store::memory::MemoryStore;
    use store::{Commit, Write};
    use tinwright::power::v1::bmc::Protocol;
    use tinwright::{BmcId, HardwareId};

    #[tokio::test]
    async fn a_former_record_becomes_one_of_redfish_once() {
        let store = Arc::new(MemoryStore::default());
        let former = FormerBmc {
            id: BmcId::new().to_string(),
            labels: [("rack".to_owned(), "1".to_owned())].into(),
            hardware_id: HardwareId::new().to_string(),
            redfish_url: "https://192.0.2.1".into(),
            system_id: "node1".into(),
            username: "admin".into(),
            certificate_sha256: "ab".repeat(32),
            ..FormerBmc::default()
        };
        let value = prost::Message::encode_to_vec(&former);
        let key = format!("power/bmc/{}", former.id);
        let writes = vec![Write::Put(key, value.into())];
        store.commit(Commit { expect: Vec::new(), writes }).await.unwrap();

        assert_eq!(migrate(store.clone()).await.unwrap(), 1);
        assert_eq!(migrate(store.clone()).await.unwrap(), 0);

        let seal = Seal::new(&SiteKey::new([7; 32]), "bmc").unwrap();
        let bmcs = Bmcs::new(store, seal, PlaintextHttp::Refused, Clock::system());
        let bmc = bmcs.get(former.id.parse().unwrap()).await.unwrap();
        let redfish = Redfish {
            url: "https://192.0.2.1".into(),
            system_id: "node1".into(),
            certificate_sha256: "ab".repeat(32),
            signed_by_root: false,
            ..Redfish::default()
        };
        assert_eq!(bmc.protocol, Some(Protocol::Redfish(redfish)));
        assert_eq!((bmc.username, bmc.labels), (former.username, former.labels));
    }

    /// Stores a record for each URL and system, as it was before addresses were unique, and returns
    /// their ids. The third part is true for a record that an interrupted run has marked.
    async fn create_former(store: &ScopedStore, all: &[(&str, &str, bool)]) -> Vec<String> {
        let former = Records::<UnclaimedBmc>::new(store.clone());
        let mut ids: Vec<_> = all.iter().map(|_| BmcId::new().to_string()).collect();
        ids.sort();
        for ((url, system_id, shares_address), id) in all.iter().zip(&ids) {
            let redfish = Redfish {
                url: (*url).into(),
                system_id: (*system_id).into(),
                ..Redfish::default()
            };
            let bmc = pb::Bmc {
                id: id.clone(),
                hardware_id: HardwareId::new().to_string(),
                protocol: Some(Protocol::Redfish(redfish)),
                shares_address: *shares_address,
                ..pb::Bmc::default()
            };
            former.commit(former.to_create(&bmc)).await.unwrap();
        }
        ids
    }

    #[tokio::test]
    async fn of_records_that_may_have_one_machine_the_oldest_keeps_the_address() {
        let scoped = ScopedStore::new(Arc::new(MemoryStore::default()), "power");
        // Each with the earlier one that may have its machine.
        let all = [
            ("https://192.0.2.1", "", None),
            ("https://192.0.2.1", "", Some(0)),
            ("https://192.0.2.2", "", None),
            ("https://192.0.2.2", "1", Some(2)),
            ("https://192.0.2.3", "1", None),
            ("https://192.0.2.3", "2", None),
            ("https://192.0.2.3", "", Some(4)),
            ("https://192.0.2.4", "1", None),
            ("https://192.0.2.4", "", Some(7)),
            ("https://192.0.2.4", "2", None),
        ];
        let ids = create_former(&scoped, &all.map(|(url, system, _)| (url, system, false))).await;
        assert_eq!(mark_shared_addresses(&scoped).await.unwrap(), 4);
        assert_eq!(mark_shared_addresses(&scoped).await.unwrap(), 0, "it may be repeated");
        let records = Records::<Bmc>::new(scoped);
        records.check(true).await.unwrap();
        assert!(records.check(false).await.unwrap().is_clean());
        for ((url, system, earlier), id) in all.iter().zip(&ids) {
            let stored = records.require(id).await.unwrap();
            let is_marked =
                earlier.is_some_and(|earlier: usize| stored.warning.contains(&ids[earlier]));
            assert_eq!(
                (stored.shares_address, is_marked),
                (earlier.is_some(), earlier.is_some()),
                "{url} {system}"
            );
        }
    }

    #[tokio::test]
    async fn an_interrupted_run_is_repeated_with_the_same_result() {
        // Of one BMC, each with its mark after a complete run.
        let all = [("1", false), ("", true), ("2", false), ("1", true), ("", true), ("2", true)];
        for marked in 0..=4 {
            let mut left = marked;
            let former = all.map(|(system, is_marked)| {
                let is_marked_before = is_marked && left > 0;
                left -= usize::from(is_marked_before);
                ("https://192.0.2.1", system, is_marked_before)
            });
            let scoped = ScopedStore::new(Arc::new(MemoryStore::default()), "power");
            let ids = create_former(&scoped, &former).await;
            assert_eq!(mark_shared_addresses(&scoped).await.unwrap(), 4 - marked);
            let records = Records::<Bmc>::new(scoped);
            records.check(true).await.unwrap();
            assert!(records.check(false).await.unwrap().is_clean());
            for ((system, is_marked), id) in all.iter().zip(&ids) {
                let stored = records.require(id).await.unwrap();
                assert_eq!(stored.shares_address, *is_marked, "{marked} marked, {system:?}");
            }
        }
    }
}

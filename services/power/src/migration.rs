//! The migration of BMC records from the time when every BMC served Redfish.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost_types::Timestamp;
use store::records::{self, Index, Kind, Records};
use store::schema::Migration;
use store::{ScopedStore, Store};
use tinwright::power::v1::bmc::Redfish;
use tinwright::secret::Sealable;

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
        };
        assert_eq!(bmc.protocol, Some(Protocol::Redfish(redfish)));
        assert_eq!((bmc.username, bmc.labels), (former.username, former.labels));
    }
}

//! Everything in a store, read by the code of the services that own it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use prost_reflect::prost::Name;
use runtime::authority::SiteAuthority;
use runtime::seal::SealRing;
use serde_json::{Value, json};
use store::events::EventLog;
use store::records::{CheckReport, Kind, Records};
use store::seal::SealedStore;
use store::sled::Sled;
use store::{ScopedStore, Sealer, Store};
use tinwright::InstanceId;
use tinwright::Stored as _;
use tinwright::event::v1::EventFilter;
use tinwright::instance::v1::Instance;
use tinwright::netboot::v1::Lease;

use super::recording::base64;

/// Entries or records of a page.
const PAGE: usize = 500;
/// Parts of the keys whose values are texts.
const TEXTS: [&str; 7] = [
    "/retired/",
    "address/key/",
    "address/subnets",
    "address/usage/",
    "workflow/chunk/",
    "workflow/tail/",
    "-count/",
];
/// The beginning of the keys whose values are bits.
const BITS: &str = "address/chunk/";

/// The content of a store.
pub(crate) struct Content {
    store: Arc<dyn Store>,
    /// Records and other values by key, in readable form.
    pub(crate) values: BTreeMap<String, Value>,
    /// The checks of the indexes of all kinds.
    pub(crate) report: CheckReport,
    /// All keys.
    pub(crate) keys: Vec<String>,
}

impl Content {
    /// Reads the store in the data directory `data`, in which no program runs.
    pub(crate) async fn read(data: &Path) -> Self {
        let site = SiteAuthority::open(&data.join("secrets")).unwrap();
        let sealer = RecordSealer(SealRing::new(site.keys(), "record").unwrap());
        let store: Arc<dyn Store> = Arc::new(Sled::open(&data.join("store")).unwrap());
        let (values, report) = (BTreeMap::new(), CheckReport::default());
        let store = Arc::new(SealedStore::new(store, Arc::new(sealer)));
        let mut content = Self { store, values, report, keys: Vec::new() };
        content.read_records().await;
        content.read_others().await;
        content
    }

    async fn read_records(&mut self) {
        self.contract::<address::bindings::BindingKind>("address").await;
        self.contract::<address::claims::ClaimKind>("address").await;
        self.contract::<address::grants::GrantKind>("address").await;
        self.contract::<address::ranges::RangeKind>("address").await;
        self.contract::<address::subnets::SubnetKind>("address").await;
        self.contract::<hardware::acceptance::ModelKind>("hardware").await;
        self.contract::<hardware::place::LocationKind>("hardware").await;
        self.contract::<hardware::records::HardwareKind>("hardware").await;
        self.contract::<hardware::unknown_machines::UnknownMachineKind>("hardware").await;
        self.internal::<hardware::enrolments::EnrolmentLogKind>("hardware").await;
        self.contract::<identity::certificates::CertificateKind>("identity").await;
        self.contract::<identity::credentials::CredentialKind>("identity").await;
        self.contract::<identity::revocations::RevocationKind>("identity").await;
        self.contract::<identity::tenants::TenantKind>("identity").await;
        self.contract::<instance::instances::InstanceKind>("instance").await;
        self.contract::<DeletedKind>("instance").await;
        self.contract::<netboot::timeline::records::BootKind>("netboot").await;
        self.contract::<LeaseKind>("netboot").await;
        self.contract::<node::nodes::NodeKind>("node").await;
        self.contract::<node::stacks::StackKind>("node").await;
        self.internal::<node::mailbox::CallKind>("node").await;
        self.internal::<node::servers::ServerKind>("node").await;
        self.contract::<power::stored::Bmc>("power").await;
        self.contract::<power::stored::Job>("power").await;
        self.internal::<power::stored::Password>("power").await;
        self.internal::<power::stored::Queue>("power").await;
        self.contract::<workflow::templates::TemplateKind>("workflow").await;
        self.contract::<workflow::workflows::WorkflowKind>("workflow").await;
        self.internal::<workflow::boot_epochs::BootEpochKind>("workflow").await;
        self.internal::<workflow::logs::LogKind>("workflow").await;
        self.internal::<workflow::machine_enrolments::MachineEnrolmentKind>("workflow").await;
        self.internal::<workflow::worker_enrollment::SpentTokenKind>("workflow").await;
    }

    /// Reads records whose message is in the contract.
    async fn contract<K: Kind<Record: Name>>(&mut self, service: &str) {
        self.records::<K>(service, |record| tinwright::json::write(record).unwrap()).await;
    }

    /// Reads records whose message only the service has.
    async fn internal<K: Kind<Record: fmt::Debug>>(&mut self, service: &str) {
        self.records::<K>(service, |record| fields(&format!("{record:?}"))).await;
    }

    async fn records<K: Kind>(&mut self, service: &str, readable: impl Fn(&K::Record) -> Value) {
        let records = Records::<K>::new(ScopedStore::new(self.store.clone(), service));
        let (found, more) = records.page("", "", PAGE).await.unwrap();
        assert!(!more, "{service}/{}: more than {PAGE} records", K::KIND);
        for mut record in found {
            let key = format!("{service}/{}/{}", K::KIND, record.id());
            // A restore counts anew.
            *record.revision_mut() = 0;
            self.values.insert(key, readable(&record));
        }
        let report = std::mem::take(&mut self.report);
        self.report = report.and(records.check(false).await.unwrap());
    }

    async fn read_others(&mut self) {
        let pairs = self.store.list("", "", 10 * PAGE).await.unwrap();
        assert!(!pairs.more);
        for (key, found) in pairs.pairs {
            if TEXTS.iter().any(|part| key.contains(part)) {
                let text = std::str::from_utf8(&found.value).unwrap();
                self.values.insert(key.clone(), text.into());
            }
            if key.starts_with(BITS) {
                self.values.insert(key.clone(), base64(&found.value));
            }
            self.keys.push(key);
        }
        let owners = self.keys.iter().filter_map(|key| key.split_once("/event/"));
        let owners: Vec<_> = owners.map(|(owner, _)| owner.to_owned()).collect();
        for owner in owners {
            let log = EventLog::new(ScopedStore::new(self.store.clone(), &owner), &owner);
            let listing = log.list(&EventFilter::default(), "", 10 * PAGE).await.unwrap();
            assert!(listing.next.is_none());
            for event in listing.records {
                let key = format!("{owner}/event/{}", event.id);
                self.values.insert(key, tinwright::json::write(&event).unwrap());
            }
        }
    }

    /// Returns the keys that nothing has read, and that are no entries of indexes.
    pub(crate) fn unread(&self) -> Vec<&str> {
        let is_read = |key: &&str| self.values.contains_key(*key);
        let rest = self.keys.iter().map(String::as_str).filter(|key| !is_read(key));
        let has_reader =
            |key: &&str| key.contains("/request/") || ["restored", "schema", "site"].contains(key);
        rest.filter(|key| !has_reader(key)).collect()
    }

    /// Returns a line for the first value of each kind in each state.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let mut seen = BTreeSet::new();
        let mut is_first = |(key, value): &(&String, &Value)| {
            let kind: Vec<_> = key.split('/').take(2).map(str::to_owned).collect();
            seen.insert((kind, value["state"].to_string(), value["noun"].to_string()))
        };
        let line = |(key, value)| json!({"key": key, "value": value});
        self.values.iter().filter(|it| is_first(it)).map(line).collect()
    }
}

/// Returns the fields in the debug form of a record, by name. Those of nested messages are beside
/// them.
fn fields(debug: &str) -> Value {
    let (mut fields, mut name) = (serde_json::Map::new(), String::new());
    // What closes a list or an option stands behind the last field, which a newer program may add.
    let is_content = |part: &&str| !part.trim_matches([')', ']']).is_empty();
    for part in debug.split(['{', '}', ',']).map(str::trim).filter(is_content) {
        let is_name = |text: &str| text.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
        let value = match part.split_once(": ") {
            Some((field, value)) if is_name(field) => {
                field.clone_into(&mut name);
                value
            }
            _ => part,
        };
        let values = fields.entry(name.clone()).or_insert_with(|| json!([]));
        values.as_array_mut().unwrap().push(value.into());
    }
    fields.into()
}

/// Opens the secrets of records as the program does.
#[derive(Debug)]
struct RecordSealer(SealRing);

impl Sealer for RecordSealer {
    fn seal(&self, owner: &str, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.seal(owner, plain).ok()
    }

    fn unseal(&self, owner: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        Some(self.0.open(owner, sealed).ok()?.expose().clone())
    }
}

/// The kind of deleted instances, which the instance service shows to nobody.
#[derive(Debug)]
enum DeletedKind {}

impl Kind for DeletedKind {
    type Record = Instance;
    type Id = InstanceId;
    const KIND: &'static str = "deleted";
}

/// The kind of leases, which netboot shows to nobody.
#[derive(Debug)]
enum LeaseKind {}

impl Kind for LeaseKind {
    type Record = Lease;
    type Id = Ipv4Addr;
    const KIND: &'static str = "lease";
}

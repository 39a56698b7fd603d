//! Groups of instances that are spread over the values of a label.
//!
//! ```text
//! instance/spread/<group>/<value>/<id>      ─▶ id: an instance that counts there, while it occupies its machine
//! instance/spread_guard/<group>             changed by each order of the group
//! ```
//!
//! Group and value are digests: labels may have any text, and callers with a tenant do not see the
//! labels of machines.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use prost::Message as _;
use store::records::{self, Change};
use store::{Commit, Expect, Revision, Store as _, Write};
use tinwright::instance::v1 as pb;

use super::{Error, Instances, SPREAD};

/// Bytes of a digest that are used.
const DIGEST_BYTES: usize = 16;

/// A group as it was counted.
#[derive(Debug)]
pub(crate) struct Group {
    name: String,
    /// The revision of the guard key; none if no order has succeeded yet.
    guard: Option<Revision>,
    /// The numbers of instances by digest of the value.
    instances: BTreeMap<String, usize>,
}

/// The claim of an instance in its group: valid only if no other order of the group was committed since the group was counted.
#[derive(Debug)]
pub(crate) struct Spread {
    /// The group and the value, as `Instance.spread_claim` has them.
    pub(crate) claim: String,
    guard_key: String,
    guard: Option<Revision>,
}

impl Group {
    /// The number of instances on machines whose value has this digest.
    pub(crate) fn instances_with(&self, value: &str) -> usize {
        self.instances.get(value).copied().unwrap_or_default()
    }

    /// Returns the claim of an instance on a machine whose value has this digest.
    pub(crate) fn claim(self, value: &str) -> Spread {
        let Self { name, guard, instances: _ } = self;
        Spread { claim: format!("{name}/{value}"), guard_key: guard_key(&name), guard }
    }
}

impl Spread {
    /// Returns the change that belongs to the creation of the instance `id`. Fails if another order of the group was first.
    pub(crate) fn to_commit(&self, id: &str) -> Change {
        let key = self.guard_key.clone();
        let expect = match self.guard {
            Some(revision) => Expect::At(key.clone(), revision),
            None => Expect::Absent(key.clone()),
        };
        let writes = vec![Write::Put(key, id.to_owned().into())];
        Change::from(Commit { expect: vec![expect], writes })
    }
}

impl Instances {
    /// Counts the group of the instances of `tenant` with this placement.
    pub(crate) async fn spread_group(
        &self,
        tenant: &str,
        placement: &pb::Placement,
    ) -> Result<Group, Error> {
        let name = hex_digest(&[tenant.as_bytes(), b"\n", &placement.encode_to_vec()].concat());
        let store = self.records.store();
        let group = async {
            // The guard first: an order that is committed while the entries are read changes it.
            let guard = store.get(&guard_key(&name)).await?.map(|found| found.revision);
            let prefix = format!("{SPREAD}/{name}/");
            let (mut pages, mut instances) = (store.pages(&prefix), BTreeMap::new());
            while let Some(pairs) = pages.next().await? {
                for (key, _) in pairs {
                    let value = key.strip_prefix(&prefix).and_then(|rest| rest.split_once('/'));
                    let Some((value, _id)) = value else { continue };
                    *instances.entry(value.to_owned()).or_default() += 1;
                }
            }
            Ok::<_, store::Error>((guard, instances))
        };
        let (guard, instances) = group.await.map_err(records::Error::from)?;
        Ok(Group { name, guard, instances })
    }
}

fn guard_key(group: &str) -> String {
    format!("spread_guard/{group}")
}

/// Returns the digest of a label's value, in hex.
pub(crate) fn value_digest(value: &str) -> String {
    hex_digest(value.as_bytes())
}

fn hex_digest(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    digest.as_ref().iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

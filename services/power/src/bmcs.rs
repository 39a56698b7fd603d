//! The BMCs in the store: the visible fields in one record, the encrypted password in another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use prost_types::Timestamp;
use runtime::seal::Seal;
use runtime::secret::Secret;
use store::records::requests::IdempotentRequest;
use store::records::{Change, Kind as _, Listing, Records};
use store::{Commit, Expect, ScopedStore, Store};
use tinwright::field_mask;
use tinwright::power::v1 as pb;
use tinwright::status::Violations;
use tinwright::{BmcId, HardwareId};

use crate::Error;
use crate::check;
use crate::redfish::Target;
use crate::stored::{Bmc, Password, PasswordKind, QueueKind};

/// The rule for BMCs without TLS, whose passwords can be read on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaintextHttp {
    /// Only https.
    Refused,
    /// http as well, since the configuration allows it.
    Allowed,
}

/// Selects one BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The BMC with this id.
    Id(BmcId),
    /// The BMC of this machine.
    Hardware(HardwareId),
}

/// The BMCs.
#[derive(Clone, Debug)]
pub struct Bmcs {
    records: Records<Bmc>,
    passwords: Records<PasswordKind>,
    seal: Arc<Seal>,
    clear: PlaintextHttp,
}

impl Bmcs {
    /// The BMCs in `store`. Passwords are encrypted with `seal`, the site's of kind "bmc"; `clock` gives the times in records.
    pub fn new(store: Arc<dyn Store>, seal: Seal, clear: PlaintextHttp) -> Self {
        let store = ScopedStore::new(store, "power");
        let (records, passwords) = (Records::new(store.clone()), Records::new(store));
        Self { records, passwords, seal: Arc::new(seal), clear }
    }

    /// The records underneath.
    pub fn records(&self) -> &Records<Bmc> {
        &self.records
    }

    /// Adds a BMC. Repeating the same `request` answers as the first time.
    pub async fn create(
        &self,
        bmc: pb::Bmc,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Bmc, Error> {
        let mut bmc = newborn(check::normal(bmc, self.clear)?)?;
        let password = self.sealed(&bmc.id, &std::mem::take(&mut bmc.password))?;
        let beside = self.passwords.to_create(&password);
        Ok(self.records.create(&bmc, beside, request.as_ref()).await?)
    }

    /// Returns the selected BMC.
    pub async fn get(&self, by: By) -> Result<pb::Bmc, Error> {
        Ok(match by {
            By::Id(id) => self.records.require(&id.to_string()).await?,
            By::Hardware(id) => self.records.require_by("hardware", &id.to_string()).await?,
        })
    }

    /// Lists at most `limit` BMCs after the id `after` that have all of `labels`.
    pub async fn list(
        &self,
        after: &str,
        limit: usize,
        labels: &BTreeMap<String, String>,
    ) -> Result<Listing<pb::Bmc>, Error> {
        let has =
            |bmc: &pb::Bmc| labels.iter().all(|(key, value)| bmc.labels.get(key) == Some(value));
        Ok(self.records.list(after, limit, has).await?)
    }

    /// Replaces the fields of a BMC that `paths` names. An omitted password stays. If the URL changes, the password must be sent
    /// again: otherwise whoever changes the URL could have the stored password sent to another host.
    pub async fn update(&self, update: pb::Bmc, paths: &[String]) -> Result<pb::Bmc, Error> {
        let old = self.records.at(&update.id, update.revision).await?;
        let sealed = self.passwords.require(&old.id).await?;
        let named = paths.iter().any(|path| path == "password")
            || !update.password.is_empty() && paths.is_empty();
        let mut new = check::normal(field_mask::merge(&old, &update, paths)?, self.clear)?;
        if new.redfish_url != old.redfish_url && !named {
            return Err(Violations::single(
                "password",
                "is needed again where redfish_url changes",
            )
            .into());
        }
        let given = std::mem::take(&mut new.password);
        if new == old && !named {
            return Ok(old);
        }
        new.update_time = Some(Timestamp::from(SystemTime::now()));
        let mut change = self.records.to_replace(&old, &new);
        if named {
            change = change.and(self.passwords.to_replace(&sealed, &self.sealed(&old.id, &given)?));
        }
        new.revision = self.records.commit(change).await?.0.cast_signed();
        Ok(new)
    }

    /// Deletes a BMC that has no job.
    pub async fn delete(&self, id: BmcId, revision: i64) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        let queues = Records::<QueueKind>::new(self.records.store().clone());
        // A job that is created meanwhile changes the queue, so this commit fails; one created later finds no BMC.
        let idle = match queues.get(&old.hardware_id).await? {
            Some(queue) if !queue.job_ids.is_empty() => return Err(Error::Busy(old.hardware_id)),
            Some(left_behind) => queues.to_delete(&left_behind),
            None => {
                let absent = Expect::Absent(format!("{}/{}", QueueKind::KIND, old.hardware_id));
                Change::from(Commit { expect: vec![absent], writes: Vec::new() })
            }
        };
        let sealed = self.passwords.require(&old.id).await?;
        let gone = self.records.to_delete(&old).and(self.passwords.to_delete(&sealed));
        self.records.commit(gone.and(idle)).await?;
        Ok(())
    }

    /// Returns the address and the credentials of `bmc`.
    pub async fn target(&self, bmc: &pb::Bmc) -> Result<Target, Error> {
        let sealed = self.passwords.require(&bmc.id).await?;
        let password = self.seal.open(&bmc.id, &sealed.sealed)?;
        Ok(Target {
            url: bmc.redfish_url.clone(),
            system: bmc.system_id.clone(),
            username: bmc.username.clone(),
            password: Secret::new(String::from_utf8_lossy(password.expose()).into_owned()),
            certificate: check::digest(&bmc.certificate_sha256),
        })
    }

    fn sealed(&self, id: &str, password: &str) -> Result<Password, Error> {
        let sealed = self.seal.seal(id, password.as_bytes())?;
        Ok(Password { id: id.to_owned(), revision: 0, sealed })
    }
}

/// Returns a record as it is first stored.
fn newborn(mut bmc: pb::Bmc) -> Result<pb::Bmc, Violations> {
    let id = match bmc.id.as_str() {
        "" => BmcId::new(),
        given => given.parse().map_err(|reason| Violations::single("id", reason))?,
    };
    bmc.id = id.to_string();
    bmc.revision = 0;
    bmc.create_time = Some(Timestamp::from(SystemTime::now()));
    bmc.update_time = bmc.create_time;
    Ok(bmc)
}

#[cfg(test)]
mod tests;

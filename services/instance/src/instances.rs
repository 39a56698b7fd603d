//! The instances, as the store keeps them.
//!
//! ```text
//! instance/record/<id>                 the record, secrets included; gone when the machine is given back
//! instance/occupant/<hardware id>      ─▶ id: the claim on the machine, while the instance occupies it
//! instance/address/<address>           ─▶ id: the same for its addresses
//! instance/request/<request id>        what was answered, for a week
//! ```
//!
//! A claim comes and goes in the commit of the record that says so: two who want one machine are told apart by the store.

pub mod heard;
mod transition;
mod update;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use prost_types::Timestamp;
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, CheckReport, Index, Kind, Listing, Records};
use store::{ScopedStore, Store};
use tinwright::instance::v1 as pb;
use tinwright::status::Violations;
use tinwright::{HardwareId, InstanceId};

use crate::check;
use crate::state::{Event, Illegal, State, UnknownState};

use self::heard::{Call, Script};
pub use self::transition::after;

/// How often a change is made anew when somebody else's came before it.
const TRIES: usize = 8;

/// Why a request about instances failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// The instance's state does not allow it.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// A create asks for another first state.
    #[error("an instance begins queued, not {}", .0.word())]
    NotQueued(pb::State),
    /// The machine is being taken back from the instance, which changes no more.
    #[error("instance {0} is being deleted")]
    Leaving(String),
    /// The machine that called home takes itself for an instance that does not occupy it.
    #[error("hardware {hardware} is not occupied by instance {instance}")]
    NotOccupant {
        /// Which machine called.
        hardware: HardwareId,
        /// What it takes itself for.
        instance: InstanceId,
    },
    /// What is stored is in a state that this version does not know.
    #[error(transparent)]
    Unknown(#[from] UnknownState),
    /// The system has no random numbers to give.
    #[error("no random numbers")]
    NoRandomness,
    /// There is no such record, it is not as the caller saw it, or it cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

impl Error {
    /// Whether somebody else's change came first: reading again helps.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Records(records::Error::Changed { .. }))
    }
}

/// The kind of these records.
#[derive(Debug)]
pub enum Occupancy {}

impl Kind for Occupancy {
    type Record = pb::Instance;
    const NOUN: &'static str = "instance";
    const KIND: &'static str = "record";
    const INDEXES: &'static [&'static str] = &["occupant", "address"];

    fn id(instance: &pb::Instance) -> &str {
        &instance.id
    }

    fn revision_mut(instance: &mut pb::Instance) -> &mut i64 {
        &mut instance.revision
    }

    fn indexes(instance: &pb::Instance) -> Vec<Index> {
        if instance.released {
            return Vec::new();
        }
        let addresses = instance.ips.iter().map(|ip| Index::unique("address", &ip.address));
        addresses.chain([Index::unique("occupant", &instance.hardware_id)]).collect()
    }
}

/// Which instance is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The one with this id.
    Id(InstanceId),
    /// The one that occupies this machine.
    Hardware(HardwareId),
    /// The one that has this address, in canonical form.
    Address(String),
}

/// The instances.
#[derive(Clone, Debug)]
pub struct Instances {
    records: Records<Occupancy>,
}

impl Instances {
    /// Those kept in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { records: Records::new(ScopedStore::new(store, "instance")) }
    }

    /// The records underneath.
    pub fn records(&self) -> &Records<Occupancy> {
        &self.records
    }

    /// Adds an instance, and with it the claim on its machine. Repeating the same `request` answers as the first time.
    pub async fn create(
        &self,
        instance: pb::Instance,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Instance, Error> {
        let instance = newborn(check::normal(instance)?)?;
        Ok(self.records.create(&instance, Change::default(), request.as_ref()).await?)
    }

    /// The instance that is meant. By machine or address it is one read of an index and one of the record.
    pub async fn get(&self, by: &By) -> Result<pb::Instance, Error> {
        Ok(match by {
            By::Id(id) => self.records.require(&id.to_string()).await?,
            By::Hardware(id) => self.records.require_by("occupant", &id.to_string()).await?,
            By::Address(address) => self.records.require_by("address", address).await?,
        })
    }

    /// At most `limit` instances after the id `after` that have all of `labels`.
    pub async fn list(
        &self,
        after: &str,
        limit: usize,
        labels: &BTreeMap<String, String>,
    ) -> Result<Listing<pb::Instance>, Error> {
        let has = |instance: &pb::Instance| {
            labels.iter().all(|(key, value)| instance.labels.get(key) == Some(value))
        };
        Ok(self.records.list(after, limit, has).await?)
    }

    /// Replaces the fields of an instance that `paths` names.
    pub async fn update(
        &self,
        update: pb::Instance,
        paths: &[String],
    ) -> Result<pb::Instance, Error> {
        let merged = |old: &pb::Instance| {
            if State::try_from(old)?.leaves() {
                return Err(Error::Leaving(old.id.clone()));
            }
            Ok(check::normal(update::merged(old, &update, paths)?)?)
        };
        self.change(&update.id, update.revision, merged).await
    }

    /// Begins to give the machine back; with `force`, as it is. Answers the instance as it begins to go.
    pub async fn delete(
        &self,
        id: InstanceId,
        revision: i64,
        force: bool,
    ) -> Result<pb::Instance, Error> {
        let deleted = |old: &pb::Instance| {
            let mut new = after(old, Event::Delete, "", SystemTime::now())?;
            new.forced |= force;
            Ok(new)
        };
        self.change(&id.to_string(), revision, deleted).await
    }

    /// Begins anew what failed. Where that has been done already, nothing is to do.
    pub async fn retry(&self, id: InstanceId) -> Result<pb::Instance, Error> {
        let retried = |old: &pb::Instance| after(old, Event::Retry, "", SystemTime::now());
        self.change(&id.to_string(), 0, retried).await
    }

    /// Notes that `hardware` called home, the first time in this generation. Once the machine is being taken back, or before
    /// anything was done to it, a call says nothing that is worth keeping.
    pub async fn phone_home(
        &self,
        hardware: HardwareId,
        instance: Option<InstanceId>,
        call: &Call,
    ) -> Result<(), Error> {
        self.hear(hardware, instance, |old| call.after(old, SystemTime::now())).await
    }

    /// Notes what became of the script that `instance` brings for `hardware`.
    pub async fn script(
        &self,
        hardware: HardwareId,
        instance: InstanceId,
        script: Script,
    ) -> Result<(), Error> {
        self.hear(hardware, Some(instance), |old| script.after(old, SystemTime::now())).await
    }

    /// Makes a change to what occupies `hardware`, which has to be `instance` if that is said.
    async fn hear(
        &self,
        hardware: HardwareId,
        instance: Option<InstanceId>,
        change: impl Fn(&pb::Instance) -> Result<pb::Instance, UnknownState>,
    ) -> Result<(), Error> {
        let occupant = self.get(&By::Hardware(hardware)).await?;
        if let Some(instance) = instance
            && instance.to_string() != occupant.id
        {
            return Err(Error::NotOccupant { hardware, instance });
        }
        self.change(&occupant.id, 0, |old| Ok(change(old)?)).await?;
        Ok(())
    }

    /// Moves `old` on by `event`, for `reason`, with what `more` changes besides. Fails where it is no longer as it was
    /// read.
    pub async fn advance(
        &self,
        old: &pb::Instance,
        event: Event,
        reason: &str,
        more: impl FnOnce(&mut pb::Instance),
    ) -> Result<pb::Instance, Error> {
        let mut new = after(old, event, reason, SystemTime::now())?;
        more(&mut new);
        self.put(old, new).await
    }

    /// Puts `new` in the place of `old`, or removes it where it is gone, claims, secrets and all.
    pub async fn put(
        &self,
        old: &pb::Instance,
        mut new: pb::Instance,
    ) -> Result<pb::Instance, Error> {
        if new.state() == pb::State::Deleted {
            self.records.commit(self.records.to_delete(old)).await?;
            return Ok(new);
        }
        if *old != new {
            new.update_time = Some(Timestamp::from(SystemTime::now()));
        }
        Ok(self.records.replace(old, new).await?)
    }

    /// Whether records and claims agree; with `mend`, making them.
    pub async fn check(&self, mend: bool) -> Result<CheckReport, Error> {
        Ok(self.records.check(mend).await?)
    }

    /// Makes a change to an instance; to the newest, where the caller named no `revision` and somebody else came first.
    async fn change(
        &self,
        id: &str,
        revision: i64,
        change: impl Fn(&pb::Instance) -> Result<pb::Instance, Error>,
    ) -> Result<pb::Instance, Error> {
        let mut tries = TRIES;
        loop {
            let old = self.records.at(id, revision).await?;
            tries -= 1;
            match self.put(&old, change(&old)?).await {
                Err(error) if error.is_stale() && revision == 0 && tries > 0 => {}
                done => return done,
            }
        }
    }
}

/// A record as it is first stored: what only the server writes is at its beginning, whatever was sent.
fn newborn(given: pb::Instance) -> Result<pb::Instance, Error> {
    if !matches!(given.state(), pb::State::Unspecified | pb::State::Queued) {
        return Err(Error::NotQueued(given.state()));
    }
    let id = match given.id.as_str() {
        "" => InstanceId::new(),
        id => id.parse().map_err(|reason| Violations::single("id", reason))?,
    };
    let now = Some(Timestamp::from(SystemTime::now()));
    let mut instance = pb::Instance {
        id: id.to_string(),
        revision: 0,
        create_time: now,
        update_time: now,
        workflow_ids: Vec::new(),
        state_reason: String::new(),
        generation: 1,
        phone_home_time: None,
        script_time: None,
        host_keys: Vec::new(),
        workflow_id: String::new(),
        begin_time: None,
        install_time: None,
        forced: false,
        lookup_id: lookup_id()?,
        ..given
    };
    State::Queued.write(&mut instance);
    Ok(instance)
}

/// 128 random bits in hex.
fn lookup_id() -> Result<String, Error> {
    let mut bits = [0; 16];
    aws_lc_rs::rand::fill(&mut bits).map_err(|_| Error::NoRandomness)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bits)))
}

#[cfg(test)]
mod tests;

//! The machines, as the store keeps them.
//!
//! ```text
//! hardware/record/<id>        the record
//! hardware/name/<name>        ─▶ id      hardware/mac/<mac> ─▶ id      hardware/address/<address> ─▶ id
//! hardware/request/<id>       what was answered, for a week
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use prost_types::Timestamp;
use store::records::requests::{Known, Request};
use store::records::{self, Change, Index, Kind, Records, Report};
use store::{Handle, Store};
use tinwright::fault::Violations;
use tinwright::hardware::v1 as pb;
use tinwright::{HardwareId, Mac};

use crate::check;
use crate::state::{Illegal, NoState, State};

/// How many records a filtered listing looks through before it answers with what it has.
const SCANNED: usize = 2000;

/// Why a request about machines failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// There is no such machine.
    #[error("hardware {0} not found")]
    NotFound(String),
    /// There is a machine with this id.
    #[error("hardware {0} is there already")]
    Exists(String),
    /// Another machine has it.
    #[error("{index} {value} is taken by hardware {by}")]
    Taken {
        /// What of it: `name`, `mac`, `address`.
        index: String,
        /// Its value.
        value: String,
        /// Whose it is.
        by: String,
    },
    /// The request id was used for another request.
    #[error("request_id {0} was used for another request")]
    Reused(String),
    /// The machine is not at the revision the caller saw.
    #[error("hardware {0} was changed meanwhile")]
    Changed(String),
    /// The machine's state does not lead there.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// The records cannot be read or written.
    #[error("hardware records")]
    Records(#[from] records::Error),
}

/// The kind of these records.
#[derive(Debug)]
pub enum Machine {}

impl Kind for Machine {
    type Record = pb::Hardware;
    const KIND: &'static str = "record";
    const INDEXES: &'static [&'static str] = &["name", "mac", "address"];

    fn id(hardware: &pb::Hardware) -> &str {
        &hardware.id
    }

    fn revision_mut(hardware: &mut pb::Hardware) -> &mut i64 {
        &mut hardware.revision
    }

    fn indexes(hardware: &pb::Hardware) -> Vec<Index> {
        let name = Some(&hardware.name).filter(|name| !name.is_empty());
        let interfaces = &hardware.interfaces;
        name.map(|name| Index::unique("name", name))
            .into_iter()
            .chain(interfaces.iter().map(|interface| Index::unique("mac", &interface.mac)))
            .chain(
                interfaces.iter().filter_map(check::address).map(|a| Index::unique("address", a)),
            )
            .collect()
    }
}

/// Which machine is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The one with this id.
    Id(HardwareId),
    /// The one with this MAC.
    Mac(Mac),
    /// The one with this address, in canonical form.
    Address(String),
}

/// Part of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// Machines in id order.
    pub machines: Vec<pb::Hardware>,
    /// After which id the next part begins, if there is one.
    pub next: Option<String>,
}

/// The machines.
#[derive(Clone, Debug)]
pub struct Machines {
    records: Records<Machine>,
}

impl Machines {
    /// Those kept in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { records: Records::new(Handle::new(store, "hardware")) }
    }

    /// The records underneath.
    pub fn records(&self) -> &Records<Machine> {
        &self.records
    }

    /// Adds a machine. Repeating the same `request` answers as the first time.
    pub async fn create(
        &self,
        hardware: pb::Hardware,
        request: Option<Request>,
    ) -> Result<pb::Hardware, Error> {
        let hardware = newborn(check::normal(hardware)?)?;
        if let Some(made) = self.answered(request.as_ref()).await? {
            return Ok(made);
        }
        let done = request.as_ref().map(|request| request.done(&hardware.id, SystemTime::now()));
        let change = self.records.to_create(&hardware).and(done.unwrap_or_default());
        match self.commit(change).await {
            Ok(()) => self.require(&hardware.id).await,
            // The same request may have been carried out meanwhile: that is what is in the way.
            Err(clash @ (Error::Exists(_) | Error::Taken { .. } | Error::Changed(_))) => {
                self.answered(request.as_ref()).await?.ok_or(clash)
            }
            Err(error) => Err(error),
        }
    }

    /// What `request` was answered before.
    async fn answered(&self, request: Option<&Request>) -> Result<Option<pb::Hardware>, Error> {
        let Some(request) = request else { return Ok(None) };
        match request.known(self.records.store()).await? {
            Known::New => Ok(None),
            Known::Done(id) => self.require(&id).await.map(Some),
            Known::Reused => Err(Error::Reused(request.id().to_owned())),
        }
    }

    /// The machine that is meant.
    pub async fn get(&self, by: &By) -> Result<pb::Hardware, Error> {
        let (found, name) = match by {
            By::Id(id) => (self.records.get(&id.to_string()).await?, id.to_string()),
            By::Mac(mac) => (self.records.find("mac", &mac.to_string()).await?, mac.to_string()),
            By::Address(address) => (self.records.find("address", address).await?, address.clone()),
        };
        found.ok_or(Error::NotFound(name))
    }

    /// At most `limit` machines after the id `after` that have all of `labels`. A filter that matches little ends a part
    /// early; only [`Listing::next`] tells the end.
    pub async fn list(
        &self,
        after: &str,
        limit: usize,
        labels: &BTreeMap<String, String>,
    ) -> Result<Listing, Error> {
        let (mut machines, mut last, mut looked) = (Vec::new(), after.to_owned(), 0);
        loop {
            let (found, more) = self.records.page(&last, limit - machines.len()).await?;
            looked += found.len();
            last = found.last().map_or(last, |machine| machine.id.clone());
            machines.extend(found.into_iter().filter(|machine| {
                labels.iter().all(|(key, value)| machine.labels.get(key) == Some(value))
            }));
            if !more || machines.len() == limit || looked >= SCANNED {
                return Ok(Listing { machines, next: more.then_some(last) });
            }
        }
    }

    /// Replaces the fields of a machine that `paths` names.
    pub async fn update(
        &self,
        update: pb::Hardware,
        paths: &[String],
    ) -> Result<pb::Hardware, Error> {
        let old = self.at(&update.id, update.revision).await?;
        let new = touched(check::normal(merged(&old, update, paths)?)?);
        self.commit(self.records.to_replace(&old, &new)).await?;
        self.require(&old.id).await
    }

    /// Moves a machine to another state of its own. There is nothing to write where it is there already.
    pub async fn set_state(
        &self,
        id: HardwareId,
        to: State,
        reason: String,
        revision: i64,
    ) -> Result<pb::Hardware, Error> {
        let old = self.at(&id.to_string(), revision).await?;
        let state = state(&old)?.after(to)?;
        let new = pb::Hardware {
            state: pb::State::from(state).into(),
            state_reason: reason,
            ..old.clone()
        };
        if new == old {
            return Ok(old);
        }
        self.commit(self.records.to_replace(&old, &touched(new))).await?;
        self.require(&old.id).await
    }

    /// Removes a machine.
    pub async fn delete(&self, id: HardwareId, revision: i64) -> Result<(), Error> {
        let old = self.at(&id.to_string(), revision).await?;
        self.commit(self.records.to_delete(&old)).await
    }

    /// Whether records and indexes agree; with `mend`, making them.
    pub async fn check(&self, mend: bool) -> Result<Report, Error> {
        Ok(self.records.check(mend).await?)
    }

    async fn require(&self, id: &str) -> Result<pb::Hardware, Error> {
        self.records.get(id).await?.ok_or_else(|| Error::NotFound(id.to_owned()))
    }

    /// The machine `id`, at `revision` if that is not 0.
    async fn at(&self, id: &str, revision: i64) -> Result<pb::Hardware, Error> {
        let found = self.require(id).await?;
        if revision == 0 || revision == found.revision {
            Ok(found)
        } else {
            Err(Error::Changed(id.to_owned()))
        }
    }

    async fn commit(&self, change: Change) -> Result<(), Error> {
        match self.records.commit(change).await {
            Ok(_) => Ok(()),
            Err(records::Error::Taken { index, value }) => {
                let by = self.records.owner(&index, &value).await?.unwrap_or_default();
                Err(Error::Taken { index, value, by })
            }
            Err(records::Error::Exists(id)) => Err(Error::Exists(id)),
            Err(records::Error::Changed(id)) => Err(Error::Changed(id)),
            Err(error @ records::Error::Store(_)) => Err(error.into()),
        }
    }
}

/// A record as it is first stored.
fn newborn(mut hardware: pb::Hardware) -> Result<pb::Hardware, Error> {
    let id = match hardware.id.as_str() {
        "" => HardwareId::new(),
        given => given.parse().map_err(|reason| Violations::one("id", reason))?,
    };
    hardware.id = id.to_string();
    hardware.revision = 0;
    let state = match hardware.state() {
        pb::State::Unspecified | pb::State::Enrolled => State::Enrolled,
        pb::State::Provisionable => State::Provisionable,
        pb::State::Failed | pb::State::Maintenance | pb::State::Deleting => {
            return Err(Violations::one("state", "is neither enrolled nor provisionable").into());
        }
    };
    hardware.state = pb::State::from(state).into();
    hardware.state_reason = String::new();
    hardware.create_time = Some(Timestamp::from(SystemTime::now()));
    hardware.update_time = hardware.create_time;
    Ok(hardware)
}

fn touched(hardware: pb::Hardware) -> pb::Hardware {
    pb::Hardware { update_time: Some(Timestamp::from(SystemTime::now())), ..hardware }
}

fn state(hardware: &pb::Hardware) -> Result<State, Error> {
    hardware.state().try_into().map_err(|reason: NoState| Violations::one("state", reason).into())
}

/// `old` with the fields that `paths` names, or every mutable one, from `update`.
fn merged(
    old: &pb::Hardware,
    update: pb::Hardware,
    paths: &[String],
) -> Result<pb::Hardware, Violations> {
    const MUTABLE: [&str; 11] = [
        "name",
        "labels",
        "agent_id",
        "facility",
        "plan",
        "manufacturer",
        "architecture",
        "interfaces",
        "disks",
        "policy",
        "extra",
    ];
    let mut new = old.clone();
    let all = MUTABLE.map(str::to_owned);
    let mut wrong = Violations::default();
    let paths = if paths.is_empty() { &all[..] } else { paths };
    for path in paths {
        match path.as_str() {
            "name" => new.name.clone_from(&update.name),
            "labels" => new.labels.clone_from(&update.labels),
            "agent_id" => new.agent_id.clone_from(&update.agent_id),
            "facility" => new.facility.clone_from(&update.facility),
            "plan" => new.plan.clone_from(&update.plan),
            "manufacturer" => new.manufacturer.clone_from(&update.manufacturer),
            "architecture" => new.architecture.clone_from(&update.architecture),
            "interfaces" => new.interfaces.clone_from(&update.interfaces),
            "disks" => new.disks.clone_from(&update.disks),
            "policy" => new.policy.clone_from(&update.policy),
            "extra" => new.extra.clone_from(&update.extra),
            other => wrong.add("update_mask", format!("{other:?} is no field that can be updated")),
        }
    }
    wrong.or(new)
}

#[cfg(test)]
mod tests;

//! The machines, as the store keeps them.
//!
//! ```text
//! hardware/record/<id>        the record
//! hardware/name/<name>        ─▶ id      hardware/mac/<mac> ─▶ id      hardware/address/<address> ─▶ id
//! hardware/relay_port/<link>,<remote>,<circuit>   ─▶ id
//! hardware/request/<id>       what was answered, for a week
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use prost_types::Timestamp;
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Index, Kind, Listing, Records};
use store::{ScopedStore, Store};
use tinwright::field_mask;
use tinwright::hardware::v1 as pb;
use tinwright::status::Violations;
use tinwright::{HardwareId, Mac};

use crate::check;
use crate::hidden;
use crate::occupancy::Occupancy;
use crate::state::{Illegal, NoState, State};

/// Why a request about machines failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// The machine's state does not lead there.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// An instance occupies the machine.
    #[error("hardware {id} is occupied by instance {by}: delete that first")]
    Occupied {
        /// The machine.
        id: String,
        /// The instance.
        by: String,
    },
    /// Nobody can say whether an instance occupies the machine.
    #[error("the instance service did not answer")]
    Unasked(#[source] Box<tonic::Status>),
    /// There is no such record, it is not as the caller saw it, or it cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

/// The kind of these records.
#[derive(Debug)]
pub enum Machine {}

impl Kind for Machine {
    type Record = pb::Hardware;
    const NOUN: &'static str = "hardware";
    const KIND: &'static str = "record";
    const INDEXES: &'static [&'static str] = &["name", "mac", "address", "relay_port"];

    fn id(hardware: &pb::Hardware) -> &str {
        &hardware.id
    }

    fn revision_mut(hardware: &mut pb::Hardware) -> &mut i64 {
        &mut hardware.revision
    }

    fn indexes(hardware: &pb::Hardware) -> Vec<Index> {
        let name = Some(&hardware.name).filter(|name| !name.is_empty());
        let interfaces = || hardware.interfaces.iter();
        let macs = interfaces().map(|interface| Index::unique("mac", &interface.mac));
        let addresses = interfaces().filter_map(check::address);
        let ports = interfaces().filter_map(check::relay_port);
        name.map(|name| Index::unique("name", name))
            .into_iter()
            .chain(macs)
            .chain(addresses.map(|address| Index::unique("address", address)))
            .chain(ports.map(|port| Index::unique("relay_port", port)))
            .collect()
    }
}

/// Which machine is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The one with this id.
    Id(HardwareId),
    /// The one with this name, in lower case.
    Name(String),
    /// The one with this MAC.
    Mac(Mac),
    /// The one with this address, in canonical form.
    Address(String),
}

/// The machines.
#[derive(Clone, Debug)]
pub struct Machines {
    records: Records<Machine>,
}

impl Machines {
    /// Those kept in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { records: Records::new(ScopedStore::new(store, "hardware")) }
    }

    /// The records underneath.
    pub fn records(&self) -> &Records<Machine> {
        &self.records
    }

    /// Adds a machine. Repeating the same `request` answers as the first time.
    pub async fn create(
        &self,
        hardware: pb::Hardware,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Hardware, Error> {
        let hardware = newborn(check::normal(hardware)?)?;
        Ok(self.records.create(&hardware, Change::default(), request.as_ref()).await?)
    }

    /// The machine that is meant.
    pub async fn get(&self, by: &By) -> Result<pb::Hardware, Error> {
        Ok(match by {
            By::Id(id) => self.records.require(&id.to_string()).await?,
            By::Name(name) => self.records.require_by("name", name).await?,
            By::Mac(mac) => self.records.require_by("mac", &mac.to_string()).await?,
            By::Address(address) => self.records.require_by("address", address).await?,
        })
    }

    /// At most `limit` machines after the id `after` that have all of `labels`.
    pub async fn list(
        &self,
        after: &str,
        limit: usize,
        labels: &BTreeMap<String, String>,
    ) -> Result<Listing<pb::Hardware>, Error> {
        let has = |machine: &pb::Hardware| {
            labels.iter().all(|(key, value)| machine.labels.get(key) == Some(value))
        };
        Ok(self.records.list(after, limit, has).await?)
    }

    /// Replaces the fields of a machine that `paths` names.
    pub async fn update(
        &self,
        update: pb::Hardware,
        paths: &[String],
    ) -> Result<pb::Hardware, Error> {
        let old = self.records.at(&update.id, update.revision).await?;
        let mut new = field_mask::merge(&old, &update, paths)?;
        if paths.is_empty() {
            hidden::keep(&old, &mut new);
        }
        let new = touched(check::normal(new)?);
        Ok(self.records.replace(&old, new).await?)
    }

    /// Moves a machine to another state of its own. There is nothing to write where it is there already.
    pub async fn set_state(
        &self,
        id: HardwareId,
        to: State,
        reason: String,
        revision: i64,
    ) -> Result<pb::Hardware, Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        let state = pb::State::from(state(&old)?.after(to)?).into();
        if (state, &reason) == (old.state, &old.state_reason) {
            return Ok(old);
        }
        let new = touched(pb::Hardware { state, state_reason: reason, ..old.clone() });
        Ok(self.records.replace(&old, new).await?)
    }

    /// Removes a machine, unless something occupies it. It is marked first, so that nothing new can take it while the
    /// question is asked; whoever claimed it before is found.
    pub async fn delete(
        &self,
        id: HardwareId,
        revision: i64,
        occupancy: &Occupancy,
    ) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        let before = state(&old)?;
        let marked = self.records.replace(&old, moved(&old, State::Deleting)).await?;
        match occupancy.occupant(&old.id).await {
            Ok(None) => {
                self.records.commit(self.records.to_delete(&marked)).await?;
                Ok(())
            }
            answer => {
                self.records.replace(&marked, moved(&marked, State::kept(before))).await?;
                Err(match answer {
                    Ok(by) => Error::Occupied { id: old.id, by: by.unwrap_or_default() },
                    Err(status) => Error::Unasked(Box::new(status)),
                })
            }
        }
    }
}

/// A record as it is first stored.
fn newborn(mut hardware: pb::Hardware) -> Result<pb::Hardware, Error> {
    let id = match hardware.id.as_str() {
        "" => HardwareId::new(),
        given => given.parse().map_err(|reason| Violations::single("id", reason))?,
    };
    hardware.id = id.to_string();
    hardware.revision = 0;
    let state = match hardware.state() {
        pb::State::Unspecified | pb::State::Enrolled => State::Enrolled,
        pb::State::Provisionable => State::Provisionable,
        pb::State::Failed | pb::State::Maintenance | pb::State::Deleting => {
            return Err(Violations::single("state", "is neither enrolled nor provisionable").into());
        }
    };
    hardware.state = pb::State::from(state).into();
    hardware.state_reason = String::new();
    hardware.create_time = Some(Timestamp::from(SystemTime::now()));
    hardware.update_time = hardware.create_time;
    Ok(hardware)
}

fn moved(hardware: &pb::Hardware, to: State) -> pb::Hardware {
    let state = pb::State::from(to).into();
    if hardware.state == state {
        return hardware.clone();
    }
    touched(pb::Hardware { state, ..hardware.clone() })
}

fn touched(hardware: pb::Hardware) -> pb::Hardware {
    pb::Hardware { update_time: Some(Timestamp::from(SystemTime::now())), ..hardware }
}

fn state(hardware: &pb::Hardware) -> Result<State, Error> {
    hardware
        .state()
        .try_into()
        .map_err(|reason: NoState| Violations::single("state", reason).into())
}

#[cfg(test)]
mod tests;

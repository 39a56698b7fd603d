//! The machines in the store.
//!
//! ```text
//! hardware/record/<id>        the record
//! hardware/name/<name>        ─▶ id      hardware/mac/<mac> ─▶ id      hardware/address/<address> ─▶ id
//! hardware/relay_port/<link>,<remote>,<circuit>   ─▶ id
//! hardware/request/<id>       the result of a request, for a week
//! ```

use std::sync::Arc;
use std::time::SystemTime;

use runtime::Clock;
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Index, Kind, Records};
use store::{ScopedStore, Store};
use tinwright::field_mask;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::State;
use tinwright::status::Violations;
use tinwright::{HardwareId, Object as _};

use crate::check;
use crate::occupancy::Occupancy;
use crate::scripts;
use crate::state::{self, IllegalStateChange};

/// A failed request about machines.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request has invalid fields.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// The machine's state does not allow the change.
    #[error(transparent)]
    Illegal(#[from] IllegalStateChange),
    /// An instance occupies the machine.
    #[error("hardware {id} is occupied by instance {by}: delete that first")]
    Occupied {
        /// The machine.
        id: String,
        /// The instance.
        by: String,
    },
    /// The instance service could not be asked for the machine's occupant.
    #[error("the instance service did not answer")]
    OccupantUnknown(#[source] Box<tonic::Status>),
    /// The record is missing, has changed, or cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

/// The kind of hardware records.
#[derive(Debug)]
pub enum HardwareKind {}

impl Kind for HardwareKind {
    type Record = pb::Hardware;
    type Id = HardwareId;
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

/// The machines of the site.
#[derive(Clone, Debug)]
pub struct HardwareRecords {
    clock: Clock,
    records: Records<HardwareKind>,
}

impl HardwareRecords {
    /// The machines in `store`; `clock` gives the times in their records.
    pub fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        Self { clock, records: Records::new(ScopedStore::new(store, "hardware")) }
    }

    /// The records underneath.
    pub fn records(&self) -> &Records<HardwareKind> {
        &self.records
    }

    /// Creates a machine. A repeated `request` returns the first result.
    pub async fn create(
        &self,
        hardware: pb::Hardware,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Hardware, Error> {
        let hardware = new_record(check::normalize(hardware)?, self.clock.wall())?;
        Ok(self.records.create(&hardware, Change::default(), request.as_ref()).await?)
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
            scripts::restore(&old, &mut new);
        }
        let new = self.updated(check::normalize(new)?);
        Ok(self.records.replace(&old, new).await?)
    }

    /// Changes the state of a machine. Writes nothing if it has this state and reason already.
    pub async fn set_state(
        &self,
        id: HardwareId,
        to: State,
        reason: String,
        revision: i64,
    ) -> Result<pb::Hardware, Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        let state = state::after(old.state(), to)?.into();
        if (state, &reason) == (old.state, &old.state_reason) {
            return Ok(old);
        }
        let new = self.updated(pb::Hardware { state, state_reason: reason, ..old.clone() });
        Ok(self.records.replace(&old, new).await?)
    }

    /// Deletes a machine, unless an instance occupies it. It is marked as deleting first, so that no new instance uses it
    /// while the instance service is asked; an earlier claim is found.
    pub async fn delete(
        &self,
        id: HardwareId,
        revision: i64,
        occupancy: &Occupancy,
    ) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        let marked = self.records.replace(&old, self.in_state(&old, State::Deleting)).await?;
        match occupancy.occupant(&old.id).await {
            Ok(None) => {
                self.records.commit(self.records.to_delete(&marked)).await?;
                Ok(())
            }
            occupied => {
                let restored = self.in_state(&marked, state::after_refused_delete(old.state()));
                self.records.replace(&marked, restored).await?;
                Err(match occupied {
                    Ok(by) => Error::Occupied { id: old.id, by: by.unwrap_or_default() },
                    Err(status) => Error::OccupantUnknown(Box::new(status)),
                })
            }
        }
    }

    fn in_state(&self, hardware: &pb::Hardware, to: State) -> pb::Hardware {
        if hardware.state() == to {
            return hardware.clone();
        }
        self.updated(pb::Hardware { state: to.into(), ..hardware.clone() })
    }

    /// Returns `hardware` with the present time as its update time.
    fn updated(&self, hardware: pb::Hardware) -> pb::Hardware {
        pb::Hardware { update_time: Some(self.clock.wall().into()), ..hardware }
    }
}

/// Returns a record as it is first stored.
fn new_record(mut hardware: pb::Hardware, now: SystemTime) -> Result<pb::Hardware, Error> {
    hardware.initialize("id", now)?;
    let state = match hardware.state() {
        State::Unspecified => State::Enrolled,
        state @ (State::Enrolled | State::Provisionable) => state,
        State::Failed | State::Maintenance | State::Deleting => {
            return Err(Violations::single("state", "is neither enrolled nor provisionable").into());
        }
    };
    hardware.set_state(state);
    hardware.state_reason = String::new();
    Ok(hardware)
}

#[cfg(test)]
mod tests;

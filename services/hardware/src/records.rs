//! The machines in the store.
//!
//! ```text
//! hardware/record/<id>        the record
//! hardware/name/<name>        ─▶ id      hardware/mac/<mac> ─▶ id      hardware/address/<address> ─▶ id
//! hardware/relay_port/<link>,<remote>,<circuit>   ─▶ id
//! hardware/request/<id>       the result of a request, for a week
//! ```
//!
//! Locations and models are records of their own, beside these.

use std::sync::Arc;
use std::time::SystemTime;

use nouns::{Served, Viewer};
use runtime::Clock;
use runtime::address_claims::{AddressClaims, BoxError, Exchange, Holding, HoldingSource};
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Index, Kind, Records};
use store::{ScopedStore, Store};
use tinwright::field_mask;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::State;
use tinwright::secret::Secrets as _;
use tinwright::status::Violations;
use tinwright::{HardwareId, Object as _};

use crate::acceptance::{self, ModelKind};
use crate::bmc_identity::ListedIdentity;
use crate::check;
use crate::error::Error;
use crate::inventory;
use crate::peers::Peers;
use crate::place::{LocationKind, to_expect_location};
use crate::scripts;
use crate::state;
use crate::tenant;

/// The repetitions of a step that another writer preceded.
pub(crate) const MAX_REPETITIONS: usize = 8;
/// Records that are read at a time.
const PAGE_RECORDS: usize = 500;

/// The kind of hardware records.
#[derive(Debug)]
pub enum HardwareKind {}

impl Kind for HardwareKind {
    type Record = pb::Hardware;
    type Id = HardwareId;
    const KIND: &'static str = "record";
    const INDEXES: &'static [&'static str] = &["name", "mac", "address", "relay_port"];

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

    fn warning(hardware: &pb::Hardware) -> &str {
        &hardware.inventory_warning
    }

    fn reported_change(old: &pb::Hardware, new: &pb::Hardware) -> String {
        inventory::reported_change(old, new)
    }
}

impl Served for HardwareKind {
    /// The calls ask the instance service which machines a tenant uses.
    fn is_visible(_viewer: &Viewer, _machine: &pb::Hardware) -> bool {
        true
    }

    fn show(viewer: &Viewer, machine: pb::Hardware) -> pb::Hardware {
        match viewer.tenant {
            Some(_) => tenant::view(machine),
            None => machine.in_view(viewer.view),
        }
    }
}

/// The machines of the site.
#[derive(Clone, Debug)]
pub struct HardwareRecords {
    /// The clock that gives the times in the records.
    pub clock: Clock,
    /// The claims of addresses.
    pub claims: AddressClaims,
    /// The underlying records.
    pub records: Records<HardwareKind>,
    /// The records of locations.
    pub(crate) locations: Records<LocationKind>,
    models: Records<ModelKind>,
}

impl HardwareRecords {
    /// The machines in `store`; `clock` gives the times in their records.
    pub fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        let store = ScopedStore::new(store, "hardware");
        let (locations, models) = (Records::new(store.clone()), Records::new(store.clone()));
        let claims = AddressClaims::none();
        Self { clock, claims, records: Records::new(store), locations, models }
    }

    /// Claims the addresses that machines reserve with `claims`.
    pub fn with_claims(self, claims: AddressClaims) -> Self {
        Self { claims, ..self }
    }

    /// Returns `machine` as it is stored, which a model's policy may accept, and the change that expects that model unchanged.
    pub(crate) async fn accept(
        &self,
        machine: pb::Hardware,
    ) -> Result<(pb::Hardware, Change), records::Error> {
        acceptance::accept(&self.models, &self.locations, machine).await
    }

    /// Creates a machine. A repeated `request` returns the first result.
    pub async fn create(
        &self,
        hardware: pb::Hardware,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Hardware, Error> {
        let has_id = !hardware.id.is_empty();
        let hardware = new_record(check::normalize(hardware)?, self.clock.wall())?;
        if let Some(made) = self.records.previous_result(request.as_ref()).await? {
            return Ok(made);
        }
        // Before the claims: a machine that has this id may be releasing its own.
        if has_id && self.records.get(&hardware.id).await?.is_some() {
            let made = self.records.previous_result(request.as_ref()).await?;
            return made.ok_or_else(|| exists(hardware.id));
        }
        let claims = match self.claims.begin(None, Some(&holding(&hardware)), self).await {
            Ok(claims) => claims,
            // The same request may have been carried out meanwhile.
            Err(error) => {
                let made = self.records.previous_result(request.as_ref()).await?;
                return made.ok_or(error.into());
            }
        };
        let created = self.create_claimed(&hardware, request.as_ref()).await;
        let is_other = |made: &pb::Hardware| made.id != hardware.id;
        self.end_exchange(claims, created.as_ref().err(), created.as_ref().is_ok_and(is_other))
            .await;
        created
    }

    /// Stores a new machine, whose addresses are claimed.
    async fn create_claimed(
        &self,
        hardware: &pb::Hardware,
        request: Option<&IdempotentRequest>,
    ) -> Result<pb::Hardware, Error> {
        for _ in 0..MAX_REPETITIONS {
            let location = to_expect_location(&self.locations, hardware).await?;
            match self.records.create(hardware, location, request).await {
                Err(error) if is_of_location(&error, hardware) => {}
                result => return Ok(result?),
            }
        }
        Err(changed(&hardware.id))
    }

    /// Ends the exchange of claims for a change that was stored, or failed with `error`; or was not made because it `is_obsolete`.
    async fn end_exchange(&self, claims: Exchange, error: Option<&Error>, is_obsolete: bool) {
        match error {
            None if !is_obsolete => self.claims.finish(claims).await,
            // It may be stored or not: the next comparison tells.
            Some(Error::Records(records::Error::Store(_))) => {}
            Some(_) | None => self.claims.undo(claims).await,
        }
    }

    /// Returns a machine before and after an update. Writes nothing.
    pub(crate) async fn preview(
        &self,
        update: &pb::Hardware,
        paths: &[String],
    ) -> Result<(pb::Hardware, pb::Hardware), Error> {
        let old = self.records.at(&update.id, update.revision).await?;
        let new = merged(&old, update, paths)?;
        Ok((old, new))
    }

    /// Replaces the fields of a machine that `paths` names.
    pub async fn update(
        &self,
        update: pb::Hardware,
        paths: &[String],
    ) -> Result<pb::Hardware, Error> {
        for _ in 0..MAX_REPETITIONS {
            let old = self.records.at(&update.id, update.revision).await?;
            let new = merged(&old, &update, paths)?;
            if new == old {
                return Ok(old);
            }
            let new = self.updated(&old, new);
            let location = match (&new.location_id, &new.zone) == (&old.location_id, &old.zone) {
                true => Change::default(),
                false => to_expect_location(&self.locations, &new).await?,
            };
            let (had, has) = (holding(&old), holding(&new));
            let claims = self.claims.begin(Some(&had), Some(&has), self).await?;
            let replaced = self.records.replace_with(&old, new.clone(), location).await;
            let replaced = replaced.map_err(Error::from);
            self.end_exchange(claims, replaced.as_ref().err(), false).await;
            match replaced {
                Err(Error::Records(error)) if is_of_location(&error, &new) => {}
                result => return result,
            }
        }
        Err(changed(&update.id))
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
        let state = state::after(old.state(), to)?;
        check_interfaces(&old, state)?;
        let state = state.into();
        if (state, &reason) == (old.state, &old.state_reason) {
            return Ok(old);
        }
        let new = self.updated(&old, pb::Hardware { state, state_reason: reason, ..old.clone() });
        Ok(self.records.replace(&old, new).await?)
    }

    /// Stores what a machine reported of itself. Writes nothing if that is stored already. By the first report of an enrolled machine a
    /// model's policy may accept it; by a later one not, because an operator may have made it enrolled again.
    pub async fn record_inventory(
        &self,
        id: HardwareId,
        reported: pb::Inventory,
    ) -> Result<(), Error> {
        let mut reported = inventory::normalize(reported)?;
        for _ in 0..MAX_REPETITIONS {
            let old = self.records.require(&id.to_string()).await?;
            let stored = old.inventory.clone().unwrap_or_default();
            inventory::keep_neighbours(&stored, &mut reported);
            reported.report_time = stored.report_time;
            if old.inventory.as_deref() == Some(&reported) {
                return Ok(());
            }
            reported.report_time = Some(self.clock.wall().into());
            let mut new = old.clone();
            new.inventory = Some(Box::new(reported.clone()));
            new.inventory_warning = inventory::warning(&new);
            let (new, policy) = match acceptance::is_untouched(&old) {
                true => self.accept(new).await?,
                false => (new, Change::default()),
            };
            match self.records.replace_with(&old, self.updated(&old, new), policy).await {
                Err(records::Error::Changed { .. }) => {}
                result => return Ok(result.map(drop)?),
            }
        }
        Err(changed(&id.to_string()))
    }

    /// Stores what the BMC of a machine lists of it. Writes nothing if that is stored already.
    pub async fn record_bmc_inventory(
        &self,
        id: HardwareId,
        read: pb::BmcInventory,
    ) -> Result<(), Error> {
        let mut read = inventory::bmc::normalize(read)?;
        for _ in 0..MAX_REPETITIONS {
            let old = self.records.require(&id.to_string()).await?;
            read.report_time = old.bmc_inventory.as_ref().and_then(|stored| stored.report_time);
            if old.bmc_inventory.as_deref() == Some(&read) {
                return Ok(());
            }
            read.report_time = Some(self.clock.wall().into());
            let mut new = old.clone();
            new.bmc_inventory = Some(Box::new(read.clone()));
            new.inventory_warning = inventory::warning(&new);
            match self.records.replace(&old, self.updated(&old, new)).await {
                Err(records::Error::Changed { .. }) => {}
                result => return Ok(result.map(drop)?),
            }
        }
        Err(changed(&id.to_string()))
    }

    /// Returns why the machine that a BMC lists is another one than the machine `id`, which may have no record yet; none if it is not
    /// known to be.
    pub(crate) async fn other_machine(
        &self,
        id: Option<HardwareId>,
        listed: &ListedIdentity,
    ) -> Result<Option<String>, Error> {
        let own = match id {
            Some(id) => self.records.require(&id.to_string()).await?,
            None => pb::Hardware::default(),
        };
        let mut after = String::new();
        loop {
            let (page, more) = self.records.page("", &after, PAGE_RECORDS).await?;
            after = page.last().map_or(after, |last| last.id.clone());
            let mut others = page.iter().filter(|machine| machine.id != own.id);
            if let Some(common) = others.find_map(|other| listed.common_with(other)) {
                return Ok(Some(common));
            }
            if !more {
                return Ok(listed.difference_from(&own));
            }
        }
    }

    /// Deletes a machine, unless it is protected or an instance or a workflow uses it, and what the other services have for it.
    /// It is marked as deleting first, so that no new instance uses it while they are called; an earlier claim is found. If the
    /// delete is refused, the mark is removed, unless the machine had it before: then another call is deleting it, or was
    /// interrupted ([`resume_delete`](Self::resume_delete)).
    pub async fn delete(&self, id: HardwareId, revision: i64, peers: &Peers) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        if old.state() == State::Deleting {
            return self.delete_marked(old, peers).await;
        }
        check_protection(&old)?;
        let marked = pb::Hardware { state: State::Deleting.into(), ..old.clone() };
        let marked = self.updated(&old, marked);
        let marked = self.records.replace(&old, marked).await?;
        let deleted = self.delete_marked(marked, peers).await;
        if matches!(deleted, Err(Error::Protected(_) | Error::Peers(_))) {
            self.remove_mark(&old.id, old.state(), &old.state_reason).await?;
        }
        deleted
    }

    /// Continues the interrupted delete of the machine that is marked since `revision`. If it is protected or in use, it goes to
    /// maintenance, because its state before the mark is unknown.
    pub async fn resume_delete(&self, id: &str, revision: i64, peers: &Peers) -> Result<(), Error> {
        let marked = self.records.at(id, revision).await?;
        let deleted = self.delete_marked(marked, peers).await;
        if let Err(error) = &deleted
            && error.is_refusal()
        {
            let reason = format!("an interrupted delete was refused: {error}");
            self.remove_mark(id, State::Maintenance, &reason).await?;
        }
        deleted
    }

    /// Deletes a machine that is marked as deleting, unless it is protected or in use. Other updates meanwhile do not prevent
    /// that.
    async fn delete_marked(&self, mut marked: pb::Hardware, peers: &Peers) -> Result<(), Error> {
        for _ in 0..MAX_REPETITIONS {
            check_protection(&marked)?;
            peers.release(&marked.id).await?;
            let claims = self.claims.begin(Some(&holding(&marked)), None, self).await?;
            match self.records.commit(self.records.to_delete(&marked)).await {
                Err(records::Error::Changed { .. }) => {}
                result => {
                    result?;
                    self.claims.finish(claims).await;
                    return Ok(());
                }
            }
            // The mark may have been absent between the two readings, so the other services are called again.
            marked = match self.marked(&marked.id).await? {
                Some(current) => current,
                None => break,
            };
        }
        Err(changed(&marked.id))
    }

    /// Gives a machine that is marked as deleting the state `to`. Updates meanwhile are kept.
    async fn remove_mark(&self, id: &str, to: State, reason: &str) -> Result<(), Error> {
        for _ in 0..MAX_REPETITIONS {
            let Some(marked) = self.marked(id).await? else { return Ok(()) };
            let (state, state_reason) = (to.into(), reason.to_owned());
            let new = pb::Hardware { state, state_reason, ..marked.clone() };
            let new = self.updated(&marked, new);
            match self.records.replace(&marked, new).await {
                Err(records::Error::Changed { .. }) => {}
                result => return Ok(result.map(drop)?),
            }
        }
        Err(changed(id))
    }

    /// Returns the machine `id` if it exists and is marked as deleting.
    async fn marked(&self, id: &str) -> Result<Option<pb::Hardware>, Error> {
        let found = self.records.get(id).await?;
        Ok(found.filter(|hardware| hardware.state() == State::Deleting))
    }

    /// Returns `new`, which replaces `old`, with the present time as its update time, and as its state's if that is another one.
    pub(crate) fn updated(&self, old: &pb::Hardware, new: pb::Hardware) -> pb::Hardware {
        let now = Some(self.clock.wall().into());
        let has_moved = old.state != new.state;
        let state_time = if has_moved { now } else { new.state_time };
        pb::Hardware { update_time: now, state_time, overdue: new.overdue && !has_moved, ..new }
    }
}

impl HoldingSource for HardwareRecords {
    async fn holding(&self, id: &str) -> Result<Option<Holding>, BoxError> {
        Ok(self.records.get(id).await?.as_ref().map(holding))
    }

    async fn holdings(&self, after: &str) -> Result<(Vec<Holding>, bool), BoxError> {
        let (page, more) = self.records.page("", after, PAGE_RECORDS).await?;
        Ok((page.iter().map(holding).collect(), more))
    }
}

/// Returns the addresses that a machine reserves.
fn holding(hardware: &pb::Hardware) -> Holding {
    let addresses = hardware.interfaces.iter().filter_map(check::address);
    Holding {
        id: hardware.id.clone(),
        tenant: String::new(),
        hardware_id: hardware.id.clone(),
        addresses: addresses.map(str::to_owned).collect(),
        macs: hardware.interfaces.iter().map(|it| it.mac.clone()).collect(),
    }
}

fn exists(id: String) -> Error {
    records::Error::Exists { noun: HardwareKind::NOUN, id }.into()
}

/// Passes unless `hardware` is protected.
fn check_protection(hardware: &pb::Hardware) -> Result<(), Error> {
    if hardware.protect { Err(Error::Protected(hardware.id.clone())) } else { Ok(()) }
}

/// Passes unless a machine without interfaces, which is enrolled by its BMC only, is to become `to`, a state in which it is used.
fn check_interfaces(machine: &pb::Hardware, to: State) -> Result<(), Error> {
    if to == State::Provisionable && machine.interfaces.is_empty() {
        let reason = "is empty: a machine without interfaces cannot become provisionable";
        return Err(Violations::single("interfaces", reason).into());
    }
    Ok(())
}

/// True if a commit failed because the location of `machine` changed meanwhile: it is to be looked at again.
fn is_of_location(error: &records::Error, machine: &pb::Hardware) -> bool {
    matches!(error, records::Error::Changed { id, .. } if *id == machine.location_id && *id != machine.id)
}

pub(crate) fn changed(id: &str) -> Error {
    records::Error::Changed { noun: HardwareKind::NOUN, id: id.to_owned() }.into()
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
    (hardware.state_reason, hardware.overdue) = (String::new(), false);
    (hardware.inventory, hardware.bmc_inventory) = (None, None);
    hardware.inventory_warning.clear();
    hardware.enrolment = None;
    hardware.state_time = hardware.create_time;
    Ok(hardware)
}

/// Returns `old` with the fields of `update` that `paths` names, in the stored form.
fn merged(
    old: &pb::Hardware,
    update: &pb::Hardware,
    paths: &[String],
) -> Result<pb::Hardware, Error> {
    let mut new = field_mask::merge(old, update, paths)?;
    // A script with neither URL nor text stands for the stored one, which a caller may not be allowed to read.
    scripts::restore(old, &mut new);
    if paths.is_empty() {
        // A caller that does not know the field sends false.
        new.protect |= old.protect;
    }
    Ok(check::normalize(new)?)
}

#[cfg(test)]
mod tests;

//! The instances in the store.
//!
//! ```text
//! instance/record/<id>                 the record with its secrets; deleted when the machine is released
//! instance/occupant/<hardware id>      ─▶ id: the claim on the machine, while the instance occupies it
//! instance/address/<address>           ─▶ id: the claim on each of its addresses
//! instance/external_id/<tenant>/<id>   ─▶ id: the id of an outside platform
//! instance/hostname/<name>/<id>        ─▶ id: its host name
//! instance/scoped_hostname/<tenant>/<digest of the scope>/<name>   ─▶ id: the claim on the name, until it is being deleted
//! instance/gate_uuid/<uuid>            ─▶ id: the UUID of the boot gate that the server opened, while it is open
//! instance/gate_mac/<mac>              ─▶ id: its MAC
//! instance/deleted/<id>                the record of a deleted instance, without secrets, for 30 days
//! instance/retired/…                   the ids and external ids of deleted instances, for ever (`deleted`)
//! instance/spread/…, spread_guard/…    the groups of instances that are spread (`spread`)
//! instance/request/<request id>        the result of a request, for a week
//! ```
//!
//! Claims are written and deleted in the same commit as the record, so the store decides between two callers who want one
//! machine.

mod addresses;
pub(crate) mod boot_gate;
mod deleted;
pub mod hostname_scopes;
pub mod machine_reports;
pub(crate) mod spread;
mod transition;
mod update;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest;
use data_encoding::HEXLOWER;
use nouns::Served;
use runtime::Clock;
use runtime::address_claims::{self, AddressClaims};
use store::records::requests::IdempotentRequest;
use store::records::{self, Index, Kind, Records};
use store::{ScopedStore, Store};
use tinwright::instance::v1 as pb;
use tinwright::requests::Filter;
use tinwright::status::Violations;
use tinwright::{HardwareId, InstanceId, Object as _};

use self::boot_gate::{GATE_MAC, GATE_UUID};
pub use self::deleted::DeletedKind;
pub(crate) use self::deleted::external_value;
use self::machine_reports::is_installed_by_script;
use self::spread::Spread;
use crate::check::{self, is_installed_by_workflow, is_node};
use crate::state::{Event, IllegalTransition, State, UnknownState};

/// The index of external ids.
pub(crate) const EXTERNAL_ID: &str = "external_id";
/// The index of host names.
const HOSTNAME: &str = "hostname";
/// The index of host names that are unique in their scope.
const SCOPED_HOSTNAME: &str = "scoped_hostname";
/// The index of the instances that are spread over machines.
const SPREAD: &str = "spread";
/// The index of occupied machines.
pub(crate) const OCCUPANT: &str = "occupant";
/// Attempts to commit a change while other writers come first.
const MAX_ATTEMPTS: usize = 8;

/// A failed request about instances.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request has invalid fields.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// The instance's state does not allow the request.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// The request asks for a first state other than queued.
    #[error("an instance begins queued, not {}", .0.word())]
    NotQueued(pb::State),
    /// The instance is being deleted, so that only its clean-up template can be changed.
    #[error("instance {0} is being deleted")]
    BeingDeleted(String),
    /// The clean-up of the instance's machine has begun, so that its template cannot be changed.
    #[error("instance {instance} is being cleaned by workflow {workflow}")]
    BeingCleaned {
        /// The instance.
        instance: String,
        /// The workflow that cleans its machine.
        workflow: String,
    },
    /// The instance is being reinstalled as it is, so that it cannot be reinstalled otherwise.
    #[error(
        "instance {0} is being reinstalled: wait until that has ended, or send no other values"
    )]
    BeingReinstalled(String),
    /// The instance has nothing to install or boot its machine with.
    #[error("instance {0} has no template, custom script or image stack to install")]
    NothingToInstall(String),
    /// People switch the instance's machine, so that its running system cannot be kept from what its reinstallation gets.
    #[error(
        "instance {0} has power_management none: only a machine that its BMC switches is reinstalled"
    )]
    SwitchedByHand(String),
    /// The instance is protected against the request.
    #[error("instance {0} is protected: remove its protection first")]
    Protected(String),
    /// The id or external id of a new instance was that of a deleted one.
    #[error("{0} is that of an instance that was deleted: it is not used again")]
    Retired(String),
    /// A machine sent a report for an instance that does not occupy it.
    #[error("hardware {hardware} is not occupied by instance {instance}")]
    NotOccupant {
        /// The machine.
        hardware: HardwareId,
        /// The instance named in the report.
        instance: InstanceId,
    },
    /// The stored state is unknown to this version.
    #[error(transparent)]
    UnknownState(#[from] UnknownState),
    /// The operating system has no random numbers.
    #[error("no random numbers")]
    NoRandomness,
    /// An address of the instance was not claimed.
    #[error(transparent)]
    Addresses(#[from] address_claims::Error),
    /// The record is missing, has changed, or cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

impl Error {
    /// True if another writer came first: read again, then repeat.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Records(records::Error::Changed { .. }))
    }
}

/// The kind of instance records.
#[derive(Debug)]
pub enum InstanceKind {}

impl Kind for InstanceKind {
    type Record = pb::Instance;
    type Id = InstanceId;
    const KIND: &'static str = "record";
    const INDEXES: &'static [&'static str] =
        &[OCCUPANT, "address", EXTERNAL_ID, HOSTNAME, SCOPED_HOSTNAME, SPREAD, GATE_UUID, GATE_MAC];

    fn indexes(instance: &pb::Instance) -> Vec<Index> {
        let mut indexes = Vec::new();
        if let Some(value) = deleted::external_key(instance) {
            indexes.push(Index::unique(EXTERNAL_ID, value));
        }
        if !instance.hostname.is_empty() {
            indexes.push(Index::shared(HOSTNAME, &instance.hostname));
        }
        indexes.extend(scoped_hostname(instance));
        if !instance.released {
            indexes.extend(instance.ips.iter().map(|ip| Index::unique("address", &ip.address)));
            indexes.push(Index::unique(OCCUPANT, &instance.hardware_id));
            if !instance.spread_claim.is_empty() {
                indexes.push(Index::shared(SPREAD, &instance.spread_claim));
            }
            indexes.extend(boot_gate::claims(instance));
        }
        indexes
    }
}

/// Returns the index entry that keeps the host name unique in its scope.
fn scoped_hostname(instance: &pb::Instance) -> Option<Index> {
    let pb::Instance { hostname, hostname_scope, tenant, .. } = instance;
    if hostname.is_empty() || hostname_scope.is_empty() || is_ending(instance.state()) {
        return None;
    }
    // A scope may be longer than a key.
    let scope = digest::digest(&digest::SHA256, hostname_scope.as_bytes());
    let scope = HEXLOWER.encode(scope.as_ref());
    Some(Index::unique(SCOPED_HOSTNAME, format!("{tenant}/{scope}/{hostname}")))
}

/// True if an instance in this state is being deleted.
fn is_ending(state: pb::State) -> bool {
    match state {
        pb::State::Deprovisioning | pb::State::DeprovisionFailed | pb::State::Deleted => true,
        pb::State::Unspecified
        | pb::State::Queued
        | pb::State::Provisioning
        | pb::State::Active
        | pb::State::Failed
        | pb::State::Reinstalling => false,
    }
}

impl Served for InstanceKind {
    fn index_of(filter: &impl Filter) -> Option<(&'static str, String)> {
        let name = filter.name();
        (!name.is_empty()).then(|| (HOSTNAME, name.to_owned()))
    }
}

/// The instances.
#[derive(Clone, Debug)]
pub struct Instances {
    /// The underlying records.
    pub records: Records<InstanceKind>,
    deleted: Records<DeletedKind>,
    claims: AddressClaims,
    clock: Clock,
}

impl Instances {
    /// The instances in `store`; `clock` gives the times in their records.
    pub fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        let store = ScopedStore::new(store, "instance");
        let (records, deleted) = (Records::new(store.clone()), Records::new(store));
        Self { records, deleted, claims: AddressClaims::none(), clock }
    }

    /// Claims the addresses of instances with `claims`.
    pub fn with_claims(self, claims: AddressClaims) -> Self {
        Self { claims, ..self }
    }

    /// The wall time.
    pub fn now(&self) -> SystemTime {
        self.clock.wall()
    }

    /// Returns the instance that `request` created earlier, if it was carried out.
    pub async fn previous_result(
        &self,
        request: Option<&IdempotentRequest>,
    ) -> Result<Option<pb::Instance>, Error> {
        match self.records.previous_result(request).await {
            Err(records::Error::Missing { name, .. }) => {
                Err(Error::Retired(format!("instance id {name}")))
            }
            result => Ok(result?),
        }
    }

    /// Creates an instance together with the claim on its machine. A repeated `request` returns the first result. Neither its id
    /// nor its external id may be that of a deleted one.
    pub async fn create(
        &self,
        instance: pb::Instance,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Instance, Error> {
        self.create_claimed(instance, None, request).await
    }

    /// Does the same for an instance that has its place in a group, if `spread` says so. Fails as stale if another order of the
    /// group was first.
    pub(crate) async fn create_claimed(
        &self,
        instance: pb::Instance,
        spread: Option<Spread>,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Instance, Error> {
        if instance.hardware_id.is_empty() {
            return Err(Violations::single("hardware_id", "is missing").into());
        }
        let mut instance = new_record(check::normalize(instance)?, self.now())?;
        let mut more = deleted::expect_unused(&instance);
        if let Some(spread) = spread {
            more = more.and(spread.to_commit(&instance.id));
            instance.spread_claim = spread.claim;
        }
        // Before the claims, which would name another machine as that of the instance which has this id.
        if self.records.get(&instance.id).await?.is_some() {
            let made = self.previous_result(request.as_ref()).await?;
            let exists = records::Error::Exists { noun: InstanceKind::NOUN, id: instance.id };
            return made.ok_or_else(|| exists.into());
        }
        let claims = match self.begin_exchange(None, Some(&instance)).await {
            Ok(claims) => claims,
            // The same request may have been carried out meanwhile.
            Err(error) => {
                let made = self.previous_result(request.as_ref()).await?;
                return made.ok_or(error);
            }
        };
        let created = match self.records.create(&instance, more, request.as_ref()).await {
            Err(records::Error::Changed { .. }) => Err(self.reason_of_conflict(&instance).await?),
            Err(records::Error::Missing { name, .. }) => {
                Err(Error::Retired(format!("instance id {name}")))
            }
            result => result.map_err(Error::from),
        };
        let is_other = created.as_ref().is_ok_and(|made| made.id != instance.id);
        self.end_exchange(claims, created.as_ref().err(), is_other).await;
        created
    }

    /// Returns the ids of all occupied machines.
    pub(crate) async fn occupied_machines(&self) -> Result<BTreeSet<String>, records::Error> {
        let prefix = format!("{OCCUPANT}/");
        let (mut pages, mut machines) = (self.records.store().pages(&prefix), BTreeSet::new());
        while let Some(pairs) = pages.next().await? {
            let ids = pairs.iter().filter_map(|(key, _)| key.strip_prefix(&prefix));
            machines.extend(ids.map(str::to_owned));
        }
        Ok(machines)
    }

    /// Replaces the fields of an instance that `paths` names; while it is being deleted, only its clean-up template. What a
    /// protected instance has installed stays.
    pub async fn update(
        &self,
        update: pb::Instance,
        paths: &[String],
    ) -> Result<pb::Instance, Error> {
        let merge = |old: &pb::Instance| {
            update::check_state(old, paths)?;
            let new = check::normalize(update::merge(old, &update, paths)?)?;
            let installed =
                |it: &pb::Instance| (it.os.clone(), it.template_id.clone(), it.image_id.clone());
            let is_same = installed(&new) == installed(old);
            if !is_same && has_protected_installation(old) {
                return Err(Error::Protected(old.id.clone()));
            }
            Ok(new)
        };
        self.change(&update.id, update.revision, merge).await
    }

    /// Begins to release the machine, unless the instance is protected; with `force`, without cleaning the machine. Returns the
    /// instance as it is then.
    pub async fn delete(
        &self,
        id: InstanceId,
        revision: i64,
        force: bool,
    ) -> Result<pb::Instance, Error> {
        let delete = |old: &pb::Instance| {
            if old.protect {
                return Err(Error::Protected(old.id.clone()));
            }
            let mut new = transition::after(old, Event::Delete, "", self.now())?;
            new.forced |= force;
            Ok(new)
        };
        self.change(&id.to_string(), revision, delete).await
    }

    /// Repeats the step that failed, unless a protected machine would be installed again. Does nothing if that was requested
    /// already.
    pub async fn retry(&self, id: InstanceId) -> Result<pb::Instance, Error> {
        let retry = |old: &pb::Instance| {
            let new = transition::after(old, Event::Retry, "", self.now())?;
            if new != *old && has_protected_installation(old) {
                return Err(Error::Protected(old.id.clone()));
            }
            Ok(new)
        };
        self.change(&id.to_string(), 0, retry).await
    }

    /// Begins to install the machine again, unless the instance is protected. The same commit sets the
    /// fields `paths` to their values in `update`. Does nothing if the machine is being reinstalled with these values already.
    pub async fn reinstall(
        &self,
        id: InstanceId,
        revision: i64,
        update: pb::Instance,
        paths: &[String],
    ) -> Result<pb::Instance, Error> {
        let reinstall = |old: &pb::Instance| self.after_reinstall(old, &update, paths);
        self.change(&id.to_string(), revision, reinstall).await
    }

    /// Returns the instance as [`Self::reinstall`] would store it. Writes nothing.
    pub(crate) async fn reinstalled(
        &self,
        id: InstanceId,
        revision: i64,
        update: pb::Instance,
        paths: &[String],
    ) -> Result<pb::Instance, Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        self.after_reinstall(&old, &update, paths)
    }

    fn after_reinstall(
        &self,
        old: &pb::Instance,
        update: &pb::Instance,
        paths: &[String],
    ) -> Result<pb::Instance, Error> {
        if has_protected_installation(old) {
            return Err(Error::Protected(old.id.clone()));
        }
        if old.power_management() == pb::instance::PowerManagement::None {
            return Err(Error::SwitchedByHand(old.id.clone()));
        }
        let mut new = transition::after(old, Event::Reinstall, "", self.now())?;
        if !paths.is_empty() {
            new = check::normalize(update::merge(&new, update, paths)?)?;
        }
        if old.state() == pb::State::Reinstalling && new != *old {
            return Err(Error::BeingReinstalled(new.id));
        }
        if !is_installed_by_workflow(&new) && !is_installed_by_script(&new) && !is_node(&new) {
            return Err(Error::NothingToInstall(new.id));
        }
        Ok(new)
    }

    /// Returns the instance that occupies `hardware`. It must be `instance`, if that is given.
    pub async fn occupant(
        &self,
        hardware: HardwareId,
        instance: Option<InstanceId>,
    ) -> Result<pb::Instance, Error> {
        let occupant = self.records.require_by(OCCUPANT, &hardware.to_string()).await?;
        match instance {
            Some(instance) if instance.to_string() != occupant.id => {
                Err(Error::NotOccupant { hardware, instance })
            }
            Some(_) | None => Ok(occupant),
        }
    }

    /// Changes the instance that occupies `hardware` as `change` says, given the time. It must be `instance`, if that is
    /// given.
    pub async fn change_occupant(
        &self,
        hardware: HardwareId,
        instance: Option<InstanceId>,
        change: impl Fn(&pb::Instance, SystemTime) -> Result<pb::Instance, UnknownState>,
    ) -> Result<(), Error> {
        let occupant = self.occupant(hardware, instance).await?;
        self.change(&occupant.id, 0, |old| Ok(change(old, self.now())?)).await?;
        Ok(())
    }

    /// Commits `event` for `old`, with `reason` and the further changes that `edit` makes. Fails as stale if the stored
    /// record is no longer `old`.
    pub async fn advance(
        &self,
        old: &pb::Instance,
        event: Event,
        reason: &str,
        edit: impl FnOnce(&mut pb::Instance),
    ) -> Result<pb::Instance, Error> {
        let mut new = transition::after(old, event, reason, self.now())?;
        edit(&mut new);
        self.put(old, new).await
    }

    /// Replaces `old` with `new`; deletes the record with its claims if `new` is in the state deleted, and stores what remains
    /// of it.
    pub async fn put(&self, old: &pb::Instance, new: pb::Instance) -> Result<pb::Instance, Error> {
        let claims = self.begin_exchange(Some(old), Some(&new)).await?;
        let stored = self.put_claimed(old, new).await;
        self.end_exchange(claims, stored.as_ref().err(), false).await;
        stored
    }

    /// Does so for an instance whose addresses are claimed.
    async fn put_claimed(
        &self,
        old: &pb::Instance,
        mut new: pb::Instance,
    ) -> Result<pb::Instance, Error> {
        if new.state() == pb::State::Deleted {
            return self.retire(old, new).await;
        }
        if *old != new {
            new.update_time = Some(self.now().into());
        }
        if old.state != new.state {
            (new.state_time, new.overdue) = (new.update_time, false);
        }
        Ok(self.records.replace(old, new).await?)
    }

    /// Changes the instance `id`. Without a `revision` the change is applied to the latest record, also if other writers come
    /// first.
    async fn change(
        &self,
        id: &str,
        revision: i64,
        change: impl Fn(&pb::Instance) -> Result<pb::Instance, Error>,
    ) -> Result<pb::Instance, Error> {
        let mut attempts = MAX_ATTEMPTS;
        loop {
            let old = self.records.at(id, revision).await?;
            attempts -= 1;
            match Box::pin(self.put(&old, change(&old)?)).await {
                Err(error) if error.is_stale() && revision == 0 && attempts > 0 => {}
                result => return result,
            }
        }
    }
}

/// True if `instance` is protected and its machine was changed for it.
fn has_protected_installation(instance: &pb::Instance) -> bool {
    instance.protect && instance.begin_time.is_some()
}

/// Returns `requested` as it is first stored: output-only fields have their initial values, whatever was sent.
fn new_record(requested: pb::Instance, now: SystemTime) -> Result<pb::Instance, Error> {
    if !matches!(requested.state(), pb::State::Unspecified | pb::State::Queued) {
        return Err(Error::NotQueued(requested.state()));
    }
    let mut instance = pb::Instance {
        workflow_ids: Vec::new(),
        state_reason: String::new(),
        generation: 1,
        phone_home_time: None,
        script_time: None,
        stack_time: None,
        host_keys: Vec::new(),
        workflow_id: String::new(),
        power_job_id: String::new(),
        begin_time: None,
        install_time: None,
        delete_time: None,
        forced: false,
        overdue: false,
        addresses: Vec::new(),
        spread_claim: String::new(),
        primary_grant_id: String::new(),
        lookup_id: lookup_id()?,
        ..requested
    };
    boot_gate::reset(&mut instance);
    instance.initialize("id", now)?;
    instance.state_time = instance.create_time;
    State::Queued.write(&mut instance);
    Ok(instance)
}

/// Returns 128 random bits in hex.
fn lookup_id() -> Result<String, Error> {
    Ok(format!("{:032x}", u128::from_be_bytes(random_bytes()?)))
}

/// Returns random bytes.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;

//! The machine of a BMC: one BMC belongs to one machine, and lists that of its record.

use runtime::secret::Secret;
use store::records;
use tinwright::hardware::v1::get_hardware_request::By;
use tinwright::machine_uuid;
use tinwright::power::v1 as pb;

use super::{Bmcs, Login, set_learnt, target};
use crate::Error;
use crate::address::Address;
use crate::hardware_directory::ListedMachine;
use crate::stored::{ADDRESS, ENDPOINT};
use crate::{bmc_client, bmc_text};

/// Records of one BMC that are read to find one with the same system. A chassis has fewer machines.
const MAX_SYSTEMS: usize = 1024;
/// Records that are read at a time to find one by its UUID.
const PAGE_RECORDS: usize = 500;

/// The UUID that a BMC lists, compared with that of its record.
enum Comparison {
    /// One of them is not known, or is a vendor's placeholder.
    Unknown,
    /// The same, in either byte order.
    Same,
    /// Another one, with the text that says so.
    Other(String),
}

impl Bmcs {
    /// Returns another record whose BMC and system may be those of `wanted`, if there is one.
    pub(crate) async fn find_by_address(&self, wanted: &pb::Bmc) -> Result<Option<pb::Bmc>, Error> {
        let Some(address) = Address::of(wanted) else { return Ok(None) };
        let is_other = |bmc: &pb::Bmc| {
            bmc.id != wanted.id
                && Address::of(bmc).is_some_and(|other| other.may_share_machine(&address))
        };
        let key = address.endpoint_key();
        let found = self.records.list_indexed(ENDPOINT, &key, "", MAX_SYSTEMS, is_other).await?;
        Ok(found.records.into_iter().next())
    }

    /// Passes unless another record has the address of `bmc`.
    pub(super) async fn check_address_free(&self, bmc: &pb::Bmc) -> Result<(), Error> {
        match self.find_by_address(bmc).await? {
            Some(other) => Err(self.address_taken(bmc, &other).await),
            None => Ok(()),
        }
    }

    /// Replaces the error of a commit that found the address of `bmc` taken by one that names the machine there.
    pub(super) async fn with_machine_of_address<T>(
        &self,
        bmc: &pb::Bmc,
        result: Result<T, records::Error>,
    ) -> Result<T, Error> {
        match result {
            Err(records::Error::Taken { index, by, .. }) if index == ADDRESS => {
                let other = self.records.require(&by).await?;
                Err(self.address_taken(bmc, &other).await)
            }
            result => Ok(result?),
        }
    }

    async fn address_taken(&self, bmc: &pb::Bmc, other: &pb::Bmc) -> Error {
        let address = Address::of(bmc).map(|address| address.to_string()).unwrap_or_default();
        let machine = self.name_of(&other.hardware_id).await;
        Error::AddressTaken { address, machine, bmc: other.id.clone() }
    }

    /// Returns the name of the machine `id`; the id if it has none, or is not found.
    async fn name_of(&self, id: &str) -> String {
        let found = match &self.hardware {
            Some(hardware) => hardware.find(By::Id(id.to_owned())).await.ok().flatten(),
            None => None,
        };
        let name = found.map(|machine| machine.name).filter(|name| !name.is_empty());
        name.unwrap_or_else(|| id.to_owned())
    }

    /// Logs in to `bmc`, unless that is skipped, and reads its machine. Sets the certificate if it
    /// is the first login, and the UUID if the BMC lists one. The UUID of a record that accepts
    /// another machine is emptied if the BMC lists none.
    pub(super) async fn log_in(
        &self,
        bmc: &mut pb::Bmc,
        password: Secret<String>,
        login: Login,
    ) -> Result<(), Error> {
        if login == Login::Skip {
            return Ok(());
        }
        let (reading, inventory) =
            Box::pin(bmc_client::read_machine(target(bmc, password, &self.sessions)?)).await?;
        let listed = ListedMachine::from(&inventory);
        if login == Login::Try {
            self.check_listed(bmc, &listed).await?;
        } else if bmc_text::uuid(&listed.uuid).is_empty() {
            // The accepted machine may list another UUID later, such as after its first start.
            bmc.system_uuid.clear();
        }
        set_learnt(bmc, &reading.learnt);
        set_found(bmc, &listed.uuid);
        Ok(())
    }

    /// Passes unless the machine that the BMC of the record `bmc` lists is known to be another one.
    /// The UUID of the record passes, also if it is that of another machine: somebody accepted it.
    /// At a new address the record has no UUID here, so that only records of machines and of other
    /// BMCs decide.
    async fn check_listed(&self, bmc: &pb::Bmc, listed: &ListedMachine) -> Result<(), Error> {
        match compare(&listed.uuid, &bmc.system_uuid) {
            Comparison::Same => return Ok(()),
            Comparison::Unknown => {}
            Comparison::Other(reason) => {
                if !self.has_mac(&bmc.hardware_id, &listed.macs).await? {
                    return Err(Error::OtherMachine(reason));
                }
            }
        }
        self.check_unique(&bmc.hardware_id, bmc, listed).await
    }

    /// Returns the record of `bmc` after a login for a job that found `uuid`. Fails, with a warning
    /// in the record, if that is known to be the UUID of another machine than the record's. `macs`
    /// are read only if the machine's record has another UUID.
    pub(crate) async fn check_login(
        &self,
        bmc: pb::Bmc,
        uuid: &str,
        macs: impl AsyncFnOnce() -> Vec<String>,
    ) -> Result<pb::Bmc, Error> {
        // What is not known decides nothing.
        if machine_uuid::parse(uuid).is_err() {
            return Ok(bmc);
        }
        let checked = match compare(uuid, &bmc.system_uuid) {
            Comparison::Same => Ok(()),
            Comparison::Other(reason) => Err(Error::OtherMachine(reason)),
            Comparison::Unknown => self.check_uuid(&bmc.hardware_id, uuid, macs).await,
        };
        let mut new = bmc.clone();
        match checked {
            Ok(()) => {
                set_found(&mut new, uuid);
                self.stored(&bmc, new).await
            }
            Err(Error::OtherMachine(reason)) => {
                new.warning.clone_from(&reason);
                self.stored(&bmc, new).await?;
                Err(Error::OtherMachine(reason))
            }
            Err(Error::Hardware(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, bmc.id = bmc.id, "machine of the BMC not compared");
                Ok(bmc)
            }
            Err(error) => Err(error),
        }
    }

    /// Passes unless `uuid` is known to be that of another machine than `hardware`. A common MAC
    /// passes, too: `macs` are read only then.
    async fn check_uuid(
        &self,
        hardware: &str,
        uuid: &str,
        macs: impl AsyncFnOnce() -> Vec<String>,
    ) -> Result<(), Error> {
        let listed = ListedMachine { uuid: uuid.to_owned(), macs: Vec::new() };
        let Err(error) = self.check_machine(hardware, &listed).await else { return Ok(()) };
        let is_other = matches!(error, Error::OtherMachine(_));
        // MACs that cannot be compared are no reason to go on at another machine.
        if is_other && matches!(self.has_mac(hardware, &macs().await).await, Ok(true)) {
            return Ok(());
        }
        Err(error)
    }

    /// True if one of `macs` is known to be a MAC of the machine `hardware`, which is empty if it
    /// has no record yet.
    async fn has_mac(&self, hardware: &str, macs: &[String]) -> Result<bool, Error> {
        match &self.hardware {
            Some(directory) if !hardware.is_empty() => {
                Ok(directory.has_mac(hardware, macs).await?)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Stores `new` in place of `old`, unless they are the same.
    async fn stored(&self, old: &pb::Bmc, new: pb::Bmc) -> Result<pb::Bmc, Error> {
        if *old == new {
            return Ok(new);
        }
        let new = pb::Bmc { update_time: Some(self.clock.wall().into()), ..new };
        let revision = self.records.commit(self.records.to_replace(old, &new)).await?;
        Ok(pb::Bmc { revision: revision.0.cast_signed(), ..new })
    }

    /// Passes unless the machine that the BMC `bmc` lists is known to be another one than
    /// `hardware`, which is empty if it has no record yet: by the records of machines, or of other
    /// BMCs. Vendors leave one UUID in many machines: a common MAC with `hardware` counts more than
    /// the UUID of another BMC.
    pub(crate) async fn check_unique(
        &self,
        hardware: &str,
        bmc: &pb::Bmc,
        listed: &ListedMachine,
    ) -> Result<(), Error> {
        if let Some(other) = self.find_by_uuid(hardware, bmc, &listed.uuid).await?
            && !self.has_mac(hardware, &listed.macs).await?
        {
            let uuid = &listed.uuid;
            let machine = self.name_of(&other.hardware_id).await;
            let text = format!("the BMC lists UUID {uuid}, which the BMC of {machine} lists, too");
            return Err(Error::OtherMachine(text));
        }
        self.check_machine(hardware, listed).await
    }

    /// Returns the record of the BMC of another machine than `hardware` that lists `uuid`, if there
    /// is one. Records that share their BMC with `bmc` are left out: they have a warning.
    async fn find_by_uuid(
        &self,
        hardware: &str,
        bmc: &pb::Bmc,
        uuid: &str,
    ) -> Result<Option<pb::Bmc>, Error> {
        if machine_uuid::parse(uuid).is_err() {
            return Ok(None);
        }
        let address = Address::of(bmc);
        let shares =
            |other: &Address| address.as_ref().is_some_and(|own| own.may_share_machine(other));
        let is_other = |other: &pb::Bmc| {
            other.hardware_id != hardware
                && matches!(compare(uuid, &other.system_uuid), Comparison::Same)
                && Address::of(other).is_none_or(|other| !shares(&other))
        };
        let mut after = String::new();
        loop {
            let (page, more) = self.records.page("", &after, PAGE_RECORDS).await?;
            after = page.last().map_or(after, |last| last.id.clone());
            let found = page.into_iter().find(&is_other);
            if found.is_some() || !more {
                return Ok(found);
            }
        }
    }

    /// Passes unless the machine that a BMC lists is known to be another one than `hardware`, which
    /// is empty if it has no record yet.
    async fn check_machine(&self, hardware: &str, listed: &ListedMachine) -> Result<(), Error> {
        let Some(directory) = &self.hardware else { return Ok(()) };
        match directory.other_machine(hardware, listed).await? {
            Some(reason) => Err(Error::OtherMachine(reason)),
            None => Ok(()),
        }
    }
}

/// Sets what a login found in `bmc`: the UUID that the BMC lists, if there is one, and no warning
/// of another machine.
fn set_found(bmc: &mut pb::Bmc, uuid: &str) {
    set_system_uuid(bmc, uuid);
    if !bmc.shares_address {
        bmc.warning.clear();
    }
}

/// Sets the UUID of the machine in `bmc`, unless `listed` is none, a vendor's placeholder, or the
/// same in the other byte order.
pub(crate) fn set_system_uuid(bmc: &mut pb::Bmc, listed: &str) {
    let uuid = bmc_text::uuid(listed);
    if !uuid.is_empty() && !matches!(compare(&uuid, &bmc.system_uuid), Comparison::Same) {
        bmc.system_uuid = uuid;
    }
}

/// Compares the UUID that a BMC lists with that of its record.
fn compare(listed: &str, recorded: &str) -> Comparison {
    match (machine_uuid::parse(listed), machine_uuid::parse(recorded)) {
        (Ok(listed), Ok(recorded)) if machine_uuid::is_same(listed, recorded) => Comparison::Same,
        (Ok(listed), Ok(recorded)) => {
            Comparison::Other(format!("the BMC lists UUID {listed}, not {recorded}"))
        }
        (Err(_), _) | (_, Err(_)) => Comparison::Unknown,
    }
}

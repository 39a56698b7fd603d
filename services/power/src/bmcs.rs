//! The BMCs in the store: the visible fields in one record, the encrypted password in another.

mod identity;

use std::sync::Arc;
use std::time::SystemTime;

use data_encoding::HEXLOWER;
use prost_types::Timestamp;
use runtime::Clock;
use runtime::seal::Seal;
use runtime::secret::Secret;
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Kind as _, Records};
use store::{Commit, Expect, ScopedStore, Store};
use tinwright::field_mask;
use tinwright::hardware::v1::BmcInventory;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Protocol;
use tinwright::status::Violations;
use tinwright::{BmcId, HardwareId};

pub(crate) use self::identity::set_system_uuid;
use crate::Error;
use crate::address::{self, Address};
use crate::bmc_client::{self, BmcAddress, Learnt, Reading};
use crate::check;
use crate::conflicts::retry;
use crate::forms::AcceptedForms;
use crate::hardware_directory::HardwareDirectory;
use crate::ipmi;
use crate::redfish::{self, Sessions, Trust};
use crate::stored::{Bmc, Password, Queue};

/// Passwords that are read at a time to encrypt them with another key.
const RESEALED_AT_ONCE: usize = 100;

/// The rule for BMCs without TLS, whose passwords can be read on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaintextHttp {
    /// Only https.
    Refused,
    /// http as well, since the configuration allows it.
    Allowed,
}

/// The login to a BMC before its record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// Log in, and write nothing if that fails, or if the BMC lists another machine than the record's.
    Try,
    /// Log in, and write nothing if that fails. The machine may be another one.
    AcceptMachine,
    /// Write the record without a login.
    Skip,
}

/// The BMCs.
#[derive(Clone, Debug)]
pub struct Bmcs {
    /// The underlying records.
    pub records: Records<Bmc>,
    /// The encrypted passwords.
    pub(crate) passwords: Records<Password>,
    seal: Arc<Seal>,
    plaintext: PlaintextHttp,
    /// None if this process has no client of the hardware service.
    hardware: Option<HardwareDirectory>,
    /// The sessions with BMCs, one for each account.
    pub(crate) sessions: Sessions,
    /// The clock of all records of this service.
    pub(crate) clock: Clock,
}

impl Bmcs {
    /// The BMCs in `store`. Passwords are encrypted with `seal`, the site's of kind "bmc"; `clock` gives the times in records.
    pub fn new(store: Arc<dyn Store>, seal: Seal, plaintext: PlaintextHttp, clock: Clock) -> Self {
        let store = ScopedStore::new(store, "power");
        let (records, passwords) = (Records::new(store.clone()), Records::new(store));
        Self {
            records,
            passwords,
            seal: Arc::new(seal),
            plaintext,
            hardware: None,
            sessions: Sessions::default(),
            clock,
        }
    }

    /// Sets the service that knows which machine a BMC lists.
    pub(crate) fn set_hardware(&mut self, hardware: HardwareDirectory) {
        self.hardware = Some(hardware);
    }

    /// Adds a BMC. A repeated `request` returns the first result.
    pub async fn create(
        &self,
        bmc: pb::Bmc,
        login: Login,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Bmc, Error> {
        let mut bmc = check::bmc(bmc, self.plaintext)?;
        if let Some(created) = self.records.previous_result(request.as_ref()).await? {
            return Ok(created);
        }
        self.check_without_bmc(&bmc.hardware_id).await?;
        self.check_address_free(&bmc).await?;
        let password = Secret::new(std::mem::take(&mut bmc.password));
        let mut bmc = new_record(bmc, self.clock.wall())?;
        self.log_in(&mut bmc, password.clone(), login).await?;
        let password = self.encrypt(&bmc.id, password.expose())?;
        let password = self.passwords.to_create(&password);
        let created = self.records.create(&bmc, password, request.as_ref()).await;
        self.with_machine_of_address(&bmc, created).await
    }

    /// Fails if the machine with this id has a BMC: then there is no reason to log in to another one.
    async fn check_without_bmc(&self, hardware: &str) -> Result<(), Error> {
        let Some(bmc) = self.records.find("hardware", hardware).await? else { return Ok(()) };
        let (index, value) = ("hardware".to_owned(), hardware.to_owned());
        let taken = records::Error::Taken {
            noun: Bmc::NOUN,
            index,
            value,
            by: bmc.id,
            name: String::new(),
        };
        Err(taken.into())
    }

    /// Returns `bmc`, whose machine is not created yet, in its stored form, but with its password.
    pub(crate) fn check_new(&self, bmc: pb::Bmc) -> Result<pb::Bmc, Error> {
        let machine = HardwareId::new().to_string();
        let bmc = pb::Bmc { hardware_id: machine, ..requested(bmc) };
        Ok(check::bmc(bmc, self.plaintext)?)
    }

    /// Logs in to a BMC without a record, and reads the state and the inventory of its machine.
    pub(crate) async fn log_in_to_new(
        &self,
        bmc: &pb::Bmc,
    ) -> Result<(Reading, BmcInventory), Error> {
        let target = target(bmc, Secret::new(bmc.password.clone()), &self.sessions)?;
        Ok(bmc_client::read_inventory(target).await?)
    }

    /// Returns the BMC with this id.
    pub async fn get(&self, id: BmcId) -> Result<pb::Bmc, Error> {
        Ok(self.records.require(&id.to_string()).await?)
    }

    /// Returns the BMC of the machine with this id.
    pub async fn get_by_hardware(&self, hardware: &str) -> Result<pb::Bmc, Error> {
        let found = self.records.find("hardware", hardware).await?;
        let (hardware, name) = (hardware.to_owned(), hardware.to_owned());
        found.ok_or(Error::NoBmc { hardware, name })
    }

    /// Replaces the fields of a BMC that `paths` names. An omitted password stays. If the address changes, the password must be
    /// sent again: otherwise a caller who changes it could have the stored password sent to another host.
    pub async fn update(
        &self,
        update: pb::Bmc,
        paths: &[String],
        login: Login,
    ) -> Result<pb::Bmc, Error> {
        let old = self.records.at(&update.id, update.revision).await?;
        let old_password = self.passwords.require(&old.id).await?;
        let has_password = paths.iter().any(|path| path == "password")
            || !update.password.is_empty() && paths.is_empty();
        let mut new = check::bmc(field_mask::merge(&old, &update, paths)?, self.plaintext)?;
        if host(&new) != host(&old) && !has_password {
            return Err(Violations::single("password", "is required to change the address").into());
        }
        let password = Secret::new(std::mem::take(&mut new.password));
        let is_same = new == old && !has_password;
        if is_same && login != Login::AcceptMachine {
            return Ok(old);
        }
        forget_address(&old, &mut new);
        if Address::of(&old) != Address::of(&new) {
            self.check_address_free(&new).await?;
            if login != Login::Skip {
                // It may be that of the machine at the former address: the login reads the new one.
                // Without a login, the next job compares it.
                new.system_uuid.clear();
            }
        }
        let is_login_changed = (&new.username, &new.protocol) != (&old.username, &old.protocol);
        if is_login_changed || has_password || login == Login::AcceptMachine {
            let password = match has_password {
                true => password.clone(),
                false => self.decrypt(&old_password)?,
            };
            self.log_in(&mut new, password, login).await?;
        }
        if new == old && !has_password {
            return Ok(old);
        }
        new.update_time = Some(Timestamp::from(self.clock.wall()));
        let mut change = self.records.to_replace(&old, &new);
        if has_password {
            let password = self.encrypt(&old.id, password.expose())?;
            change = change.and(self.passwords.to_replace(&old_password, &password));
        }
        let committed = self.records.commit(change).await;
        new.revision = self.with_machine_of_address(&new, committed).await?.0.cast_signed();
        Ok(new)
    }

    /// Deletes a BMC that has no job. A controller that releases its claim on the queue meanwhile does not prevent that.
    pub async fn delete(&self, id: BmcId, revision: i64) -> Result<(), Error> {
        retry(|| self.delete_once(id, revision)).await
    }

    async fn delete_once(&self, id: BmcId, revision: i64) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        let queues = Records::<Queue>::new(self.records.store().clone());
        // A job that is created meanwhile changes the queue, so this commit fails; one created later finds no BMC.
        let no_jobs = match queues.get(&old.hardware_id).await? {
            Some(queue) => match queue.job_ids.first() {
                Some(job) => {
                    return Err(Error::Busy { hardware: old.hardware_id, job: job.clone() });
                }
                None => queues.to_delete(&queue),
            },
            None => {
                let absent = Expect::Absent(format!("{}/{}", Queue::KIND, old.hardware_id));
                Change::from(Commit { expect: vec![absent], writes: Vec::new() })
            }
        };
        let password = self.passwords.require(&old.id).await?;
        let deletion = self.records.to_delete(&old).and(self.passwords.to_delete(&password));
        self.records.commit(deletion.and(no_jobs)).await?;
        Ok(())
    }

    /// Returns the address and the credentials of `bmc`.
    pub async fn target(&self, bmc: &pb::Bmc) -> Result<BmcAddress, Error> {
        let stored = self.passwords.require(&bmc.id).await?;
        target(bmc, self.decrypt(&stored)?, &self.sessions)
    }

    /// Stores what a client learnt of a BMC in `bmc`, its record as it was read, and returns the new record: the certificate of the first
    /// login, from which on another one is refused, and the accepted forms of requests. Without anything new nothing changes.
    pub async fn pin(&self, bmc: pb::Bmc, learnt: &Learnt) -> Result<pb::Bmc, Error> {
        let mut new = bmc.clone();
        if !set_learnt(&mut new, learnt) {
            return Ok(bmc);
        }
        new.update_time = Some(Timestamp::from(self.clock.wall()));
        match self.records.commit(self.records.to_replace(&bmc, &new)).await {
            Ok(revision) => Ok(pb::Bmc { revision: revision.0.cast_signed(), ..new }),
            // Whoever changed the record decides: the next login compares.
            Err(records::Error::Changed { .. }) => Ok(bmc),
            Err(error) => Err(error.into()),
        }
    }

    /// Encrypts all passwords with the newest key, where they are not. Returns the number of changed records.
    pub async fn reseal(&self) -> Result<usize, Error> {
        let (mut after, mut changed) = (String::new(), 0);
        loop {
            let page = self.passwords.list(&after, RESEALED_AT_ONCE, |_| true).await?;
            for stored in page.records {
                changed += usize::from(self.reseal_password(&stored).await?);
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(changed),
            }
        }
    }

    async fn reseal_password(&self, stored: &Password) -> Result<bool, Error> {
        if self.seal.is_newest(&stored.id, &stored.sealed) {
            return Ok(false);
        }
        let password = self.seal.open(&stored.id, &stored.sealed)?;
        let sealed = self.seal.seal(&stored.id, password.expose())?;
        let new = Password { sealed, ..stored.clone() };
        match self.passwords.commit(self.passwords.to_replace(stored, &new)).await {
            Ok(_) => Ok(true),
            // Whoever changed it has encrypted it with the newest key.
            Err(records::Error::Changed { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn decrypt(&self, stored: &Password) -> Result<Secret<String>, Error> {
        let password = self.seal.open(&stored.id, &stored.sealed)?;
        Ok(Secret::new(String::from_utf8_lossy(password.expose()).into_owned()))
    }

    fn encrypt(&self, id: &str, password: &str) -> Result<Password, Error> {
        let sealed = self.seal.seal(id, password.as_bytes())?;
        Ok(Password { id: id.to_owned(), revision: 0, sealed })
    }
}

/// Returns the address and the credentials of `bmc`.
fn target(
    bmc: &pb::Bmc,
    password: Secret<String>,
    sessions: &Sessions,
) -> Result<BmcAddress, Error> {
    let username = bmc.username.clone();
    let accepted = AcceptedForms::from(bmc.accepted_forms.clone());
    Ok(match &bmc.protocol {
        Some(Protocol::Redfish(bmc)) => BmcAddress::Redfish(redfish::Target {
            url: bmc.url.clone(),
            system: bmc.system_id.clone(),
            username,
            password,
            trust: match (bmc.signed_by_root, check::digest(&bmc.certificate_sha256)) {
                (true, _) => Trust::Roots,
                (false, Some(digest)) => Trust::Certificate(digest),
                (false, None) => Trust::FirstUse,
            },
            legacy_tls: bmc.legacy_tls,
            accepted,
            sessions: sessions.clone(),
        }),
        Some(Protocol::Ipmi(bmc)) => BmcAddress::Ipmi(ipmi::Endpoint {
            host: bmc.host.clone(),
            port: address::port(bmc),
            username,
            password,
            cipher_suite: (bmc.cipher_suite != 0).then_some(bmc.cipher_suite),
            accepted,
        }),
        None => return Err(Violations::single("protocol", "is missing").into()),
    })
}

/// Sets the certificate of a BMC that has none, and its accepted forms. True if anything changes.
pub(crate) fn set_learnt(bmc: &mut pb::Bmc, learnt: &Learnt) -> bool {
    let accepted = learnt.accepted.clone().into();
    let has_new_forms = bmc.accepted_forms != accepted;
    bmc.accepted_forms = accepted;
    set_certificate(bmc, learnt.certificate) || has_new_forms
}

/// Sets the certificate of a BMC that has none. True if it is set.
fn set_certificate(bmc: &mut pb::Bmc, certificate: Option<[u8; 32]>) -> bool {
    match (&mut bmc.protocol, certificate) {
        (Some(Protocol::Redfish(redfish)), Some(digest))
            if redfish.certificate_sha256.is_empty() && !redfish.signed_by_root =>
        {
            redfish.certificate_sha256 = HEXLOWER.encode(&digest);
            true
        }
        _ => false,
    }
}

/// Empties what `new` has from the address of `old`, if it has another one.
fn forget_address(old: &pb::Bmc, new: &mut pb::Bmc) {
    if Address::of(old) != Address::of(new) {
        new.warning.clear();
        new.shares_address = false;
    }
    let is_moved = host(old) != host(new);
    if is_moved {
        new.accepted_forms.clear();
    }
    if let (Some(Protocol::Redfish(old)), Some(Protocol::Redfish(new))) =
        (&old.protocol, &mut new.protocol)
        && is_moved
        && old.certificate_sha256 == new.certificate_sha256
    {
        new.certificate_sha256.clear();
    }
}

/// Returns the address to which a BMC's password is sent.
fn host(bmc: &pb::Bmc) -> Option<(&str, u16)> {
    bmc.protocol.as_ref().map(|protocol| match protocol {
        Protocol::Redfish(redfish) => (redfish.url.as_str(), 0),
        Protocol::Ipmi(ipmi) => (ipmi.host.as_str(), address::port(ipmi)),
    })
}

/// Returns `bmc` as a request may order it: without what only the server sets.
pub(crate) fn requested(bmc: pb::Bmc) -> pb::Bmc {
    let (system_uuid, warning) = (String::new(), String::new());
    let accepted_forms = Default::default();
    pb::Bmc { system_uuid, warning, shares_address: false, accepted_forms, ..bmc }
}

/// Completes a new record with its id and its times.
fn new_record(mut bmc: pb::Bmc, now: SystemTime) -> Result<pb::Bmc, Violations> {
    let id = match bmc.id.as_str() {
        "" => BmcId::new(),
        id => id.parse().map_err(|reason| Violations::single("id", reason))?,
    };
    bmc.id = id.to_string();
    bmc.revision = 0;
    bmc.create_time = Some(Timestamp::from(now));
    bmc.update_time = bmc.create_time;
    Ok(bmc)
}

#[cfg(test)]
mod tests;

//! The BMCs in the store: the visible fields in one record, the encrypted password in another.

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

use crate::Error;
use crate::bmc_client::{self, BmcAddress, Reading};
use crate::check;
use crate::conflicts::retry;
use crate::ipmi;
use crate::redfish::{self, Trust};
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
    /// Log in, and write nothing if that fails.
    Try,
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
    /// The clock of all records of this service.
    pub(crate) clock: Clock,
}

impl Bmcs {
    /// The BMCs in `store`. Passwords are encrypted with `seal`, the site's of kind "bmc"; `clock` gives the times in records.
    pub fn new(store: Arc<dyn Store>, seal: Seal, plaintext: PlaintextHttp, clock: Clock) -> Self {
        let store = ScopedStore::new(store, "power");
        let (records, passwords) = (Records::new(store.clone()), Records::new(store));
        Self { records, passwords, seal: Arc::new(seal), plaintext, clock }
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
        let password = Secret::new(std::mem::take(&mut bmc.password));
        if login == Login::Try {
            log_in(&mut bmc, password.clone()).await?;
        }
        let bmc = new_record(bmc, self.clock.wall())?;
        let password = self.encrypt(&bmc.id, password.expose())?;
        let password = self.passwords.to_create(&password);
        Ok(self.records.create(&bmc, password, request.as_ref()).await?)
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
        Ok(check::bmc(pb::Bmc { hardware_id: machine, ..bmc }, self.plaintext)?)
    }

    /// Logs in to a BMC without a record, and reads the state and the inventory of its machine.
    pub(crate) async fn log_in_to_new(
        &self,
        bmc: &pb::Bmc,
    ) -> Result<(Reading, BmcInventory), Error> {
        let target = target(bmc, Secret::new(bmc.password.clone()))?;
        Ok(bmc_client::read_inventory(target).await?)
    }

    /// Returns the BMC with the address and the system of `wanted`, if there is one.
    pub(crate) async fn find_by_address(&self, wanted: &pb::Bmc) -> Result<Option<pb::Bmc>, Error> {
        let mut after = String::new();
        loop {
            let is_same = |bmc: &pb::Bmc| address(bmc) == address(wanted);
            let page = self.records.list(&after, 1, is_same).await?;
            match (page.records.into_iter().next(), page.next) {
                (Some(found), _) => return Ok(Some(found)),
                (None, Some(next)) => after = next,
                (None, None) => return Ok(None),
            }
        }
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
        if new == old && !has_password {
            return Ok(old);
        }
        forget_certificate(&old, &mut new);
        let is_login_changed = (&new.username, &new.protocol) != (&old.username, &old.protocol);
        if login == Login::Try && (is_login_changed || has_password) {
            let password = match has_password {
                true => password.clone(),
                false => self.decrypt(&old_password)?,
            };
            log_in(&mut new, password).await?;
        }
        new.update_time = Some(Timestamp::from(self.clock.wall()));
        let mut change = self.records.to_replace(&old, &new);
        if has_password {
            let password = self.encrypt(&old.id, password.expose())?;
            change = change.and(self.passwords.to_replace(&old_password, &password));
        }
        new.revision = self.records.commit(change).await?.0.cast_signed();
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
        target(bmc, self.decrypt(&stored)?)
    }

    /// Stores the certificate of a BMC's first login in `bmc`, its record as it was read, and returns the new record. From then
    /// on another certificate is refused. Without a certificate, or with another one in the record, nothing changes.
    pub async fn pin(&self, bmc: pb::Bmc, certificate: Option<[u8; 32]>) -> Result<pb::Bmc, Error> {
        let mut new = bmc.clone();
        if !set_certificate(&mut new, certificate) {
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
fn target(bmc: &pb::Bmc, password: Secret<String>) -> Result<BmcAddress, Error> {
    let username = bmc.username.clone();
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
        }),
        Some(Protocol::Ipmi(bmc)) => BmcAddress::Ipmi(ipmi::Endpoint {
            host: bmc.host.clone(),
            port: check::port(bmc),
            username,
            password,
            cipher_suite: (bmc.cipher_suite != 0).then_some(bmc.cipher_suite),
        }),
        None => return Err(Violations::single("protocol", "is missing").into()),
    })
}

/// Logs in to `bmc`, and reads its machine. Sets its certificate if it is the first login.
async fn log_in(bmc: &mut pb::Bmc, password: Secret<String>) -> Result<(), Error> {
    let reading = bmc_client::read_system(target(bmc, password)?).await?;
    set_certificate(bmc, reading.certificate);
    Ok(())
}

/// Sets the certificate of a BMC that has none. True if it is set.
pub(crate) fn set_certificate(bmc: &mut pb::Bmc, certificate: Option<[u8; 32]>) -> bool {
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

/// Empties the certificate in `new` if it is that of `old`, which has another address.
fn forget_certificate(old: &pb::Bmc, new: &mut pb::Bmc) {
    let is_moved = host(old) != host(new);
    if let (Some(Protocol::Redfish(old)), Some(Protocol::Redfish(new))) =
        (&old.protocol, &mut new.protocol)
        && is_moved
        && old.certificate_sha256 == new.certificate_sha256
    {
        new.certificate_sha256.clear();
    }
}

/// Returns the address of a BMC, and the system that it is for: no two records have the same.
pub(crate) fn address(bmc: &pb::Bmc) -> Option<(&str, u16, &str)> {
    let system = match &bmc.protocol {
        Some(Protocol::Redfish(redfish)) => redfish.system_id.as_str(),
        Some(Protocol::Ipmi(_)) | None => "",
    };
    host(bmc).map(|(host, port)| (host, port, system))
}

/// Returns the address to which a BMC's password is sent.
fn host(bmc: &pb::Bmc) -> Option<(&str, u16)> {
    bmc.protocol.as_ref().map(|protocol| match protocol {
        Protocol::Redfish(redfish) => (redfish.url.as_str(), 0),
        Protocol::Ipmi(ipmi) => (ipmi.host.as_str(), check::port(ipmi)),
    })
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

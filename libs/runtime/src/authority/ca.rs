//! Replacing the site's authority, step by step.
//!
//! ```text
//! prepare   ca-key.next.pem and ca-cross.pem, then ca.pem: both are trusted, the former one issues
//! replace   ca-key.next.pem becomes ca-key.pem, then ca.pem begins with the new one: the new one issues
//! finish    ca.pem has the new one only
//! ```
//!
//! A process that starts between two files issues with the key that is there, and trusts what `ca.pem` has. `ca-cross.pem` stays until the
//! next rotation, for machines that know the former authority only and have a certificate of the new one.

use std::fs::{self, File};
use std::io;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use time::OffsetDateTime;

use super::site_key::time_left;
use super::trust::{Trust, is_of_key};
use super::{AUTHORITY_VALIDITY, BACKDATED, Error, MACHINE_VALIDITY, SiteAuthority, file, write};
use crate::serial::Serial;

/// What is replaced, in errors.
pub(super) const NOUN: &str = "authority";
const KEY: &str = "ca-key.pem";
const NEXT_KEY: &str = "ca-key.next.pem";
const CERTIFICATES: &str = "ca.pem";
const CROSS: &str = "ca-cross.pem";

/// The longest validity of the certificates of machines, which they renew.
pub const MAX_MACHINE_VALIDITY: Duration = MACHINE_VALIDITY.unsigned_abs();

impl SiteAuthority {
    /// Makes the next authority, unless there is one: it is trusted, and issues nothing. An error if a rotation is not finished.
    pub fn prepare_authority(&self) -> Result<(), Error> {
        self.reload_authority()?;
        match self.trust().all.len() > 1 {
            false => self.make_next_authority(),
            true if self.folder.join(NEXT_KEY).exists() => Ok(()),
            true => Err(Error::Rotating(NOUN)),
        }
    }

    fn make_next_authority(&self) -> Result<(), Error> {
        let trust = self.trust();
        let former = self.issuer()?;
        let key = KeyPair::generate()?;
        let suffix: String = Serial::random()?.to_string().chars().take(8).collect();
        let name = format!("tinwright site authority {suffix}");
        let mut params = authority_params(&name, self.now());
        let next = params.self_signed(&key)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let cross = params.signed_by(&key, &former)?;
        write(&self.folder.join(NEXT_KEY), key.serialize_pem().as_bytes())?;
        write(&self.folder.join(CROSS), cross.pem().as_bytes())?;
        let both = [trust.pems(), vec![next.pem()]].concat().concat();
        write(&self.folder.join(CERTIFICATES), both.as_bytes())?;
        self.reload_authority().map(|_| ())
    }

    /// Lets the next authority issue, and makes one if there is none. The former one is trusted. An error if a rotation is not finished.
    pub fn use_next_authority(&self) -> Result<(), Error> {
        self.reload_authority()?;
        if self.trust().all.len() == 1 {
            self.make_next_authority()?;
        }
        let (next, key) = (self.folder.join(NEXT_KEY), self.folder.join(KEY));
        if next.exists() {
            let moved = fs::rename(&next, &key).and_then(|()| File::open(&self.folder)?.sync_all());
            moved.map_err(file(&key))?;
        } else if self.trust().issuer == 0 {
            return Err(Error::Rotating(NOUN));
        }
        let trust = Trust::read(&self.folder)?;
        write(&self.folder.join(CERTIFICATES), trust.pems().concat().as_bytes())?;
        self.reload_authority().map(|_| ())
    }

    /// Trusts the new authority only, and returns true if there was a former one: its certificates are refused from now on.
    pub fn drop_old_authority(&self) -> Result<bool, Error> {
        let Some(trust) = self.unfinished()? else {
            return self.reload_authority().map(|_| false);
        };
        let only = trust.pems().into_iter().take(1).collect::<String>();
        write(&self.folder.join(CERTIFICATES), only.as_bytes())?;
        self.reload_authority().map(|_| true)
    }

    /// Returns what is left of `validity` since the former authority was replaced; zero if there is none.
    pub fn authority_use_left(&self, validity: Duration) -> Result<Duration, Error> {
        if self.unfinished()?.is_none() {
            return Ok(Duration::ZERO);
        }
        let path = self.folder.join(CERTIFICATES);
        let replaced: Result<SystemTime, io::Error> =
            fs::metadata(&path).and_then(|it| it.modified());
        Ok(time_left(replaced.map_err(file(&path))?, validity, self.clock.wall()))
    }

    /// Returns the certificates if there is a former authority, which a new one has replaced. An error if a new one is not used yet, or if this
    /// process has no key: only the one with the new key knows which authority is the new one.
    fn unfinished(&self) -> Result<Option<Trust>, Error> {
        let trust = Trust::read(&self.folder)?;
        if self.folder.join(NEXT_KEY).exists() {
            return Err(Error::NotReplaced);
        }
        if trust.all.len() == 1 {
            return Ok(None);
        }
        let key = self.folder.join(KEY);
        match (key.exists(), trust.issuer == 0 && trust.issues_by_new_key()) {
            (false, _) => Err(Error::NoKey(key)),
            (true, false) => Err(Error::NotReplaced),
            (true, true) => Ok(Some(trust)),
        }
    }

    /// Returns the authority that issues, with its key. Both were read together: a replacement between two files refuses nobody.
    pub(super) fn issuer(&self) -> Result<Issuer<'static, KeyPair>, Error> {
        let path = self.folder.join(KEY);
        let trust = self.trust();
        let Some(key) = trust.key.as_ref().filter(|_| path.exists()) else {
            return Err(Error::NoKey(path));
        };
        let key = KeyPair::from_pem(key.expose())?;
        if !is_of_key(trust.issuer(), &key) {
            return Err(Error::Damaged(path));
        }
        Ok(Issuer::from_ca_cert_der(trust.issuer(), key)?)
    }
}

/// Returns the parameters of an authority with this name.
pub(super) fn authority_params(name: &str, now: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    // One below it, for the certificate of the authority that replaces it.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // A name of its own: OpenSSL takes a leaf of the same name for self-signed.
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (now - BACKDATED, now + AUTHORITY_VALIDITY);
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Role;

    /// Returns the number of trusted certificates, and the fingerprint of the one that issues, as a process that starts now has them.
    fn at_start(folder: &tempfile::TempDir) -> (usize, String) {
        let site = SiteAuthority::open(folder.path()).unwrap();
        site.client(&Role::Admin.into()).unwrap();
        (site.fingerprints().len(), site.fingerprint())
    }

    #[test]
    fn a_rotation_prepares_uses_and_drops_authorities_and_may_be_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        let first = site.fingerprint();
        site.prepare_authority().unwrap();
        site.prepare_authority().unwrap();
        assert_eq!(at_start(&folder), (2, first.clone()));
        assert!(matches!(site.drop_old_authority(), Err(Error::NotReplaced)));
        let second = site.fingerprints().pop().unwrap();
        // Interrupted after the key became the current one.
        fs::rename(folder.path().join(NEXT_KEY), folder.path().join(KEY)).unwrap();
        site.client(&Role::Admin.into()).expect("a server that runs issues between any two files");
        assert_eq!(at_start(&folder), (2, second.clone()));
        assert!(matches!(site.drop_old_authority(), Err(Error::NotReplaced)));
        site.reload_authority().unwrap();
        site.use_next_authority().unwrap();
        assert_eq!(at_start(&folder), (2, second.clone()));
        let refused = [site.prepare_authority(), site.use_next_authority()];
        for refused in refused.map(Result::unwrap_err) {
            let hint =
                "authority is not finished: run `tinwright identity rotate ca --finish` first";
            assert!(refused.to_string().ends_with(hint), "{refused}");
        }
        assert_eq!(site.authority_names().len(), 2);
        assert!(site.authority_use_left(MAX_MACHINE_VALIDITY).unwrap() > Duration::ZERO);
        assert!(site.drop_old_authority().unwrap() && !site.drop_old_authority().unwrap());
        assert_eq!(at_start(&folder), (1, second.clone()));
        assert_eq!(site.authority_use_left(MAX_MACHINE_VALIDITY).unwrap(), Duration::ZERO);
        site.use_next_authority().unwrap();
        assert_ne!(site.fingerprint(), second);
        assert_eq!(site.fingerprints().len(), 2);
    }

    #[test]
    fn a_replica_that_was_not_given_the_new_key_drops_no_authority() {
        let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let copy = |names: &[&str]| {
            for name in names {
                fs::copy(here.path().join(name), there.path().join(name)).unwrap();
            }
        };
        let site = SiteAuthority::open(here.path()).unwrap();
        site.prepare_authority().unwrap();
        copy(&["site.key", KEY, CERTIFICATES, CROSS]);
        let replica = SiteAuthority::open(there.path()).unwrap();
        assert!(matches!(replica.prepare_authority(), Err(Error::Rotating(_))));
        assert!(matches!(replica.use_next_authority(), Err(Error::Rotating(_))));
        assert!(matches!(replica.drop_old_authority(), Err(Error::NotReplaced)));
        site.use_next_authority().unwrap();
        copy(&[CERTIFICATES]);
        // Its key is the former one, which issues there until the new one is copied.
        assert!(matches!(replica.drop_old_authority(), Err(Error::NotReplaced)));
        replica.client(&Role::Admin.into()).unwrap();
        fs::remove_file(there.path().join(KEY)).unwrap();
        assert!(matches!(replica.drop_old_authority(), Err(Error::NoKey(_))));
        copy(&[KEY]);
        assert!(replica.drop_old_authority().unwrap());
        assert_eq!(replica.fingerprints(), [site.fingerprint()]);
    }
}

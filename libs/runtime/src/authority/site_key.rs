//! The files of the site's symmetric key, and its rotation.
//!
//! ```text
//! <secrets>/site.key          the key that is used
//! <secrets>/site.key.next     the next one: accepted already, before any process uses it
//! <secrets>/site.key.old      the former one: accepted until the rotation is finished
//! ```
//!
//! Each step writes its files one by one, and a process that starts between two of them accepts the same keys. A key that is in two
//! files counts once.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::{Error, SiteAuthority, edge, file, keyless, remove, write};
use crate::secret::{KEY_BYTES, SiteKey};
use crate::site_keys::SiteKeys;

/// What is replaced, in errors.
const NOUN: &str = "site key";
pub(super) const CURRENT: &str = "site.key";
const NEXT: &str = "site.key.next";
const OLD: &str = "site.key.old";

/// The longest validity of what was made with a key, such as the metadata service's session tokens. What is stored is encrypted anew.
pub const MAX_KEY_USE: Duration = Duration::from_secs(6 * 60 * 60);

/// The keys in the files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredKeys {
    current: SiteKey,
    next: Option<SiteKey>,
    old: Option<SiteKey>,
}

impl StoredKeys {
    /// Returns the keys of an edge, a door or a builder.
    pub(super) fn new(current: SiteKey, old: Option<SiteKey>) -> Self {
        Self { current, next: None, old }
    }

    /// Reads the keys in `folder`.
    pub(super) fn read(folder: &std::path::Path) -> Result<Self, Error> {
        if edge::is_edge(folder) {
            return edge::read_keys(folder);
        }
        if let Some(name) = keyless::name(folder) {
            return keyless::read_keys(folder, name);
        }
        let key = |name: &str| -> Result<Option<SiteKey>, Error> {
            let path = folder.join(name);
            if !path.exists() {
                return Ok(None);
            }
            let bytes = fs::read(&path).map_err(file(&path))?;
            let bytes: [u8; KEY_BYTES] = bytes.try_into().map_err(|_| Error::Damaged(path))?;
            Ok(Some(SiteKey::new(bytes)))
        };
        // In the order in which a rotation moves keys from file to file, so that none is missed.
        let (next, current, old) = (key(NEXT)?, key(CURRENT)?, key(OLD)?);
        let current = match current {
            Some(current) => current,
            None => return Err(file(&folder.join(CURRENT))(std::io::ErrorKind::NotFound.into())),
        };
        let other = |key: &SiteKey| *key != current;
        Ok(Self { next: next.filter(other), old: old.filter(other), current })
    }

    pub(super) fn into_keys(self) -> SiteKeys {
        let others = self.others();
        SiteKeys::new(self.current, others)
    }

    /// Returns the keys that are accepted besides the current one.
    fn others(&self) -> Vec<SiteKey> {
        self.old.iter().chain(&self.next).cloned().collect()
    }
}

impl SiteAuthority {
    /// Returns the keys from which the others are derived. They change while a rotation runs.
    pub fn keys(&self) -> &SiteKeys {
        &self.keys
    }

    /// Reads the site's keys again. Returns true if they have changed.
    pub fn reload_keys(&self) -> Result<bool, Error> {
        let stored = StoredKeys::read(&self.folder)?;
        let others = stored.others();
        Ok(self.keys.set(stored.current, others))
    }

    /// Returns the former key of a rotation that is not finished.
    pub fn old_key(&self) -> Result<Option<SiteKey>, Error> {
        Ok(StoredKeys::read(&self.folder)?.old)
    }

    /// Makes the next key, unless there is one: it is accepted, and not used. An error if a rotation is not finished.
    pub fn prepare_key(&self) -> Result<(), Error> {
        let stored = StoredKeys::read(&self.folder)?;
        if stored.old.is_some() {
            return Err(Error::Rotating(NOUN));
        }
        if stored.next.is_none() {
            write(&self.key_file(NEXT), SiteKey::random()?.expose())?;
        }
        self.reload_keys().map(|_| ())
    }

    /// Uses the next key, and makes one if there is none. The former one is accepted. An error if a rotation is not finished.
    pub fn use_next_key(&self) -> Result<(), Error> {
        let stored = StoredKeys::read(&self.folder)?;
        if stored.old.is_some() {
            return Err(Error::Rotating(NOUN));
        }
        let next = match stored.next {
            Some(next) => next,
            None => SiteKey::random()?,
        };
        // The former key is stored twice before it is replaced.
        write(&self.key_file(OLD), stored.current.expose())?;
        write(&self.key_file(CURRENT), next.expose())?;
        remove(&self.key_file(NEXT))?;
        self.reload_keys().map(|_| ())
    }

    /// Drops the former key, and returns true if there was one. What it sealed cannot be opened any more.
    pub fn drop_old_key(&self) -> Result<bool, Error> {
        let existed = StoredKeys::read(&self.folder)?.old.is_some();
        remove(&self.key_file(OLD))?;
        self.reload_keys()?;
        Ok(existed)
    }

    /// Returns what is left of `validity` since the former key was replaced; zero if there is none.
    pub fn key_use_left(&self, validity: Duration) -> Result<Duration, Error> {
        let path = self.key_file(OLD);
        let replaced = match fs::metadata(&path).and_then(|it| it.modified()) {
            Ok(replaced) => replaced,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Duration::ZERO);
            }
            Err(error) => return Err(file(&path)(error)),
        };
        Ok(time_left(replaced, validity, self.clock.wall()))
    }

    fn key_file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Returns what is left at `now` of `validity` since `start`.
pub(super) fn time_left(start: SystemTime, validity: Duration, now: SystemTime) -> Duration {
    (start + validity).duration_since(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::clock::Clock;
    use crate::seal::Seal;
    use crate::site_keys::PerKey;

    fn site() -> (tempfile::TempDir, SiteAuthority) {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        (folder, site)
    }

    /// Returns the newest key and the others, as a process that starts now has them.
    fn at_start(folder: &tempfile::TempDir) -> PerKey<SiteKey> {
        (*SiteAuthority::open(folder.path()).unwrap().keys().get()).clone()
    }

    #[test]
    fn a_rotation_prepares_uses_and_drops_keys() {
        let (folder, site) = site();
        let first = site.keys().get().newest.clone();
        site.prepare_key().unwrap();
        site.prepare_key().unwrap();
        let prepared = site.keys().get();
        assert_eq!((&prepared.newest, prepared.others.len()), (&first, 1));
        let mode = fs::metadata(folder.path().join(NEXT)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        site.use_next_key().unwrap();
        let (used, second) = (site.keys().get(), prepared.others[0].clone());
        assert_eq!(*used, PerKey { newest: second.clone(), others: vec![first.clone()] });
        assert_eq!(at_start(&folder), *used);
        for refused in [site.prepare_key(), site.use_next_key()].map(Result::unwrap_err) {
            let hint =
                "site key is not finished: run `tinwright identity rotate site-key --finish` first";
            assert!(refused.to_string().ends_with(hint), "{refused}");
        }
        assert!(!folder.path().join(NEXT).exists());
        assert!(site.drop_old_key().unwrap() && !site.drop_old_key().unwrap());
        assert_eq!(*site.keys().get(), PerKey { newest: second, others: vec![] });
    }

    #[test]
    fn a_site_starts_after_an_interruption_between_any_two_files() {
        let (folder, site) = site();
        let first = site.keys().get().newest.clone();
        let second = SiteKey::new([2; KEY_BYTES]);
        let put = |name: &str, key: &SiteKey| write(&folder.path().join(name), key.expose());
        put(NEXT, &second).unwrap();
        let accepted = PerKey { newest: first.clone(), others: vec![second.clone()] };
        assert_eq!(at_start(&folder), accepted);
        put(OLD, &first).unwrap();
        assert_eq!(at_start(&folder), accepted);
        assert!(site.old_key().unwrap().is_none());
        put(CURRENT, &second).unwrap();
        let used = PerKey { newest: second, others: vec![first.clone()] };
        assert_eq!(at_start(&folder), used);
        assert_eq!(site.old_key().unwrap(), Some(first));
        // A server that runs takes the files of another one.
        assert!(site.reload_keys().unwrap() && !site.reload_keys().unwrap());
        assert_eq!(*site.keys().get(), used);
        fs::write(folder.path().join(OLD), b"short").unwrap();
        assert!(matches!(site.reload_keys(), Err(Error::Damaged(_))));
        assert_eq!(*site.keys().get(), used);
    }

    #[test]
    fn what_the_former_key_sealed_is_opened_until_it_is_dropped() {
        let (_folder, site) = site();
        let seal = Seal::new(site.keys(), "bmc").unwrap();
        let sealed = seal.seal("a", b"hunter2").unwrap();
        site.use_next_key().unwrap();
        assert!(seal.open("a", &sealed).is_ok());
        site.drop_old_key().unwrap();
        assert!(seal.open("a", &sealed).is_err());
    }

    #[test]
    fn tokens_of_the_former_key_end_after_six_hours() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::manual(SystemTime::now());
        let site = SiteAuthority::open_at(folder.path(), clock.clone()).unwrap();
        assert_eq!(site.key_use_left(MAX_KEY_USE).unwrap(), Duration::ZERO);
        site.use_next_key().unwrap();
        assert!(site.key_use_left(MAX_KEY_USE).unwrap() > MAX_KEY_USE / 2);
        clock.advance(2 * MAX_KEY_USE);
        assert_eq!(site.key_use_left(MAX_KEY_USE).unwrap(), Duration::ZERO);
    }
}

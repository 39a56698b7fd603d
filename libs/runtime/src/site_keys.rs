//! The keys of a site while one replaces another: the newest one makes what is new, and the others are accepted as well.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::secret::{CryptoError, SiteKey};

/// A value of the newest key, and those of the other keys that are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerKey<T> {
    /// That of the key which makes what is new.
    pub newest: T,
    /// Those of the keys which are only accepted.
    pub others: Vec<T>,
}

impl<T> PerKey<T> {
    /// Returns all values, beginning with the newest.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.newest).chain(&self.others)
    }

    fn try_map<U, E>(&self, f: impl Fn(&T) -> Result<U, E>) -> Result<PerKey<U>, E> {
        let others = self.others.iter().map(&f).collect::<Result<_, E>>()?;
        Ok(PerKey { newest: f(&self.newest)?, others })
    }
}

/// The keys of a site. All clones change together.
#[derive(Clone, Debug)]
pub struct SiteKeys(Arc<RwLock<Arc<PerKey<SiteKey>>>>);

impl SiteKeys {
    /// Returns the keys `newest` and `others`.
    pub fn new(newest: SiteKey, others: Vec<SiteKey>) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(PerKey { newest, others }))))
    }

    /// Returns the present keys.
    pub fn get(&self) -> Arc<PerKey<SiteKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the keys, also for everything that was derived from them. Returns true if they differ from the present ones.
    pub fn set(&self, newest: SiteKey, others: Vec<SiteKey>) -> bool {
        let keys = Arc::new(PerKey { newest, others });
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let differ = **current != *keys;
        if differ {
            *current = keys;
        }
        differ
    }
}

impl From<&Self> for SiteKeys {
    /// Returns the same keys: they change together.
    fn from(keys: &Self) -> Self {
        keys.clone()
    }
}

impl From<&SiteKey> for SiteKeys {
    /// Returns one key, which no rotation replaces.
    fn from(key: &SiteKey) -> Self {
        Self::new(key.clone(), Vec::new())
    }
}

type Derive<T> = Box<dyn Fn(&SiteKey) -> Result<T, CryptoError> + Send + Sync>;

/// A value that is derived from each of the site's keys, and derived anew when they change.
pub struct Derived<T> {
    keys: SiteKeys,
    derive: Derive<T>,
    current: RwLock<Current<T>>,
}

/// Derived values, with the keys that they are derived from.
struct Current<T> {
    keys: Arc<PerKey<SiteKey>>,
    values: Arc<PerKey<T>>,
}

impl<T> fmt::Debug for Derived<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derived").finish_non_exhaustive()
    }
}

impl<T> Derived<T> {
    /// Derives a value from each of `keys` with `derive`.
    pub fn new(
        keys: impl Into<SiteKeys>,
        derive: impl Fn(&SiteKey) -> Result<T, CryptoError> + Send + Sync + 'static,
    ) -> Result<Self, CryptoError> {
        let keys = keys.into();
        let of = keys.get();
        let values = Arc::new(of.try_map(&derive)?);
        let current = RwLock::new(Current { keys: of, values });
        Ok(Self { keys, derive: Box::new(derive), current })
    }

    /// Returns the values of the present keys. If they cannot be derived, the former ones stay.
    pub fn get(&self) -> Arc<PerKey<T>> {
        let keys = self.keys.get();
        let former = {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            if Arc::ptr_eq(&current.keys, &keys) {
                return current.values.clone();
            }
            current.values.clone()
        };
        match keys.try_map(&self.derive) {
            Ok(values) => {
                let values = Arc::new(values);
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                *current = Current { keys, values: values.clone() };
                values
            }
            Err(error) => {
                let error = crate::cause(&error);
                tracing::error!(error, "a new site key is not used: nothing can be derived");
                former
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SiteKey {
        SiteKey::new([byte; 32])
    }

    #[test]
    fn derived_values_follow_the_keys() {
        let keys = SiteKeys::new(key(1), Vec::new());
        let derived = Derived::new(&keys, |key| Ok(key.expose()[0])).unwrap();
        assert_eq!(*derived.get(), PerKey { newest: 1, others: vec![] });
        assert!(keys.set(key(2), vec![key(1)]));
        assert_eq!(derived.get().all().collect::<Vec<_>>(), [&2, &1]);
        assert!(!keys.set(key(2), vec![key(1)]), "they are the same");
        assert!(keys.set(key(2), vec![]));
        assert_eq!(*derived.get(), PerKey { newest: 2, others: vec![] });
    }

    #[test]
    fn former_values_stay_if_none_can_be_derived() {
        let keys = SiteKeys::new(key(1), Vec::new());
        let derived = Derived::new(&keys, |key| match key.expose()[0] {
            1 => Ok(1),
            _ => Err(CryptoError::KEY),
        });
        let derived = derived.unwrap();
        keys.set(key(2), vec![key(1)]);
        assert_eq!(derived.get().newest, 1);
    }
}

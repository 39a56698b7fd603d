//! The version of a store's layout of keys and records, and the migrations that lead from one version to the next.
//!
//! ```text
//! schema ─▶ "3"          the store has version 3
//! schema ─▶ "3 to 4"     somebody began the migration to version 4
//! ```
//!
//! The key is outside of the keys of services. A version is the number of migrations behind a store, counted from
//! [`FIRST_VERSION`]. New fields in messages do not make a new version.
//!
//! A migration is begun by the mark `3 to 4`, and every commit of the migration expects the mark as it was read. After a crash the
//! next start goes on from the mark. Several processes over etcd may do so at the same time: the first one to finish writes `4`, from
//! then on the others can write nothing more, read the version again, and find that there is nothing left to do.
//!
//! A process that runs while a newer program migrates its store is stopped by the same means: see [`fence`](crate::fence).

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::fence::FencedStore;
use crate::records::{self, Kind, Records};
use crate::{Commit, Error, Expect, Revision, ScopedStore, Store, Versioned, Write};

/// The oldest version that can be migrated.
pub const FIRST_VERSION: u32 = 2;
pub(crate) const KEY: &str = "schema";
/// The value of the key until everything is restored. No program opens such a store.
pub(crate) const RESTORING: &str = "a restore was interrupted";

/// A step from one version to the next.
///
/// It may be interrupted at any point and run again, and two processes may run it at the same time: it reads what is there, and
/// writes what is missing.
pub struct Migration {
    name: &'static str,
    run: Run,
}

type Outcome = BoxFuture<'static, Result<(), records::Error>>;
type Run = Box<dyn Fn(Arc<dyn Store>) -> Outcome + Send + Sync>;

impl fmt::Debug for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migration").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Migration {
    /// The migration `name` (for the log), which does `run` with the whole store.
    pub fn new<F>(
        name: &'static str,
        run: impl Fn(Arc<dyn Store>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), records::Error>> + Send + 'static,
    {
        Self { name, run: Box::new(move |store| run(store).boxed()) }
    }

    /// The migration that adds the missing index entries of the records `K` of `service`, and removes the entries that the records
    /// no longer have.
    pub fn reindex<K: Kind>(name: &'static str, service: &'static str) -> Self {
        Self::new(name, move |store| async move {
            let records = Records::<K>::new(ScopedStore::new(store, service));
            let report = records.check(true).await?;
            tracing::info!(
                kind = K::KIND,
                records = report.records,
                added = report.missing.len(),
                removed = report.stray.len(),
                "index entries migrated"
            );
            Ok(())
        })
    }

    /// The migration that seals the secret fields of the records `K` of `service`.
    pub fn reseal<K: Kind>(name: &'static str, service: &'static str) -> Self {
        Self::new(name, move |store| async move {
            let sealed = Records::<K>::new(ScopedStore::new(store, service)).reseal().await?;
            tracing::info!(kind = K::KIND, records = sealed, "secret fields sealed");
            Ok(())
        })
    }

    /// The migration that seals the results of requests to `services`.
    pub fn reseal_requests(name: &'static str, services: &'static [&'static str]) -> Self {
        Self::new(name, move |store| async move {
            for service in services {
                let store = ScopedStore::new(store.clone(), service);
                let sealed = records::requests::reseal(&store).await?;
                tracing::info!(service, requests = sealed, "results of requests sealed");
            }
            Ok(())
        })
    }
}

/// A store that this program cannot use.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// A newer program wrote it.
    #[error("the store has schema {found}, this program knows {known}: use the newer program")]
    Newer {
        /// The version of the store.
        found: u32,
        /// The version of this program.
        known: u32,
    },
    /// A program wrote it that is too old.
    #[error(
        "the store has schema {found}, this program knows {FIRST_VERSION} and later: begin with an empty store"
    )]
    TooOld {
        /// The version of the store.
        found: u32,
    },
    /// A restore into it was interrupted, or its backup was damaged.
    #[error(
        "a restore into this store was not completed: delete the store (DATA/store, or the prefix in etcd), keep the secrets, and \
         restore again"
    )]
    Restoring,
    /// A migration failed. The next start begins it again.
    #[error("migrating the store to schema {to} ({name})")]
    Migration {
        /// The version it leads to.
        to: u32,
        /// Its name.
        name: &'static str,
        /// The cause.
        source: records::Error,
    },
    /// It cannot be read or written.
    #[error("schema of the store")]
    Store(#[from] Error),
}

/// The content of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    version: u32,
    /// True if the migration to the next version was begun.
    migrating: bool,
    revision: Revision,
}

impl State {
    fn decode(found: &Versioned) -> Result<Self, Error> {
        let corrupt = || Error::Corrupt(KEY.into());
        let text = str::from_utf8(&found.value).map_err(|_| corrupt())?;
        let (version, next) = text.split_once(" to ").map_or((text, None), |(a, b)| (a, Some(b)));
        let version: u32 = version.parse().map_err(|_| corrupt())?;
        if next.is_some_and(|next| next.parse() != Ok(version + 1)) {
            return Err(corrupt());
        }
        Ok(Self { version, migrating: next.is_some(), revision: found.revision })
    }

    /// The newest version that the store has in part.
    fn newest(self) -> u32 {
        self.version + u32::from(self.migrating)
    }
}

/// Brings `store` to the version after all of `migrations`. A new store gets it at once. Returns the revision of the key.
pub async fn migrate(
    store: &Arc<dyn Store>,
    migrations: &[Migration],
) -> Result<Revision, SchemaError> {
    let known = FIRST_VERSION + u32::try_from(migrations.len()).unwrap_or(u32::MAX);
    loop {
        let Some(found) = store.get(KEY).await? else {
            set(&**store, Expect::Absent(KEY.into()), known.to_string()).await?;
            continue;
        };
        if *found.value == *RESTORING.as_bytes() {
            return Err(SchemaError::Restoring);
        }
        let state = State::decode(&found)?;
        let (found, newest) = (state.version, state.newest());
        if newest > known {
            return Err(SchemaError::Newer { found: newest, known });
        }
        let Some(step) = found.checked_sub(FIRST_VERSION) else {
            return Err(SchemaError::TooOld { found });
        };
        match migrations.get(step as usize) {
            Some(migration) if state.migrating => advance(store, state, migration).await?,
            Some(_) => {
                let mark = format!("{found} to {}", found + 1);
                set(&**store, Expect::At(KEY.into(), state.revision), mark).await?;
            }
            None => return Ok(state.revision),
        }
    }
}

/// Runs `migration` in the marked `store`, and replaces the mark by the next version.
async fn advance(
    store: &Arc<dyn Store>,
    state: State,
    migration: &Migration,
) -> Result<(), SchemaError> {
    let (to, name) = (state.version + 1, migration.name);
    tracing::info!(from = state.version, to, name, "migrating the store");
    let fenced = Arc::new(FencedStore::new(store.clone(), state.revision));
    let outcome = (migration.run)(fenced.clone()).await;
    match outcome {
        // Another process finished it.
        Err(_) if fenced.is_superseded() => return Ok(()),
        Err(source) => return Err(SchemaError::Migration { to, name, source }),
        Ok(()) => {}
    }
    set(&**store, Expect::At(KEY.into(), state.revision), to.to_string()).await?;
    tracing::info!(to, name, "the store is migrated");
    Ok(())
}

/// Sets the key, unless another process changed it meanwhile: the caller reads it again in any case.
async fn set(store: &dyn Store, expect: Expect, value: String) -> Result<(), Error> {
    let writes = vec![Write::Put(KEY.into(), value.into())];
    match store.commit(Commit { expect: vec![expect], writes }).await {
        Ok(_) | Err(Error::Conflict(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;

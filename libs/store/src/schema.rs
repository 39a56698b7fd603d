//! The version of a store's layout of keys and records.
//!
//! The number is stored under `schema`, outside of the keys of services. It changes when an older program cannot read the
//! records of a newer one, or the reverse. New fields in messages do not change it.

use crate::{Commit, Error, Expect, Store, Write};

/// The layout this program reads and writes.
pub const VERSION: u32 = 2;
const KEY: &str = "schema";

/// A store that this program cannot use.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// A newer program wrote it.
    #[error("the store has schema {found}, this program knows {VERSION}: use the newer program")]
    Newer {
        /// The version of the store.
        found: u32,
    },
    /// An older program wrote it.
    #[error(
        "the store has schema {found}, this program knows {VERSION}: begin with an empty store"
    )]
    Older {
        /// The version of the store.
        found: u32,
    },
    /// It cannot be read.
    #[error("schema of the store")]
    Store(#[from] Error),
}

/// Checks that `store` has this program's layout. A new store gets it.
pub async fn check_or_create(store: &dyn Store) -> Result<(), SchemaError> {
    let Some(found) = store.get(KEY).await? else { return begin(store).await };
    let text = str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok());
    match text.ok_or_else(|| Error::Corrupt(KEY.into()))? {
        found if found > VERSION => Err(SchemaError::Newer { found }),
        found if found < VERSION => Err(SchemaError::Older { found }),
        _ => Ok(()),
    }
}

async fn begin(store: &dyn Store) -> Result<(), SchemaError> {
    let expect = vec![Expect::Absent(KEY.into())];
    let writes = vec![Write::Put(KEY.into(), VERSION.to_string().into())];
    match store.commit(Commit { expect, writes }).await {
        // Another process created it at the same time. If its version differs, its next start reports that.
        Ok(_) | Err(Error::Conflict(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn a_new_store_gets_this_programs_schema_and_keeps_it() {
        let store = MemoryStore::default();
        check_or_create(&store).await.unwrap();
        check_or_create(&store).await.unwrap();
        assert_eq!(store.get(KEY).await.unwrap().unwrap().value.as_ref(), b"2");
    }

    #[tokio::test]
    async fn other_versions_and_damaged_stores_are_refused() {
        for (value, why) in [
            ("3", "the store has schema 3, this program knows 2: use the newer"),
            ("1", "the store has schema 1, this program knows 2: begin with an empty"),
            ("x", "schema of"),
        ] {
            let store = MemoryStore::default();
            let writes = vec![Write::Put(KEY.into(), value.into())];
            store.commit(Commit { writes, ..Commit::default() }).await.unwrap();
            let refused = check_or_create(&store).await.unwrap_err().to_string();
            assert!(refused.starts_with(why), "{refused}");
        }
    }
}

//! The place that a list of records is read from: the store, or memory.

use super::{Kind, Records};
use crate::Page;

/// The records of a kind, as a list reads them.
pub trait RecordSource<K> {
    /// Returns the records.
    fn records(&self) -> &Records<K>;

    /// Returns the pairs of at most `limit` records in id order after the id `after`, if all that is stored now is in memory.
    fn page_in_memory(&self, _after: &str, _limit: usize) -> Option<Page> {
        None
    }
}

impl<K: Kind> RecordSource<K> for Records<K> {
    fn records(&self) -> &Records<K> {
        self
    }
}

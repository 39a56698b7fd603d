//! A part of a list of records or events, bounded in number and bytes.

use prost::Message;

/// Bytes of records at which a part ends below its limit of records. With the record that exceeds it and what a service adds
/// for display, a part fits the 4 MiB that gRPC clients receive by default.
pub const MAX_LISTING_BYTES: usize = 2 * 1024 * 1024;

/// Part of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing<R> {
    /// Records in id order. Fewer than the limit does not mean the end.
    pub records: Vec<R>,
    /// The id after which the next part begins, if there is one.
    pub next: Option<String>,
}

/// A part of a list that is not complete yet.
#[derive(Debug)]
pub struct ListingBuilder<R> {
    records: Vec<R>,
    bytes: usize,
    limit: usize,
}

impl<R> ListingBuilder<R> {
    /// An empty part that takes at most `limit` records.
    pub fn new(limit: usize) -> Self {
        Self { records: Vec::new(), bytes: 0, limit }
    }

    /// Returns the number of records that it may still take.
    pub fn remaining(&self) -> usize {
        self.limit.saturating_sub(self.records.len())
    }

    /// True if it takes no more records.
    pub fn is_full(&self) -> bool {
        self.remaining() == 0 || self.bytes >= MAX_LISTING_BYTES
    }

    /// Adds a record.
    pub fn push(&mut self, record: R)
    where
        R: Message,
    {
        let bytes = record.encoded_len();
        self.push_sized(record, bytes);
    }

    /// Adds a record that takes these `bytes` in the store.
    pub fn push_sized(&mut self, record: R, bytes: usize) {
        self.bytes += bytes;
        self.records.push(record);
    }

    /// Returns the part; the one after it begins after the id `next`.
    pub fn end(self, next: Option<String>) -> Listing<R> {
        Listing { records: self.records, next }
    }
}

//! A bounded part of a list.

use std::ops::Bound;

use crate::{Error, Versioned};

/// Size at which a page ends below its limit of pairs, with the value that exceeds it: reading a page may delay writers.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Pairs requested from a server at a time. With the longest values they fill half of the largest response from etcd.
pub(crate) const MAX_PAIRS_PER_REQUEST: usize = 64;

/// Part of a list. The next part begins after its last key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys and values in key order. Fewer than the limit does not mean the end.
    pub pairs: Vec<(String, Versioned)>,
    /// True if more pairs follow.
    pub more: bool,
}

impl Page {
    /// Collects as many `candidates` as one page takes. The first one after its end is not loaded.
    pub(crate) fn gather<T>(
        candidates: impl Iterator<Item = Result<T, Error>>,
        limit: usize,
        load: impl Fn(T) -> Result<(String, Versioned), Error>,
    ) -> Result<Self, Error> {
        let mut page = PageBuilder::new(limit);
        for candidate in candidates {
            let candidate = candidate?;
            if page.full() {
                return Ok(page.end(true));
            }
            let (key, found) = load(candidate)?;
            page.push(key, found);
        }
        Ok(page.end(false))
    }
}

/// A page that is not complete yet.
#[derive(Debug)]
pub(crate) struct PageBuilder {
    page: Page,
    size: usize,
    limit: usize,
}

impl PageBuilder {
    /// An empty page that takes at most `limit` pairs.
    pub(crate) fn new(limit: usize) -> Self {
        Self { page: Page::default(), size: 0, limit }
    }

    /// True if the page takes no more pairs.
    pub(crate) fn full(&self) -> bool {
        self.page.pairs.len() >= self.limit || self.size >= MAX_PAGE_BYTES
    }

    /// Returns the number of pairs to request next, at least one: few at first, since any value may be long, then as many as
    /// fit if the rest have the mean size of those before.
    pub(crate) fn next_request_pairs(&self) -> usize {
        let count = self.page.pairs.len();
        let mean = self.size.checked_div(count).unwrap_or(0).max(1);
        let fit = MAX_PAGE_BYTES.saturating_sub(self.size) / mean + 1;
        let more = if count == 0 { MAX_PAIRS_PER_REQUEST / 4 } else { MAX_PAIRS_PER_REQUEST };
        more.min(fit).min(self.limit.saturating_sub(count)).max(1)
    }

    /// Adds a pair.
    pub(crate) fn push(&mut self, key: String, found: Versioned) {
        self.size += key.len() + found.value.len();
        self.page.pairs.push((key, found));
    }

    /// Returns the page; `more` is true if other pairs follow.
    pub(crate) fn end(self, more: bool) -> Page {
        Page { more, ..self.page }
    }
}

/// Returns the first key of a list of `prefix` after the key `after`.
pub(crate) fn start<'a>(prefix: &'a str, after: &'a str) -> Bound<&'a str> {
    if after >= prefix { Bound::Excluded(after) } else { Bound::Included(prefix) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::Cell;

    use super::*;
    use crate::Revision;

    fn pair(key: usize, length: usize) -> (String, Versioned) {
        (format!("{key:05}"), Versioned { value: vec![0; length].into(), revision: Revision(1) })
    }

    #[test]
    fn a_page_loads_only_its_pairs_and_looks_at_one_more() {
        let (seen, loaded) = (Cell::new(0), Cell::new(0));
        let candidates = (0..10_000).inspect(|_| seen.set(seen.get() + 1)).map(Ok);
        let load = |key| {
            loaded.set(loaded.get() + 1);
            Ok(pair(key, 1))
        };
        let page = Page::gather(candidates, 100, load).unwrap();
        assert_eq!((page.pairs.len(), page.more), (100, true));
        assert_eq!((seen.get(), loaded.get()), (101, 100));
    }

    #[test]
    fn few_long_pairs_or_many_short_ones_are_requested() {
        let mut page = PageBuilder::new(100);
        assert_eq!(page.next_request_pairs(), 16);
        (0..16).for_each(|n| page.push(pair(n, 200_000).0, pair(n, 200_000).1));
        assert_eq!(page.next_request_pairs(), 5, "a page is some twenty of these");
        let mut page = PageBuilder::new(100);
        (0..16).for_each(|n| page.push(pair(n, 1000).0, pair(n, 1000).1));
        assert_eq!(page.next_request_pairs(), 64);
        (0..80).for_each(|n| page.push(pair(n, 1000).0, pair(n, 1000).1));
        assert_eq!(page.next_request_pairs(), 4, "no more than the limit");
    }
}

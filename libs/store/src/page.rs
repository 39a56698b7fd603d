//! A bounded part of a listing.

use std::ops::Bound;

use crate::{Error, Versioned};

/// Where a page stops even below its limit, give or take one value: reading one may hold up writers.
const FULL: usize = 4 * 1024 * 1024;

/// The most pairs asked of a server at a time; with the longest values that is half a message of `etcd`'s link.
pub(crate) const ASK: usize = 64;

/// Part of a listing. The next part begins after its last key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys and values, in key order. Fewer than asked for does not mean the end.
    pub pairs: Vec<(String, Versioned)>,
    /// Whether more pairs follow.
    pub more: bool,
}

impl Page {
    /// As many of `candidates` as one page takes. What comes after its end is not loaded, only seen to be there.
    pub(crate) fn gather<T>(
        candidates: impl Iterator<Item = Result<T, Error>>,
        limit: usize,
        load: impl Fn(T) -> Result<(String, Versioned), Error>,
    ) -> Result<Self, Error> {
        let mut page = Filling::new(limit);
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
pub(crate) struct Filling {
    page: Page,
    size: usize,
    limit: usize,
}

impl Filling {
    /// An empty page that takes at most `limit` pairs.
    pub(crate) fn new(limit: usize) -> Self {
        Self { page: Page::default(), size: 0, limit }
    }

    /// Whether it takes no more.
    pub(crate) fn full(&self) -> bool {
        self.page.pairs.len() >= self.limit || self.size >= FULL
    }

    /// How many pairs to ask a server for next, at least one: few at first, since any value may be a long one, then as
    /// many as fit if the rest are like those before.
    pub(crate) fn ask(&self) -> usize {
        let count = self.page.pairs.len();
        let mean = self.size.checked_div(count).unwrap_or(0).max(1);
        let fit = FULL.saturating_sub(self.size) / mean + 1;
        let more = if count == 0 { ASK / 4 } else { ASK };
        more.min(fit).min(self.limit.saturating_sub(count)).max(1)
    }

    /// Takes one more pair.
    pub(crate) fn push(&mut self, key: String, found: Versioned) {
        self.size += key.len() + found.value.len();
        self.page.pairs.push((key, found));
    }

    /// The page, and whether `more` follows it.
    pub(crate) fn end(self, more: bool) -> Page {
        Page { more, ..self.page }
    }
}

/// Where a listing of `prefix` begins.
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
    fn a_page_loads_what_it_holds_and_sees_one_more() {
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
    fn a_server_is_asked_for_few_long_pairs_or_many_short_ones() {
        let mut page = Filling::new(100);
        assert_eq!(page.ask(), 16);
        (0..16).for_each(|n| page.push(pair(n, 200_000).0, pair(n, 200_000).1));
        assert_eq!(page.ask(), 5, "a page is some twenty of these");
        let mut page = Filling::new(100);
        (0..16).for_each(|n| page.push(pair(n, 1000).0, pair(n, 1000).1));
        assert_eq!(page.ask(), 64);
        (0..80).for_each(|n| page.push(pair(n, 1000).0, pair(n, 1000).1));
        assert_eq!(page.ask(), 4, "no more than the limit");
    }
}

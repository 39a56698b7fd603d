//! Converts values to etcd's messages and back; no I/O.

use std::ops::Bound;

use self::pb::compare::{CompareTarget, TargetUnion};
use self::pb::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, ResponseOp};
use self::pb::{TxnRequest, TxnResponse, WatchCreateRequest, request_op, response_op};
use crate::{Commit, Error, Expect, Revision, Versioned, Write, page};

/// Generated from `proto/`.
pub(super) mod etcdserverpb {
    #![expect(unreachable_pub, reason = "generated")]
    tonic::include_proto!("etcdserverpb");
}
/// Generated from `proto/`.
pub(super) mod mvccpb {
    #![expect(unreachable_pub, reason = "generated")]
    tonic::include_proto!("mvccpb");
}
pub(super) use etcdserverpb as pb;

/// Etcd's response violates its protocol.
#[derive(Debug, thiserror::Error)]
#[error("etcd failed a transaction of which everything holds")]
struct Unfounded;

/// The prefix of all our keys in etcd, and that of those which are followed.
#[derive(Clone, Debug)]
pub(super) struct Root {
    prefix: String,
    followed: String,
}

impl Root {
    pub(super) fn new(prefix: String, followed: String) -> Self {
        Self { prefix, followed }
    }

    /// Returns our key in an etcd key; none if the prefix differs.
    pub(super) fn strip<'a>(&self, raw: &'a [u8]) -> Option<&'a str> {
        str::from_utf8(raw.strip_prefix(self.prefix.as_bytes())?).ok()
    }

    /// Reads one key.
    pub(super) fn one(&self, key: &str) -> RangeRequest {
        RangeRequest { key: self.key(key), ..RangeRequest::default() }
    }

    /// Reads no pair; the response has the newest revision.
    pub(super) fn glance(&self) -> RangeRequest {
        RangeRequest { count_only: true, ..self.one(&format!("{}/", self.followed)) }
    }

    /// Reads the keys under `prefix` that come after `after`.
    pub(super) fn under(&self, prefix: &str, after: &str) -> RangeRequest {
        let key = match page::start(prefix, after) {
            Bound::Excluded(after) => next(&self.key(after)),
            Bound::Included(prefix) => self.key(prefix),
            Bound::Unbounded => self.key(""),
        };
        RangeRequest { key, range_end: end(self.key(prefix)), ..RangeRequest::default() }
    }

    /// Watches all keys that are followed, from `start` on.
    pub(super) fn watch(&self, start: Revision) -> WatchCreateRequest {
        let followed = self.key(&self.followed);
        let (key, range_end) = (followed.clone(), end(followed));
        let start_revision = signed(start);
        WatchCreateRequest { key, range_end, start_revision, progress_notify: true, fragment: true }
    }

    /// Converts `commit` to one transaction. If expectations fail, it reads their keys instead, to find the one that failed.
    pub(super) fn txn(&self, commit: &Commit) -> TxnRequest {
        let mut success: Vec<_> = commit.writes.iter().map(|write| self.write(write)).collect();
        if success.is_empty() {
            // A transaction without a linearizable read in it may be answered from a stale member.
            success.push(read(self.glance()));
        }
        let found = commit.expect.iter().map(|expect| self.one(expect.key()));
        TxnRequest {
            compare: commit.expect.iter().map(|expect| self.compare(expect)).collect(),
            success,
            failure: found.map(|one| read(RangeRequest { keys_only: true, ..one })).collect(),
        }
    }

    fn write(&self, write: &Write) -> RequestOp {
        let key = self.key(write.key());
        let request = match write {
            Write::Put(_, value) => {
                request_op::Request::Put(PutRequest { key, value: value.to_vec() })
            }
            Write::Delete(_) => request_op::Request::DeleteRange(DeleteRangeRequest { key }),
        };
        RequestOp { request: Some(request) }
    }

    fn compare(&self, expect: &Expect) -> Compare {
        let (target, union) = match expect {
            Expect::Absent(_) => (CompareTarget::Create, TargetUnion::CreateRevision(0)),
            // To etcd, revision 0 means an absent key. In this store no key is at revision 0.
            Expect::At(_, Revision(0)) => (CompareTarget::Mod, TargetUnion::ModRevision(i64::MAX)),
            Expect::At(_, at) => (CompareTarget::Mod, TargetUnion::ModRevision(signed(*at))),
        };
        let key = self.key(expect.key());
        Compare { target: target.into(), key, target_union: Some(union), ..Compare::default() }
    }

    fn key(&self, key: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), key.as_bytes()].concat()
    }
}

/// Returns the revision of a commit, and true if it changed anything; or the expectation that failed.
pub(super) fn outcome(commit: &Commit, answer: TxnResponse) -> Result<(Revision, bool), Error> {
    if answer.succeeded {
        return Ok((revision(answer.header), answer.responses.iter().any(changed)));
    }
    for (expect, found) in commit.expect.iter().zip(answer.responses) {
        expect.check(last_written(found))?;
    }
    Err(Error::unavailable(Unfounded))
}

/// Converts a pair to the store's type.
pub(super) fn versioned(pair: mvccpb::KeyValue) -> Versioned {
    Versioned { value: pair.value.into(), revision: unsigned(pair.mod_revision) }
}

/// Returns the revision in a response.
pub(super) fn revision(header: Option<pb::ResponseHeader>) -> Revision {
    unsigned(header.map_or(0, |header| header.revision))
}

/// Converts a revision from etcd's type; etcd's are never negative.
pub(super) fn unsigned(raw: i64) -> Revision {
    Revision(u64::try_from(raw).unwrap_or_default())
}

/// Converts a revision to etcd's type; one above its range becomes the largest.
pub(super) fn signed(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// The first key after `key`.
pub(super) fn next(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key that no longer begins with `prefix`, which is UTF-8 and so has no byte 255.
fn end(mut prefix: Vec<u8>) -> Vec<u8> {
    match prefix.last_mut() {
        Some(last) => *last = last.saturating_add(1),
        None => prefix.push(0), // etcd's notation for "to the end"
    }
    prefix
}

fn read(range: RangeRequest) -> RequestOp {
    RequestOp { request: Some(request_op::Request::Range(range)) }
}

fn changed(done: &ResponseOp) -> bool {
    match &done.response {
        Some(response_op::Response::Put(_)) => true,
        Some(response_op::Response::DeleteRange(gone)) => gone.deleted > 0,
        Some(response_op::Response::Range(_)) | None => false,
    }
}

fn last_written(found: ResponseOp) -> Option<Revision> {
    let Some(response_op::Response::Range(range)) = found.response else { return None };
    range.kvs.first().map(|pair| unsigned(pair.mod_revision))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_range_holds_just_the_keys_under_its_prefix_after_the_last(
            prefix in "[ab\u{7f}\u{10ffff}]{0,3}",
            after in "[ab\u{7f}\u{10ffff}]{0,4}",
            key in "[ab\u{7f}\u{10ffff}]{1,4}",
        ) {
            let root = Root::new("/ours/".into(), String::new());
            let (range, raw) = (root.under(&prefix, &after), root.key(&key));
            let within = range.key <= raw && raw < range.range_end;
            prop_assert_eq!(within, key.starts_with(&prefix) && key > after);
        }

        #[test]
        fn only_our_own_keys_are_stripped(raw: Vec<u8>, key: String) {
            let root = Root::new("/ours/".into(), String::new());
            let ours = root.key(&key);
            prop_assert_eq!(root.strip(&ours), Some(key.as_str()));
            prop_assert_eq!(root.strip(&raw).is_some(), raw.starts_with(b"/ours/") && str::from_utf8(&raw).is_ok());
        }
    }
}

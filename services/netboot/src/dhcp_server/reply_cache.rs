//! Replies to repeated requests: a repetition gets the same reply.

use std::hash::BuildHasher as _;
use std::net::SocketAddrV4;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dhcp::Received;
use foldhash::quality::RandomState;
use runtime::bounded_map::ExpiringMap;

use crate::Mac;

/// Lifetime of a cached reply.
const REPLY_LIFETIME: Duration = Duration::from_secs(1);
/// The number of replies that are stored: as many as fit a processor's cache.
const MAX_REPLIES: usize = 1024;
/// The field with the seconds since the client began, which differs in a repetition (RFC 2131 section 2).
const SECS_FIELD: Range<usize> = 8..10;

/// An encoded reply and its destination.
pub type EncodedReply = (Vec<u8>, SocketAddrV4);

/// The last reply of each interface.
#[derive(Debug)]
pub struct ReplyCache {
    replies: Mutex<ExpiringMap<Mac, (u64, EncodedReply)>>,
    hasher: RandomState,
}

impl Default for ReplyCache {
    fn default() -> Self {
        let replies = Mutex::new(ExpiringMap::new(MAX_REPLIES, REPLY_LIFETIME));
        Self { replies, hasher: RandomState::default() }
    }
}

impl ReplyCache {
    /// Hashes a datagram and the way it was received; equal for a repetition. Another relay's copy has another hash.
    pub fn hash(&self, datagram: &[u8], received: Received) -> u64 {
        let before = datagram.get(..SECS_FIELD.start).unwrap_or(datagram);
        let after = datagram.get(SECS_FIELD.end..).unwrap_or_default();
        self.hasher.hash_one((received, before, after))
    }

    /// The reply to the request with this `hash`.
    pub fn get(&self, mac: Mac, hash: u64, now: Instant) -> Option<EncodedReply> {
        let replies = self.replies();
        let (request, reply) = replies.get(&mac, now)?;
        (*request == hash).then(|| reply.clone())
    }

    /// Stores the reply to the request with this `hash`.
    pub fn put(&self, mac: Mac, hash: u64, now: Instant, reply: EncodedReply) {
        self.replies().insert(mac, (hash, reply), now);
    }

    /// Removes the reply of an interface.
    pub fn remove(&self, mac: Mac) {
        self.replies().remove(&mac);
    }

    fn replies(&self) -> MutexGuard<'_, ExpiringMap<Mac, (u64, EncodedReply)>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhcp::ListenPort;
    use std::net::Ipv4Addr;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::BROADCAST, 68);

    fn received(source: [u8; 4]) -> Received {
        let source = SocketAddrV4::new(source.into(), 67);
        Received { source, broadcast: false, port: ListenPort::Dhcp }
    }

    #[test]
    fn only_the_seconds_may_differ_in_a_repetition() {
        let cache = ReplyCache::default();
        let hash = |change: usize, source| {
            let mut datagram = [7; 300];
            datagram[change] = 8;
            cache.hash(&datagram, received(source))
        };
        let (one, other) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        assert_eq!(hash(8, one), hash(9, one));
        assert_ne!(hash(8, one), hash(7, one));
        assert_ne!(hash(8, one), hash(299, one));
        assert_ne!(hash(8, one), hash(8, other));
        let boot_service = Received { port: ListenPort::BootService, ..received(one) };
        assert_ne!(cache.hash(&[7; 300], received(one)), cache.hash(&[7; 300], boot_service));
    }

    #[test]
    fn a_reply_is_repeated_for_a_second() {
        let (cache, now) = (ReplyCache::default(), Instant::now());
        cache.put(MAC, 1, now, (vec![1], TO));
        assert_eq!(cache.get(MAC, 1, now + REPLY_LIFETIME / 2), Some((vec![1], TO)));
        assert_eq!(cache.get(MAC, 1, now + REPLY_LIFETIME), None);
        assert_eq!(cache.get(MAC, 2, now), None);
        cache.remove(MAC);
        assert_eq!(cache.get(MAC, 1, now), None);
    }

    #[test]
    fn the_number_of_replies_is_bounded() {
        let (cache, now) = (ReplyCache::default(), Instant::now());
        for number in 0..10_000_u32 {
            let [a, b, c, d] = number.to_be_bytes();
            cache.put(Mac([2, 0, a, b, c, d]), 1, now, (Vec::new(), TO));
            assert!(cache.replies().len() <= MAX_REPLIES);
        }
    }
}

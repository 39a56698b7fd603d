//! The owners of addresses, from the kernel's neighbour table.
//!
//! The kernel is asked for the route to the address, and for the neighbour entry there: that is where the response will be
//! sent, whatever interface the request came in on.
//!
//! The kernel's answers are cached until it notifies of a change (`cache`). Notifications are read before a lookup, unless that
//! was done within 100 µs, and an entry is used for a second at most, because some changes have no notification.

mod cache;
mod source_check;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::cache::NeighbourCache;
pub use self::source_check::{NeighbourCheck, SourceCheck, SourceRejected};
use crate::Clock;
use crate::netlink::notifications::Notifications;
use crate::netlink::{Netlink, Route};

/// A port that nobody listens on (RFC 863, discard): a datagram to it makes the kernel resolve the address.
const DISCARD_PORT: u16 = 9;
/// The kernel has 200 ms to resolve an address: it is asked again so often, after this time.
const RESOLVE_ATTEMPTS: u32 = 20;
const RESOLVE_INTERVAL: Duration = Duration::from_millis(10);
/// The time for which lookups rely on the last reading of notifications: a rack that boots at once shares it.
const READ_INTERVAL: Duration = Duration::from_micros(100);

/// Looks up the owners of addresses.
pub trait Neighbours: std::fmt::Debug + Send + Sync + 'static {
    /// Returns the owner of `address` if it is known without waiting.
    fn lookup_cached(&self, address: IpAddr) -> Option<NeighbourCheck>;

    /// Returns the owner of `address`. Blocks for up to 200 ms if the kernel has to resolve it.
    fn lookup(&self, address: IpAddr) -> NeighbourCheck;
}

/// Returns the owner of `address`. Waits for up to 200 ms if the kernel has to resolve it.
pub async fn owner_of(neighbours: &Arc<dyn Neighbours>, address: IpAddr) -> NeighbourCheck {
    let address = address.to_canonical();
    if address.is_loopback() {
        return NeighbourCheck::OwnHost;
    }
    if let Some(neighbour) = neighbours.lookup_cached(address) {
        return neighbour;
    }
    let neighbours = neighbours.clone();
    let lookup = tokio::task::spawn_blocking(move || neighbours.lookup(address)).await;
    // A failure must not admit anybody.
    lookup.unwrap_or(NeighbourCheck::NoOwner)
}

/// The neighbour table of the kernel, in the network namespace it was opened in.
#[derive(Debug)]
pub struct NeighbourTable {
    netlink: Netlink,
    cached: Mutex<Cached>,
    clock: Clock,
    solicit_v4: UdpSocket,
    /// None if the kernel has no IPv6.
    solicit_v6: Option<UdpSocket>,
}

#[derive(Debug)]
struct Cached {
    owners: NeighbourCache,
    notifications: Notifications,
    /// When they are read again.
    read_at: Instant,
}

impl NeighbourTable {
    /// Opens the sockets, in the network namespace of this thread.
    pub fn open(clock: Clock) -> io::Result<Self> {
        let solicit_v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let solicit_v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok();
        let (owners, notifications) = (NeighbourCache::default(), Notifications::open()?);
        let cached = Mutex::new(Cached { owners, notifications, read_at: clock.monotonic() });
        Ok(Self { netlink: Netlink::open()?, cached, clock, solicit_v4, solicit_v6 })
    }

    /// Locks the cache at `now`, after removing from it what has changed.
    fn lock(&self, now: Instant) -> MutexGuard<'_, Cached> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let Cached { owners, notifications, read_at } = &mut *cached;
        if *read_at <= now {
            notifications.read(|change| owners.invalidate(change, now));
            *read_at = now + READ_INTERVAL;
        }
        cached
    }

    /// Returns the cached owner of `address`.
    pub fn cached(&self, address: IpAddr) -> Option<NeighbourCheck> {
        let now = self.clock.monotonic();
        self.lock(now).owners.get(address, now)
    }

    /// Returns the owner of `address` if it is cached, or the kernel has resolved it. Takes microseconds.
    fn find(&self, address: IpAddr) -> io::Result<Option<NeighbourCheck>> {
        let now = self.clock.monotonic();
        let query = {
            let cached = self.lock(now);
            if let Some(neighbour) = cached.owners.get(address, now) {
                return Ok(Some(neighbour));
            }
            cached.owners.begin_query(now)
        };
        let neighbour = match self.netlink.route_to(address)? {
            Route::Local => Some(NeighbourCheck::OwnHost),
            Route::Gateway => Some(NeighbourCheck::Routed),
            Route::OnLink(interface) => {
                self.netlink.neighbour(interface, address)?.map(NeighbourCheck::Owner)
            }
        };
        if let Some(neighbour) = neighbour {
            // A later change is removed from the cache when notifications are read next.
            let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
            cached.owners.insert(query, address, neighbour);
        }
        Ok(neighbour)
    }

    fn resolve(&self, address: IpAddr) -> io::Result<NeighbourCheck> {
        if let Some(neighbour) = self.find(address)? {
            return Ok(neighbour);
        }
        let socket = match (address, &self.solicit_v6) {
            (IpAddr::V4(_), _) => &self.solicit_v4,
            (IpAddr::V6(_), Some(socket)) => socket,
            (IpAddr::V6(_), None) => return Err(io::ErrorKind::Unsupported.into()),
        };
        socket.send_to(&[], (address, DISCARD_PORT))?;
        for _ in 0..RESOLVE_ATTEMPTS {
            std::thread::sleep(RESOLVE_INTERVAL);
            if let Some(neighbour) = self.find(address)? {
                return Ok(neighbour);
            }
        }
        Ok(NeighbourCheck::NoOwner)
    }
}

impl Neighbours for NeighbourTable {
    fn lookup_cached(&self, address: IpAddr) -> Option<NeighbourCheck> {
        // After an error `lookup` asks again, and logs it.
        self.find(address).ok().flatten()
    }

    fn lookup(&self, address: IpAddr) -> NeighbourCheck {
        self.resolve(address).unwrap_or_else(|error| {
            let error = crate::cause(&error);
            tracing::warn!(%address, error, "neighbour lookup failed");
            // An error must not admit anybody.
            NeighbourCheck::NoOwner
        })
    }
}

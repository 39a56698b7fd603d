//! Who has an address, as the kernel sees it.
//!
//! Asked are the way to the address and its neighbour entry there: that is where our answer goes, whatever interface the
//! question came in by.
//!
//! What the kernel said is kept until it tells that something changed (`memo`), which is looked at before each answer: so an
//! answer from memory is the one that a question would get.

mod memo;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::guard::Place;
use crate::netlink::news::News;
use crate::netlink::{Netlink, Way};
use memo::Memo;

/// A port where nobody listens (RFC 863, discard): a datagram to it makes the kernel ask who has the address.
const DISCARD: u16 = 9;
/// How long an answer to that may take, and how often it is looked for.
const LOOKS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(10);

/// Tells where addresses are.
pub trait Neighbours: Send + Sync + 'static {
    /// Where `address` is now, if that is known without waiting for its owner.
    fn known(&self, address: IpAddr) -> Option<Place>;

    /// Where `address` is now. May take a fifth of a second for an address the kernel has not met.
    fn place(&self, address: IpAddr) -> Place;
}

/// The kernel's neighbour table, of the network namespace it was opened in.
#[derive(Debug)]
pub struct Kernel {
    netlink: Netlink,
    memory: Mutex<Memory>,
    solicit_v4: UdpSocket,
    /// None where the kernel has no IPv6.
    solicit_v6: Option<UdpSocket>,
}

/// What the kernel said, and what makes it wrong.
#[derive(Debug)]
struct Memory {
    memo: Memo,
    news: News,
}

impl Kernel {
    /// Opens the sockets, in the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        let solicit_v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let solicit_v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok();
        let memory = Mutex::new(Memory { memo: Memo::default(), news: News::open()? });
        Ok(Self { netlink: Netlink::open()?, memory, solicit_v4, solicit_v6 })
    }

    /// What is remembered, once all news are heard.
    fn memory(&self, now: Instant) -> MutexGuard<'_, Memory> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Memory { memo, news } = &mut *memory;
        news.read(|change| memo.hear(change, now));
        memory
    }

    /// Where the kernel said that `address` is, if nothing has changed since.
    pub fn remembered(&self, address: IpAddr) -> Option<Place> {
        let now = Instant::now();
        self.memory(now).memo.get(address, now)
    }

    /// Where the kernel has `address`, if it has met it. A question takes microseconds.
    fn ask(&self, address: IpAddr) -> io::Result<Option<Place>> {
        let now = Instant::now();
        let asked = self.memory(now).memo.ask(now);
        let place = match self.netlink.way_to(address)? {
            Way::Here => Some(Place::Here),
            Way::Routed => Some(Place::Beyond),
            Way::OnLink(interface) => self.netlink.neighbour(interface, address)?.map(Place::Holds),
        };
        if let Some(place) = place {
            // What changed since is still to be heard, before anybody is told what is put here.
            let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            memory.memo.put(asked, address, place);
        }
        Ok(place)
    }

    fn look(&self, address: IpAddr) -> io::Result<Place> {
        if let Some(place) = self.ask(address)? {
            return Ok(place);
        }
        self.solicit(address)?;
        for _ in 0..LOOKS {
            std::thread::sleep(BETWEEN);
            if let Some(place) = self.ask(address)? {
                return Ok(place);
            }
        }
        Ok(Place::Nobody)
    }

    fn solicit(&self, address: IpAddr) -> io::Result<()> {
        let socket = match (address, &self.solicit_v6) {
            (IpAddr::V4(_), _) => &self.solicit_v4,
            (IpAddr::V6(_), Some(socket)) => socket,
            (IpAddr::V6(_), None) => return Err(io::ErrorKind::Unsupported.into()),
        };
        socket.send_to(&[], (address, DISCARD)).map(drop)
    }
}

impl Neighbours for Kernel {
    fn known(&self, address: IpAddr) -> Option<Place> {
        // What cannot be asked is asked again, and said, by who may wait.
        self.remembered(address).or_else(|| self.ask(address).ok().flatten())
    }

    fn place(&self, address: IpAddr) -> Place {
        self.look(address).unwrap_or_else(|error| {
            tracing::warn!(%address, error = &error as &dyn std::error::Error, "no neighbour was told");
            // Nobody is let in for want of an answer.
            Place::Nobody
        })
    }
}

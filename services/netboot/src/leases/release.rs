//! Addresses that clients give back, or find in use: nobody waits for that to be stored, so it has a queue.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use futures_util::stream::{self, StreamExt as _};
use store::records;
use tokio::sync::{Mutex, mpsc};

use super::Leases;
use crate::Mac;
use crate::pool::{Event, Lease};

/// How many may wait, and how many are stored at once: their commits share an `fdatasync`.
const WAITING: usize = 128;

/// What a client has told of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnedAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// The client.
    pub mac: Mac,
    /// That it gives it back, or that somebody else has it.
    pub event: Event,
    /// When.
    pub at: SystemTime,
}

/// What is still to be stored.
#[derive(Debug)]
pub(super) struct ReleaseQueue {
    sender: mpsc::Sender<ReturnedAddress>,
    /// Taken by whoever stores.
    receiver: Mutex<mpsc::Receiver<ReturnedAddress>>,
}

impl Default for ReleaseQueue {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        Self { sender, receiver: Mutex::new(receiver) }
    }
}

impl Leases {
    /// Takes an address back, soon. With as many waiting as may, it just ends later.
    pub fn take_back(&self, returned: ReturnedAddress) {
        if self.shared.returned.sender.try_send(returned).is_err() {
            tracing::debug!(lease.addr = %returned.address, "too many give addresses back");
        }
    }

    /// Stores what is given back, for ever.
    pub(super) async fn store_returned(&self) {
        let mut receiver = self.shared.returned.receiver.lock().await;
        let returned = stream::poll_fn(|cx| receiver.poll_recv(cx));
        returned.for_each_concurrent(WAITING, |one| self.store_one(one)).await;
    }

    async fn store_one(&self, returned: ReturnedAddress) {
        if let Err(error) = self.give_back(returned).await {
            let address = returned.address;
            tracing::debug!(error = &error as &dyn std::error::Error, lease.addr = %address, "not noted");
        }
    }

    /// Notes that a client gave an address back, or found it in use.
    pub(super) async fn give_back(&self, returned: ReturnedAddress) -> Result<(), records::Error> {
        let ReturnedAddress { address, mac, event, at } = returned;
        let Ok(after) = Lease::after(self.at(address, at), mac, event, at) else { return Ok(()) };
        if let Lease::Declined { .. } = after {
            // Heeded at once, whatever becomes of the commit.
            self.state().table.keep(address, Some(after));
        }
        self.write(address, after, None, at).await
    }
}

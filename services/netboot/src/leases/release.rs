//! Addresses that clients release or decline. No client waits for these commits, so they have a queue.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use futures_util::stream::{self, StreamExt as _};
use store::records;

use super::Leases;
use crate::Mac;
use crate::pool::{Event, Lease, State};

/// The length of the queue, and the number of concurrent commits: they share an `fdatasync`.
pub(super) const MAX_RETURNED: usize = 128;

/// A RELEASE or DECLINE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReturnedAddress {
    /// The address.
    pub(super) address: Ipv4Addr,
    /// The client.
    pub(super) mac: Mac,
    /// [`Event::Release`] or [`Event::Decline`].
    pub(super) event: Event,
    /// The time of the message.
    pub(super) at: SystemTime,
}

impl Leases {
    /// Queues a RELEASE or DECLINE. If the queue is full, the lease ends by time.
    pub fn take_back(&self, address: Ipv4Addr, mac: Mac, event: Event, at: SystemTime) {
        let returned = ReturnedAddress { address, mac, event, at };
        if self.shared.returned.try_send(returned).is_err() {
            tracing::debug!(lease.addr = %address, "release or decline dropped: queue full");
        }
    }

    /// Stores queued releases and declines; never resolves.
    pub(super) async fn store_returned(&self) {
        let mut receiver = self.shared.to_return.lock().await;
        let returned = stream::poll_fn(|cx| receiver.poll_recv(cx));
        let store = async |one: ReturnedAddress| {
            if let Err(error) = self.give_back(one).await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, lease.addr = %one.address, "release or decline not stored");
            }
        };
        returned.for_each_concurrent(MAX_RETURNED, store).await;
    }

    /// Stores a RELEASE or DECLINE.
    pub(super) async fn give_back(&self, returned: ReturnedAddress) -> Result<(), records::Error> {
        let ReturnedAddress { address, mac, event, at } = returned;
        let Ok(after) = Lease::after(self.at(address, at), mac, event, at) else { return Ok(()) };
        if after.state == State::Declined {
            // Effective at once, even if the commit fails.
            self.state().table.record(address, Some(after));
        }
        self.write(address, after, None, at).await
    }
}

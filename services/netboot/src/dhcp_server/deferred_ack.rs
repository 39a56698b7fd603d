//! ACKs of pool addresses: sent once the lease is committed.

use std::sync::Arc;

use dhcp::{DropReason, Reply, Request};
use tokio::task::JoinSet;

use super::{MAX_ATTEMPTS, Server, Timestamps};
use crate::datagram::Socket;
use crate::leases::{Claim, ClaimResult};

/// The number of ACKs that may wait for the store, which commits all that wait at once: enough for a row of racks that is
/// powered on while a disk is slow. Further clients repeat their requests.
pub(super) const MAX_DEFERRED_ACKS: usize = 2048;

/// An ACK and the lease that is committed before it is sent.
#[derive(Debug)]
pub struct DeferredAck {
    pub(super) request: Request,
    /// The interface that received the request.
    pub(super) interface: u32,
    pub(super) reply: Reply,
    pub(super) claim: Claim,
}

impl Server {
    /// Commits and sends `ack` in a task of its own, if there is a permit for it.
    pub(super) fn defer(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        socket: &Arc<Socket>,
        ack: DeferredAck,
    ) {
        let Ok(permit) = self.deferred.clone().try_acquire_owned() else {
            return self.log_drop(DropReason::Busy, &ack.request);
        };
        let (server, socket) = (self.clone(), socket.clone());
        tasks.spawn(async move {
            let _permit = permit;
            server.commit_and_send(&socket, ack).await;
        });
    }

    async fn commit_and_send(&self, socket: &Socket, ack: DeferredAck) {
        let DeferredAck { request, interface, mut reply, claim } = ack;
        let mut claim = Some(claim);
        for _ in 0..MAX_ATTEMPTS {
            let (Some(allocator), Some(wanted)) = (self.view.scripts.allocator(), claim) else {
                return self.send(socket, &reply.datagram, reply.to, interface).await;
            };
            match allocator.leases().claim(wanted, self.clock.wall()).await {
                ClaimResult::Granted(duration) => {
                    if duration < wanted.duration {
                        let seconds = u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
                        let Ok(shorter) = reply.with_lease_seconds(seconds) else { return };
                        reply = shorter;
                    }
                    tracing::info!(lease.addr = %wanted.address, mac = %wanted.mac, "lease committed");
                    return self.send(socket, &reply.datagram, reply.to, interface).await;
                }
                ClaimResult::StoreUnavailable => break,
                ClaimResult::Lost => {}
            }
            let (machine, mut events) = (self.view.machine(&request), Vec::new());
            let now = Timestamps::from(&self.clock);
            let other = self.respond(&request, machine.as_deref(), &mut events, now);
            self.record_events(events);
            match other {
                None => return,
                Some((other, other_claim)) => (reply, claim) = (other, other_claim),
            }
        }
        self.log_drop(DropReason::LeaseNotStored, &request);
    }
}

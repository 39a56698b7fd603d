//! Answers that wait for a commit: an ACK of a lent address is sent once the lease is durable.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::SystemTime;

use super::super::{Packet, Received, Reply, Reservation, Silence};
use super::{MessageType, Server};
use crate::Mac;
use crate::datagram::Socket;
use crate::dhcp::relay::relayed;
use crate::index::Known;
use crate::leases::{Claim, Granted};
use crate::lending::{Asked, Lent, lasts};
use crate::pool::Event;

/// How many answers may wait for the store; clients of more ask again.
pub(super) const WAITING: usize = 128;
/// How often a request is judged whose address somebody else was given while it was judged.
const ATTEMPTS: usize = 3;

/// An answer to be sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) to: SocketAddrV4,
    /// What has to be durable first.
    pub(super) claim: Option<Claim>,
}

/// A request, read, and how it came.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) request: Packet,
    pub(super) received: Received,
    pub(super) mac: Mac,
    /// The interface it came by.
    pub(super) interface: u32,
}

impl Server {
    /// What the client is lent; nothing where nothing is.
    pub(super) fn lend(
        &self,
        request: &Packet,
        received: Received,
        mac: Mac,
        record: Option<&Reservation>,
    ) -> Result<Lent, Silence> {
        let Some(lending) = &self.lending else { return Ok(Lent::Nothing) };
        let relayed = relayed(request, *received.source.ip(), &self.link);
        lending.lend(Asked { request, mac, relayed, record, link: &self.link }, SystemTime::now())
    }

    /// What has to be durable before `reply` is sent.
    pub(super) fn claim(reply: &Reply, mac: Mac, machine: Option<&Reservation>) -> Option<Claim> {
        let pool = machine.and_then(|machine| machine.pool)?;
        let address = reply.packet.yiaddr;
        let gives = reply.packet.kind() == Some(MessageType::Ack) && !address.is_unspecified();
        gives.then_some(Claim { address, mac, lasts: lasts(pool) })
    }

    /// Commits what `answer` gives away, and then sends it.
    pub(super) async fn settle(
        self: Arc<Self>,
        socket: Arc<Socket>,
        question: Question,
        mut answer: Answer,
    ) {
        let Question { request, received, mac, interface } = question;
        for _ in 0..ATTEMPTS {
            let (Some(lending), Some(claim)) = (&self.lending, answer.claim) else {
                return self.send(&socket, &answer, interface).await;
            };
            match lending.leases().claim(claim, SystemTime::now()).await {
                Granted::For(time) => {
                    if time < claim.lasts {
                        answer.reply.shorten(u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
                    }
                    return self.send(&socket, &answer, interface).await;
                }
                Granted::Unknown => return self.unanswered(Silence::NotStored, mac),
                Granted::Lost => {}
            }
            let known: Option<Known> = self.known(mac, &request, received);
            let Some(other) = self.decide(&request, received, mac, known.as_ref()) else { return };
            answer = other;
        }
        self.unanswered(Silence::NotStored, mac);
    }

    async fn send(&self, socket: &Socket, answer: &Answer, interface: u32) {
        let Ok(datagram) = answer.reply.encode() else { return };
        if let Some(claim) = answer.claim {
            tracing::info!(lease.addr = %claim.address, mac = %claim.mac, "leased");
        }
        if let Err(error) = socket.send(&datagram, answer.to, self.link.id, interface).await {
            tracing::warn!(error = &error as &dyn std::error::Error, to = %answer.to, "answer not sent");
        }
    }

    /// Notes what a client gave back, found in use or did not choose.
    pub(super) fn returned(&self, silence: Silence, mac: Mac) {
        let Some(lending) = &self.lending else { return };
        let leases = lending.leases().clone();
        if silence == Silence::OtherServer {
            return leases.withdraw(mac);
        }
        let Some((address, event)) = given_back(silence) else { return };
        // With as many waiting as may, what is given back just ends later.
        let Ok(place) = self.waiting.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            let _place = place;
            let noted = leases.give_back(address, mac, event, SystemTime::now()).await;
            if let Err(error) = noted {
                tracing::debug!(error = &error as &dyn std::error::Error, lease.addr = %address, "not noted");
            }
        });
    }
}

/// What a client that is not answered has told of an address.
fn given_back(silence: Silence) -> Option<(Ipv4Addr, Event)> {
    if let Silence::Declined(address) = silence {
        Some((address, Event::Decline))
    } else if let Silence::Released(address) = silence {
        Some((address, Event::Release))
    } else {
        None
    }
}

//! Answers that wait for a commit: an ACK of a lent address is sent once the lease is durable.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::SystemTime;

use dhcp::{DropReason, Reply, Reservation};

use super::{MessageType, Moment, Question, Server};
use crate::Mac;
use crate::datagram::Socket;
use crate::leases::{Claim, Granted, Returned};
use crate::lending::{Asked, Lent, lasts};
use crate::pool::Event;

/// How many answers may wait for the store, which makes one commit of what waits: a row of racks, powered on while a disk is
/// slow. Clients of more ask again.
pub(super) const WAITING: usize = 2048;
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

impl Server {
    /// What the client is lent; nothing where nothing is.
    pub(super) fn lend(
        &self,
        question: &Question,
        record: Option<&Reservation>,
    ) -> Result<Lent, DropReason> {
        let Question { request, now, .. } = question;
        let Some(lending) = &self.lending else { return Ok(Lent::Nothing) };
        lending.lend(Asked { request, record, link: &self.link }, now.time)
    }

    /// What has to be durable before `reply` is sent.
    pub(super) fn claim(
        &self,
        reply: &Reply,
        question: &Question,
        machine: &Reservation,
    ) -> Option<Claim> {
        let request = &question.request;
        let (mac, pool) = (Mac(request.mac), machine.pool?);
        let address = reply.packet.yiaddr;
        let gives = reply.packet.kind() == Some(MessageType::Ack) && !address.is_unspecified();
        let relayed = request.relayed(&self.link);
        let here = machine.port.as_ref().is_some_and(|port| port.matches(&relayed));
        // RFC 2131, section 4.3.2: who renews speaks to us alone, past every relay.
        let renews = request.relay().is_none() && request.client_address().is_some();
        let at_port = (!renews).then_some(here);
        gives.then_some(Claim { address, mac, lasts: lasts(pool), at_port })
    }

    /// Commits what `answer` gives away, and then sends it.
    pub(super) async fn settle(
        self: Arc<Self>,
        socket: Arc<Socket>,
        mut question: Question,
        mut answer: Answer,
    ) {
        let interface = question.interface;
        for _ in 0..ATTEMPTS {
            let (Some(lending), Some(claim)) = (&self.lending, answer.claim) else {
                return self.send_answer(&socket, &answer, interface).await;
            };
            match lending.leases().claim(claim, SystemTime::now()).await {
                Granted::For(time) => {
                    if time < claim.lasts {
                        answer
                            .reply
                            .set_lease_seconds(u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
                    }
                    return self.send_answer(&socket, &answer, interface).await;
                }
                Granted::Unknown => return self.unanswered(DropReason::NotStored, &question),
                Granted::Lost => {}
            }
            question.now = Moment::now();
            let known = self.known(&question);
            let Some(other) = self.decide(&question, known.as_deref()) else { return };
            answer = other;
        }
        self.unanswered(DropReason::NotStored, &question);
    }

    async fn send_answer(&self, socket: &Socket, answer: &Answer, interface: u32) {
        let Ok(datagram) = answer.reply.encode() else { return };
        if let Some(claim) = answer.claim {
            tracing::info!(lease.addr = %claim.address, mac = %claim.mac, "leased");
        }
        self.send(socket, &datagram, answer.to, interface).await;
    }

    /// Notes what a client gave back, found in use or did not choose.
    pub(super) fn returned(&self, silence: DropReason, mac: Mac) {
        let Some(lending) = &self.lending else { return };
        let leases = lending.leases();
        if silence == DropReason::OtherServer {
            return leases.withdraw(mac);
        }
        let Some((address, event)) = given_back(silence) else { return };
        leases.take_back(Returned { address, mac, event, at: SystemTime::now() });
    }
}

/// What a client that is not answered has told of an address.
fn given_back(silence: DropReason) -> Option<(Ipv4Addr, Event)> {
    if let DropReason::Declined(address) = silence {
        Some((address, Event::Decline))
    } else if let DropReason::Released(address) = silence {
        Some((address, Event::Release))
    } else {
        None
    }
}

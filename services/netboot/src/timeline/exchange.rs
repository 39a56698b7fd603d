//! What an exchange of DHCP is worth noting: that of firmware and loaders, not that of installed systems.

use dhcp::options::code;
use dhcp::{BootOffer, ClientClass, DropReason, MessageType, Reply, Request};

use crate::decision::Decision;
use crate::timeline::BootStep;

/// What `request` is worth noting, which was answered by `outcome` after `decision`: the request, then
/// the answer.
pub fn noted(
    request: &Request,
    outcome: &Result<Reply, DropReason>,
    decision: &Decision,
) -> impl Iterator<Item = BootStep> {
    let class = request.class;
    let asks = request.kind() == Some(MessageType::Discover) && class.boots();
    let noted = match outcome {
        Err(DropReason::Declined(address)) => [Some(BootStep::Declined(address.to_string())), None],
        Err(DropReason::Unknown) if asks => [Some(BootStep::Unknown(class)), None],
        Err(silence) if asks => {
            [Some(BootStep::Discover(class)), Some(BootStep::Refused(silence.to_string()))]
        }
        Ok(_) if asks => [Some(BootStep::Discover(class)), None],
        Ok(reply) if class.boots() && reply.packet.kind() == Some(MessageType::Ack) => {
            [Some(acked(class, reply, decision)), None]
        }
        Ok(_) | Err(_) => [None, None],
    };
    noted.into_iter().flatten()
}

fn acked(class: ClientClass, reply: &Reply, decision: &Decision) -> BootStep {
    let file = reply.packet.options.get(code::BOOT_FILE_NAME);
    let told = match (&reply.no_loader, decision.offer(), file) {
        (Some(architectures), _, _) => format!("no loader for architecture {architectures:?}"),
        (None, BootOffer::Refused, _) => format!("sent on: {}", decision.fact),
        (None, BootOffer::Offered | BootOffer::Chainload, Some(file)) => {
            ["file ", &String::from_utf8_lossy(file)].concat()
        }
        (None, BootOffer::Offered | BootOffer::Chainload, None) => "no file".into(),
    };
    BootStep::Ack(class, told)
}

//! Steps of a DHCP exchange: those of firmware and loaders, not of installed systems.

use dhcp::options::code;
use dhcp::{BootOffer, ClientClass, DropReason, MessageType, Reply, Request};

use crate::decision::Decision;
use crate::timeline::BootStep;

/// Returns the steps of an exchange: of `request`, and of its `outcome` after `decision`.
pub fn steps(
    request: &Request,
    outcome: &Result<Reply, DropReason>,
    decision: &Decision,
) -> impl Iterator<Item = BootStep> {
    let class = request.class;
    let discovers = request.kind() == Some(MessageType::Discover) && class.boots();
    let steps = match outcome {
        Err(DropReason::Declined(address)) => [Some(BootStep::Declined(address.to_string())), None],
        Err(DropReason::Unknown) if discovers => [Some(BootStep::Unknown(class)), None],
        Err(reason) if discovers => {
            [Some(BootStep::Discover(class)), Some(BootStep::Refused(reason.to_string()))]
        }
        Ok(_) if discovers => [Some(BootStep::Discover(class)), None],
        Ok(reply) if class.boots() && reply.packet.kind() == Some(MessageType::Ack) => {
            [Some(ack(class, reply, decision)), None]
        }
        Ok(_) | Err(_) => [None, None],
    };
    steps.into_iter().flatten()
}

fn ack(class: ClientClass, reply: &Reply, decision: &Decision) -> BootStep {
    let file = reply.packet.options.get(code::BOOT_FILE_NAME);
    let text = match (&reply.no_loader, decision.offer(), file) {
        (Some(architectures), _, _) => format!("no loader for architecture {architectures:?}"),
        (None, BootOffer::Refused, _) => format!("no boot: {}", decision.fact),
        (None, BootOffer::Offered | BootOffer::Chainload, Some(file)) => {
            ["file ", &String::from_utf8_lossy(file)].concat()
        }
        (None, BootOffer::Offered | BootOffer::Chainload, None) => "no file".into(),
    };
    BootStep::Ack(class, text)
}

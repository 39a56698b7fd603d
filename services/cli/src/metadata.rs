//! Commands on the metadata service.

use std::net::IpAddr;

use tinwright::HardwareId;
use tinwright::metadata::v1 as pb;
use tinwright::metadata::v1::explain_metadata_request::By;

use crate::connect::Io;
use crate::output::{self, Format, print_one};
use crate::resource::machine_names;
use crate::{failure, hardware};

/// The error of a server without the service.
const WITHOUT_METADATA: &str = "this server serves no metadata: connect to the one with --metadata-listen or --metadata-link-local";

/// Commands on the metadata service.
#[derive(Debug, clap::Subcommand)]
pub enum MetadataCommand {
    /// Explain what a machine would get from the metadata service now, and why
    Explain {
        /// The machine
        #[arg(value_name = "NAME|MAC|ADDRESS|HOST|ID")]
        machine: String,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
}

/// Runs `command`.
pub async fn run(command: MetadataCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    let MetadataCommand::Explain { machine, output } = command;
    let channel = io.channel;
    let by = match by_form(machine) {
        // The service says of an address why it does not answer, also if its machine is free.
        By::Address(address) => By::Address(address),
        By::HardwareId(name) | By::Hostname(name) => match hardware::known_id(channel, &name).await
        {
            Some(id) => By::HardwareId(id),
            None => by_form(name),
        },
    };
    let response = io.call(pb::ExplainMetadataRequest { by: Some(by) }).await;
    let response =
        response.map_err(|status| failure::if_unimplemented(status, WITHOUT_METADATA))?;
    let names = machine_names(channel, std::iter::once(response.hardware_id.as_str())).await;
    let name = names.get(&response.hardware_id).map(String::as_str).unwrap_or_default();
    print_one(io.out, &response, &output, |response| explanation(response, name))
}

fn by_form(name: String) -> By {
    if name.parse::<HardwareId>().is_ok() {
        By::HardwareId(name)
    } else if name.parse::<IpAddr>().is_ok() {
        By::Address(name)
    } else {
        By::Hostname(name)
    }
}

/// Renders `response` for the machine `name`: one field per line, the addresses first.
fn explanation(response: &pb::ExplainMetadataResponse, name: &str) -> String {
    let sources = response.sources.iter();
    let mut fields: Vec<_> =
        sources.map(|source| ("address", format!("{}: {}", source.address, source.fact))).collect();
    if !response.hardware_id.is_empty() {
        let (machine, instance) = (&response.hardware_id, &response.instance_id);
        let text = if name.is_empty() { machine.clone() } else { format!("{name} ({machine})") };
        fields.push(("hardware", text));
        let is_free = instance.is_empty() || instance == machine;
        fields.push(("instance", if is_free { "none".into() } else { instance.clone() }));
    }
    if let Some(guard) = &response.guard {
        let limit = guard.hop_limit;
        fields.extend([
            ("tokens", guard.tokens.clone()),
            ("source check", guard.source_check.clone()),
            ("hop limit", if limit == 0 { "not limited".into() } else { limit.to_string() }),
            (
                "user data",
                if guard.user_data_served { "served" } else { "no longer served" }.into(),
            ),
        ]);
    }
    fields.push(("feed", feed(&response.feed.unwrap_or_default())));
    output::fields(&fields)
}

fn feed(feed: &pb::Feed) -> String {
    match (feed.synced, feed.live) {
        (false, _) => "not received yet".into(),
        (true, true) => "live".into(),
        (true, false) => {
            let seconds = feed.age.map_or(0, |age| age.seconds);
            let secrets = if feed.secrets_served { "still served" } else { "withheld" };
            format!("cut {seconds} s ago, secrets are {secrets}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_an_id_an_address_or_a_host() {
        let id = HardwareId::new().to_string();
        assert_eq!(by_form(id.clone()), By::HardwareId(id));
        assert_eq!(by_form("2001:db8::1".into()), By::Address("2001:db8::1".into()));
        assert_eq!(by_form("node1.lab".into()), By::Hostname("node1.lab".into()));
    }

    #[test]
    fn an_unknown_address_is_explained_in_two_lines() {
        let source = pb::Source {
            address: "192.0.2.7".into(),
            answered: false,
            fact: "no machine has this address: 404".into(),
        };
        let feed = pb::Feed { synced: true, live: true, age: None, secrets_served: true };
        let response = pb::ExplainMetadataResponse {
            sources: vec![source],
            feed: Some(feed),
            ..Default::default()
        };
        let text = explanation(&response, "");
        assert!(text.contains("192.0.2.7: no machine has this address: 404"), "{text}");
        assert!(text.contains("live") && !text.contains("tokens"), "{text}");
    }

    #[test]
    fn a_machine_is_named_and_a_free_one_has_no_instance() {
        let explained = |instance: &str| {
            let response = pb::ExplainMetadataResponse {
                hardware_id: "h".into(),
                instance_id: instance.into(),
                ..Default::default()
            };
            explanation(&response, "node-1")
        };
        for free in ["", "h"] {
            let explained = explained(free);
            assert!(explained.starts_with("hardware   node-1 (h)\ninstance   none\n"));
        }
        assert!(explained("i").contains("instance   i\n"));
    }
}

//! Commands on the metadata service: whom it takes an address for, and why.

use std::io::Write;
use std::net::IpAddr;

use tinwright::HardwareId;
use tinwright::metadata::v1 as pb;
use tinwright::metadata::v1::explain_metadata_request::By;
use tinwright::metadata::v1::metadata_service_client::MetadataServiceClient;

use crate::connect::Show;
use crate::output::{self, Format, say};

/// What can be asked about the metadata service.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Say what a machine would be told if it asked now, and why
    Explain {
        /// Which
        #[arg(value_name = "ID|ADDRESS|HOST")]
        machine: String,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
}

/// Carries out `command`.
pub async fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    let Command::Explain { machine, show } = command;
    let mut client = MetadataServiceClient::new(show.connection.open().await?);
    let request = pb::ExplainMetadataRequest { by: Some(by(machine)) };
    let told = client.explain_metadata(request).await?.into_inner();
    match show.output {
        Format::Table => say(out, &in_words(told)),
        format @ (Format::Json | Format::Yaml) => say(out, &output::one(&told, format)?),
    }
}

fn by(name: String) -> By {
    if name.parse::<HardwareId>().is_ok() {
        By::HardwareId(name)
    } else if name.parse::<IpAddr>().is_ok() {
        By::Address(name)
    } else {
        By::Hostname(name)
    }
}

/// A line for each fact, the addresses first.
fn in_words(told: pb::ExplainMetadataResponse) -> String {
    let pb::ExplainMetadataResponse { time: _, hardware_id, instance_id, sources, guard, feed } =
        told;
    let mut facts: Vec<(&str, String)> = Vec::new();
    for pb::Source { address, answered: _, fact } in sources {
        facts.push(("address", format!("{address}: {fact}")));
    }
    if !hardware_id.is_empty() {
        facts.extend([("hardware", hardware_id), ("instance", instance_id)]);
    }
    if let Some(pb::Guard {
        tokens,
        source_check,
        hop_limit,
        tokens_revoke_time: _,
        user_data_told,
    }) = guard
    {
        let hops = if hop_limit == 0 { "not limited".into() } else { hop_limit.to_string() };
        facts.extend([
            ("tokens", tokens),
            ("source check", source_check),
            ("hop limit", hops),
            ("user data", if user_data_told { "told" } else { "not told any more" }.into()),
        ]);
    }
    facts.push(("feed", feed_in_words(&feed.unwrap_or_default())));
    output::facts(&facts)
}

fn feed_in_words(feed: &pb::Feed) -> String {
    let pb::Feed { heard, live, age, secrets_told } = feed;
    match (heard, live, secrets_told) {
        (false, _, _) => "never heard".into(),
        (true, true, _) => "live".into(),
        (true, false, told) => {
            let seconds = age.map_or(0, |age| age.seconds);
            let secrets = if *told { "still told" } else { "withheld" };
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
        assert_eq!(by(id.clone()), By::HardwareId(id));
        assert_eq!(by("2001:db8::1".into()), By::Address("2001:db8::1".into()));
        assert_eq!(by("node1.lab".into()), By::Hostname("node1.lab".into()));
    }

    #[test]
    fn an_address_nobody_has_is_told_in_two_lines() {
        let source = pb::Source {
            address: "192.0.2.7".into(),
            answered: false,
            fact: "no machine has this address: 404".into(),
        };
        let feed = pb::Feed { heard: true, live: true, age: None, secrets_told: true };
        let told = pb::ExplainMetadataResponse {
            sources: vec![source],
            feed: Some(feed),
            ..Default::default()
        };
        let words = in_words(told);
        assert!(words.contains("192.0.2.7: no machine has this address: 404"), "{words}");
        assert!(words.contains("live") && !words.contains("tokens"), "{words}");
    }
}

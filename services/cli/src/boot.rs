//! Commands on network boot: explanations, timelines and syslog of machines.

mod explain_text;
mod log;
mod timeline;

use std::io::Write;
use std::net::Ipv4Addr;
use std::time::SystemTime;

use anyhow::Context as _;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::explain_boot_request::By;
use tinwright::netboot::v1::netboot_service_client::NetbootServiceClient;
use tinwright::{HardwareId, Mac, check};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::connect::{Connection, LARGEST, Show};
use crate::noun::{PAGE, answered, pages};
use crate::output::{self, Format, Row, say};

/// What can be asked about network boot.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Explain what a machine would boot now, and why
    Explain {
        /// Machine
        #[arg(value_name = "ID|MAC|ADDRESS|HOST")]
        machine: String,
        /// Program that requests
        #[arg(long, default_value = "ipxe")]
        class: Class,
        /// Number of the client's architecture (DHCP option 93), such as 0 for BIOS and 7 for UEFI on x86-64
        #[arg(long = "arch", value_name = "NUMBER")]
        architecture: Option<u32>,
        /// Relay of the request
        #[command(flatten)]
        relay: Relay,
        /// Server and output
        #[command(flatten)]
        show: Show,
    },
    /// List the stored boots of one machine, or of all
    List {
        /// Machine
        #[arg(value_name = "ID|MAC|ADDRESS|HOST")]
        machine: Option<String>,
        /// Boots of machines without a record
        #[arg(long, conflicts_with = "machine")]
        unknown: bool,
        /// Server and output
        #[command(flatten)]
        show: Show,
    },
    /// Show one boot, step by step: by its id, or a machine's latest
    Get {
        /// Boot, or machine
        #[arg(value_name = "BOOT|ID|MAC|ADDRESS|HOST")]
        name: String,
        /// Server and output
        #[command(flatten)]
        show: Show,
    },
    /// Print the syslog of a machine
    Log {
        /// Machine
        #[arg(value_name = "ID|MAC|ADDRESS|HOST", required_unless_present = "unknown")]
        machine: Option<String>,
        /// Lines from addresses of no machine
        #[arg(long, conflicts_with = "machine")]
        unknown: bool,
        /// Print new lines, until interrupted
        #[arg(short, long)]
        follow: bool,
        /// Number of the latest lines to print [default: all]
        #[arg(
            short = 'n',
            long,
            value_name = "NUMBER",
            default_value = "0",
            hide_default_value = true
        )]
        lines: u32,
        /// Server
        #[command(flatten)]
        connection: Connection,
    },
}

/// The relay of a request.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Relay {
    /// Address of the relay on the machine's link, or 0.0.0.0 for none [default: by the machine's record]
    #[arg(long, value_name = "ADDRESS")]
    relay: Option<Ipv4Addr>,
    /// Circuit-id of the port (option 82, sub-option 1), in hex
    #[arg(long, value_name = "HEX", requires = "relay")]
    circuit_id: Option<String>,
    /// Remote-id of the switch or host (option 82, sub-option 2), in hex
    #[arg(long, value_name = "HEX", requires = "relay")]
    remote_id: Option<String>,
}

/// The program that requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Class {
    /// PXE in firmware
    Pxe,
    /// HTTP boot in firmware
    Http,
    /// iPXE, the loader
    Ipxe,
    /// iPXE in the interface's ROM, which the site may send for a loader first
    IpxeRom,
    /// An installed system, or a BMC
    Ordinary,
}

/// Runs `command`.
pub async fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Explain { machine, class, architecture, relay, show } => {
            let channel = show.connection.open().await?;
            let response = explain(&channel, &machine, class, architecture, relay).await?;
            match show.output {
                Format::Table => output::raw(out, explain_text::explanation(&response).as_bytes()),
                format @ (Format::Json | Format::Yaml) => {
                    say(out, &output::one(&response, format)?)
                }
            }
        }
        Command::List { machine, unknown, show } => {
            let channel = show.connection.open().await?;
            let hardware_id = match machine {
                Some(name) => id(&channel, &name).await?,
                None => String::new(),
            };
            let boots = boots(&channel, hardware_id, unknown).await?;
            say(out, &output::list(&boots, show.output)?)
        }
        Command::Get { name, show } => {
            let boot = found(&show.connection.open().await?, &name).await?;
            match show.output {
                Format::Table => output::raw(out, timeline::text(&boot).as_bytes()),
                format @ (Format::Json | Format::Yaml) => say(out, &output::one(&boot, format)?),
            }
        }
        Command::Log { machine, unknown: _, follow, lines, connection } => {
            let channel = connection.open().await?;
            log::print(&channel, machine.as_deref(), lines, follow, out).await
        }
    }
}

async fn explain(
    channel: &Channel,
    name: &str,
    class: Class,
    architecture: Option<u32>,
    relay: Relay,
) -> anyhow::Result<pb::ExplainBootResponse> {
    let (by, client_class) = (Some(by(name)?), pb::ClientClass::from(class).into());
    let relay = relay.into();
    let request = pb::ExplainBootRequest { by, client_class, architecture, relay };
    let response = client(channel).explain_boot(request).await.map_err(add_hint)?;
    Ok(response.into_inner())
}

/// Returns the id of the machine with the name `name`.
async fn id(channel: &Channel, name: &str) -> anyhow::Result<String> {
    let response = explain(channel, name, Class::Ipxe, None, Relay::default()).await?;
    let id = response.inputs.unwrap_or_default().hardware_id;
    anyhow::ensure!(!id.is_empty(), "no machine {name} has a record: see boot list --unknown");
    Ok(id)
}

async fn boots(
    channel: &Channel,
    hardware_id: String,
    unknown: bool,
) -> anyhow::Result<Vec<pb::Boot>> {
    pages(async |page_token| {
        let hardware_id = hardware_id.clone();
        let request = pb::ListBootsRequest { page_size: PAGE, page_token, hardware_id, unknown };
        let page = client(channel).list_boots(request).await.map_err(add_hint)?.into_inner();
        Ok((page.boots, page.next_page_token))
    })
    .await
}

/// Returns the boot with the id `name`, or the latest boot of the machine `name`.
async fn found(channel: &Channel, name: &str) -> anyhow::Result<pb::Boot> {
    if by(name).is_err() || name.split_once('.').is_some_and(|(of, _)| is_owner(of)) {
        let request = pb::GetBootRequest { id: name.to_owned() };
        return answered(
            client(channel).get_boot(request).await.map_err(add_hint)?.into_inner().boot,
        );
    }
    let mut boots = boots(channel, id(channel, name).await?, false).await?;
    boots.pop().with_context(|| format!("{name} has not booted from the network in the last week"))
}

/// True if ids of boots begin with `text`.
fn is_owner(text: &str) -> bool {
    text.parse::<HardwareId>().is_ok() || text.starts_with("unknown-")
}

fn by(name: &str) -> anyhow::Result<By> {
    if name.parse::<HardwareId>().is_ok() {
        Ok(By::HardwareId(name.into()))
    } else if name.parse::<Mac>().is_ok() {
        Ok(By::Mac(name.into()))
    } else if name.parse::<std::net::IpAddr>().is_ok() {
        Ok(By::Address(name.into()))
    } else {
        let name = check::hostname(name)
            .with_context(|| format!("{name:?} is no machine's id, MAC, address or host name"))?;
        Ok(By::Hostname(name))
    }
}

/// Replaces the error of a server that does not boot machines.
fn add_hint(status: Status) -> Status {
    if status.code() != Code::Unimplemented {
        return status;
    }
    Status::failed_precondition(
        "this server does not boot machines: ask the one with --netboot-interface",
    )
}

fn client(channel: &Channel) -> NetbootServiceClient<Channel> {
    NetbootServiceClient::new(channel.clone()).max_decoding_message_size(LARGEST)
}

impl Row for pb::Boot {
    const COLUMNS: &'static [&'static str] = &["BOOT", "MAC", "SCRIPT", "LAST STEP", "WHY", "AGE"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let last = self.events.last().map(|event| timeline::step(event.kind()));
        vec![
            self.id.clone(),
            self.mac.clone(),
            script_kind(self.script()),
            last.unwrap_or_default().into(),
            self.fact.clone(),
            output::age(self.create_time, now),
        ]
    }
}

/// Returns the name of a script's kind, empty for the unspecified one.
fn script_kind(kind: pb::ScriptKind) -> String {
    if kind == pb::ScriptKind::Unspecified {
        return String::new();
    }
    output::word(kind.as_str_name(), "SCRIPT_KIND_")
}

impl From<Class> for pb::ClientClass {
    fn from(class: Class) -> Self {
        match class {
            Class::Pxe => Self::Pxe,
            Class::Http => Self::Http,
            Class::Ipxe => Self::Ipxe,
            Class::IpxeRom => Self::IpxeRom,
            Class::Ordinary => Self::Ordinary,
        }
    }
}

impl From<Relay> for Option<pb::RelayAgent> {
    fn from(Relay { relay, circuit_id, remote_id }: Relay) -> Self {
        relay.map(|address| pb::RelayAgent {
            address: address.to_string(),
            circuit_id: circuit_id.unwrap_or_default(),
            remote_id: remote_id.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_boot_differs_from_a_host_name_with_a_dot() {
        assert!(is_owner("unknown-02-00-00-00-00-01"));
        assert!(is_owner("5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10"));
        assert!(!is_owner("web-1"));
        assert_eq!(by("web-1.lab").unwrap(), By::Hostname("web-1.lab".into()));
        assert!(by("rack 1").is_err());
    }
}

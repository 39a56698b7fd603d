//! Commands on network boot: explanations, timelines and syslog of machines.

mod explain_text;
mod log;
mod timeline;

use std::net::Ipv4Addr;

use anyhow::Context as _;
use runtime::Channel;
use tinwright::hardware::v1::Hardware;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::explain_boot_request::By;
use tinwright::{HardwareId, Mac, check};
use tonic::Status;

use crate::connect::{Io, call};
use crate::output::{self, Format, List, ListOutput, Row, Table, print_one};
use crate::resource::{list_all, machine_names, required};
use crate::{failure, hardware};

/// Commands on network boot.
#[derive(Debug, clap::Subcommand)]
pub enum BootCommand {
    /// Explain what a machine would boot now, and why
    Explain {
        /// The machine
        #[arg(value_name = "NAME|MAC|ADDRESS|HOST|ID")]
        machine: String,
        /// Options of the simulated request
        #[command(flatten)]
        request: RequestOptions,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// List the stored boots of one machine, or of all
    List {
        /// The machine
        #[arg(value_name = "NAME|MAC|ADDRESS|HOST|ID")]
        machine: Option<String>,
        /// List boots of machines without a record
        #[arg(long, conflicts_with = "machine")]
        unknown: bool,
        /// The output
        #[command(flatten)]
        output: ListOutput,
    },
    /// Show one boot, step by step: by its id, or a machine's latest
    Get {
        /// The boot, or the machine
        #[arg(value_name = "BOOT|NAME|MAC|ADDRESS|HOST|ID")]
        name: String,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Print the syslog of a machine
    Log {
        /// The machine
        #[arg(value_name = "NAME|MAC|ADDRESS|HOST|ID", required_unless_present = "unknown")]
        machine: Option<String>,
        /// Print lines from addresses without a machine
        #[arg(long, conflicts_with = "machine")]
        unknown: bool,
        /// Print new lines, until interrupted
        #[arg(short, long)]
        follow: bool,
        /// Print this number of the latest lines [default: all]
        #[arg(short = 'n', long, value_name = "NUMBER")]
        #[arg(default_value = "0", hide_default_value = true)]
        lines: u32,
    },
}

/// Options of the request to explain.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct RequestOptions {
    /// Explain a request of this program [default: ipxe, and the DHCP reply to the firmware, which asks first]
    #[arg(long)]
    class: Option<ClientClass>,
    /// Set the client's architecture (DHCP option 93), such as 0 for BIOS and 7 for UEFI on x86-64 [default: UEFI of the
    /// machine's processor]
    #[arg(long = "arch", value_name = "NUMBER")]
    architecture: Option<u32>,
    /// Set the relay's address on the machine's link, or 0.0.0.0 for none [default: by the machine's record]
    #[arg(long, value_name = "ADDRESS")]
    relay: Option<Ipv4Addr>,
    /// Set the circuit-id of the port (option 82, sub-option 1), in hex
    #[arg(long, value_name = "HEX", requires = "relay")]
    circuit_id: Option<String>,
    /// Set the remote-id of the switch or host (option 82, sub-option 2), in hex
    #[arg(long, value_name = "HEX", requires = "relay")]
    remote_id: Option<String>,
}

/// Programs that request a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ClientClass {
    /// PXE in firmware
    Pxe = pb::ClientClass::Pxe as isize,
    /// HTTP boot in firmware
    Http = pb::ClientClass::Http as isize,
    /// iPXE, the loader
    Ipxe = pb::ClientClass::Ipxe as isize,
    /// iPXE in the interface's ROM, which may get a loader first
    IpxeRom = pb::ClientClass::IpxeRom as isize,
    /// An installed system, or a BMC
    Ordinary = pb::ClientClass::Ordinary as isize,
}

/// Runs `command`.
pub async fn run(command: BootCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    let channel = io.channel;
    match command {
        BootCommand::Explain { machine, request, output } => {
            let by = by(channel, &machine).await?;
            let with_firmware =
                request.class.is_none() && request.architecture.is_none() && output.is_for_people();
            let firmware = RequestOptions { class: Some(ClientClass::Pxe), ..request.clone() };
            let response = explain(channel, explain_request(by.clone(), request)).await?;
            let firmware = match with_firmware {
                // Without this answer, the other one is printed.
                true => explain(channel, explain_request(by, firmware)).await.ok(),
                false => None,
            };
            let firmware = firmware.and_then(|response| response.dhcp);
            print_one(io.out, &response, &output, |it| {
                explain_text::explanation(it, firmware.as_ref())
            })
        }
        BootCommand::List { machine, unknown, output } => {
            let hardware_id = match machine {
                Some(name) => id(channel, &name).await?,
                None => String::new(),
            };
            let boots = boots(channel, &hardware_id, unknown).await?;
            let table = async |now| {
                let machines = boots.iter().map(|boot| boot.hardware_id.as_str());
                Table::of(&boots, now).with_names(machine_names(channel, machines).await)
            };
            let empty = "no boot from the network in the last week";
            List::new(&boots, |boot| &boot.id, empty).print(&output, table, io.out).await
        }
        BootCommand::Get { name, output } => {
            print_one(io.out, &find(channel, &name).await?, &output, timeline::text)
        }
        BootCommand::Log { machine, unknown: _, follow, lines } => {
            log::print(machine.as_deref(), lines, follow, io).await
        }
    }
}

fn explain_request(by: By, options: RequestOptions) -> pb::ExplainBootRequest {
    let RequestOptions { class, architecture, relay, circuit_id, remote_id } = options;
    let relay = relay.map(|address| pb::RelayAgent {
        address: address.to_string(),
        circuit_id: circuit_id.unwrap_or_default(),
        remote_id: remote_id.unwrap_or_default(),
    });
    let (by, client_class) = (Some(by), class.unwrap_or(ClientClass::Ipxe) as i32);
    pb::ExplainBootRequest { by, client_class, architecture, relay }
}

async fn explain(
    channel: &Channel,
    request: pb::ExplainBootRequest,
) -> anyhow::Result<pb::ExplainBootResponse> {
    Ok(call(channel, request).await.map_err(add_hint)?)
}

/// Returns the id of the machine with the name `name`.
async fn id(channel: &Channel, name: &str) -> anyhow::Result<String> {
    let client_class = ClientClass::Ipxe as i32;
    let by = match by(channel, name).await? {
        By::HardwareId(id) => return Ok(id),
        by @ (By::Mac(_) | By::Address(_) | By::Hostname(_)) => Some(by),
    };
    let request = pb::ExplainBootRequest { by, client_class, ..Default::default() };
    let id = explain(channel, request).await?.inputs.unwrap_or_default().hardware_id;
    anyhow::ensure!(!id.is_empty(), "no machine {name} has a record: see boot list --unknown");
    Ok(id)
}

async fn boots(channel: &Channel, machine: &str, unknown: bool) -> Result<Vec<pb::Boot>, Status> {
    let select = |request: &mut pb::ListBootsRequest| {
        (request.hardware_id, request.unknown) = (machine.to_owned(), unknown);
    };
    list_all(channel, select).await.map_err(add_hint)
}

/// Returns the boot with the id `name`, or the latest boot of the machine `name`.
async fn find(channel: &Channel, name: &str) -> anyhow::Result<pb::Boot> {
    let name = output::referenced::<pb::Boot>(name);
    if host(name).is_err() || name.split_once('.').is_some_and(|(of, _)| is_owner(of)) {
        let request = pb::GetBootRequest { id: name.to_owned() };
        let response = call(channel, request).await.map_err(add_hint)?;
        return required(response.boot);
    }
    let machine = match id(channel, name).await {
        // Tables show the beginning of the second part of an id.
        Err(error) if is_part_of_id(name) => {
            return by_beginning(channel, name).await?.ok_or(error);
        }
        other => other?,
    };
    let mut boots = boots(channel, &machine, false).await?;
    boots.pop().with_context(|| format!("{name} has not booted from the network in the last week"))
}

/// True if `text` can be the beginning of an id as tables show it.
fn is_part_of_id(text: &str) -> bool {
    text.len() >= 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Returns the boot whose id has a second part that begins with `text`, if there is one.
async fn by_beginning(channel: &Channel, text: &str) -> anyhow::Result<Option<pb::Boot>> {
    let mut found = Vec::new();
    for unknown in [false, true] {
        found.extend(boots(channel, "", unknown).await?);
    }
    let begins = |boot: &pb::Boot| {
        boot.id.split_once('.').is_some_and(|(_, second)| second.starts_with(text))
    };
    found.retain(begins);
    anyhow::ensure!(
        found.len() <= 1,
        "{} ids of boots begin with {text}: give more of it",
        found.len()
    );
    Ok(found.pop())
}

/// True if ids of boots begin with `text`.
fn is_owner(text: &str) -> bool {
    text.parse::<HardwareId>().is_ok() || text.starts_with("unknown-")
}

/// Returns what the machine `name` is looked up by: a name of its record, else one of DHCP.
async fn by(channel: &Channel, name: &str) -> anyhow::Result<By> {
    match host(name)? {
        By::Hostname(host) => Ok(match hardware::known_id(channel, name).await {
            Some(id) => By::HardwareId(id),
            None => By::Hostname(host),
        }),
        by @ (By::HardwareId(_) | By::Mac(_) | By::Address(_)) => Ok(by),
    }
}

fn host(name: &str) -> anyhow::Result<By> {
    let name = output::referenced::<Hardware>(name);
    if name.parse::<HardwareId>().is_ok() {
        Ok(By::HardwareId(name.into()))
    } else if name.parse::<Mac>().is_ok() {
        Ok(By::Mac(name.into()))
    } else if name.parse::<std::net::IpAddr>().is_ok() {
        Ok(By::Address(name.into()))
    } else {
        let invalid = || format!("{name:?} is not the id, MAC, address or host name of a machine");
        Ok(By::Hostname(check::hostname(name).with_context(invalid)?))
    }
}

/// Replaces the status of a server without netboot.
fn add_hint(status: Status) -> Status {
    failure::if_unimplemented(status, failure::WITHOUT_NETBOOT)
}

impl Row for pb::Boot {
    const COLUMNS: &'static str = "BOOT:id,HARDWARE:hardware_id,MAC:mac,SCRIPT,LAST STEP,WHY:fact,\
        AGE:create_time";

    fn cell(&self, column: &str) -> String {
        match (column, self.events.last()) {
            ("SCRIPT", _) => script_kind(self.script()),
            (_, last) => last.map_or("", |event| timeline::step(event.kind())).to_owned(),
        }
    }
}

/// Returns the name of a script's kind, empty for the unspecified one.
fn script_kind(kind: pb::ScriptKind) -> String {
    if kind == pb::ScriptKind::Unspecified {
        return String::new();
    }
    output::word(kind.as_str_name(), "SCRIPT_KIND_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_boot_differs_from_a_host_name_with_a_dot() {
        assert!(is_owner("unknown-02-00-00-00-00-01"));
        assert!(is_owner("5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10"));
        assert!(!is_owner("web-1"));
        assert_eq!(host("web-1.lab").unwrap(), By::Hostname("web-1.lab".into()));
        assert!(host("rack 1").is_err());
    }
}

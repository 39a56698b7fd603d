//! Enrolment of machines by their BMCs: of one, or of those in a CSV file. Passwords come from a file, standard input, a prompt or that
//! file, never from the command line, where other users of the computer could read them.

mod file;

use std::path::PathBuf;

use runtime::Channel;
use tinwright::hardware::v1::Location;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Protocol;
use tinwright::power::v1::enrol_bmc_request::Discovery;

use crate::connect::Io;
use crate::output::{Format, List, Row};
use crate::resource::Resource as _;
use crate::{bmc_address, input, password};

/// Options of an enrolment.
#[derive(Debug, clap::Args)]
pub struct EnrolHardware {
    /// Enrol the machine of the BMC at this address: https://HOST:PORT/redfish/v1/Systems/ID or ipmi://HOST:PORT; port and path may be left out
    #[arg(long, value_name = "URL", required_unless_present = "csv")]
    bmc: Option<String>,
    /// Enrol the machines in this CSV file; - for standard input. Its first line names the columns: bmc, username and password, and if
    /// wanted system, name, location, zone, labels (KEY=VALUE;KEY=VALUE) and label:KEY
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bmc", "username", "password_file", "system", "name", "certificate_sha256"])]
    csv: Option<PathBuf>,
    /// Enrol at most this many machines of the file at a time
    #[arg(long, value_name = "NUMBER", default_value = "16", value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    /// Log in as this user
    #[arg(long, value_name = "NAME", required_unless_present = "csv")]
    username: Option<String>,
    /// Read the password from this file; - for standard input [default: a prompt at a terminal, else standard input]
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Select the system with this id or name, if the service has several
    #[arg(long, value_name = "NAME")]
    system: Option<String>,
    /// Name the machine [default: its serial number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Record that it stands in this location
    #[arg(long, value_name = "ID|NAME")]
    location: Option<String>,
    /// Record that it stands in this zone of the location
    #[arg(long, value_name = "NAME", requires = "location")]
    zone: Option<String>,
    /// Add a label, for selecting; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
    /// Trust the certificate with this SHA-256 in hex [default: the certificate of the first login]
    #[arg(long, value_name = "HEX")]
    certificate_sha256: Option<String>,
    /// Trust every certificate that is signed by a root that the server trusts
    #[arg(long, conflicts_with = "certificate_sha256")]
    signed_by_root: bool,
    /// Allow TLS before 1.2 and ciphers without forward secrecy, by the program openssl on the server
    #[arg(long)]
    legacy_tls: bool,
    /// Boot the machine for discovery even if it is on: it is switched off and on
    #[arg(long, conflicts_with = "no_discovery")]
    restart: bool,
    /// Do not boot the machine for discovery
    #[arg(long)]
    no_discovery: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Runs the command.
pub async fn run(options: EnrolHardware, io: &mut Io<'_>) -> anyhow::Result<()> {
    if let Some(path) = options.csv.clone() {
        return file::enrol(&path, &options, io).await;
    }
    let (output, request) = request(options, io.channel).await?;
    let enrolled = [io.call(request).await?];
    let list = List::new(&enrolled, |it| &it.hardware_id, "no machine");
    list.print_rows(&output.into(), io.out).await
}

/// Returns the request that enrols one machine. The password is asked for once all else is known to be right.
async fn request(
    options: EnrolHardware,
    channel: &Channel,
) -> anyhow::Result<(Format, pb::EnrolBmcRequest)> {
    let discovery = discovery(&options);
    let mut protocol = bmc_address::protocol(&options.bmc.unwrap_or_default())?;
    match &mut protocol {
        Protocol::Redfish(redfish) => {
            if let Some(system) = options.system {
                redfish.system_id = system;
            }
            redfish.certificate_sha256 = options.certificate_sha256.unwrap_or_default();
            redfish.signed_by_root = options.signed_by_root;
            redfish.legacy_tls = options.legacy_tls;
        }
        Protocol::Ipmi(_) => {
            let of_redfish = options.system.is_some()
                || options.certificate_sha256.is_some()
                || options.signed_by_root
                || options.legacy_tls;
            anyhow::ensure!(!of_redfish, "systems, certificates and TLS are for Redfish only");
        }
    }
    let location = options.location.as_deref();
    let location_id = Location::find_optional_id(channel, location).await?;
    let bmc = pb::Bmc {
        protocol: Some(protocol),
        username: options.username.unwrap_or_default(),
        password: password::read("of the BMC", options.password_file.as_deref())?,
        ..pb::Bmc::default()
    };
    let request = pb::EnrolBmcRequest {
        bmc: Some(bmc),
        name: options.name.unwrap_or_default(),
        location_id,
        zone: options.zone.unwrap_or_default(),
        labels: options.labels.into_iter().collect(),
        discovery: discovery.into(),
    };
    Ok((options.output, request))
}

fn discovery(options: &EnrolHardware) -> Discovery {
    match (options.restart, options.no_discovery) {
        (true, _) => Discovery::Restart,
        (false, true) => Discovery::None,
        (false, false) => Discovery::Unspecified,
    }
}

/// Returns a word for what the call did.
fn result(enrolled: &pb::EnrolBmcResponse) -> &'static str {
    match (enrolled.hardware_created, enrolled.bmc_created) {
        (true, _) => "enrolled",
        (false, true) => "BMC added",
        (false, false) => "exists",
    }
}

/// Returns the notes of an enrolment, and its boot for discovery.
fn notes(enrolled: &pb::EnrolBmcResponse) -> String {
    let boot = enrolled.discovery.as_ref();
    let boot = boot.map(|job| format!("boots for discovery by power job {}", job.id));
    boot.into_iter().chain(enrolled.notes.iter().cloned()).collect::<Vec<_>>().join("; ")
}

impl Row for pb::EnrolBmcResponse {
    const COLUMNS: &'static str = "HARDWARE:hardware_id,RESULT,BMC,SERIAL:inventory.serial,\
        UUID:inventory.uuid,MAC:inventory.interfaces.mac,NOTES";

    fn cell(&self, column: &str) -> String {
        match column {
            "RESULT" => result(self).to_owned(),
            "BMC" => self.bmc.as_ref().map_or_else(String::new, bmc_address::text),
            _ => notes(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_row_says_what_was_done() {
        let mut enrolled = pb::EnrolBmcResponse {
            hardware_created: true,
            bmc_created: true,
            notes: vec!["the BMC lists no serial number".into()],
            discovery: Some(pb::PowerJob { id: "j1".into(), ..Default::default() }),
            ..Default::default()
        };
        let row = enrolled.row(SystemTime::UNIX_EPOCH);
        assert_eq!(row[1], "enrolled");
        let notes = "boots for discovery by power job j1; the BMC lists no serial number";
        assert_eq!(row[6], notes);
        enrolled.hardware_created = false;
        assert_eq!(result(&enrolled), "BMC added");
        enrolled.bmc_created = false;
        assert_eq!(result(&enrolled), "exists");
    }
}

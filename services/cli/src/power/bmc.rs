//! Commands on BMCs. A password comes from a file, from standard input or from a prompt, never from the command line, where
//! other users of the computer could read it.

mod change;

use std::path::PathBuf;

use prost_types::FieldMask;
use runtime::Channel;
use tinwright::BmcId;
use tinwright::HardwareId;
use tinwright::hardware::v1::Hardware;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::{Protocol, Redfish};
use tinwright::power::v1::get_bmc_request::By;
use tonic::{Code, Status};

use self::change::{SetPassword, UpdateBmc};
use crate::connect::{Io, View, call};
use crate::failure::Missing;
use crate::output::{self, Format, Row};
use crate::resource::{
    self, ApplyOptions, FromFiles, Names, NoOptions, Resource, ResourceCommand, SendOptions, Target,
};
use crate::{bmc_address, input, password};

/// Commands on BMCs.
#[derive(Debug, clap::Subcommand)]
pub enum BmcCommand {
    /// Create the BMC of a machine after a login; its password is read from a prompt, standard input or a file
    Create(CreateBmc),
    /// Change the address, the user name, the certificate or the labels of a BMC, after a login
    Update(UpdateBmc),
    /// Change the password by which the server logs in to a BMC, after a login with it
    SetPassword(SetPassword),
    /// Log in to a BMC, and show the power state of its machine
    Test(Target<pb::Bmc>),
    /// Read what a BMC lists of its machine, and store it in the machine's record
    Inventory(Target<pb::Bmc>),
    /// Create the BMCs in files, or replace those that have the id or the machine
    Apply(ApplyOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Bmc>),
}

/// Options of a new BMC.
#[derive(Debug, clap::Args)]
pub struct CreateBmc {
    /// Control this machine
    #[arg(long, value_name = "NAME|MAC|ADDRESS|ID")]
    hardware: String,
    /// Set the root of its Redfish service, such as https://198.51.100.2
    #[arg(long, value_name = "URL", required_unless_present = "ipmi")]
    url: Option<String>,
    /// Control it over IPMI at this address, such as 198.51.100.2 or bmc1.example.com:6230, instead of Redfish
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["url", "system", "certificate_sha256", "signed_by_root", "legacy_tls"])]
    ipmi: Option<String>,
    /// Use this cipher suite of IPMI: 3, 8, 12 or 17 [default: the best that the BMC offers]
    #[arg(long, value_name = "NUMBER", requires = "ipmi", conflicts_with = "url")]
    cipher_suite: Option<u32>,
    /// Select the system with this id or name, if the service has several
    #[arg(long, value_name = "NAME")]
    system: Option<String>,
    /// Log in as this user
    #[arg(long, value_name = "NAME")]
    username: String,
    /// Read the password from this file; - for standard input [default: a prompt at a terminal, else standard input]
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Trust the certificate with this SHA-256 in hex [default: the certificate of the first login]
    #[arg(long, value_name = "HEX")]
    certificate_sha256: Option<String>,
    /// Trust every certificate that is signed by a root that the server trusts
    #[arg(long, conflicts_with = "certificate_sha256")]
    signed_by_root: bool,
    /// Allow TLS before 1.2 and ciphers without forward secrecy, by the program openssl on the server
    #[arg(long)]
    legacy_tls: bool,
    /// Create it without a login to the BMC
    #[arg(long)]
    skip_login: bool,
    /// Create it although the BMC lists the UUID or a MAC of another machine, or another UUID than the machine's
    #[arg(long, conflicts_with = "skip_login")]
    accept_other_machine: bool,
    /// Add a label, for selecting; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Runs `command`.
pub(super) async fn run(command: BmcCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        BmcCommand::Create(options) => create(options, io).await,
        BmcCommand::Update(options) => change::update(options, io).await,
        BmcCommand::SetPassword(options) => change::set_password(options, io).await,
        BmcCommand::Test(Target { name, output, .. }) => {
            let bmc = pb::Bmc::find(io.channel, &name, View::Basic).await?;
            super::print_state(bmc.hardware_id, &name, &output, io).await
        }
        BmcCommand::Inventory(Target { name, output, .. }) => {
            let bmc = pb::Bmc::find(io.channel, &name, View::Basic).await?;
            let request = pb::ReadBmcInventoryRequest { hardware_id: bmc.hardware_id };
            let read = io.call(request).await.map_err(|status| with_hint(status, &name))?;
            io.print(&output::one(&read, &output)?)
        }
        BmcCommand::Apply(options) => resource::apply::<pb::Bmc>(options, io).await,
        BmcCommand::Resource(command) => resource::run(command, io).await,
    }
}

async fn create(options: CreateBmc, io: &mut Io<'_>) -> anyhow::Result<()> {
    let protocol = match &options.ipmi {
        Some(address) => Protocol::Ipmi(bmc_address::ipmi(address, options.cipher_suite)?),
        None => Protocol::Redfish(Redfish {
            url: options.url.unwrap_or_default(),
            system_id: options.system.unwrap_or_default(),
            certificate_sha256: options.certificate_sha256.unwrap_or_default(),
            signed_by_root: options.signed_by_root,
            legacy_tls: options.legacy_tls,
        }),
    };
    let hardware_id = Hardware::find_id(io.channel, &options.hardware).await?;
    // Else the password would be asked for first.
    let stored = get(io.channel, By::HardwareId(hardware_id.clone())).await;
    if stored.is_ok_and(|bmc| bmc.is_some()) {
        let machine = &options.hardware;
        anyhow::bail!(
            "{machine} has a BMC already: to change it: tinwright power bmc update {machine}"
        );
    }
    let bmc = pb::Bmc {
        hardware_id,
        protocol: Some(protocol),
        username: options.username,
        password: password::read("of the BMC", options.password_file.as_deref())?,
        labels: options.labels.into_iter().collect(),
        ..pb::Bmc::default()
    };
    let (skip_login, accept_other_machine) = (options.skip_login, options.accept_other_machine);
    let send = SendOptions { skip_login, accept_other_machine, force: false };
    let created = io.call(bmc.create_request(send)).await?;
    resource::print(created.bmc.as_slice(), options.output, io).await
}

impl Row for pb::Bmc {
    const COLUMNS: &'static str = "ID:id,HARDWARE:hardware_id,ADDRESS,USERNAME:username,\
        AGE:create_time";

    fn cell(&self, _: &str) -> String {
        bmc_address::text(self)
    }
}

impl Resource for pb::Bmc {
    type Filter = NoOptions;
    const NAMES: &'static str = "ID|MACHINE";
    const FIRST: &'static str =
        "create one with `tinwright power bmc create --hardware MACHINE --url URL --username NAME`";

    /// Finds a BMC by its id, else by its machine.
    async fn get(channel: &Channel, name: &str, _: View) -> anyhow::Result<Self> {
        if name.parse::<BmcId>().is_ok() {
            for by in [By::Id(name.into()), By::HardwareId(name.into())] {
                if let Some(found) = get(channel, by).await? {
                    return Ok(found);
                }
            }
            return Err(none(name));
        }
        let machine = Hardware::get(channel, name, View::Basic).await?;
        let found = get(channel, By::HardwareId(machine.id.clone())).await?;
        found.ok_or_else(|| none(&machine.title()))
    }
}

impl FromFiles for pb::Bmc {
    async fn resolve(&mut self, names: &Names<'_>) -> anyhow::Result<()> {
        names.resolve::<Hardware>(&mut self.hardware_id).await
    }

    async fn stored(&self, channel: &Channel, _: View) -> anyhow::Result<Option<Self>> {
        let by = match (self.id.is_empty(), self.hardware_id.is_empty()) {
            (false, _) => By::Id(self.id.clone()),
            // In a dry run it may be the name of a machine that is not created.
            (true, false) if self.hardware_id.parse::<HardwareId>().is_err() => return Ok(None),
            (true, false) => By::HardwareId(self.hardware_id.clone()),
            (true, true) => anyhow::bail!("it has neither an id nor a machine"),
        };
        get(channel, by).await
    }

    /// The server pins the certificate of the first login, and finds the only system of a service.
    fn adopt(&mut self, stored: &Self) {
        let (Some(Protocol::Redfish(own)), Some(Protocol::Redfish(stored))) =
            (&mut self.protocol, &stored.protocol)
        else {
            return;
        };
        for (own, stored) in [
            (&mut own.certificate_sha256, &stored.certificate_sha256),
            (&mut own.system_id, &stored.system_id),
        ] {
            if own.is_empty() {
                own.clone_from(stored);
            }
        }
    }

    fn create_request(self, options: SendOptions) -> Self::Create {
        let SendOptions { skip_login, accept_other_machine, force: _ } = options;
        let request_id = String::new();
        pb::CreateBmcRequest { bmc: Some(self), request_id, skip_login, accept_other_machine }
    }

    fn update_request(self, update_mask: Option<FieldMask>, options: SendOptions) -> Self::Update {
        let SendOptions { skip_login, accept_other_machine, force: _ } = options;
        pb::UpdateBmcRequest { bmc: Some(self), update_mask, skip_login, accept_other_machine }
    }
}

/// Returns the error that `machine` has no BMC, with the command that creates one.
pub(super) fn none(machine: &str) -> anyhow::Error {
    let command = "tinwright power bmc create --hardware";
    Missing(format!("{machine} has no BMC: {command} {machine} --url URL --username NAME")).into()
}

/// The machine in the command line that an error of a BMC recommends: the server does not know by which name it was called.
const PLACEHOLDER: &str = "power bmc update MACHINE";

/// Replaces the status of a machine without a BMC, which names the machine by its id, and names the machine in recommended commands.
pub(super) fn with_hint(status: Status, machine: &str) -> anyhow::Error {
    if status.code() == Code::NotFound && status.message().starts_with("BMC") {
        return none(machine);
    }
    match status.message().contains(PLACEHOLDER) {
        true => Status::new(status.code(), name_machine_in(status.message(), machine)).into(),
        false => status.into(),
    }
}

/// Names the machine in the command that `error` recommends.
pub(super) fn name_machine(error: anyhow::Error, machine: &str) -> anyhow::Error {
    match error.to_string() {
        text if text.contains(PLACEHOLDER) => anyhow::anyhow!(name_machine_in(&text, machine)),
        _ => error,
    }
}

fn name_machine_in(text: &str, machine: &str) -> String {
    text.replace(PLACEHOLDER, &format!("power bmc update {machine}"))
}

/// Returns the BMC with an id or of a machine, if there is one.
async fn get(channel: &Channel, by: By) -> anyhow::Result<Option<pb::Bmc>> {
    let found = call(channel, pb::GetBmcRequest { by: Some(by) }).await.map_err(Into::into);
    Ok(resource::optional(found)?.and_then(|found| found.bmc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recommended_command_names_the_machine() {
        let text = "changed; `tinwright power bmc update MACHINE --accept-certificate` accepts it";
        let wanted = "changed; `tinwright power bmc update node-1 --accept-certificate` accepts it";
        let status = with_hint(Status::failed_precondition(text), "node-1");
        assert_eq!(crate::failure::line(&status), wanted);
        assert_eq!(name_machine(anyhow::anyhow!(text), "node-1").to_string(), wanted);
        let missing = with_hint(Status::not_found("BMC 5d1c not found"), "node-1").to_string();
        assert!(missing.starts_with("node-1 has no BMC: tinwright power bmc create"), "{missing}");
    }
}

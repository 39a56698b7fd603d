//! Commands on machines.
//!
//! - `lookup`: machines by names, MACs, addresses and ids. `effective_state`: their states, combined with the
//!   states of their instances.
//! - `enrolment`: machines that enrolled, and unknown ones. `update`: updates from files and options.

mod effective_state;
mod enrolment;
mod lookup;
mod update;

use std::collections::BTreeSet;
use std::time::SystemTime;

use prost_types::FieldMask;
use runtime::Channel;
use tinwright::Mac;
use tinwright::hardware::v1 as pb;
use tinwright::requests::Labels;
use tinwright::workflow::v1::Template;

use crate::connect::{Io, View, call};
use crate::enrol;
use crate::output::{self, Format, ListOutput, Row, Table};
use crate::resource::{
    self, ApplyOptions, FileOptions, FromFiles, Names, Query, Resource, ResourceCommand,
    SendOptions, Targets, required,
};
pub(crate) use lookup::{address, known_id};

/// Commands on machines.
#[derive(Debug, clap::Subcommand)]
pub enum HardwareCommand {
    /// Create machines from files: in our own form, or in Tinkerbell's JSON
    Create(FileOptions),
    /// Create machines from their BMCs: log in, read the inventory, and boot each machine once for discovery
    Enrol(Box<enrol::EnrolHardware>),
    /// Replace machines from files, each of which must have its id; or set fields of machines
    Update(update::UpdateHardware),
    /// Accept machines that have enrolled: instances may be created on them
    Accept(Targets<pb::Hardware>),
    /// List machines that asked for a boot and have no record
    Discover {
        /// The output
        #[command(flatten)]
        output: ListOutput,
    },
    /// Forget machines that have no record, until they ask again
    Forget {
        /// The MACs, as `hardware discover` prints them
        #[arg(value_name = "MAC", required = true)]
        macs: Vec<String>,
    },
    /// Change the state of a machine
    SetState {
        /// The machine
        #[arg(value_name = pb::Hardware::NAMES)]
        machine: String,
        /// The state
        state: RequestedState,
        /// Record this reason, for people
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Record where machines stand
    SetLocation {
        /// The machines
        #[arg(value_name = pb::Hardware::NAMES, required = true)]
        names: Vec<String>,
        /// Their location [default: none]
        #[arg(long, value_name = pb::Location::NAMES)]
        location: Option<String>,
        /// Their zone of that location [default: none]
        #[arg(long, value_name = "NAME", requires = "location")]
        zone: Option<String>,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Protect machines: deletion, new workflows, new instances and clean-ups are refused
    Protect(Targets<pb::Hardware>),
    /// Remove the protection of machines
    Unprotect(Targets<pb::Hardware>),
    /// Create the machines in files, or replace those that have the id, or the name; by a MAC, those without another name
    Apply(ApplyOptions),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Hardware>),
}

/// Options of a list, besides labels.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub struct HardwareFilter {
    /// List only machines whose own state this is, without regard to their instances
    #[arg(long)]
    state: Option<OwnState>,
    /// List only machines in this location
    #[arg(long, value_name = pb::Location::NAMES)]
    location: Option<String>,
    /// List only machines in this zone of the location
    #[arg(long, value_name = "NAME", requires = "location")]
    zone: Option<String>,
    /// List only machines of this model
    #[arg(long, value_name = pb::Model::NAMES)]
    model: Option<String>,
}

/// States of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OwnState {
    /// Recorded, but not verified
    Enrolled = pb::State::Enrolled as isize,
    /// May be given to an instance
    Provisionable = pb::State::Provisionable as isize,
    /// An operator has to look at it
    Failed = pb::State::Failed as isize,
    /// Nothing automatic happens to it
    Maintenance = pb::State::Maintenance as isize,
    /// Being deleted
    Deleting = pb::State::Deleting as isize,
}

/// States that can be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RequestedState {
    /// Recorded, but not verified
    Enrolled = pb::State::Enrolled as isize,
    /// May be given to an instance
    Provisionable = pb::State::Provisionable as isize,
    /// An operator has to look at it
    Failed = pb::State::Failed as isize,
    /// Nothing automatic happens to it
    Maintenance = pb::State::Maintenance as isize,
}

/// Runs `command`.
pub async fn run(command: HardwareCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        HardwareCommand::Create(files) => resource::create::<pb::Hardware>(files, io).await,
        HardwareCommand::Enrol(options) => enrol::run(*options, io).await,
        HardwareCommand::Update(options) => update::run(options, io).await,
        HardwareCommand::Accept(targets) => enrolment::accept(targets, io).await,
        HardwareCommand::Discover { output } => enrolment::discover(&output, io).await,
        HardwareCommand::Forget { macs } => enrolment::forget(&macs, io).await,
        HardwareCommand::SetState { machine, state, reason, output } => {
            let id = pb::Hardware::find_id(io.channel, &machine).await?;
            let state = state as i32;
            let request = pb::SetHardwareStateRequest { id, state, reason, revision: 0 };
            let response = io.call(request).await?;
            resource::print(response.hardware.as_slice(), output, io).await
        }
        HardwareCommand::SetLocation { names, location, zone, output } => {
            let location = location.as_deref();
            let location_id = pb::Location::find_optional_id(io.channel, location).await?;
            let zone = zone.unwrap_or_default();
            let place = pb::Hardware { location_id, zone, ..pb::Hardware::default() };
            resource::set_fields(&names, &place, &["location_id", "zone"], output, io).await
        }
        HardwareCommand::Protect(targets) => resource::protect(targets, true, io).await,
        HardwareCommand::Unprotect(targets) => resource::protect(targets, false, io).await,
        HardwareCommand::Apply(options) => resource::apply::<pb::Hardware>(options, io).await,
        HardwareCommand::Resource(command) => resource::run(command, io).await,
    }
}

impl Row for pb::Hardware {
    const COLUMNS: &'static str = "ID:id,NAME:name,STATE,MAC:interfaces.0.mac,\
        ADDRESS:interfaces.0.dhcp.address.address,AGE:create_time";

    fn cell(&self, _: &str) -> String {
        output::with_protection(output::state(self), self.protect)
    }
}

impl Resource for pb::Hardware {
    type Filter = HardwareFilter;
    const NAMES: &'static str = "NAME|MAC|ADDRESS|ID";
    const OBJECTS: &'static str = "The machines";
    const FIRST: &'static str =
        "create one with `tinwright hardware create -f FILE`, or see `tinwright hardware discover`";

    async fn get(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        let request = pb::GetHardwareRequest { by: Some(lookup::by(name)?), view: view as i32 };
        required(call(channel, request).await?.hardware)
    }

    async fn select(channel: &Channel, query: &Query<Self>) -> anyhow::Result<Self::List> {
        let HardwareFilter { state, location, zone, model } = &query.filter;
        Ok(pb::ListHardwareRequest {
            view: query.view as i32,
            state: state.map_or(0, |state| state as i32),
            zone: zone.clone().unwrap_or_default(),
            location_id: pb::Location::find_optional_id(channel, location.as_deref()).await?,
            model_id: pb::Model::find_optional_id(channel, model.as_deref()).await?,
            ..Default::default()
        })
    }

    // People get effective states. Programs get the machines themselves, and can request instances.

    async fn describe(&self, channel: &Channel) -> anyhow::Result<String> {
        effective_state::describe(channel, self).await
    }

    async fn table(channel: &Channel, machines: &[Self], now: SystemTime, wide: bool) -> Table {
        effective_state::table(channel, machines, now, wide).await
    }
}

impl FromFiles for pb::Hardware {
    async fn resolve(&mut self, names: &Names<'_>) -> anyhow::Result<()> {
        names.resolve::<pb::Location>(&mut self.location_id).await?;
        match &mut self.policy {
            Some(policy) => names.resolve::<Template>(&mut policy.deprovision_template_id).await,
            None => Ok(()),
        }
    }

    /// Finds it by its id, else by its name, else by a MAC: a machine that has enrolled may have another name.
    async fn stored(&self, channel: &Channel, view: View) -> anyhow::Result<Option<Self>> {
        if !self.id.is_empty() {
            return resource::optional(Self::get(channel, &self.id, view).await);
        }
        let macs = self.interfaces.iter().map(|it| it.mac.as_str());
        let keys = [self.name.as_str()].into_iter().chain(macs).filter(|it| !it.is_empty());
        let keys: Vec<_> = keys.collect();
        anyhow::ensure!(!keys.is_empty(), "it has neither an id, nor a name, nor a MAC");
        for key in keys {
            if let Some(found) = resource::optional(Self::get(channel, key, view).await)? {
                check_is_meant(self, &found, key)?;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn update_request(
        self,
        update_mask: Option<FieldMask>,
        SendOptions { force, .. }: SendOptions,
    ) -> Self::Update {
        pb::UpdateHardwareRequest { hardware: Some(self), update_mask, force }
    }

    fn unchanged_part(&self, stored: &Self) -> Option<String> {
        let name = if self.name == stored.name { stored.title() } else { stored.id.clone() };
        let command = match (stored.state(), self.state()) {
            (_, pb::State::Unspecified | pb::State::Deleting) => return None,
            (old, new) if old == new => return None,
            (pb::State::Enrolled, pb::State::Provisionable) => format!("accept {name}"),
            _ => format!("set-state {name} {}", output::state(self)),
        };
        Some(format!(
            "its state stays {}; to change it: tinwright hardware {command}",
            output::state(stored)
        ))
    }

    /// Tells machines apart by their MACs.
    fn is_same(&self, stored: &Self) -> Option<bool> {
        let [file, stored] = [self, stored].map(macs);
        let have_macs = !file.is_empty() && !stored.is_empty();
        have_macs.then(|| !file.is_disjoint(&stored))
    }

    fn labels_mut(&mut self) -> Option<&mut Labels> {
        Some(&mut self.labels)
    }

    /// A machine that was found by its MAC keeps its name.
    fn adopt(&mut self, stored: &Self) {
        if self.name.is_empty() {
            self.name.clone_from(&stored.name);
        }
        if self.architecture.is_empty() {
            self.architecture.clone_from(&stored.architecture);
        }
    }
}

fn macs(machine: &pb::Hardware) -> BTreeSet<Mac> {
    machine.interfaces.iter().filter_map(|interface| interface.mac.parse().ok()).collect()
}

/// Passes unless `found`, which has the MAC `key`, has another name than the machine of the file: the file would take it over.
fn check_is_meant(file: &pb::Hardware, found: &pb::Hardware, key: &str) -> anyhow::Result<()> {
    let is_same = [file, found].iter().any(|machine| machine.name.is_empty())
        || file.name.eq_ignore_ascii_case(&found.name);
    anyhow::ensure!(
        is_same,
        "{key} is the MAC of {}, not of {}: to rename it, add to the file: id: {}",
        found.name,
        file.name,
        found.id
    );
    Ok(())
}

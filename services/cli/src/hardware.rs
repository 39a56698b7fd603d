//! Commands on machines.

mod occupied;

use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use prost_types::FieldMask;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::{HardwareId, Mac, check};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::connect::{LARGEST, Show, View};
use crate::follow::Watchable;
use crate::noun::{self, Files, Noun, PAGE, Plain, Update, Wanted, Written, answered};
use crate::output::{self, Format, Row, say};
use crate::{input, tinkerbell};

/// Commands on machines.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create machines from files: in our own form, or in Tinkerbell's JSON
    Create(Files),
    /// Replace machines from files; each must have its id
    Update(Update),
    /// Change the state of a machine
    SetState {
        /// The machine
        #[arg(value_name = pb::Hardware::NAMES)]
        machine: String,
        /// The state
        state: State,
        /// The reason, for people
        #[arg(long, default_value = "")]
        reason: String,
        /// Server and output format
        #[command(flatten)]
        show: Show,
    },
    /// Commands that every resource has
    #[command(flatten)]
    Noun(noun::Command<pb::Hardware>),
}

/// States to request.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum State {
    /// Recorded, but not verified
    Enrolled,
    /// May be given to an instance
    Provisionable,
    /// An operator has to look at it
    Failed,
    /// Nothing automatic happens to it
    Maintenance,
}

/// Runs `command`.
pub async fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Create(files) => noun::create::<pb::Hardware>(files, out).await,
        Command::Update(update) => noun::update::<pb::Hardware>(update, out).await,
        Command::SetState { machine, state, reason, show } => {
            let channel = show.connection.open().await?;
            let id = id(&channel, &machine).await?;
            let state = pb::State::from(state).into();
            let request = pb::SetHardwareStateRequest { id, state, reason, revision: 0 };
            let moved = client(&channel).set_hardware_state(request).await?.into_inner().hardware;
            say(out, &output::list(moved.as_slice(), show.output)?)
        }
        // People see what occupies a machine; programs get the machine itself, and ask for instances themselves.
        Command::Noun(noun::Command::List { labels, choice, view, show })
            if show.output == Format::Table =>
        {
            let channel = show.connection.open().await?;
            let wanted = Wanted { labels: labels.into_iter().collect(), view, choice };
            let machines = pb::Hardware::list(&channel, wanted).await?;
            say(out, &occupied::table(&channel, machines).await)
        }
        Command::Noun(noun::Command::Get { name, view, show }) if show.output == Format::Table => {
            let channel = show.connection.open().await?;
            let machine = pb::Hardware::find(&channel, &name, view).await?;
            say(out, &occupied::one(&channel, &machine).await?)
        }
        Command::Noun(command) => noun::run(command, out).await,
    }
}

/// Returns the id of the machine `name`: an id, name, MAC or address.
pub async fn id(channel: &Channel, name: &str) -> anyhow::Result<String> {
    match name.parse::<HardwareId>() {
        Ok(id) => Ok(id.to_string()),
        Err(_) => Ok(pb::Hardware::find(channel, name, View::Basic).await?.id),
    }
}

impl Row for pb::Hardware {
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "STATE", "MAC", "ADDRESS", "AGE"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        row(self, own_state(self), now)
    }
}

/// Returns the row of `machine`, with `state` in the column of states.
fn row(machine: &pb::Hardware, state: String, now: SystemTime) -> Vec<String> {
    let first = machine.interfaces.first();
    let address = first.and_then(|i| Some(i.dhcp.as_ref()?.address.as_ref()?.address.clone()));
    vec![
        machine.id.clone(),
        machine.name.clone(),
        state,
        first.map_or_else(String::new, |interface| interface.mac.clone()),
        address.unwrap_or_default(),
        output::age(machine.create_time, now),
    ]
}

/// Returns the machine's own state as a word.
fn own_state(machine: &pb::Hardware) -> String {
    output::word(machine.state().as_str_name(), "STATE_")
}

impl Watchable for pb::Hardware {
    type Told = pb::WatchHardwareResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(
        channel: &Channel,
        id: String,
        view: View,
    ) -> Result<Streaming<Self::Told>, Status> {
        let request = pb::WatchHardwareRequest { id, view: view.into() };
        Ok(client(channel).watch_hardware(request).await?.into_inner())
    }
}

impl Noun for pb::Hardware {
    type Choice = Plain;
    type Sight = Plain;
    type Removal = Plain;
    const NOUN: &'static str = "hardware";
    const NAMES: &'static str = "ID|NAME|MAC|ADDRESS";

    async fn find(channel: &Channel, name: &str, view: View) -> anyhow::Result<Self> {
        let request = pb::GetHardwareRequest { by: Some(by(name)?), view: view.into() };
        let found = client(channel).get_hardware(request).await?;
        answered(found.into_inner().hardware)
    }

    async fn list(channel: &Channel, wanted: Wanted<Plain>) -> anyhow::Result<Vec<Self>> {
        noun::pages(async |page_token| {
            let (labels, view) = (wanted.labels.clone(), wanted.view.into());
            let request = pb::ListHardwareRequest { page_size: PAGE, page_token, labels, view };
            let page = client(channel).list_hardware(request).await?.into_inner();
            Ok((page.hardware, page.next_page_token))
        })
        .await
    }

    async fn delete(&self, channel: &Channel, _: &Plain) -> anyhow::Result<()> {
        let request = pb::DeleteHardwareRequest { id: self.id.clone(), revision: 0 };
        client(channel).delete_hardware(request).await?;
        Ok(())
    }
}

impl Written for pb::Hardware {
    fn read(path: &Path) -> anyhow::Result<Vec<(String, Self)>> {
        noun::messages(path, input::objects(path)?, |object| {
            match tinkerbell::is_hardware(&object) {
                true => tinkerbell::hardware(&object),
                false => input::message(object),
            }
        })
    }

    async fn create(self, channel: &Channel) -> anyhow::Result<Self> {
        let request = pb::CreateHardwareRequest { hardware: Some(self), request_id: String::new() };
        answered(client(channel).create_hardware(request).await?.into_inner().hardware)
    }

    async fn update(
        self,
        channel: &Channel,
        update_mask: Option<FieldMask>,
    ) -> anyhow::Result<Self> {
        let request = pb::UpdateHardwareRequest { hardware: Some(self), update_mask };
        answered(client(channel).update_hardware(request).await?.into_inner().hardware)
    }
}

fn by(name: &str) -> anyhow::Result<pb::get_hardware_request::By> {
    use pb::get_hardware_request::By;
    if name.parse::<HardwareId>().is_ok() {
        Ok(By::Id(name.into()))
    } else if name.parse::<Mac>().is_ok() {
        Ok(By::Mac(name.into()))
    } else if name.parse::<std::net::IpAddr>().is_ok() {
        Ok(By::Address(name.into()))
    } else {
        let name = check::label(name).with_context(|| {
            format!("{name:?} is not the id, name, MAC or address of a machine")
        })?;
        Ok(By::Name(name))
    }
}

fn client(channel: &Channel) -> HardwareServiceClient<Channel> {
    HardwareServiceClient::new(channel.clone()).max_decoding_message_size(LARGEST)
}

impl From<State> for pb::State {
    fn from(state: State) -> Self {
        match state {
            State::Enrolled => Self::Enrolled,
            State::Provisionable => Self::Provisionable,
            State::Failed => Self::Failed,
            State::Maintenance => Self::Maintenance,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pb::get_hardware_request::By;

    #[test]
    fn a_machine_is_found_by_id_name_mac_or_address() {
        let id = "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10";
        assert_eq!(by(id).unwrap(), By::Id(id.into()));
        assert_eq!(by("02:00:00:00:00:01").unwrap(), By::Mac("02:00:00:00:00:01".into()));
        assert_eq!(by("2001:db8::1").unwrap(), By::Address("2001:db8::1".into()));
        let wrong = by("rack 1").unwrap_err().to_string();
        assert_eq!(wrong, "\"rack 1\" is not the id, name, MAC or address of a machine");
        assert_eq!(by("Rack1").unwrap(), By::Name("rack1".into()));
    }
}

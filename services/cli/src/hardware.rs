//! Commands on machines.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Context as _;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::{HardwareId, Mac, json};
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;

use crate::connect::Connection;
use crate::output::{self, Format, Row};
use crate::{input, tinkerbell};

type Client = HardwareServiceClient<Channel>;

/// What can be done with machines.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Add machines from files: our own form, or the JSON that Tinkerbell's users push
    Create {
        /// YAML or JSON file with one or more machines; - for standard input
        #[arg(short, long = "file", value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
    /// Show one machine
    Get {
        /// Its id, MAC or address
        #[arg(value_name = "ID|MAC|ADDRESS")]
        machine: String,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
    /// List machines
    List {
        /// Only those with this label; may be repeated
        #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = label)]
        labels: Vec<(String, String)>,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
    /// Print every machine, then every change: one JSON object a line
    Watch {
        /// Only this machine
        #[arg(value_name = "ID")]
        id: Option<String>,
        /// Where to ask
        #[command(flatten)]
        connection: Connection,
    },
    /// Replace machines by what files say of them; each must have its id
    Update {
        /// YAML or JSON file with one or more machines; - for standard input
        #[arg(short, long = "file", value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
    /// Move a machine to another state of its own
    SetState {
        /// Its id, MAC or address
        #[arg(value_name = "ID|MAC|ADDRESS")]
        machine: String,
        /// The state
        state: State,
        /// Why, for people
        #[arg(long, default_value = "")]
        reason: String,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
    /// Remove machines
    Delete {
        /// Their ids, MACs or addresses
        #[arg(value_name = "ID|MAC|ADDRESS", required = true)]
        machines: Vec<String>,
        /// Where to ask
        #[command(flatten)]
        connection: Connection,
    },
}

/// States that can be asked for.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum State {
    /// Known, but not verified
    Enrolled,
    /// May be given to an instance
    Provisionable,
    /// Somebody has to look
    Failed,
    /// Nothing automatic happens to it
    Maintenance,
}

/// Where to ask, and how to print.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// How to print
    #[arg(short, long, default_value = "table")]
    output: Format,
    #[command(flatten)]
    connection: Connection,
}

impl Row for pb::Hardware {
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "STATE", "MAC", "ADDRESS", "AGE"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let first = self.interfaces.first();
        let address = first.and_then(|i| Some(i.dhcp.as_ref()?.address.as_ref()?.address.clone()));
        let age = self.create_time.and_then(|time| now.duration_since(time.try_into().ok()?).ok());
        vec![
            self.id.clone(),
            self.name.clone(),
            self.state().as_str_name().trim_start_matches("STATE_").to_lowercase(),
            first.map_or_else(String::new, |interface| interface.mac.clone()),
            address.unwrap_or_default(),
            age.map_or_else(String::new, output::ago),
        ]
    }
}

/// Carries out `command`.
pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create { files, show } => create(files, show).await,
        Command::Get { machine, show } => {
            let machine = get(&mut client(&show.connection).await?, &machine).await?;
            print(&output::one(&machine, show.output)?)
        }
        Command::List { labels, show } => list(labels.into_iter().collect(), show).await,
        Command::Watch { id, connection } => watch(id.unwrap_or_default(), connection).await,
        Command::Update { files, show } => update(files, show).await,
        Command::SetState { machine, state, reason, show } => {
            let mut client = client(&show.connection).await?;
            let id = get(&mut client, &machine).await?.id;
            let state = pb::State::from(state).into();
            let request = pb::SetHardwareStateRequest { id, state, reason, revision: 0 };
            let machine = client.set_hardware_state(request).await?.into_inner().hardware;
            print(&output::list(machine.as_slice(), show.output)?)
        }
        Command::Delete { machines, connection } => delete(machines, connection).await,
    }
}

async fn create(files: Vec<PathBuf>, show: Show) -> anyhow::Result<()> {
    let machines = read(&files)?;
    let (mut client, mut made) = (client(&show.connection).await?, Vec::new());
    for (origin, hardware) in machines {
        // An answer that was lost is asked for again by hand; then the id or the MAC says that it is there.
        let request =
            pb::CreateHardwareRequest { hardware: Some(hardware), request_id: String::new() };
        made.extend(client.create_hardware(request).await.context(origin)?.into_inner().hardware);
    }
    print(&output::list(&made, show.output)?)
}

async fn update(files: Vec<PathBuf>, show: Show) -> anyhow::Result<()> {
    let machines = read(&files)?;
    let (mut client, mut made) = (client(&show.connection).await?, Vec::new());
    for (origin, hardware) in machines {
        let request = pb::UpdateHardwareRequest { hardware: Some(hardware), update_mask: None };
        made.extend(client.update_hardware(request).await.context(origin)?.into_inner().hardware);
    }
    print(&output::list(&made, show.output)?)
}

async fn list(labels: BTreeMap<String, String>, show: Show) -> anyhow::Result<()> {
    let (mut client, mut machines) = (client(&show.connection).await?, Vec::new());
    let mut request = pb::ListHardwareRequest { page_size: 1000, labels, ..Default::default() };
    loop {
        let page = client.list_hardware(request.clone()).await?.into_inner();
        machines.extend(page.hardware);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return print(&output::list(&machines, show.output)?);
        }
    }
}

async fn watch(id: String, connection: Connection) -> anyhow::Result<()> {
    use pb::watch_hardware_response::Event;
    let request = pb::WatchHardwareRequest { id, view: 0 };
    let mut events = client(&connection).await?.watch_hardware(request).await?.into_inner();
    while let Some(told) = events.next().await {
        print(&match told?.event {
            Some(Event::Hardware(machine)) => output::event("put", &json::write(&machine)?),
            Some(Event::DeletedId(id)) => {
                output::event("deleted", &serde_json::json!({ "id": id }))
            }
            Some(Event::Synced(_)) => output::event("synced", &serde_json::Value::Null),
            None => continue, // of a kind that only a newer server knows
        })?;
    }
    Ok(())
}

async fn delete(machines: Vec<String>, connection: Connection) -> anyhow::Result<()> {
    let mut client = client(&connection).await?;
    for machine in machines {
        let id = get(&mut client, &machine).await?.id;
        let request = pb::DeleteHardwareRequest { id: id.clone(), revision: 0 };
        client.delete_hardware(request).await?;
        print(&format!("hardware {id} deleted"))?;
    }
    Ok(())
}

/// The machine that goes by `name`.
async fn get(client: &mut Client, name: &str) -> anyhow::Result<pb::Hardware> {
    use pb::get_hardware_request::By;
    let by = if name.parse::<HardwareId>().is_ok() {
        By::Id(name.into())
    } else if name.parse::<Mac>().is_ok() {
        By::Mac(name.into())
    } else if name.parse::<std::net::IpAddr>().is_ok() {
        By::Address(name.into())
    } else {
        anyhow::bail!("{name:?} is no id, MAC or address");
    };
    let found = client.get_hardware(pb::GetHardwareRequest { by: Some(by) }).await?;
    found.into_inner().hardware.context("the server answered without a machine")
}

/// Every machine in `files`, and where it came from.
fn read(files: &[PathBuf]) -> anyhow::Result<Vec<(String, pb::Hardware)>> {
    let mut machines = Vec::new();
    for file in files {
        for (n, object) in input::objects(file)?.into_iter().enumerate() {
            let origin = format!("{}, object {}", file.display(), n + 1);
            let machine = match tinkerbell::is_hardware(&object) {
                true => tinkerbell::hardware(&object),
                false => input::message(object),
            };
            machines.push((origin.clone(), machine.context(origin)?));
        }
    }
    Ok(machines)
}

async fn client(connection: &Connection) -> anyhow::Result<Client> {
    Ok(HardwareServiceClient::new(connection.open().await?))
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE is wanted")?;
    Ok((key.into(), value.into()))
}

/// Prints `text`; a reader that has gone away, as `head` does, is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    use std::io::{ErrorKind, Write as _};
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.context("printing"),
    }
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

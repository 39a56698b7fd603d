//! Commands on machines' power, and on the BMCs that switch it.

pub mod bmc;
pub mod job;
mod words;

use std::io::Write;
use std::time::SystemTime;

use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::{self, Power, What};
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tonic::transport::Channel;

use crate::connect::{LARGEST, Show};
use crate::hardware;
use crate::output::{self, Format, Row, say};

/// What can be done with power.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Baseboard management controllers
    #[command(subcommand)]
    Bmc(bmc::Command),
    /// What a machine's BMC says now: power, and what is to be booted
    Status {
        /// The machine
        #[arg(value_name = "ID|NAME|MAC|ADDRESS")]
        machine: String,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
    /// Switch a machine on
    On(Switch),
    /// Switch a machine off at once
    Off(Switch),
    /// Ask a machine's system to end; switch it off when it does not listen
    SoftOff(Switch),
    /// Switch a machine off, then on
    Cycle(Switch),
    /// Restart a machine without waiting for its system
    Reset(Switch),
    /// Say what a machine boots next
    Boot {
        /// Of which machine
        #[command(flatten)]
        switch: Switch,
        /// From where
        device: Device,
        /// At every boot, not only the next
        #[arg(long)]
        persistent: bool,
        /// By UEFI
        #[arg(long, conflicts_with = "legacy")]
        uefi: bool,
        /// By the BIOS, or UEFI's imitation of one
        #[arg(long)]
        legacy: bool,
    },
    /// List what BMCs were told to do: of all machines, or of one
    Jobs {
        /// The machine
        #[arg(value_name = "ID|NAME|MAC|ADDRESS")]
        machine: Option<String>,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
    /// End a job before its next step
    Cancel {
        /// The job
        #[arg(value_name = "JOB")]
        id: String,
        /// Where to ask, and how to print
        #[command(flatten)]
        show: Show,
    },
}

/// A machine whose BMC is to do something.
#[derive(Debug, clap::Args)]
pub struct Switch {
    /// The machine
    #[arg(value_name = "ID|NAME|MAC|ADDRESS")]
    machine: String,
    /// Until it is done and read back; fail if it fails
    #[arg(long)]
    wait: bool,
    /// Where to ask, and how to print
    #[command(flatten)]
    show: Show,
}

/// What a machine can boot from.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Device {
    /// The network
    Pxe,
    /// Its disk
    Disk,
    /// Its own order
    None,
    /// A CD
    Cdrom,
    /// The set-up screen
    BiosSetup,
}

/// Carries out `command`.
pub async fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Bmc(command) => bmc::run(command, out).await,
        Command::Status { machine, show } => status(&machine, &show, out).await,
        Command::On(switch) => job::start(switch, What::Power(Power::On.into()), out).await,
        Command::Off(switch) => job::start(switch, What::Power(Power::Off.into()), out).await,
        Command::SoftOff(switch) => {
            job::start(switch, What::Power(Power::SoftOff.into()), out).await
        }
        Command::Cycle(switch) => job::start(switch, What::Power(Power::Cycle.into()), out).await,
        Command::Reset(switch) => job::start(switch, What::Power(Power::Reset.into()), out).await,
        Command::Boot { switch, device, persistent, uefi, legacy } => {
            let mut boot = operation::Boot { persistent, ..operation::Boot::default() };
            boot.set_device(device.into());
            boot.set_mode(mode(uefi, legacy));
            job::start(switch, What::Boot(boot), out).await
        }
        Command::Jobs { machine, show } => job::list(machine.as_deref(), &show, out).await,
        Command::Cancel { id, show } => job::cancel(id, &show, out).await,
    }
}

async fn status(machine: &str, show: &Show, out: &mut dyn Write) -> anyhow::Result<()> {
    let channel = show.connection.open().await?;
    let request = pb::GetPowerStateRequest { hardware_id: hardware::id(&channel, machine).await? };
    let state = client(&channel).get_power_state(request).await?.into_inner();
    match show.output {
        Format::Table => say(out, &output::table(&[state])),
        Format::Json | Format::Yaml => say(out, &output::one(&state, show.output)?),
    }
}

impl Row for pb::GetPowerStateResponse {
    const COLUMNS: &'static [&'static str] = &["POWER", "BOOT"];

    fn row(&self, _: SystemTime) -> Vec<String> {
        let boot = self.boot.as_ref().map_or_else(String::new, words::boot);
        vec![output::word(self.power_state().as_str_name(), "POWER_STATE_"), boot]
    }
}

fn mode(uefi: bool, legacy: bool) -> operation::boot::Mode {
    match (uefi, legacy) {
        (true, _) => operation::boot::Mode::Uefi,
        (false, true) => operation::boot::Mode::Legacy,
        (false, false) => operation::boot::Mode::Unspecified,
    }
}

impl From<Device> for operation::boot::Device {
    fn from(device: Device) -> Self {
        match device {
            Device::Pxe => Self::Pxe,
            Device::Disk => Self::Disk,
            Device::None => Self::None,
            Device::Cdrom => Self::Cdrom,
            Device::BiosSetup => Self::BiosSetup,
        }
    }
}

fn client(channel: &Channel) -> PowerServiceClient<Channel> {
    PowerServiceClient::new(channel.clone()).max_decoding_message_size(LARGEST)
}

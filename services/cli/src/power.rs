//! Commands on power and on BMCs.

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

/// Commands on power.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Baseboard management controllers
    #[command(subcommand)]
    Bmc(bmc::Command),
    /// Show the power state and the boot override of a machine, read from its BMC
    Status {
        /// The machine
        #[arg(value_name = "ID|NAME|MAC|ADDRESS")]
        machine: String,
        /// Server and output format
        #[command(flatten)]
        show: Show,
    },
    /// Switch a machine on
    On(Switch),
    /// Switch a machine off at once
    Off(Switch),
    /// Shut a machine down; switch it off if its system does not react
    SoftOff(Switch),
    /// Switch a machine off, then on
    Cycle(Switch),
    /// Restart a machine without waiting for its system
    Reset(Switch),
    /// Set what a machine boots next
    Boot {
        /// The machine
        #[command(flatten)]
        switch: Switch,
        /// The boot device
        device: Device,
        /// Boot from it every time, not only the next time
        #[arg(long)]
        persistent: bool,
        /// Boot with UEFI
        #[arg(long, conflicts_with = "legacy")]
        uefi: bool,
        /// Boot with BIOS, or UEFI's emulation of it
        #[arg(long)]
        legacy: bool,
    },
    /// List power jobs, of all machines or of one
    Jobs {
        /// The machine
        #[arg(value_name = "ID|NAME|MAC|ADDRESS")]
        machine: Option<String>,
        /// Server and output format
        #[command(flatten)]
        show: Show,
    },
    /// Cancel a job before its next step
    Cancel {
        /// The job
        #[arg(value_name = "JOB")]
        id: String,
        /// Server and output format
        #[command(flatten)]
        show: Show,
    },
}

/// Arguments of a power job.
#[derive(Debug, clap::Args)]
pub struct Switch {
    /// The machine
    #[arg(value_name = "ID|NAME|MAC|ADDRESS")]
    machine: String,
    /// Wait until the job is verified; fail if it fails
    #[arg(long)]
    wait: bool,
    /// Server and output format
    #[command(flatten)]
    show: Show,
}

/// Boot devices.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Device {
    /// The network
    Pxe,
    /// Its disk
    Disk,
    /// Its own boot order
    None,
    /// A CD
    Cdrom,
    /// The firmware's set-up screen
    BiosSetup,
}

/// Runs `command`.
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

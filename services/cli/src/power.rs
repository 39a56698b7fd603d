//! Commands on power and on BMCs.

pub mod bmc;
pub mod job;
mod operation_text;

use std::path::Path;
use std::time::Duration;

use tinwright::hardware::v1::Hardware;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::{self, Power, What};

use crate::connect::Io;
use crate::input;
use crate::output::{self, Format, ListOutput, Row, print_one};
use crate::resource::{self, ListQuery, Resource as _};

/// Commands on power.
#[derive(Debug, clap::Subcommand)]
pub enum PowerCommand {
    /// Manage baseboard management controllers
    #[command(subcommand)]
    Bmc(bmc::BmcCommand),
    /// Show the power state and the boot override of a machine, read from its BMC
    Status {
        /// The machine
        #[arg(value_name = "NAME|MAC|ADDRESS|ID")]
        machine: String,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Switch a machine on
    On(JobOptions),
    /// Switch a machine off at once
    Off(JobOptions),
    /// Shut a machine down; switch it off if its system does not react
    SoftOff {
        /// Options of the job
        #[command(flatten)]
        options: JobOptions,
        /// Cut the power after this time, such as 90s or 10m [default: 2m]
        #[arg(long, value_name = "DURATION", value_parser = input::duration)]
        limit: Option<Duration>,
    },
    /// Switch a machine off, then on
    #[command(visible_alias = "reboot")]
    Cycle(JobOptions),
    /// Restart a machine without waiting for its system
    Reset(JobOptions),
    /// Set the next boot device of a machine
    Boot {
        /// Options of the job
        #[command(flatten)]
        options: JobOptions,
        /// The boot device
        device: BootDevice,
        /// Boot from it every time, not only the next time
        #[arg(long)]
        persistent: bool,
        /// Boot with UEFI
        #[arg(long, conflicts_with = "legacy")]
        uefi: bool,
        /// Boot with BIOS, or UEFI's emulation of it
        #[arg(long)]
        legacy: bool,
        /// Boot this file, of uefi-http only [default: the one that DHCP gives]
        #[arg(long, value_name = "URL")]
        http_url: Option<String>,
    },
    /// Show an image to a machine as a CD or a USB stick, from the server that its BMC fetches it from
    InsertMedia {
        /// Options of the job
        #[command(flatten)]
        options: JobOptions,
        /// The image, http or https; - to read the URL from standard input, where no other user can see its tokens
        #[arg(value_name = "URL")]
        image: String,
        /// Use this virtual drive
        #[arg(long, default_value = "cd")]
        drive: Drive,
    },
    /// Take the image out of a virtual drive
    EjectMedia {
        /// Options of the job
        #[command(flatten)]
        options: JobOptions,
        /// Use this virtual drive
        #[arg(long, default_value = "cd")]
        drive: Drive,
    },
    /// List power jobs, of all machines or of one
    Jobs {
        /// List only jobs of this machine
        #[arg(value_name = "NAME|MAC|ADDRESS|ID")]
        machine: Option<String>,
        /// Options of the list
        #[command(flatten)]
        query: ListQuery<job::JobFilter>,
        /// The output
        #[command(flatten)]
        output: ListOutput,
    },
    /// Cancel a job before its next step
    Cancel {
        /// The job
        #[arg(value_name = "JOB")]
        id: String,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
}

/// Options of a power job.
#[derive(Debug, clap::Args)]
pub struct JobOptions {
    /// The machine
    #[arg(value_name = "NAME|MAC|ADDRESS|ID")]
    machine: String,
    /// Wait until the job is verified; fail if it fails
    #[arg(long)]
    wait: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Boot devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BootDevice {
    /// The network
    Pxe = operation::boot::Device::Pxe as isize,
    /// Its disk
    Disk = operation::boot::Device::Disk as isize,
    /// Its own boot order
    None = operation::boot::Device::None as isize,
    /// A CD
    Cdrom = operation::boot::Device::Cdrom as isize,
    /// The firmware's set-up screen
    BiosSetup = operation::boot::Device::BiosSetup as isize,
    /// A file over HTTP, fetched by UEFI firmware
    UefiHttp = operation::boot::Device::UefiHttp as isize,
}

/// Virtual drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Drive {
    /// CD or DVD
    Cd = operation::Drive::Cd as isize,
    /// USB stick or floppy disk
    Usb = operation::Drive::Usb as isize,
}

/// Runs `command`.
pub async fn run(command: PowerCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    let mut soft_off_limit = None;
    let (options, what) = match command {
        PowerCommand::Bmc(command) => return bmc::run(command, io).await,
        PowerCommand::Status { machine, output } => {
            let hardware_id = Hardware::find_id(io.channel, &machine).await?;
            return print_state(hardware_id, &machine, &output, io).await;
        }
        PowerCommand::Jobs { machine, mut query, output } => {
            let machine = machine.as_deref();
            query.filter.hardware_id = Hardware::find_optional_id(io.channel, machine).await?;
            return resource::list::<pb::PowerJob>(&query, output, io).await;
        }
        PowerCommand::Cancel { id, output } => return job::cancel(&id, output, io).await,
        PowerCommand::On(options) => (options, What::Power(Power::On.into())),
        PowerCommand::Off(options) => (options, What::Power(Power::Off.into())),
        PowerCommand::SoftOff { options, limit } => {
            soft_off_limit = limit.map(prost_types::Duration::try_from).transpose()?;
            (options, What::Power(Power::SoftOff.into()))
        }
        PowerCommand::Cycle(options) => (options, What::Power(Power::Cycle.into())),
        PowerCommand::Reset(options) => (options, What::Power(Power::Reset.into())),
        PowerCommand::Boot { options, device, persistent, uefi, legacy, http_url } => {
            let (device, mode) = (device as i32, mode(uefi, legacy).into());
            let http_url = http_url.unwrap_or_default();
            (options, What::Boot(operation::Boot { device, persistent, mode, http_url }))
        }
        PowerCommand::InsertMedia { options, image, drive } => {
            let image_url = match image.as_str() {
                "-" => input::text(Path::new("-"))?.trim().to_owned(),
                _ => image,
            };
            let media = operation::InsertMedia { image_url, drive: drive as i32 };
            (options, What::InsertMedia(media))
        }
        PowerCommand::EjectMedia { options, drive } => (options, What::EjectMedia(drive as i32)),
    };
    job::start(options, pb::Operation { what: Some(what), soft_off_limit }, io).await
}

/// Prints the power state of the machine with `hardware_id`, which errors call `name`.
async fn print_state(
    hardware_id: String,
    name: &str,
    output: &Format,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let state = io.call(pb::GetPowerStateRequest { hardware_id }).await;
    let state = state.map_err(|status| bmc::with_hint(status, name))?;
    print_one(io.out, &state, output, |state| output::table(std::slice::from_ref(state)))
}

impl Row for pb::GetPowerStateResponse {
    const COLUMNS: &'static str = "POWER:power_state,BOOT";

    fn cell(&self, _: &str) -> String {
        self.boot.as_ref().map_or_else(String::new, operation_text::boot)
    }
}

fn mode(uefi: bool, legacy: bool) -> operation::boot::Mode {
    match (uefi, legacy) {
        (true, _) => operation::boot::Mode::Uefi,
        (false, true) => operation::boot::Mode::Legacy,
        (false, false) => operation::boot::Mode::Unspecified,
    }
}

//! Installs the boot loader with the installed system's own programs, and generates its configuration.
//!
//! | variable | meaning |
//! |---|---|
//! | `GRUB_DISK` | required; the partition with the system |
//! | `FS_TYPE` | its file system; default: any that the kernel supports |
//! | `GRUB_INSTALL_PATH` | required; the disk to boot from, and options of `grub-install`, separated by spaces |
//!
//! `grub-install` and `grub-mkconfig` (or `grub2-…`) are the system's own, and run with the system as their root directory,
//! like the commands of cexec.

use tokio::runtime::Handle;

use crate::command::Runner;
use crate::context::Context;
use crate::environment::{self, Environment};
use crate::error;
use crate::mounted_root::{TargetFilesystem, View};

/// Names of GRUB's programs and configuration in the distributions.
const FLAVOURS: [Flavour; 2] = [
    Flavour { install: "grub-install", make: "grub-mkconfig", config: "/boot/grub/grub.cfg" },
    Flavour { install: "grub2-install", make: "grub2-mkconfig", config: "/boot/grub2/grub.cfg" },
];

struct Flavour {
    install: &'static str,
    make: &'static str,
    config: &'static str,
}

/// The boot loader cannot be installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}: the installed system has no grub-install", .0.display())]
    NoGrub(std::path::PathBuf),
}

impl crate::error::StepError for Error {}

/// Installs the boot loader.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), error::Error> {
    let filesystem = TargetFilesystem::parse(environment, "GRUB_DISK")?;
    let arguments: Vec<_> =
        environment.required("GRUB_INSTALL_PATH")?.split_whitespace().map(str::to_owned).collect();
    if arguments.is_empty() {
        return Err(environment::Error::Missing("GRUB_INSTALL_PATH").into());
    }
    let (runtime, runner) = (Handle::current(), Runner::new(environment, context));
    let disk = filesystem.disk.clone();
    let work = move || {
        let flavour = FLAVOURS.iter().find(|flavour| runner.find(&[flavour.install]).is_some());
        let Flavour { install, make, config } = flavour.ok_or(Error::NoGrub(disk))?;
        let install = [(*install).to_owned()].into_iter().chain(arguments).collect::<Vec<_>>();
        let make = [make, "-o", config].map(|word| (*word).to_owned());
        // Runs on this thread, because a command inherits its root directory and mounts.
        runtime.block_on(async {
            runner.run(&install).await?;
            runner.run(&make).await
        })
    };
    filesystem.with_mounted(View::System, work).await?
}

//! Has the installed system put its boot loader on a disk, and write down what it boots.
//!
//! | variable | meaning |
//! |---|---|
//! | `GRUB_DISK` | needed; the partition with the system |
//! | `FS_TYPE` | its file system; absent: any this kernel knows |
//! | `GRUB_INSTALL_PATH` | needed; the disk to boot from, and options of `grub-install`, separated by spaces |
//!
//! `grub-install` and `grub-mkconfig`, or what they are called where there is a GRUB of another age beside it, are the
//! system's own, and run with the system as their root directory, like the commands of cexec.

use tokio::runtime::Handle;

use crate::action::{self, Context};
use crate::command::Runner;
use crate::environment::{self, Environment};
use crate::installed::{Installed, View};

/// GRUB's programs and where it reads what it boots, by the names that distributions have for them.
const FLAVOURS: [Flavour; 2] = [
    Flavour { install: "grub-install", make: "grub-mkconfig", config: "/boot/grub/grub.cfg" },
    Flavour { install: "grub2-install", make: "grub2-mkconfig", config: "/boot/grub2/grub.cfg" },
];

struct Flavour {
    install: &'static str,
    make: &'static str,
    config: &'static str,
}

/// Why the boot loader was not installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}: the installed system has no grub-install", .0.display())]
    Absent(std::path::PathBuf),
}

impl From<Error> for action::Error {
    fn from(error: Error) -> Self {
        Self::own(error)
    }
}

/// Installs it.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), action::Error> {
    let installed = Installed {
        disk: environment.required("GRUB_DISK")?.into(),
        fs_type: environment.optional("FS_TYPE").map(str::to_owned),
    };
    let arguments: Vec<_> =
        environment.required("GRUB_INSTALL_PATH")?.split_whitespace().map(str::to_owned).collect();
    if arguments.is_empty() {
        return Err(environment::Error::Missing("GRUB_INSTALL_PATH").into());
    }
    let (runtime, runner) = (Handle::current(), Runner::new(environment, context));
    let disk = installed.disk.clone();
    let work = move || {
        let flavour = FLAVOURS.iter().find(|flavour| runner.find(&[flavour.install]).is_some());
        let Flavour { install, make, config } = flavour.ok_or(Error::Absent(disk))?;
        let install = [(*install).to_owned()].into_iter().chain(arguments).collect::<Vec<_>>();
        let make = [make, "-o", config].map(|word| (*word).to_owned());
        // On this very thread, whose root and mounts a command inherits.
        runtime.block_on(async {
            runner.run(&install).await?;
            runner.run(&make).await
        })
    };
    installed.visit(View::System, work).await?
}

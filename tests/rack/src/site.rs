//! A running rack: libvirt, BMCs and server.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;

use crate::bmc::Redfish;
use crate::lab::Lab;
use crate::machines::{Firmware, Hypervisor, Machine};
use crate::provision::{Operator, System};
use crate::server::Server;
use crate::ssh::Ssh;

/// A running rack. Dropping it stops all processes and removes machines and networks.
#[derive(Debug)]
pub struct Site {
    /// The machines' BMCs.
    pub redfish: Redfish,
    /// libvirt, which runs the machines.
    pub hypervisor: Hypervisor,
    /// The server under test.
    pub server: Server,
    /// A client with the operator's certificate.
    pub operator: Operator,
    /// SSH to the machines that [`Site::install`] installs.
    pub ssh: Ssh,
    /// The network namespace.
    pub lab: Lab,
}

impl Site {
    /// Starts the rack without machines. The server serves the installation environment in `osie` and the images in `files`.
    pub async fn start(osie: &Path, files: &Path) -> anyhow::Result<Self> {
        Self::start_with(osie, files, &[]).await
    }

    /// Does the same with additional command-line flags for the server.
    pub async fn start_with(osie: &Path, files: &Path, flags: &[String]) -> anyhow::Result<Self> {
        anyhow::ensure!(
            rustix::process::geteuid().is_root(),
            "run this as root: it creates network namespaces"
        );
        let mut lab = Lab::new()?;
        let ssh = Ssh::new(&lab)?;
        let hypervisor = Hypervisor::start(&mut lab)?;
        let redfish = Redfish::start(&mut lab, &hypervisor)?;
        let mut server = Server::new(&lab, osie, files)?;
        server.flags.extend_from_slice(flags);
        server.start(&mut lab)?;
        let operator = Operator::new(server.channel().await?);
        Ok(Self { redfish, hypervisor, server, operator, ssh, lab })
    }

    /// Kills the server, and starts it again with its present flags.
    pub fn restart_server(&mut self) -> anyhow::Result<()> {
        self.lab.kill("tinwright")?;
        self.server.start(&mut self.lab)
    }

    /// Defines `machine`, and creates its hardware and BMC records. Returns the hardware id.
    pub async fn add_machine(&self, machine: &Machine) -> anyhow::Result<String> {
        self.add_machine_with(machine, crate::provision::record(machine)).await
    }

    /// Does the same with this hardware record.
    pub async fn add_machine_with(
        &self,
        machine: &Machine,
        hardware: Hardware,
    ) -> anyhow::Result<String> {
        self.hypervisor.define(&self.lab, machine)?;
        self.ssh.add_host(machine)?;
        let id = self
            .operator
            .create_hardware(hardware)
            .await
            .context("creating the hardware record")?;
        self.operator
            .create_bmc(&id, machine, &self.redfish)
            .await
            .context("creating the BMC record")?;
        Ok(id)
    }

    /// Uploads the image of Debian for machines with `firmware` by `cli`, a command of the caller to whom it will belong. Returns its name.
    pub fn upload(&self, mut cli: Command, firmware: Firmware) -> anyhow::Result<String> {
        let image = crate::provision::image(&self.server.files, firmware)?;
        let name = image.name.trim_end_matches(".raw.zst");
        cli.args(["image", "upload", "--name", name, "--keep-data-source"]);
        setup::run(cli.arg(self.server.files.join(&image.name)))?;
        Ok(name.to_owned())
    }

    /// Has `operator` create an instance with the uploaded `image`, named like `machine`. `order` says on which machine.
    pub async fn install(
        &self,
        operator: &Operator,
        machine: &Machine,
        image: &str,
        order: Instance,
    ) -> anyhow::Result<Instance> {
        let installed = crate::provision::instance_of(&machine.name);
        let Instance { hardware_id, placement, .. } = order;
        let (image_id, ssh_keys) = (image.to_owned(), vec![self.ssh.public_key.clone()]);
        operator.order(Instance { hardware_id, placement, image_id, ssh_keys, ..installed }).await
    }

    /// Creates an instance on `machine`, whose hardware id is `id`, by a template with the image of `system` for the machine's firmware.
    pub async fn install_system(
        &self,
        id: &str,
        machine: &Machine,
        template: &str,
        system: System,
    ) -> anyhow::Result<Instance> {
        let image = crate::provision::image_of(system, &self.server.files, machine.firmware)?;
        let ssh_keys = vec![self.ssh.public_key.clone()];
        let instance = crate::provision::instance(template, &machine.name, &image);
        self.operator.order(Instance { hardware_id: id.to_owned(), ssh_keys, ..instance }).await
    }
}

//! A running rack: libvirt, BMCs and server.

use std::path::Path;

use anyhow::Context as _;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;

use crate::bmc::Redfish;
use crate::lab::Lab;
use crate::machines::{Hypervisor, Machine};
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

    /// Creates an instance on `machine`, whose hardware id is `id`, with the image for the machine's firmware.
    pub async fn install(
        &self,
        id: &str,
        machine: &Machine,
        template: &str,
    ) -> anyhow::Result<Instance> {
        self.install_system(id, machine, template, System::Debian).await
    }

    /// Does the same with the image of `system`.
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

//! A whole rack, standing: libvirt, the BMCs, and the server before them.

use std::path::Path;

use anyhow::Context as _;
use tinwright::instance::v1::Instance;

use crate::bmc::Redfish;
use crate::lab::Lab;
use crate::machines::{Hypervisor, Machine};
use crate::provision::Operator;
use crate::server::Server;

/// What machines are put into. All of it goes when this is dropped.
#[derive(Debug)]
pub struct Site {
    /// The machines' power supplies.
    pub redfish: Redfish,
    /// What runs the machines.
    pub hypervisor: Hypervisor,
    /// The one under test.
    pub server: Server,
    /// Its operator.
    pub operator: Operator,
    /// Their network, and what runs on it.
    pub lab: Lab,
}

impl Site {
    /// Starts everything; the server offers the environment in `osie` and the images in `files`.
    pub async fn start(osie: &Path, files: &Path) -> anyhow::Result<Self> {
        anyhow::ensure!(
            rustix::process::geteuid().is_root(),
            "the rack makes network namespaces: run it as root"
        );
        let mut lab = Lab::new()?;
        let hypervisor = Hypervisor::start(&mut lab)?;
        let redfish = Redfish::start(&mut lab, &hypervisor)?;
        let server = Server::new(&lab, osie, files)?;
        server.start(&mut lab)?;
        let operator = Operator::new(server.channel().await?);
        Ok(Self { redfish, hypervisor, server, operator, lab })
    }

    /// Racks `machine` and wires its BMC. Answers the id of its hardware.
    pub async fn rack(&self, machine: &Machine) -> anyhow::Result<String> {
        self.hypervisor.define(&self.lab, machine)?;
        let id = self.operator.rack(machine).await.context("the hardware")?;
        self.operator.wire(&id, machine, &self.redfish).await.context("the BMC")?;
        Ok(id)
    }

    /// Asks for the image of its firmware on the hardware `id`, which is `machine`.
    pub async fn install(
        &self,
        id: &str,
        machine: &Machine,
        template: &str,
    ) -> anyhow::Result<Instance> {
        let image = crate::provision::image(&self.server.files, machine.firmware)?;
        self.operator.install(id, template, &machine.name, &image).await
    }
}

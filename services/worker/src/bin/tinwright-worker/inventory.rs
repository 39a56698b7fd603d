//! The parts of this machine: the report of them in each boot, and the links to its disks.

use std::path::PathBuf;
use std::time::Duration;

use machine::control_plane::{CALL_TIMEOUT, ControlPlaneClient};
use runtime::retry::is_final;
use tinwright::hardware::v1::Inventory;
use tinwright::workflow::v1::{ReportInventoryRequest, ReportInventoryResponse};
use worker::lldp::Listener;

/// Attempts to report the inventory. The next boot reports it again.
const MAX_ATTEMPTS: u32 = 3;
/// Attempts to enrol: ten minutes.
const MAX_ENROLMENT_ATTEMPTS: u32 = 60;
/// The pause between two of them.
const ENROLMENT_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// The file systems of this machine, and its neighbours.
#[derive(Debug)]
pub(crate) struct MachineFiles {
    /// The directory with `sys`, `proc` and `dev`.
    pub(crate) root: PathBuf,
    /// True to make the links to disks in `dev/disk`: nobody else does.
    pub(crate) makes_links: bool,
    /// Listens for neighbours since the start of this program.
    pub(crate) neighbours: Listener,
}

impl MachineFiles {
    /// Makes the links to the present disks and partitions. A failure is only logged: not every action uses them.
    pub(crate) async fn refresh_links(&self) {
        if !self.makes_links {
            return;
        }
        let root = self.root.clone();
        let refreshed =
            tokio::task::spawn_blocking(move || worker::inventory::refresh_disk_links(&root));
        if let Ok(Err(error)) = refreshed.await {
            tracing::error!(error = runtime::cause(&error), "links to disks not made");
        }
    }

    /// Returns the inventory, with the neighbours that were found so far.
    async fn collect(&self) -> Option<Inventory> {
        let root = self.root.clone();
        let collected = tokio::task::spawn_blocking(move || worker::inventory::collect(&root));
        let mut inventory = collected.await.ok()?;
        self.neighbours.add_to(&mut inventory);
        Some(inventory)
    }

    /// Reports the inventory of a machine without a record, by which it gets one. Repeats the call for ten minutes, or until its error is
    /// final. Waits for neighbours first: this boot has no other work, and later reports of it are ignored.
    pub(crate) async fn enrol(&self, link: &ControlPlaneClient) {
        self.neighbours.ended().await;
        let Some(inventory) = self.collect().await else {
            return tracing::error!("not enrolled: collecting the inventory failed");
        };
        let request = ReportInventoryRequest { inventory: Some(inventory) };
        for attempt in 1..=MAX_ENROLMENT_ATTEMPTS {
            let status = match link.once(request.clone(), CALL_TIMEOUT).await {
                Ok(ReportInventoryResponse { hardware_id, name }) => {
                    return tracing::info!(hardware.id = hardware_id, name, "machine enrolled");
                }
                Err(status) => status,
            };
            let error = runtime::cause(&status);
            if attempt == MAX_ENROLMENT_ATTEMPTS || is_final(status.code()) {
                return tracing::error!(error, "not enrolled");
            }
            tracing::warn!(error, "not enrolled yet");
            tokio::time::sleep(ENROLMENT_RETRY_DELAY).await;
        }
    }

    /// Reports the inventory, and returns it. A failure is only logged: the work of this boot does not depend on it.
    pub(crate) async fn report(&self, link: &ControlPlaneClient) -> Option<Inventory> {
        let Some(inventory) = self.collect().await else {
            tracing::error!("inventory not reported: collecting it failed");
            return None;
        };
        send(link, inventory.clone()).await;
        Some(inventory)
    }

    /// Reports `inventory` again if neighbours were found that it lacks, once the listening has ended.
    pub(crate) async fn report_neighbours(
        &self,
        link: &ControlPlaneClient,
        inventory: Option<Inventory>,
    ) {
        let Some(mut inventory) = inventory else { return };
        self.neighbours.ended().await;
        if self.neighbours.add_to(&mut inventory) {
            send(link, inventory).await;
        }
    }
}

/// Reports `inventory`. A failure is only logged.
async fn send(link: &ControlPlaneClient, inventory: Inventory) {
    let (disks, interfaces) = (inventory.disks.len(), inventory.interfaces.len());
    let neighbours = inventory.interfaces.iter().filter(|it| it.lldp_neighbour.is_some()).count();
    let request = ReportInventoryRequest { inventory: Some(inventory) };
    for attempt in 1..=MAX_ATTEMPTS {
        let Err(status) = link.once(request.clone(), CALL_TIMEOUT).await else {
            return tracing::info!(disks, interfaces, neighbours, "inventory reported");
        };
        let error = runtime::cause(&status);
        if attempt == MAX_ATTEMPTS || is_final(status.code()) {
            return tracing::error!(error, "inventory not reported");
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

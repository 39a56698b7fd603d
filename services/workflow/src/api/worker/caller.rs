//! The machine that calls: its certificate has to be of its present boot epoch, and the machine has to have a hardware record.

use runtime::{Caller, MachinePurpose, Role};
use tinwright::HardwareId;
use tinwright::common::v1::View;
use tinwright::hardware::v1 as hw;
use tonic::{Code, Request, Status};

use crate::api::Api;

/// A machine that calls, and the boot epoch in its identity.
pub(super) struct MachineCaller {
    pub(super) machine: HardwareId,
    pub(super) epoch: u64,
}

impl Api {
    /// Returns the calling machine, whose identity must be of its present boot epoch.
    pub(super) async fn present_machine<T>(
        &self,
        request: &Request<T>,
    ) -> Result<MachineCaller, Status> {
        let caller = machine(request)?;
        self.check_is_present(&caller).await?;
        Ok(caller)
    }

    /// Refuses an identity that is not of the present boot epoch of its machine.
    pub(super) async fn check_is_present(&self, caller: &MachineCaller) -> Result<(), Status> {
        let present = self.workflows.epochs.present(&caller.machine.to_string()).await?;
        match caller.epoch == present.number {
            true => Ok(()),
            false => Err(Status::permission_denied(
                "the identity is of another boot epoch of the machine",
            )),
        }
    }

    /// Returns the hardware record of `machine`. Refuses a machine that has none.
    pub(super) async fn record(&self, machine: HardwareId) -> Result<hw::Hardware, Status> {
        match self.machine(machine, View::Basic).await {
            Ok(found) => Ok(found),
            Err(status) if status.code() == Code::NotFound => {
                Err(Status::permission_denied("the machine has no record"))
            }
            Err(status) => {
                tracing::warn!(hardware.id = %machine, %status, "worker's call not answered: hardware record not read");
                Err(Status::unavailable("the machine's record cannot be read now"))
            }
        }
    }

    /// Refuses a machine that has no hardware record any more. A worker goes on while the record cannot be read.
    pub(super) async fn check_not_deleted(&self, machine: HardwareId) -> Result<(), Status> {
        match self.record(machine).await {
            Err(status) if status.code() == Code::PermissionDenied => Err(status),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Returns the calling machine.
fn machine<T>(request: &Request<T>) -> Result<MachineCaller, Status> {
    let caller = request.extensions().get::<Caller>();
    match caller.map(|caller| (caller.role(), caller.boot_epoch())) {
        Some((Role::Machine(machine, MachinePurpose::Work), epoch)) => {
            Ok(MachineCaller { machine, epoch })
        }
        Some(_) => Err(Status::permission_denied("this call is for the worker on a machine")),
        None => Err(Status::unauthenticated("a machine's certificate is required")),
    }
}

//! Enrolments: a machine without a record reports its inventory, and gets a record.

use runtime::{Caller, MachinePurpose, Role};
use tinwright::HardwareId;
use tinwright::hardware::v1 as hw;
use tinwright::status::Violations;
use tinwright::workflow::v1 as pb;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::api::Api;

impl Api {
    /// Creates or completes the record of the machine with the enrolment `id`. The machine does not learn which record it resembles.
    pub(super) async fn enrol(
        &self,
        id: HardwareId,
        request: pb::ReportInventoryRequest,
    ) -> Result<pb::ReportInventoryResponse, Status> {
        let inventory = Violations::require("inventory", request.inventory)?;
        let begun = self.enrollment.enrolments.current(id, self.clock.wall()).await?;
        let ended = || Status::permission_denied("the enrolment of this boot has ended");
        let begun = begun.ok_or_else(ended)?;
        let (uuid, mac, network) = (begun.uuid, begun.mac, begun.network);
        let enrolment = hw::Enrolment { id: begun.id, mac, network, time: None };
        let (enrolment, inventory) = (Some(enrolment), Some(inventory));
        let request = hw::EnrolMachineRequest { enrolment, uuid, inventory };
        match runtime::call(self.hardware.clone(), request).await {
            Ok(made) => {
                let hw::Hardware { id, name, .. } = made.hardware.unwrap_or_default();
                Ok(pb::ReportInventoryResponse { hardware_id: id, name })
            }
            Err(status) if status.code() == Code::FailedPrecondition => {
                tracing::warn!(enrolment.id = %id, %status, "enrolment refused");
                Err(refused_enrolment(&status))
            }
            Err(status)
                if matches!(status.code(), Code::InvalidArgument | Code::ResourceExhausted) =>
            {
                Err(status)
            }
            Err(status) => {
                tracing::warn!(enrolment.id = %id, %status, "machine not enrolled");
                Err(Status::unavailable("the machine cannot be enrolled now"))
            }
        }
    }
}

/// Returns the refusal of an enrolment as the machine gets it.
fn refused_enrolment(status: &Status) -> Status {
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    let (reason, text) = match reason.as_str() {
        "ENROLMENT_LIMIT" => ("ENROLMENT_LIMIT", "too many machines wait for acceptance"),
        _ => ("KNOWN_MACHINE", "the machine has the UUID or a MAC of a known one"),
    };
    tinwright::status::failed_precondition(reason, "enrolment", text)
}

/// Returns the id of the enrolment of the caller, if it has an identity of that purpose.
pub(super) fn enrolling<T>(request: &Request<T>) -> Option<HardwareId> {
    let caller = request.extensions().get::<Caller>()?;
    let Role::Machine(id, MachinePurpose::Enrol) = caller.role() else { return None };
    Some(id)
}

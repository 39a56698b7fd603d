//! Calls of other services, besides those of [`directory`](crate::directory).

use runtime::Channel;
use runtime::retry::is_final;
use tinwright::HardwareId;
use tinwright::instance::v1::ReportStackRunningRequest;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::workflow::v1::GetBootEpochRequest;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::{Code, Response, Status};

use crate::error::Error;

/// The services.
#[derive(Clone, Debug)]
pub(crate) struct OtherServices {
    instance: InstanceServiceClient<Channel>,
    workflow: WorkflowServiceClient<Channel>,
}

impl OtherServices {
    /// The services at these channels.
    pub(crate) fn new(instance: Channel, workflow: Channel) -> Self {
        let instance = InstanceServiceClient::new(instance);
        Self { instance, workflow: WorkflowServiceClient::new(workflow) }
    }

    /// Returns the present boot epoch of the machine `id`; none if it has no record.
    pub(crate) async fn boot_epoch(&self, id: HardwareId) -> Result<Option<u64>, Error> {
        let request = GetBootEpochRequest { hardware_id: id.to_string() };
        let mut client = self.workflow.clone();
        let epoch = answer("workflow", client.get_boot_epoch(request)).await?;
        Ok(epoch.map(|epoch| epoch.number))
    }

    /// Reports that the stack of an instance runs. A refusal is logged: a repetition would be refused, too, and a change of the instance is
    /// followed.
    pub(crate) async fn report_stack_running(
        &self,
        report: ReportStackRunningRequest,
    ) -> Result<(), Error> {
        let (machine, instance) = (report.hardware_id.clone(), report.instance_id.clone());
        let mut client = self.instance.clone();
        match outcome("instance", client.report_stack_running(report)).await? {
            Ok(_) => tracing::info!(node.id = machine, instance.id = instance, "its stack runs"),
            Err(status) => tracing::warn!(
                node.id = machine,
                instance.id = instance,
                code = ?status.code(),
                error = status.message(),
                "the report of a running stack was refused"
            ),
        }
        Ok(())
    }
}

/// Returns the answer of `service`; none if the object does not exist.
pub(crate) async fn answer<T>(
    service: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Option<T>, Error> {
    match outcome(service, call).await? {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(Error::Peer { service, text: status.message().to_owned() }),
    }
}

/// Returns the answer of `service`, or its refusal. What may succeed later is an error.
async fn outcome<T>(
    service: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Result<T, Status>, Error> {
    match runtime::response(call).await {
        Ok(answer) => Ok(Ok(answer)),
        Err(status) if is_final(status.code()) => Ok(Err(status)),
        Err(status) => Err(Error::Peer { service, text: status.message().to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(result: Result<(), Status>) -> Result<Option<()>, Error> {
        answer("x", std::future::ready(result.map(Response::new))).await
    }

    #[tokio::test]
    async fn a_refusal_ends_a_report_and_what_may_succeed_later_is_an_error() {
        for (status, is_final) in [
            (Status::failed_precondition("another instance"), true),
            (Status::not_found("no instance"), true),
            (Status::unavailable("no leader"), false),
            (Status::aborted("another writer"), false),
        ] {
            let found = outcome("x", std::future::ready(Err::<Response<()>, _>(status))).await;
            assert_eq!(found.is_ok(), is_final);
        }
        assert!(matches!(answered(Ok(())).await, Ok(Some(()))));
        assert!(matches!(answered(Err(Status::not_found("x"))).await, Ok(None)));
        let refused = answered(Err(Status::permission_denied("x"))).await;
        assert!(matches!(refused, Err(Error::Peer { service: "x", .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_does_not_answer_is_not_waited_for() {
        let never = std::future::pending::<Result<Response<()>, Status>>();
        assert!(matches!(answer("x", never).await, Err(Error::Peer { .. })));
    }
}

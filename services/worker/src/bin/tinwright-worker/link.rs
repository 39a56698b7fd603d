//! The worker's calls to the control plane.
//!
//! Unless documented otherwise, a call is repeated until it succeeds, its error is final, or the certificate is expired.

use std::ops::Deref;
use std::time::Duration;

use machine::control_plane::{CALL_TIMEOUT, ControlPlaneClient};
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tinwright::workflow::v1::{
    AppendLogRequest, AppendLogResponse, FinishActionRequest, FinishActionResponse,
    NextActionRequest, NextActionResponse, ReportInventoryRequest, ReportInventoryResponse,
    ReportProgressRequest, ReportProgressResponse, StartActionRequest, StartActionResponse,
};
use tonic::Status;
use tonic::transport::Channel;

/// Timeout of a long poll: the server holds the call up to 50 s while there is no action, plus the timeout of a call.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(65);

type Client = WorkerServiceClient<Channel>;

/// A client of the worker service.
#[derive(Clone, Debug)]
pub(crate) struct WorkerLink(pub(crate) ControlPlaneClient);

impl Deref for WorkerLink {
    type Target = ControlPlaneClient;

    fn deref(&self) -> &ControlPlaneClient {
        &self.0
    }
}

impl WorkerLink {
    /// `NextAction`, which the server holds while there is no action.
    pub(crate) async fn next_action(
        &self,
        request: NextActionRequest,
    ) -> Result<NextActionResponse, Status> {
        let call = async |channel, request| Client::new(channel).next_action(request).await;
        self.0.repeat("NextAction", request, LONG_POLL_TIMEOUT, call).await
    }

    /// `StartAction`.
    pub(crate) async fn start_action(
        &self,
        request: StartActionRequest,
    ) -> Result<StartActionResponse, Status> {
        let call = async |channel, request| Client::new(channel).start_action(request).await;
        self.0.repeat("StartAction", request, CALL_TIMEOUT, call).await
    }

    /// `ReportInventory`, without retries.
    pub(crate) async fn report_inventory(
        &self,
        request: ReportInventoryRequest,
    ) -> Result<ReportInventoryResponse, Status> {
        self.0
            .once(request, CALL_TIMEOUT, async |channel, request| {
                Client::new(channel).report_inventory(request).await
            })
            .await
    }

    /// `ReportProgress`, without retries: the caller retries with newer progress.
    pub(crate) async fn report_progress(
        &self,
        request: ReportProgressRequest,
    ) -> Result<ReportProgressResponse, Status> {
        self.0
            .once(request, CALL_TIMEOUT, async |channel, request| {
                Client::new(channel).report_progress(request).await
            })
            .await
    }

    /// `AppendLog`.
    pub(crate) async fn append_log(
        &self,
        request: AppendLogRequest,
    ) -> Result<AppendLogResponse, Status> {
        let call = async |channel, request| Client::new(channel).append_log(request).await;
        self.0.repeat("AppendLog", request, CALL_TIMEOUT, call).await
    }

    /// `FinishAction`.
    pub(crate) async fn finish_action(
        &self,
        request: FinishActionRequest,
    ) -> Result<FinishActionResponse, Status> {
        let call = async |channel, request| Client::new(channel).finish_action(request).await;
        self.0.repeat("FinishAction", request, CALL_TIMEOUT, call).await
    }
}

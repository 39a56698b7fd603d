//! A worker that a test drives.

use runtime::Channel;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tonic::Status;

use crate::site::soon;

/// One process in one boot.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) client: WorkerServiceClient<Channel>,
    channel: Channel,
    pub(crate) boot: String,
    pub(crate) process: String,
    /// What it can do that older workers cannot.
    pub(crate) abilities: &'static [&'static str],
}

impl Worker {
    pub(crate) fn new(channel: Channel, boot: &str, process: &str) -> Self {
        let client = WorkerServiceClient::new(channel.clone());
        let (boot, process) = (boot.into(), process.into());
        Self { client, channel, boot, process, abilities: &["map", "relative_url"] }
    }

    /// Another boot or process of the worker on the same machine.
    pub(crate) fn again(&self, boot: &str, process: &str) -> Self {
        Self::new(self.channel.clone(), boot, process)
    }

    pub(crate) fn request(&self, running: &str) -> pb::NextActionRequest {
        let holder = pb::Holder { boot_id: self.boot.clone(), process_id: self.process.clone() };
        pb::NextActionRequest {
            holder: Some(holder),
            running_lease_id: running.into(),
            abilities: self.abilities.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    /// Requests the next instruction.
    pub(crate) async fn instruction(&self) -> pb::NextActionResponse {
        soon(self.client.clone().next_action(self.request(""))).await.unwrap().into_inner()
    }

    /// Requests the next assignment.
    pub(crate) async fn next(&self) -> pb::Assignment {
        self.instruction().await.assignment.expect("an assignment")
    }

    pub(crate) async fn start(&self, it: &pb::Assignment, terminal: bool) -> Result<(), Status> {
        let (workflow_id, lease_id) = (it.workflow_id.clone(), it.lease_id.clone());
        let request = pb::StartActionRequest { workflow_id, lease_id, terminal };
        self.client.clone().start_action(request).await.map(drop)
    }

    /// Requests the next assignment and starts it.
    pub(crate) async fn begin(&self) -> pb::Assignment {
        let it = self.next().await;
        self.start(&it, false).await.unwrap();
        it
    }

    pub(crate) async fn finish(
        &self,
        it: &pb::Assignment,
        state: pb::ActionState,
        reason: &str,
        tail: &str,
    ) -> Result<(), Status> {
        let request = pb::FinishActionRequest {
            workflow_id: it.workflow_id.clone(),
            lease_id: it.lease_id.clone(),
            state: state.into(),
            reason: reason.into(),
            tail: tail.into(),
            duration: None,
        };
        self.client.clone().finish_action(request).await.map(drop)
    }

    pub(crate) async fn succeed(&self, it: &pb::Assignment) {
        self.finish(it, pb::ActionState::Success, "", "").await.unwrap();
    }

    /// Reports progress. Returns true if the worker is told to stop.
    pub(crate) async fn progress(&self, it: &pb::Assignment, bytes: u64) -> Result<bool, Status> {
        let (workflow_id, lease_id) = (it.workflow_id.clone(), it.lease_id.clone());
        let progress = Some(pb::Progress { bytes, ..Default::default() });
        let request = pb::ReportProgressRequest { workflow_id, lease_id, progress };
        Ok(self.client.clone().report_progress(request).await?.into_inner().stop)
    }

    pub(crate) async fn log(
        &self,
        it: &pb::Assignment,
        offset: u64,
        data: &[u8],
    ) -> Result<u64, Status> {
        let (workflow_id, lease_id) = (it.workflow_id.clone(), it.lease_id.clone());
        let request = pb::AppendLogRequest { workflow_id, lease_id, offset, data: data.into() };
        Ok(self.client.clone().append_log(request).await?.into_inner().next_offset)
    }
}

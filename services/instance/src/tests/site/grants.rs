//! The address service of the test site, as far as instances need it.

use std::pin::Pin;

use futures_util::{StreamExt as _, stream};
use tinwright::address::v1 as addr;
use tinwright::address::v1::grant_service_server::GrantService;
use tinwright::watch::WatchEvent;
use tokio_stream::wrappers::BroadcastStream;
use tonic::{Request, Response, Status};

use super::Site;
use super::services::{EventStream, missing, never_called};

impl Site {
    /// Stores the grant of `block`, attached to `instance`; to none, if that is empty.
    pub(crate) fn attach(&self, block: &str, instance: &str) {
        let attachment = (!instance.is_empty()).then(|| addr::Attachment {
            instance_id: instance.into(),
            mac: "52:54:00:00:00:01".into(),
            primary: false,
        });
        self.put_grant(addr::Grant {
            id: block.into(),
            block: format!("{block}/32"),
            network: "192.0.2.0/24".into(),
            attachment,
            ..addr::Grant::default()
        });
    }

    fn put_grant(&self, grant: addr::Grant) {
        let mut state = self.state();
        state.grants.retain(|other| other.id != grant.id);
        state.grants.push(grant.clone());
        let _no_receiver = self.grant_changes.send(grant);
    }
}

#[tonic::async_trait]
impl GrantService for Site {
    async fn detach_grant(
        &self,
        request: Request<addr::DetachGrantRequest>,
    ) -> Result<Response<addr::DetachGrantResponse>, Status> {
        let addr::DetachGrantRequest { id, instance_id } = request.into_inner();
        let found = self.state().grants.iter().find(|grant| grant.id == id).cloned();
        let found = found.ok_or_else(missing)?;
        let is_here = |it: &addr::Attachment| it.instance_id == instance_id;
        if found.attachment.as_ref().is_some_and(|it| !is_here(it)) {
            return Err(Status::failed_precondition("attached to another instance"));
        }
        let detached = addr::Grant { attachment: None, ..found };
        self.put_grant(detached.clone());
        Ok(Response::new(addr::DetachGrantResponse { grant: Some(detached) }))
    }

    type WatchGrantsStream = EventStream<addr::WatchGrantsResponse>;

    async fn watch_grants(
        &self,
        _request: Request<addr::WatchGrantsRequest>,
    ) -> Result<Response<Self::WatchGrantsStream>, Status> {
        let changes = BroadcastStream::new(self.grant_changes.subscribe())
            .filter_map(|change| std::future::ready(change.ok()))
            .map(WatchEvent::Put);
        let all: Vec<_> = self.state().grants.iter().cloned().map(WatchEvent::Put).collect();
        let events = stream::iter(all.into_iter().chain([WatchEvent::Synced])).chain(changes);
        Ok(Response::new(Box::pin(events.map(|event| Ok(event.into())))))
    }

    never_called! {
        create_grant(addr::CreateGrantRequest) -> addr::CreateGrantResponse;
        get_grant(addr::GetGrantRequest) -> addr::GetGrantResponse;
        list_grants(addr::ListGrantsRequest) -> addr::ListGrantsResponse;
        confirm_grant(addr::ConfirmGrantRequest) -> addr::ConfirmGrantResponse;
        attach_grant(addr::AttachGrantRequest) -> addr::AttachGrantResponse;
        release_grant(addr::ReleaseGrantRequest) -> addr::ReleaseGrantResponse;
    }
}

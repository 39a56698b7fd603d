//! The address service of the test site, as far as instances need it.

use std::collections::HashMap;

use futures_util::{StreamExt as _, stream};
use tinwright::address::v1 as addr;
use tinwright::address::v1::grant_service_server::GrantService;
use tinwright::watch::WatchEvent;
use tinwright::{GrantId, status};
use tokio_stream::wrappers::BroadcastStream;
use tonic::{Request, Response, Status};

use super::services::{EventStream, missing, never_called};
use super::{FakeState, Site};

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
        self.state().put_grant(grant.clone());
        let _no_receiver = self.grant_changes.send(grant);
    }

    /// Carries out `call`, which changes a grant. The change is seen also if the response is lost.
    fn change_grant(
        &self,
        call: impl FnOnce(&mut FakeState) -> Result<addr::Grant, Status>,
    ) -> Result<addr::Grant, Status> {
        let mut changed = None;
        let result = self.carry_out(|state| {
            let grant = call(state)?;
            state.put_grant(grant.clone());
            changed = Some(grant.clone());
            Ok(grant)
        });
        if let Some(grant) = changed {
            let _no_receiver = self.grant_changes.send(grant);
        }
        Ok(result?.into_inner())
    }

    /// Ends the grants that are pending, as the address service does after ten minutes.
    pub(crate) fn expire_pending(&self) {
        self.state().grants.retain(|grant| grant.state() != addr::GrantState::Pending);
    }

    /// Returns the states of the grants.
    pub(crate) fn grant_states(&self) -> Vec<addr::GrantState> {
        self.state().grants.iter().map(addr::Grant::state).collect()
    }
}

impl FakeState {
    fn put_grant(&mut self, grant: addr::Grant) {
        self.grants.retain(|other| other.id != grant.id);
        self.grants.push(grant);
    }

    /// Returns the grant `id`, unless it was released.
    fn grant(&self, id: &str) -> Result<addr::Grant, Status> {
        let found = self.grants.iter().find(|grant| grant.id == id).ok_or_else(missing)?;
        if found.state() == addr::GrantState::Released {
            return Err(released(id));
        }
        Ok(found.clone())
    }

    /// Returns the grant that has the key of `wanted`, or a new one of a free address.
    fn grant_of_key(&self, wanted: addr::Grant) -> Result<addr::Grant, Status> {
        let of_key = |it: &&addr::Grant| (&it.tenant, &it.key) == (&wanted.tenant, &wanted.key);
        if let Some(found) = self.grants.iter().find(of_key) {
            return self.grant(&found.id);
        }
        let is_taken = |address: &str| {
            let block = format!("{address}/32");
            let has =
                |it: &addr::Grant| it.state() != addr::GrantState::Released && it.block == block;
            self.grants.iter().any(has)
        };
        let Some(free) = self.pool.iter().find(|address| !is_taken(address)) else {
            let (counts, text) = (HashMap::new(), "exhausted".to_owned());
            return Err(status::exhausted("ADDRESSES_EXHAUSTED", counts, None, text));
        };
        Ok(addr::Grant {
            id: GrantId::new().to_string(),
            block: format!("{free}/32"),
            network: "198.51.100.0/24".into(),
            state: addr::GrantState::Pending.into(),
            ..wanted
        })
    }
}

fn released(id: &str) -> Status {
    status::failed_precondition("GRANT_RELEASED", id, "released")
}

impl GrantService for Site {
    async fn create_grant(
        &self,
        request: Request<addr::CreateGrantRequest>,
    ) -> Result<Response<addr::CreateGrantResponse>, Status> {
        let wanted = request.into_inner().grant.unwrap_or_default();
        let grant = self.change_grant(|state| state.grant_of_key(wanted))?;
        Ok(Response::new(addr::CreateGrantResponse { grant: Some(grant) }))
    }

    async fn attach_grant(
        &self,
        request: Request<addr::AttachGrantRequest>,
    ) -> Result<Response<addr::AttachGrantResponse>, Status> {
        let addr::AttachGrantRequest { id, attachment } = request.into_inner();
        let grant = self.change_grant(|state| {
            let found = state.grant(&id)?;
            let has_interface = |it: &addr::Grant| {
                let mac = |it: &addr::Attachment| it.primary.then(|| it.mac.clone());
                it.id != id
                    && it.attachment.as_ref().and_then(mac) == attachment.as_ref().and_then(mac)
            };
            if state.grants.iter().any(has_interface) {
                return Err(Status::already_exists("another grant is primary"));
            }
            let state = addr::GrantState::Active.into();
            Ok(addr::Grant { state, attachment, ..found })
        })?;
        Ok(Response::new(addr::AttachGrantResponse { grant: Some(grant) }))
    }

    async fn release_grant(
        &self,
        request: Request<addr::ReleaseGrantRequest>,
    ) -> Result<Response<addr::ReleaseGrantResponse>, Status> {
        let id = request.into_inner().id;
        self.change_grant(|state| {
            let found = state.grants.iter().find(|grant| grant.id == id).ok_or_else(missing)?;
            let state = addr::GrantState::Released.into();
            Ok(addr::Grant { state, attachment: None, ..found.clone() })
        })?;
        Ok(Response::new(addr::ReleaseGrantResponse {}))
    }

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
        get_grant(addr::GetGrantRequest) -> addr::GetGrantResponse;
        list_grants(addr::ListGrantsRequest) -> addr::ListGrantsResponse;
        confirm_grant(addr::ConfirmGrantRequest) -> addr::ConfirmGrantResponse;
    }
}

//! Grants: what is printed is confirmed.

use std::sync::{Arc, Mutex};

use tinwright::address::v1 as pb;
use tinwright::address::v1::grant_service_server::{GrantService, GrantServiceServer};
use tinwright::instance::v1::instance_service_server::InstanceServiceServer;
use tokio_stream::Empty;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::hardware::{IDS, Instances};
use super::{fake, tinwright};

const ID: &str = "01990000-0000-7000-8000-000000000001";

/// Grants one address, and records the calls.
#[derive(Clone, Default)]
struct Grants(Arc<Mutex<Vec<String>>>);

impl Grants {
    fn grant(&self, call: &str) -> Option<pb::Grant> {
        self.0.lock().unwrap().push(call.to_owned());
        let (id, block) = (ID.into(), "192.0.2.7/32".into());
        Some(pb::Grant { id, block, state: pb::GrantState::Pending.into(), ..Default::default() })
    }

    /// Runs a command. Returns its output, and the calls that it made.
    async fn run(&self, arguments: &str) -> (String, Vec<String>) {
        let server = Server::builder().add_service(GrantServiceServer::new(self.clone()));
        let server = server.add_service(InstanceServiceServer::new(Instances));
        let (printed, result) = tinwright(arguments, server).await;
        result.unwrap();
        (printed, std::mem::take(&mut *self.0.lock().unwrap()))
    }
}

fake! {
    impl GrantService for Grants {
        type WatchGrantsStream = Empty<Result<pb::WatchGrantsResponse, Status>>;

        async fn watch_grants(
            &self,
            _: Request<pb::WatchGrantsRequest>,
        ) -> Result<Response<Self::WatchGrantsStream>, Status> {
            Err(Status::unimplemented("watch_grants"))
        }

        async fn create_grant(
            &self,
            request: Request<pb::CreateGrantRequest>,
        ) -> Result<Response<pb::CreateGrantResponse>, Status> {
            let wanted = request.into_inner().grant.unwrap();
            let grant = self.grant(&format!("create {} {} {}", wanted.block, wanted.tenant, wanted.key));
            Ok(Response::new(pb::CreateGrantResponse { grant }))
        }

        async fn get_grant(
            &self,
            request: Request<pb::GetGrantRequest>,
        ) -> Result<Response<pb::GetGrantResponse>, Status> {
            let by = request.into_inner().by.unwrap();
            let grant = self.grant(&format!("get {by:?}"));
            let is_attached = by == pb::get_grant_request::By::Block("192.0.2.8".into());
            let attachment = is_attached.then(pb::Attachment::default);
            let grant = grant.map(|grant| pb::Grant { attachment, ..grant });
            Ok(Response::new(pb::GetGrantResponse { grant }))
        }

        async fn list_grants(
            &self,
            request: Request<pb::ListGrantsRequest>,
        ) -> Result<Response<pb::ListGrantsResponse>, Status> {
            let state = request.get_ref().state().word();
            let grants = self.grant(&format!("list {state}")).into_iter().collect();
            Ok(Response::new(pb::ListGrantsResponse { grants, ..Default::default() }))
        }

        async fn confirm_grant(
            &self,
            request: Request<pb::ConfirmGrantRequest>,
        ) -> Result<Response<pb::ConfirmGrantResponse>, Status> {
            let grant = self.grant(&format!("confirm {}", request.into_inner().id));
            Ok(Response::new(pb::ConfirmGrantResponse { grant }))
        }

        async fn attach_grant(
            &self,
            request: Request<pb::AttachGrantRequest>,
        ) -> Result<Response<pb::AttachGrantResponse>, Status> {
            let pb::AttachGrantRequest { id, attachment } = request.into_inner();
            let wanted = attachment.unwrap();
            let pb::Attachment { instance_id, mac, primary } = &wanted;
            let grant = self.grant(&format!("attach {id} {instance_id} {mac} {primary}"));
            let mac = "52:54:00:00:00:01".into();
            let attachment = Some(pb::Attachment { mac, ..wanted });
            let grant = grant.map(|grant| pb::Grant { attachment, ..grant });
            Ok(Response::new(pb::AttachGrantResponse { grant }))
        }

        async fn detach_grant(
            &self,
            request: Request<pb::DetachGrantRequest>,
        ) -> Result<Response<pb::DetachGrantResponse>, Status> {
            let grant = self.grant(&format!("detach {}", request.into_inner().id));
            Ok(Response::new(pb::DetachGrantResponse { grant }))
        }

        async fn release_grant(
            &self,
            request: Request<pb::ReleaseGrantRequest>,
        ) -> Result<Response<pb::ReleaseGrantResponse>, Status> {
            self.grant(&format!("release {}", request.into_inner().id));
            Ok(Response::new(pb::ReleaseGrantResponse {}))
        }
    }
    refuses {}
}

#[tokio::test]
async fn a_grant_that_was_printed_is_confirmed_unless_it_is_to_stay_pending() {
    let grants = Grants::default();
    let wanted = "address grant 192.0.2.7 --tenant acme --key lb";
    let (printed, calls) = grants.run(wanted).await;
    assert!(printed.contains("192.0.2.7/32"), "{printed}");
    assert_eq!(calls, ["create 192.0.2.7 acme lb".to_owned(), format!("confirm {ID}")]);
    let (_, calls) = grants.run(&format!("{wanted} --pending")).await;
    assert_eq!(calls, ["create 192.0.2.7 acme lb"]);
}

#[tokio::test]
async fn a_grant_is_attached_to_the_instance_on_a_machine_and_detached() {
    let grants = Grants::default();
    let get = "get Block(\"192.0.2.7\")".to_owned();
    let (printed, calls) = grants.run(&format!("address attach 192.0.2.7 {}", IDS[0])).await;
    let expected =
        format!("grant {ID} of 192.0.2.7/32 attached to 52:54:00:00:00:01 of instance i0\n");
    assert_eq!(printed, expected);
    assert_eq!(calls, [get.clone(), format!("attach {ID} i0  false")]);
    let options = "--interface 52:54:00:00:00:02 --primary";
    let (_, calls) = grants.run(&format!("address attach 192.0.2.7 {} {options}", IDS[0])).await;
    assert_eq!(calls[1], format!("attach {ID} i0 52:54:00:00:00:02 true"));
    let (printed, calls) = grants.run("address detach 192.0.2.7").await;
    assert_eq!(printed, format!("grant {ID} of 192.0.2.7/32 was not attached\n"));
    assert_eq!(calls, [get, format!("detach {ID}")]);
    let (printed, _) = grants.run("address detach 192.0.2.8").await;
    assert_eq!(printed, format!("grant {ID} of 192.0.2.7/32 detached\n"));
}

#[tokio::test]
async fn a_grant_is_found_by_the_beginning_of_its_id_as_lists_print_it() {
    let grants = Grants::default();
    for name in ["01990000-0000", "grant/01990000-0000", "0199"] {
        let (printed, calls) = grants.run(&format!("address release {name}")).await;
        assert_eq!(printed, format!("grant {ID} of 192.0.2.7/32 released\n"));
        assert_eq!(calls, ["list unspecified".to_owned(), format!("release {ID}")]);
    }
}

#[tokio::test]
async fn pending_grants_are_listed_and_one_is_released_by_its_address() {
    let grants = Grants::default();
    let (printed, calls) = grants.run("address list --pending").await;
    assert!(printed.contains("192.0.2.7/32") && printed.contains("pending"), "{printed}");
    assert_eq!(calls, ["list pending"]);
    let (printed, calls) = grants.run("address release 192.0.2.7").await;
    assert_eq!(printed, format!("grant {ID} of 192.0.2.7/32 released\n"));
    assert_eq!(calls, ["get Block(\"192.0.2.7\")".to_owned(), format!("release {ID}")]);
}

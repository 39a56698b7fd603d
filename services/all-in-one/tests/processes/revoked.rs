//! Identities that are revoked in one process of several: every process refuses their calls, and ends their open streams.

use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use runtime::authority::request_certificate;
use runtime::forwarding::ForwardCaller;
use runtime::{Caller, Channel, Role};
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::{ListHardwareRequest, WatchHardwareRequest};
use tinwright::identity::v1 as id;
use tinwright::identity::v1::identity_service_client::IdentityServiceClient;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::instance::v1::{ListInstancesRequest, WatchInstancesRequest};
use tinwright::metadata::v1::ExplainMetadataRequest;
use tinwright::metadata::v1::explain_metadata_request::By;
use tinwright::metadata::v1::metadata_service_client::MetadataServiceClient;
use tokio::task::JoinSet;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Code, Request, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::peer::Peer;
use super::process::{Place, Process, arguments, free_address, soon};

/// A process by what it serves, which decides the calls that are made to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    Hardware,
    Instances,
    Metadata,
}

/// Two replicas that own hardware and identities, a process that owns instances, and one that serves metadata.
struct Site {
    processes: Vec<(Served, Process)>,
    _etcd: Peer,
}

impl Site {
    async fn start() -> Self {
        let etcd = Peer::start().await;
        let [first, second, instance, metadata] = [(); 4].map(|()| Place::new());
        let url = |place: &Place| format!("https://{}", place.grpc);
        let (owners, instances) =
            (format!("{},{}", url(&first), url(&second)), format!("instance={}", url(&instance)));
        let store = ["--store", "etcd", "--etcd-endpoints", &etcd.url()];
        let owned = ["--only", "address,hardware,identity,power,workflow", "--peers", &instances];
        let flags = arguments(&[&store[..], &owned].concat());
        let first = first.start(&flags).await;
        let second = second.with_secrets_of(&first.place, &[]).start(&flags).await;
        let flags = [&store[..], &["--only", "instance", "--peers", &owners]].concat();
        let instance = instance.with_secrets_of(&first.place, &[]);
        let instance = instance.start(&arguments(&flags)).await;
        let listen = free_address().to_string();
        let peers = format!("{instances},{owners}");
        let flags = ["--only", "metadata", "--metadata-listen", &listen, "--peers", &peers];
        let metadata = metadata.with_secrets_of(&first.place, &["ca-key.pem"]);
        let metadata = metadata.start(&arguments(&flags)).await;
        let processes = vec![
            (Served::Hardware, first),
            (Served::Hardware, second),
            (Served::Instances, instance),
            (Served::Metadata, metadata),
        ];
        Self { processes, _etcd: etcd }
    }

    /// Returns the identity service of the first process.
    async fn identity(&self) -> IdentityServiceClient<Channel> {
        IdentityServiceClient::new(self.processes[0].1.channel().await)
    }

    /// Issues a viewer's certificate to `subject`.
    async fn issue(&self, subject: &str) -> Person {
        let (certificate_request, key) = request_certificate().unwrap();
        let (role, subject) = (id::Role::Viewer.into(), subject.into());
        let request = id::IssueCertificateRequest {
            role,
            subject,
            certificate_request,
            ..Default::default()
        };
        let issued = self.identity().await.issue_certificate(request).await.unwrap().into_inner();
        Person {
            serial: issued.certificate.unwrap().serial,
            certificate: issued.certificate_pem,
            authority: issued.authority_pem,
            key: key.expose().clone(),
        }
    }

    /// Opens a watch in each process, and makes a call. `open` returns the caller's client of a process.
    async fn watch(&self, open: impl AsyncFn(&Process) -> Api) -> Vec<Watched> {
        let mut all = Vec::new();
        for (served, process) in &self.processes {
            let api = open(process).await;
            served.call(api.clone()).await.unwrap();
            let ended = served.watch(api.clone()).await;
            all.push(Watched { served: *served, api, ended });
        }
        all
    }
}

/// The holder of a certificate.
struct Person {
    serial: String,
    certificate: String,
    authority: String,
    key: String,
}

impl Person {
    /// Returns a client of `process`, which connects at the first call.
    fn api(&self, process: &Process) -> Api {
        let Self { authority, certificate, key, .. } = self;
        let endpoint = process.endpoint(authority, certificate, key);
        InterceptedService::new(endpoint.connect_lazy().into(), Sender(None))
    }
}

/// Adds the client of a door to each call, if there is one.
#[derive(Clone)]
struct Sender(Option<ForwardCaller>);

impl Interceptor for Sender {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        match &mut self.0 {
            Some(client) => client.call(request),
            None => Ok(request),
        }
    }
}

type Api = InterceptedService<Channel, Sender>;

/// The status with which a watch ends.
type End = BoxFuture<'static, Result<(), Status>>;

/// A caller's open watch in a process.
struct Watched {
    served: Served,
    api: Api,
    ended: End,
}

impl Watched {
    /// True if the watch is open, and a call is answered.
    async fn goes_on(&mut self) -> bool {
        (&mut self.ended).now_or_never().is_none()
            && self.served.call(self.api.clone()).await.is_ok()
    }
}

impl Served {
    /// Makes a call that every viewer may make.
    async fn call(self, api: Api) -> Result<(), Status> {
        match self {
            Self::Hardware => {
                let listed = HardwareServiceClient::new(api)
                    .list_hardware(ListHardwareRequest::default())
                    .await;
                listed.map(drop)
            }
            Self::Instances => {
                let listed = InstanceServiceClient::new(api)
                    .list_instances(ListInstancesRequest::default())
                    .await;
                listed.map(drop)
            }
            Self::Metadata => {
                let by = Some(By::Address("198.51.100.1".into()));
                let explained = MetadataServiceClient::new(api)
                    .explain_metadata(ExplainMetadataRequest { by })
                    .await;
                explained.map(drop)
            }
        }
    }

    /// Opens a watch.
    async fn watch(self, api: Api) -> End {
        match self {
            Self::Hardware => {
                let mut client = HardwareServiceClient::new(api);
                end(client.watch_hardware(WatchHardwareRequest::default()).await)
            }
            Self::Instances => {
                let mut client = InstanceServiceClient::new(api);
                end(client.watch_instances(WatchInstancesRequest::default()).await)
            }
            Self::Metadata => {
                end(HealthClient::new(api).watch(HealthCheckRequest::default()).await)
            }
        }
    }
}

/// Reads a watch to its end.
fn end<T: Send + 'static>(opened: Result<tonic::Response<Streaming<T>>, Status>) -> End {
    let mut messages = opened.unwrap().into_inner();
    async move {
        while messages.message().await?.is_some() {}
        Ok(())
    }
    .boxed()
}

/// Waits for the end of all watches. Returns the process, the client and the status of each, and prints the times since `began`.
async fn all_end(watches: Vec<Watched>, began: Instant) -> Vec<(Served, Api, Status)> {
    let mut ends = JoinSet::new();
    for Watched { served, api, ended } in watches {
        ends.spawn(async move {
            let status = ended.await.expect_err("a watch ends with an error");
            println!(
                "{served:?}: the watch ended {:?} after the revocation began",
                began.elapsed()
            );
            (served, api, status)
        });
    }
    soon(ends.join_all()).await
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_in_every_process_and_its_watches_end() {
    let site = Site::start().await;
    let (anna, berta) = (site.issue("person:anna").await, site.issue("person:berta").await);
    let revoked = site.watch(async |process| anna.api(process)).await;
    let mut others = site.watch(async |process| berta.api(process)).await;
    let request = id::RevokeCertificateRequest { serial: anna.serial.clone() };
    let (mut identity, began) = (site.identity().await, Instant::now());
    identity.revoke_certificate(request).await.unwrap();
    for (served, api, _) in all_end(revoked, began).await {
        // On its own channel, which connects again.
        served.call(api).await.expect_err("a revoked certificate");
    }
    for (served, process) in &site.processes {
        served.call(anna.api(process)).await.expect_err("a revoked certificate");
    }
    for other in &mut others {
        assert!(other.goes_on().await, "{:?}", other.served);
    }
}

#[tokio::test]
async fn a_revoked_key_is_refused_in_every_process_although_the_one_that_they_follow_is_gone() {
    let mut site = Site::start().await;
    let mut identity = site.identity().await;
    let credential = Some(id::Credential { role: id::Role::Viewer.into(), ..Default::default() });
    let request = id::CreateCredentialRequest { credential, ..Default::default() };
    let made = identity.create_credential(request).await.unwrap().into_inner();
    let fields = [("api_key".to_owned(), made.api_key)].into();
    let door = Caller::new(Role::Door, "service:gateway").unwrap();

    let (_, first) = site.processes.remove(0);
    let (_, second) = &site.processes[0];
    let channel = second.channel_as(second, &door).await;
    let mut identity = IdentityServiceClient::new(channel);
    let request = id::AuthenticateRequest { fields };
    let caller = identity.authenticate(request.clone()).await.unwrap().into_inner().caller;
    let client = ForwardCaller::new(&caller.parse().unwrap());
    let forwarded = async |process: &Process| {
        let channel = process.channel_as(second, &door).await;
        InterceptedService::new(channel, Sender(Some(client.clone())))
    };
    let revoked = site.watch(forwarded).await;
    let mut admin = IdentityServiceClient::new(second.channel().await);

    let _left = first.kill();
    let began = Instant::now();
    let id = made.credential.unwrap().id;
    admin.delete_credential(id::DeleteCredentialRequest { id, revision: 0 }).await.unwrap();
    for (served, api, status) in all_end(revoked, began).await {
        assert_eq!(status.code(), Code::Unauthenticated, "{served:?}: {status}");
        let refused = served.call(api).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{served:?}: {refused}");
    }
    let refused = identity.authenticate(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
}

//! What people ask about network boot, over gRPC.

use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::{Stream, stream};
use tinwright::fault::{self, Violations};
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::netboot_service_server::{NetbootService, NetbootServiceServer};
use tinwright::{HardwareId, check};
use tonic::{Request, Response, Status};

use crate::boots::Boots;
use crate::dhcp::Link;
use crate::explain::{ClientClass, Question, Subject, explain};

/// Serves what netboot knows.
#[derive(Clone, Debug)]
pub struct Api {
    boots: Arc<Boots>,
    link: Arc<Link>,
}

impl Api {
    /// An API over `boots`, which answers on `link`.
    pub fn new(boots: Arc<Boots>, link: Link) -> Self {
        Self { boots, link: Arc::new(link) }
    }

    /// As a service for a tonic router.
    pub fn into_service(self) -> NetbootServiceServer<Self> {
        NetbootServiceServer::new(self)
    }
}

#[tonic::async_trait]
impl NetbootService for Api {
    #[tracing::instrument(skip_all)]
    async fn explain_boot(
        &self,
        request: Request<pb::ExplainBootRequest>,
    ) -> Result<Response<pb::ExplainBootResponse>, Status> {
        let question = question(request.into_inner())?;
        if !question.subject.asks() && question.subject.find(self.boots.index()).is_none() {
            return Err(unknown(&question.subject));
        }
        Ok(Response::new(explain(&question, &self.boots, &self.link, SystemTime::now())))
    }

    #[tracing::instrument(skip_all)]
    async fn get_boot(
        &self,
        request: Request<pb::GetBootRequest>,
    ) -> Result<Response<pb::GetBootResponse>, Status> {
        let pb::GetBootRequest { id } = request.into_inner();
        Err(fault::not_found("boot", &id))
    }

    #[tracing::instrument(skip_all)]
    async fn list_boots(
        &self,
        _request: Request<pb::ListBootsRequest>,
    ) -> Result<Response<pb::ListBootsResponse>, Status> {
        Ok(Response::new(pb::ListBootsResponse::default()))
    }

    type ReadBootLogStream =
        Pin<Box<dyn Stream<Item = Result<pb::ReadBootLogResponse, Status>> + Send>>;

    #[tracing::instrument(skip_all)]
    async fn read_boot_log(
        &self,
        _request: Request<pb::ReadBootLogRequest>,
    ) -> Result<Response<Self::ReadBootLogStream>, Status> {
        Ok(Response::new(Box::pin(stream::empty())))
    }
}

fn question(request: pb::ExplainBootRequest) -> Result<Question, Violations> {
    use pb::explain_boot_request::By;
    let class = request.client_class();
    let pb::ExplainBootRequest { by, client_class, architecture } = request;
    let subject = match by {
        None => return Err(Violations::one("by", "is missing: say which machine")),
        Some(By::HardwareId(text)) => by_id(&text)?,
        Some(By::Mac(text)) => by_mac(&text)?,
        Some(By::Address(text)) => by_address(&text)?,
        Some(By::Hostname(text)) => by_hostname(text)?,
    };
    let class = match class {
        pb::ClientClass::Pxe => ClientClass::Pxe,
        pb::ClientClass::Http => ClientClass::Http,
        pb::ClientClass::Ipxe => ClientClass::Ipxe,
        pb::ClientClass::Ordinary => ClientClass::Ordinary,
        pb::ClientClass::Unspecified if client_class == 0 => ClientClass::Ipxe,
        pb::ClientClass::Unspecified => {
            return Err(Violations::one("client_class", format!("{client_class} is none")));
        }
    };
    let architecture = architecture.map(u16::try_from).transpose();
    let architecture =
        architecture.map_err(|_| Violations::one("architecture", "has more than 16 bits"))?;
    Ok(Question { subject, class, architecture })
}

fn by_id(text: &str) -> Result<Subject, Violations> {
    let id: Result<HardwareId, _> = text.parse();
    let id = id.map_err(|reason| Violations::one("hardware_id", reason))?;
    Ok(Subject::Hardware(id.to_string()))
}

fn by_mac(text: &str) -> Result<Subject, Violations> {
    text.parse().map(Subject::Mac).map_err(|reason| Violations::one("mac", reason))
}

fn by_address(text: &str) -> Result<Subject, Violations> {
    let address = check::address(text).map_err(|reason| Violations::one("address", reason))?;
    Ok(Subject::Address(address))
}

fn by_hostname(text: String) -> Result<Subject, Violations> {
    check::hostname(&text).map_err(|reason| Violations::one("hostname", reason))?;
    Ok(Subject::Hostname(text))
}

fn unknown(subject: &Subject) -> Status {
    let name = match subject {
        Subject::Hardware(name) | Subject::Hostname(name) => name.clone(),
        Subject::Mac(mac) => mac.to_string(),
        Subject::Address(address) => address.to_string(),
    };
    fault::not_found("machine", &name)
}

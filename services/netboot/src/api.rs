//! The gRPC API of network boot.

mod log;

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;

use dhcp::SimulatedRelay;
use futures_util::Stream;
use runtime::Clock;
use store::serving;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::explain_boot_request::By;
use tinwright::netboot::v1::netboot_service_server::{NetbootService, NetbootServiceServer};
use tinwright::status::{self, Violations};
use tinwright::{HardwareId, check};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use self::log::Reader;
use crate::dhcp_server::View;
use crate::explain::{BootQuestion, Target, explain};
use crate::machine_view::{self, MachineView};
use crate::syslog::Lines;
use crate::timeline::records::{self, BootStore};

/// Octets of option 82 for a circuit-id and a remote-id.
const MAX_PORT_BYTES: usize = 251;

/// The API of network boot.
#[derive(Clone, Debug)]
pub struct Api {
    /// The views of all links, never empty. The machines are the same on all.
    pub(crate) views: Arc<[View]>,
    /// Stored boots.
    pub(crate) boots: BootStore,
    /// Lines of syslog, if they are received.
    pub(crate) lines: Option<Arc<Lines>>,
    /// The signal at which streams end.
    pub(crate) stop: CancellationToken,
    /// The clock.
    pub(crate) clock: Clock,
}

impl Api {
    /// Finds the machine of `target`.
    fn find(&self, target: &Target) -> Option<Arc<MachineView>> {
        target.find(&self.views[0].scripts, self.clock.wall())
    }

    /// Returns the view of the link with the address of `target`.
    fn view(&self, target: &Target) -> &View {
        let address = match target {
            Target::Address(address) => Some(*address),
            Target::Hardware(_) | Target::Mac(_) | Target::Hostname(_) => {
                self.find(target).and_then(|machine| machine.address)
            }
        };
        let contains = |view: &&View| address.is_some_and(|address| view.has(address));
        self.views.iter().find(contains).unwrap_or(&self.views[0])
    }

    /// Returns the id of the machine that a request for its log names; empty for lines from
    /// addresses of no machine.
    fn machine_of_log(&self, by: Option<pb::read_boot_log_request::By>) -> Result<String, Status> {
        use pb::read_boot_log_request::By as Log;
        let target = target(match by {
            Some(Log::Unknown(true)) => return Ok(String::new()),
            None | Some(Log::Unknown(false)) => None,
            Some(Log::HardwareId(text)) => Some(By::HardwareId(text)),
            Some(Log::Mac(text)) => Some(By::Mac(text)),
            Some(Log::Address(text)) => Some(By::Address(text)),
            Some(Log::Hostname(text)) => Some(By::Hostname(text)),
        })?;
        let machine = self.find(&target).ok_or_else(|| unknown(&target))?;
        Ok(machine.hardware.id.clone())
    }

    /// Returns the service for a tonic router.
    pub fn into_service(self) -> NetbootServiceServer<Self> {
        NetbootServiceServer::new(self)
    }
}

impl NetbootService for Api {
    async fn explain_boot(
        &self,
        request: Request<pb::ExplainBootRequest>,
    ) -> Result<Response<pb::ExplainBootResponse>, Status> {
        let question = question(request.into_inner())?;
        // An interface or address without a record can send requests.
        let needs_record = matches!(question.target, Target::Hardware(_) | Target::Hostname(_));
        if needs_record && self.find(&question.target).is_none() {
            return Err(unknown(&question.target));
        }
        let (view, clock) = (self.view(&question.target).clone(), self.clock.clone());
        let explained = tokio::task::spawn_blocking(move || explain(&question, &view, &clock));
        let interrupted = |_| Status::internal("the explanation was interrupted");
        Ok(Response::new(explained.await.map_err(interrupted)?))
    }

    async fn get_boot(
        &self,
        request: Request<pb::GetBootRequest>,
    ) -> Result<Response<pb::GetBootResponse>, Status> {
        let pb::GetBootRequest { id } = request.into_inner();
        let boot = Some(self.boots.require(&id).await?);
        Ok(Response::new(pb::GetBootResponse { boot }))
    }

    async fn list_boots(
        &self,
        request: Request<pb::ListBootsRequest>,
    ) -> Result<Response<pb::ListBootsResponse>, Status> {
        let pb::ListBootsRequest { page_size, page_token, hardware_id, unknown } =
            request.into_inner();
        let owner = owner(unknown, &hardware_id)?;
        let listing = self.boots.list(&owner, &page_token, serving::page_size(page_size)?).await?;
        let next_page_token = listing.next.unwrap_or_default();
        Ok(Response::new(pb::ListBootsResponse { boots: listing.records, next_page_token }))
    }

    type ReadBootLogStream =
        Pin<Box<dyn Stream<Item = Result<pb::ReadBootLogResponse, Status>> + Send>>;

    async fn read_boot_log(
        &self,
        request: Request<pb::ReadBootLogRequest>,
    ) -> Result<Response<Self::ReadBootLogStream>, Status> {
        let pb::ReadBootLogRequest { by, lines: most, follow, after } = request.into_inner();
        let off =
            || status::failed_precondition("SYSLOG", "netboot", "the receiver of syslog is off");
        let lines = self.lines.clone().ok_or_else(off)?;
        let machine = self.machine_of_log(by)?;
        let most = if most == 0 { usize::MAX } else { most.try_into().unwrap_or(usize::MAX) };
        let reader = Reader { lines, machine, after, most, follow };
        Ok(Response::new(Box::pin(log::read(reader, self.stop.clone()))))
    }
}

/// Returns the owner of the boots that a request lists, in the form of [`BootStore::list`].
fn owner(unknown: bool, hardware_id: &str) -> Result<String, Violations> {
    match (unknown, hardware_id) {
        (true, "") => Ok(records::UNKNOWN.to_owned()),
        (true, _) => Err(Violations::single("unknown", "is given beside hardware_id")),
        (false, "") => Ok(String::new()),
        (false, id) => hardware(id),
    }
}

fn target(by: Option<By>) -> Result<Target, Violations> {
    match by {
        None => Err(Violations::single("by", "is missing: say which machine")),
        Some(By::HardwareId(text)) => hardware(&text).map(Target::Hardware),
        Some(By::Mac(text)) => Violations::parse("mac", &text).map(Target::Mac),
        Some(By::Address(text)) => {
            check::address(&text).map(Target::Address).map_err(invalid("address"))
        }
        Some(By::Hostname(text)) => {
            check::hostname(&text).map_err(invalid("hostname"))?;
            Ok(Target::Hostname(text))
        }
    }
}

fn invalid<E: Display>(field: &str) -> impl FnOnce(E) -> Violations {
    move |reason| Violations::single(field, reason)
}

fn question(request: pb::ExplainBootRequest) -> Result<BootQuestion, Violations> {
    let class = request.client_class();
    let pb::ExplainBootRequest { by, client_class, architecture, relay } = request;
    let target = target(by)?;
    if class == pb::ClientClass::Unspecified && client_class != 0 {
        return Err(Violations::single("client_class", format!("{client_class} is none")));
    }
    let class = if client_class == 0 { pb::ClientClass::Ipxe } else { class };
    let architecture = architecture.map(u16::try_from).transpose();
    let architecture =
        architecture.map_err(|_| Violations::single("architecture", "has more than 16 bits"))?;
    let relay = relay.map(relay_of).transpose()?;
    Ok(BootQuestion { target, class, architecture, relay })
}

fn relay_of(relay: pb::RelayAgent) -> Result<SimulatedRelay, Violations> {
    let pb::RelayAgent { address, circuit_id, remote_id } = relay;
    let (mut all, mut wrong) = (Violations::default(), Violations::default());
    let hex = |text: &str| machine_view::parse_hex(text).ok_or("is not hex, two digits an octet");
    let address = wrong.take("address", address.parse().map_err(|_| "is not an IPv4 address"));
    let circuit_id = wrong.take("circuit_id", hex(&circuit_id)).unwrap_or_default();
    let remote_id = wrong.take("remote_id", hex(&remote_id)).unwrap_or_default();
    if circuit_id.len() + remote_id.len() > MAX_PORT_BYTES {
        wrong.add("circuit_id", format!("has more than {MAX_PORT_BYTES} octets with remote_id"));
    }
    all.add_nested("relay", wrong);
    let address = address.unwrap_or(Ipv4Addr::UNSPECIFIED);
    all.into_result(SimulatedRelay { address, circuit_id, remote_id, link: None })
}

fn hardware(text: &str) -> Result<String, Violations> {
    Ok(Violations::parse::<HardwareId>("hardware_id", text)?.to_string())
}

fn unknown(target: &Target) -> Status {
    let name = match target {
        Target::Hardware(name) | Target::Hostname(name) => name.clone(),
        Target::Mac(mac) => mac.to_string(),
        Target::Address(address) => address.to_string(),
    };
    status::not_found("machine", &name)
}

//! A client of one BMC, by the protocol in its record. One job uses it at a time.

use std::time::Duration;

use tinwright::hardware::v1::BmcInventory;

use crate::forms::AcceptedForms;
use crate::ipmi::{self, Ipmi};
use crate::plan::{Call, DriveKind};
use crate::redfish::error::Relevance;
use crate::redfish::messages::Messages;
use crate::redfish::{self, Redfish, System};

/// Timeout of all requests of one reading in a session of its own.
const READING_TIMEOUT: Duration = Duration::from_secs(60);

/// The address and the credentials of a BMC.
#[derive(Clone, Debug)]
pub enum BmcAddress {
    /// A Redfish service.
    Redfish(redfish::Target),
    /// An IPMI service.
    Ipmi(ipmi::Endpoint),
}

/// A client of one BMC.
#[derive(Debug)]
pub enum BmcClient {
    /// Over Redfish.
    Redfish(Box<Redfish>),
    /// Over IPMI.
    Ipmi(Box<Ipmi>),
}

/// A reading in a session of its own.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The state of the system.
    pub system: System,
    /// Certificate and accepted forms of the BMC.
    pub learnt: Learnt,
}

/// Certificate and accepted forms of a BMC, for its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// SHA-256 of its certificate, if it is the only one to trust.
    pub certificate: Option<[u8; 32]>,
    /// The forms of requests that it accepted, also before.
    pub accepted: AcceptedForms,
}

/// Reads the state of the system of `target` in a session of its own.
pub async fn read_system(target: BmcAddress) -> Result<Reading, Error> {
    let mut bmc = BmcClient::new(target)?;
    let system = bmc.system_within(READING_TIMEOUT, None).await;
    let learnt = bmc.learnt();
    bmc.close().await;
    Ok(Reading { system: system?, learnt })
}

/// Reads the state and the inventory of the system of `target` in a session of its own, within a minute.
pub async fn read_inventory(target: BmcAddress) -> Result<(Reading, BmcInventory), Error> {
    let mut bmc = BmcClient::new(target)?;
    let read = async { Ok((bmc.system().await?, bmc.inventory().await?)) };
    let read = tokio::time::timeout(READING_TIMEOUT, read).await;
    let learnt = bmc.learnt();
    bmc.close().await;
    let (system, inventory) = read.unwrap_or(Err(Error::Timeout(READING_TIMEOUT)))?;
    Ok((Reading { system, learnt }, inventory))
}

/// Reads the state of the system of `target`, and the inventory as far as the BMC lists one, in a
/// session of its own. The UUID in the inventory is that of the system at least.
pub async fn read_machine(target: BmcAddress) -> Result<(Reading, BmcInventory), Error> {
    let mut bmc = BmcClient::new(target)?;
    let system = bmc.system_within(READING_TIMEOUT, None).await;
    let inventory = match &system {
        Ok(_) => tokio::time::timeout(READING_TIMEOUT, bmc.inventory()).await,
        Err(_) => Ok(Ok(BmcInventory::default())),
    };
    let inventory = inventory.unwrap_or(Err(Error::Timeout(READING_TIMEOUT)));
    let mut inventory = inventory.unwrap_or_else(|error| {
        tracing::debug!(error = error.in_full(), "no inventory read");
        BmcInventory::default()
    });
    let learnt = bmc.learnt();
    bmc.close().await;
    let system = system?;
    if inventory.uuid.is_empty() {
        inventory.uuid.clone_from(&system.uuid);
    }
    Ok((Reading { system, learnt }, inventory))
}

impl BmcClient {
    /// Creates a client for `target`. Sends nothing yet.
    pub fn new(target: BmcAddress) -> Result<Self, Error> {
        Ok(match target {
            BmcAddress::Redfish(target) => Self::Redfish(Box::new(Redfish::new(target)?)),
            BmcAddress::Ipmi(target) => Self::Ipmi(Box::new(Ipmi::new(target))),
        })
    }

    /// Returns what was learnt of the BMC.
    pub fn learnt(&self) -> Learnt {
        let certificate = match self {
            Self::Redfish(bmc) => bmc.certificate(),
            Self::Ipmi(_) => None,
        };
        Learnt { certificate, accepted: self.accepted() }
    }

    /// Returns the forms of requests that the BMC accepted, also before.
    pub fn accepted(&self) -> AcceptedForms {
        match self {
            Self::Redfish(bmc) => bmc.accepted().clone(),
            Self::Ipmi(bmc) => bmc.accepted(),
        }
    }

    /// Notes forms of requests that the BMC accepted.
    pub fn accept(&mut self, forms: AcceptedForms) {
        match self {
            Self::Redfish(bmc) => bmc.accept(forms),
            Self::Ipmi(bmc) => bmc.accept(forms),
        }
    }

    /// Reads the state of the system within `limit`, or within a minute, with its virtual drive of the kind `drive`.
    pub async fn system_within(
        &mut self,
        limit: Duration,
        drive: Option<DriveKind>,
    ) -> Result<System, Error> {
        let limit = limit.min(READING_TIMEOUT);
        let system = tokio::time::timeout(limit, Box::pin(self.system_with(drive))).await;
        system.unwrap_or(Err(Error::Timeout(limit)))
    }

    /// Sends `call` to `system` within `limit`. The caller has to read the system again to verify the effect.
    pub async fn call_within(
        &mut self,
        system: &System,
        call: &Call,
        limit: Duration,
    ) -> Result<(), Error> {
        let response = tokio::time::timeout(limit, Box::pin(self.call(system, call))).await;
        response.unwrap_or(Err(Error::Timeout(limit)))
    }

    /// Reads the state of the system and of its virtual drive. IPMI has none.
    async fn system_with(&mut self, drive: Option<DriveKind>) -> Result<System, Error> {
        let mut system = self.system().await?;
        if let (Self::Redfish(bmc), Some(kind)) = (self, drive) {
            system.drive = bmc.drive(kind).await?;
        }
        Ok(system)
    }

    /// Reads the state of the system.
    async fn system(&mut self) -> Result<System, Error> {
        Ok(match self {
            Self::Redfish(bmc) => Box::pin(bmc.system()).await?,
            Self::Ipmi(bmc) => bmc.system().await?,
        })
    }

    /// Reads the inventory of the machine.
    async fn inventory(&mut self) -> Result<BmcInventory, Error> {
        Ok(match self {
            Self::Redfish(bmc) => Box::pin(bmc.inventory()).await?,
            Self::Ipmi(bmc) => bmc.inventory().await?,
        })
    }

    /// Reads the MACs of the machine's interfaces; none if the BMC does not list them.
    pub(crate) async fn macs(&mut self) -> Vec<String> {
        let inventory = tokio::time::timeout(READING_TIMEOUT, self.inventory()).await;
        let inventory = inventory.ok().and_then(Result::ok).unwrap_or_default();
        inventory.interfaces.into_iter().map(|interface| interface.mac).collect()
    }

    async fn call(&mut self, system: &System, call: &Call) -> Result<(), Error> {
        match self {
            Self::Redfish(bmc) => bmc.call(system, call).await?,
            Self::Ipmi(bmc) => bmc.call(call).await?,
        }
        Ok(())
    }

    /// Ends the session, if there is one.
    pub async fn close(self) {
        match self {
            Self::Redfish(bmc) => bmc.close().await,
            Self::Ipmi(_) => {}
        }
    }
}

/// A failed request to a BMC.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Over Redfish.
    #[error(transparent)]
    Redfish(#[from] redfish::Error),
    /// Over IPMI.
    #[error(transparent)]
    Ipmi(#[from] ipmi::Error),
    /// The whole reading or call took too long.
    #[error("the BMC did not answer in {} seconds", .0.as_secs())]
    Timeout(Duration),
    /// The client is gone.
    #[error("no session with the BMC")]
    NoSession,
}

impl Error {
    /// True for an error that may pass in a moment, or may never do.
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Redfish(error) if error.is_internal())
    }

    /// True if the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Redfish(error) => error.is_transient(),
            Self::Ipmi(error) => error.is_transient(),
            Self::Timeout(_) => true,
            Self::NoSession => false,
        }
    }

    /// True if the BMC refused this request, and another one may have the same effect.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Redfish(error) => error.is_refusal(),
            Self::Ipmi(error) => error.is_refusal(),
            Self::Timeout(_) | Self::NoSession => false,
        }
    }

    /// Returns the messages of the BMC, if it sent any.
    pub fn messages(&self) -> Option<&Messages> {
        if let Self::Redfish(error) = self { error.messages() } else { None }
    }

    /// Returns the use of the answer for people.
    pub fn relevance(&self) -> Relevance {
        if let Self::Redfish(error) = self { error.relevance() } else { Relevance::Text }
    }

    /// Returns the pause that the BMC requests.
    pub fn retry_after(&self) -> Duration {
        if let Self::Redfish(error) = self { error.retry_after() } else { Duration::ZERO }
    }

    /// Returns this error and its sources in one line, for records that people read.
    pub fn in_full(&self) -> String {
        let texts: Vec<_> = anyhow::Chain::new(self).map(ToString::to_string).collect();
        texts.join(": ")
    }
}

//! A client of one BMC, by the protocol in its record. One job uses it at a time.

use std::time::Duration;

use tinwright::hardware::v1::BmcInventory;

use crate::ipmi::{self, Ipmi};
use crate::plan::{Call, DriveKind};
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
    Ipmi(Ipmi),
}

/// A reading in a session of its own.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The state of the system.
    pub system: System,
    /// SHA-256 of the BMC's certificate, if it is the only one to trust.
    pub certificate: Option<[u8; 32]>,
}

/// Reads the state of the system of `target` in a session of its own.
pub async fn read_system(target: BmcAddress) -> Result<Reading, Error> {
    let mut bmc = BmcClient::new(target)?;
    let system = bmc.system_within(READING_TIMEOUT, None).await;
    let certificate = bmc.certificate();
    bmc.close().await;
    Ok(Reading { system: system?, certificate })
}

/// Reads the state and the inventory of the system of `target` in a session of its own, within a minute.
pub async fn read_inventory(target: BmcAddress) -> Result<(Reading, BmcInventory), Error> {
    let mut bmc = BmcClient::new(target)?;
    let read = async { Ok((bmc.system().await?, bmc.inventory().await?)) };
    let read = tokio::time::timeout(READING_TIMEOUT, read).await;
    let certificate = bmc.certificate();
    bmc.close().await;
    let (system, inventory) = read.unwrap_or(Err(Error::Timeout(READING_TIMEOUT)))?;
    Ok((Reading { system, certificate }, inventory))
}

impl BmcClient {
    /// Creates a client for `target`. Sends nothing yet.
    pub fn new(target: BmcAddress) -> Result<Self, Error> {
        Ok(match target {
            BmcAddress::Redfish(target) => Self::Redfish(Box::new(Redfish::new(target)?)),
            BmcAddress::Ipmi(target) => Self::Ipmi(Ipmi::new(target)),
        })
    }

    /// Returns the SHA-256 of the BMC's certificate, if it is the only one to trust.
    pub fn certificate(&self) -> Option<[u8; 32]> {
        match self {
            Self::Redfish(bmc) => bmc.certificate(),
            Self::Ipmi(_) => None,
        }
    }

    /// Reads the state of the system within `limit`, or within a minute, with its virtual drive of the kind `drive`.
    pub async fn system_within(
        &mut self,
        limit: Duration,
        drive: Option<DriveKind>,
    ) -> Result<System, Error> {
        let limit = limit.min(READING_TIMEOUT);
        let system = tokio::time::timeout(limit, self.system_with(drive)).await;
        system.unwrap_or(Err(Error::Timeout(limit)))
    }

    /// Sends `call` to `system` within `limit`. The caller has to read the system again to verify the effect.
    pub async fn call_within(
        &mut self,
        system: &System,
        call: &Call,
        limit: Duration,
    ) -> Result<(), Error> {
        let response = tokio::time::timeout(limit, self.call(system, call)).await;
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
            Self::Redfish(bmc) => bmc.system().await?,
            Self::Ipmi(bmc) => bmc.system().await?,
        })
    }

    /// Reads the inventory of the machine.
    async fn inventory(&mut self) -> Result<BmcInventory, Error> {
        Ok(match self {
            Self::Redfish(bmc) => bmc.inventory().await?,
            Self::Ipmi(bmc) => bmc.inventory().await?,
        })
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

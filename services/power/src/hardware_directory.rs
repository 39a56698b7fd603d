//! The machines of the hardware service: found by a MAC or a name, created, and their inventories stored.

use runtime::Channel;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::get_hardware_request::By;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tonic::{Code, Response, Status};

/// A client of the hardware service.
#[derive(Clone, Debug)]
pub struct HardwareDirectory {
    client: HardwareServiceClient<Channel>,
}

/// The machine that a BMC lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedMachine {
    /// SMBIOS UUID; empty if it lists none.
    pub uuid: String,
    /// MACs of its interfaces.
    pub macs: Vec<String>,
}

impl From<&hw::BmcInventory> for ListedMachine {
    fn from(inventory: &hw::BmcInventory) -> Self {
        let macs = inventory.interfaces.iter().map(|interface| interface.mac.clone());
        Self { uuid: inventory.uuid.clone(), macs: macs.collect() }
    }
}

/// A failed call to the hardware service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It refused the call, for this reason.
    #[error("{}", .0.message())]
    Refused(Box<Status>),
    /// It did not answer.
    #[error("the hardware service did not answer")]
    Unavailable(#[source] Box<Status>),
}

impl HardwareDirectory {
    /// A client for this channel.
    pub fn new(hardware: Channel) -> Self {
        Self { client: HardwareServiceClient::new(hardware) }
    }

    /// Returns the machine that `by` selects, if there is one.
    pub async fn find(&self, by: By) -> Result<Option<hw::Hardware>, Error> {
        let request = hw::GetHardwareRequest { by: Some(by), ..Default::default() };
        match response(self.client.clone().get_hardware(request)).await {
            Ok(found) => Ok(found.hardware),
            Err(Error::Refused(status)) if status.code() == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns why the machine that a BMC lists is another one than the machine `id`, which is empty if it has no record; none if it is
    /// not known to be.
    pub(crate) async fn other_machine(
        &self,
        id: &str,
        listed: &ListedMachine,
    ) -> Result<Option<String>, Error> {
        let ListedMachine { uuid, macs } = listed.clone();
        let request = hw::CheckBmcIdentityRequest { hardware_id: id.to_owned(), uuid, macs };
        match response(self.client.clone().check_bmc_identity(request)).await {
            Ok(answer) => Ok(Some(answer.other_machine).filter(|reason| !reason.is_empty())),
            Err(Error::Refused(status)) if status.code() == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True if the machine `id` has one of `macs`, by its record or by its own report.
    pub(crate) async fn has_mac(&self, id: &str, macs: &[String]) -> Result<bool, Error> {
        let Some(machine) = self.find(By::Id(id.to_owned())).await? else { return Ok(false) };
        let recorded = machine.interfaces.iter().map(|interface| &interface.mac);
        let reported = machine.inventory.iter().flat_map(|own| &own.interfaces);
        let mut own = recorded.chain(reported.map(|interface| &interface.mac));
        Ok(own.any(|mac| macs.contains(mac)))
    }

    /// Creates a machine.
    pub async fn create(&self, machine: hw::Hardware) -> Result<hw::Hardware, Error> {
        let request =
            hw::CreateHardwareRequest { hardware: Some(machine), request_id: String::new() };
        let created = response(self.client.clone().create_hardware(request)).await?;
        Ok(created.hardware.unwrap_or_default())
    }

    /// Stores what the BMC of the machine `id` lists of it.
    pub async fn record(&self, id: &str, inventory: hw::BmcInventory) -> Result<(), Error> {
        let (hardware_id, inventory) = (id.to_owned(), Some(inventory));
        let request = hw::RecordBmcInventoryRequest { hardware_id, inventory };
        response(self.client.clone().record_bmc_inventory(request)).await.map(drop)
    }
}

/// Waits for the response.
async fn response<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Error> {
    runtime::response(call).await.map_err(|status| match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::AlreadyExists | Code::FailedPrecondition => {
            Error::Refused(Box::new(status))
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => Error::Unavailable(Box::new(status)),
    })
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(status) => *status,
            Error::Unavailable(_) => Self::unavailable(error.to_string()),
        }
    }
}

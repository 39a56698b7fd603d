//! The instances that occupy machines: a workflow on an occupied machine must name its occupant.

use runtime::Channel;
use tinwright::hardware::v1::{DiskHint, Hardware};
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::instance::v1::{
    GetInstanceRequest, Instance, ListInstancesRequest, State, get_instance_request::By,
};
use tinwright::status;
use tinwright::workflow::v1::CreateWorkflowRequest;
use tonic::Status;

/// The number of instances that are read at once.
const PAGE_SIZE: i32 = 100;

/// A client of the instance service.
#[derive(Clone, Debug)]
pub struct Occupancy {
    instance: InstanceServiceClient<Channel>,
}

impl Occupancy {
    /// A client for the channel `instance`.
    pub fn new(instance: Channel) -> Self {
        Self { instance: InstanceServiceClient::new(instance) }
    }

    /// Returns the occupant of `machine`, if there is one, and it allows the workflow of `request`.
    pub async fn check(
        &self,
        machine: &Hardware,
        request: &CreateWorkflowRequest,
    ) -> Result<Option<Instance>, Status> {
        let occupant = self.occupant(&machine.id).await?;
        check(machine, occupant.as_ref(), request)?;
        Ok(occupant)
    }

    /// Returns the host names of the instances that refer to the template `id`; the ids of those without one.
    pub async fn users_of(&self, id: &str) -> Result<Vec<String>, Status> {
        let (mut users, mut page_token) = (Vec::new(), String::new());
        loop {
            let page_size = PAGE_SIZE;
            let request =
                ListInstancesRequest { page_size, page_token, ..ListInstancesRequest::default() };
            let page = self.instance.clone().list_instances(request).await?.into_inner();
            let uses = |it: &Instance| it.template_id == id || it.deprovision_template_id == id;
            let name = |it: Instance| if it.hostname.is_empty() { it.id } else { it.hostname };
            users.extend(page.instances.into_iter().filter(uses).map(name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(users);
            }
        }
    }

    /// Returns the instance that occupies the machine `id`, if there is one.
    async fn occupant(&self, id: &str) -> Result<Option<Instance>, Status> {
        let by = Some(By::HardwareId(id.to_owned()));
        let request = GetInstanceRequest { by, ..GetInstanceRequest::default() };
        let mut instance = self.instance.clone();
        let found = runtime::find(instance.get_instance(request)).await.map_err(|status| {
            let message = status.message();
            Status::unavailable(format!("the instance service did not answer: {message}"))
        });
        Ok(found?.and_then(|found| found.instance))
    }
}

/// Returns the root disk hint of `occupant`. Once it is being deleted its hint no longer counts: a tenant must not choose the disk
/// that a clean-up erases.
pub fn root_disk(occupant: &Instance) -> Option<Box<DiskHint>> {
    match occupant.state() {
        State::Unspecified
        | State::Queued
        | State::Provisioning
        | State::Reinstalling
        | State::Active
        | State::Failed => occupant.root_disk.clone(),
        State::Deprovisioning | State::DeprovisionFailed | State::Deleted => None,
    }
}

/// Passes if `occupant` of `machine` allows the workflow of `request`: the instances that the request names are the
/// occupant, and at least one is named. A machine that was changed for a protected instance gets no workflow.
fn check(
    machine: &Hardware,
    occupant: Option<&Instance>,
    request: &CreateWorkflowRequest,
) -> Result<(), Status> {
    let refuse = |reason: &str, text: String| {
        let name = if machine.name.is_empty() { &machine.id } else { &machine.name };
        let subject = format!("hardware/{}", machine.id);
        Err(status::failed_precondition(reason, &subject, format!("{name} {text}")))
    };
    let named = [&request.instance_id, &request.occupied_by];
    let mut named = named.into_iter().filter(|named| !named.is_empty());
    let by = occupant.map(|occupant| &occupant.id);
    if let Some(other) = named.clone().find(|named| Some(*named) != by) {
        return refuse("OCCUPANT", format!("is not occupied by instance {other}"));
    }
    match occupant {
        Some(Instance { id, .. }) if named.next().is_none() => refuse(
            "OCCUPIED",
            format!("is occupied by instance {id}: name it (--occupied-by {id})"),
        ),
        Some(Instance { id, protect: true, begin_time: Some(_), .. }) => {
            let text = format!("was changed for instance {id}, which is protected");
            refuse("PROTECTED", format!("{text}: remove its protection first"))
        }
        Some(_) | None => Ok(()),
    }
}

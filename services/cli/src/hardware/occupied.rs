//! Machines with their effective state: their own, or that of the instance that occupies them.
//!
//! | the machine itself is | and its instance is | effective state |
//! |---|---|---|
//! | enrolled or provisionable | queued, provisioning or failed | provisioning |
//! | | active | in-use |
//! | | deprovisioning or deprovision-failed | deprovisioning |
//! | failed, in maintenance or being deleted | anything | the machine's own state |
//!
//! If the instance service does not answer, machines are shown with their own states.

use std::collections::HashMap;
use std::time::SystemTime;

use tinwright::hardware::v1 as pb;
use tinwright::instance::v1::get_instance_request::By;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::instance::v1::{GetInstanceRequest, Instance, State};
use tonic::Code;
use tonic::transport::Channel;

use crate::connect::{LARGEST, View};
use crate::failure;
use crate::instance::state_word;
use crate::noun::{Noun as _, Plain, Wanted};
use crate::output::{self, Format, Row};

/// A machine and its effective state.
struct Seen {
    machine: pb::Hardware,
    state: String,
}

impl Row for Seen {
    const COLUMNS: &'static [&'static str] = pb::Hardware::COLUMNS;

    fn row(&self, now: SystemTime) -> Vec<String> {
        super::row(&self.machine, self.state.clone(), now)
    }
}

/// Returns `machines` as a table.
pub(super) async fn table(channel: &Channel, machines: Vec<pb::Hardware>) -> String {
    let occupants = told(occupants(channel).await).unwrap_or_default();
    let seen = machines.into_iter().map(|machine| {
        let state = state(&machine, occupants.get(&machine.id));
        Seen { machine, state }
    });
    output::table(&seen.collect::<Vec<_>>())
}

/// Returns the whole record of `machine`, below a line about its instance if it has one.
pub(super) async fn one(channel: &Channel, machine: &pb::Hardware) -> anyhow::Result<String> {
    let whole = output::one(machine, Format::Table)?;
    Ok(match told(occupant(channel, &machine.id).await).flatten() {
        Some(instance) => {
            let (state, its) = (state(machine, Some(&instance)), state_word(&instance));
            // A comment: what people get is still a file that says all of the machine.
            format!("# {state}: instance {} is {its}\n{whole}", instance.id)
        }
        None => whole,
    })
}

/// Returns the effective state of `machine` with this occupant.
fn state(machine: &pb::Hardware, occupant: Option<&Instance>) -> String {
    let added = match machine.state() {
        pb::State::Unspecified | pb::State::Enrolled | pb::State::Provisionable => {
            occupant.and_then(added)
        }
        // What keeps everybody off the machine is what people have to know first.
        pb::State::Failed | pb::State::Maintenance | pb::State::Deleting => None,
    };
    added.map_or_else(|| super::own_state(machine), str::to_owned)
}

/// Returns the state that the instance adds; nothing for a state unknown to this version.
fn added(occupant: &Instance) -> Option<&'static str> {
    match occupant.state() {
        State::Queued | State::Provisioning | State::Failed => Some("provisioning"),
        State::Active => Some("in-use"),
        State::Deprovisioning | State::DeprovisionFailed => Some("deprovisioning"),
        State::Unspecified | State::Deleted => None,
    }
}

/// Returns all instances that occupy a machine, by the machine's id.
async fn occupants(channel: &Channel) -> anyhow::Result<HashMap<String, Instance>> {
    let all = Wanted { labels: Default::default(), view: View::Basic, choice: Plain {} };
    let occupying = Instance::list(channel, all).await?.into_iter().filter(|it| !it.released);
    Ok(occupying.map(|instance| (instance.hardware_id.clone(), instance)).collect())
}

/// Returns the instance that occupies the machine `id`.
async fn occupant(channel: &Channel, id: &str) -> anyhow::Result<Option<Instance>> {
    let by = Some(By::HardwareId(id.to_owned()));
    let request = GetInstanceRequest { by, view: View::Basic.into() };
    let client = InstanceServiceClient::new(channel.clone());
    match client.max_decoding_message_size(LARGEST).get_instance(request).await {
        Ok(found) => Ok(found.into_inner().instance),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}

/// Returns the response of the instance service; prints a note on standard error if there is none.
fn told<T>(asked: anyhow::Result<T>) -> Option<T> {
    let left_out = |error: &anyhow::Error| {
        eprintln!("tinwright: without instances: {}", failure::line(error));
    };
    asked.inspect_err(left_out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(own: pb::State, instance: Option<i32>) -> String {
        let machine = pb::Hardware { state: own.into(), ..pb::Hardware::default() };
        let occupant = instance.map(|state| Instance { state, ..Instance::default() });
        state(&machine, occupant.as_ref())
    }

    #[test]
    fn an_instance_adds_its_state_to_a_machine_that_may_be_used() {
        let mut instances = [State::Queued, State::Failed, State::Active, State::DeprovisionFailed]
            .map(i32::from)
            .to_vec();
        instances.push(1000);
        let told: Vec<_> =
            instances.into_iter().map(|it| seen(pb::State::Provisionable, Some(it))).collect();
        let wanted = ["provisioning", "provisioning", "in-use", "deprovisioning", "provisionable"];
        assert_eq!(told, wanted);
        assert_eq!(seen(pb::State::Enrolled, Some(State::Active.into())), "in-use");
        assert_eq!(seen(pb::State::Provisionable, None), "provisionable");
    }

    #[test]
    fn what_keeps_everybody_off_a_machine_is_shown_before_its_instance() {
        let own = [pb::State::Failed, pb::State::Maintenance, pb::State::Deleting];
        let told = own.map(|own| seen(own, Some(State::Active.into())));
        assert_eq!(told, ["failed", "maintenance", "deleting"]);
    }
}

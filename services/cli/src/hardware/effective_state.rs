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

use runtime::Channel;
use tinwright::hardware::v1 as pb;
use tinwright::instance::v1::get_instance_request::By;
use tinwright::instance::v1::{Instance, State};

use crate::connect::View;
use crate::failure;
use crate::instance::get;
use crate::output::{self, Format, Table};
use crate::resource::{self, Query, Resource as _};

/// Returns `machines` as a table, with the columns of a `wide` one only there.
pub(super) async fn table(
    channel: &Channel,
    machines: &[pb::Hardware],
    now: SystemTime,
    wide: bool,
) -> Table {
    let occupants = or_print(occupants(channel).await).unwrap_or_default();
    let states = machines.iter().map(|machine| {
        let state = effective_state(machine, occupants.get(&machine.id));
        output::with_protection(state, machine.protect)
    });
    let table = Table::of(machines, now).with_cells("STATE", states);
    if !wide {
        return table;
    }
    let table = table.with_columns(&WIDE_COLUMNS, machines.iter().map(wide_cells));
    match machines.iter().any(|machine| !machine.location_id.is_empty()) {
        true => table.with_names(resource::all_names::<pb::Location>(channel).await),
        false => table,
    }
}

/// The columns that a wide table has in addition.
const WIDE_COLUMNS: [&str; 4] = ["ZONE", "MANUFACTURER", "ARCHITECTURE", "LOCATION"];

fn wide_cells(machine: &pb::Hardware) -> Vec<String> {
    let cells = [&machine.zone, &machine.manufacturer, &machine.architecture, &machine.location_id];
    cells.map(Clone::clone).into()
}

/// Returns the whole record of `machine`, below a line about its instance if it has one.
pub(super) async fn describe(channel: &Channel, machine: &pb::Hardware) -> anyhow::Result<String> {
    let record = output::one(machine, &Format::Yaml)?;
    let occupant = get(channel, By::HardwareId(machine.id.clone()), View::Basic);
    Ok(match or_print(occupant.await).flatten() {
        Some(instance) => {
            let (state, its) =
                (effective_state(machine, Some(&instance)), output::state(&instance));
            // A comment, so that the output is still a file for an update.
            format!("# {state}: instance {} is {its}\n{record}", instance.id)
        }
        None => record,
    })
}

/// Returns the effective state of `machine` with this occupant.
fn effective_state(machine: &pb::Hardware, occupant: Option<&Instance>) -> String {
    let added = match machine.state() {
        pb::State::Unspecified | pb::State::Enrolled | pb::State::Provisionable => {
            occupant.and_then(added_state)
        }
        // A state in which nobody may use the machine is more important than its instance.
        pb::State::Failed | pb::State::Maintenance | pb::State::Deleting => None,
    };
    added.map_or_else(|| output::state(machine), str::to_owned)
}

/// Returns the state that the instance adds; nothing for a state unknown to this version.
fn added_state(occupant: &Instance) -> Option<&'static str> {
    match occupant.state() {
        State::Queued | State::Provisioning | State::Reinstalling | State::Failed => {
            Some("provisioning")
        }
        State::Active => Some("in-use"),
        State::Deprovisioning | State::DeprovisionFailed => Some("deprovisioning"),
        State::Unspecified | State::Deleted => None,
    }
}

/// Returns all instances that occupy a machine, by the machine's id.
async fn occupants(channel: &Channel) -> anyhow::Result<HashMap<String, Instance>> {
    let all = Instance::all(channel, &Query::<Instance>::default()).await?;
    let occupants = all.into_iter().filter(|instance| !instance.released);
    Ok(occupants.map(|instance| (instance.hardware_id.clone(), instance)).collect())
}

/// Returns the response of the instance service; prints a note on standard error if there is none.
fn or_print<T>(response: anyhow::Result<T>) -> Option<T> {
    let print = |error: &anyhow::Error| {
        eprintln!("tinwright: without instances: {}", failure::line(error));
    };
    response.inspect_err(print).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective(own: pb::State, instance: Option<i32>) -> String {
        let machine = pb::Hardware { state: own.into(), ..pb::Hardware::default() };
        let occupant = instance.map(|state| Instance { state, ..Instance::default() });
        effective_state(&machine, occupant.as_ref())
    }

    #[test]
    fn an_instance_adds_its_state_to_a_machine_that_may_be_used() {
        let mut instances = [State::Queued, State::Failed, State::Active, State::DeprovisionFailed]
            .map(i32::from)
            .to_vec();
        instances.push(1000);
        let states: Vec<_> =
            instances.into_iter().map(|it| effective(pb::State::Provisionable, Some(it))).collect();
        let wanted = ["provisioning", "provisioning", "in-use", "deprovisioning", "provisionable"];
        assert_eq!(states, wanted);
        assert_eq!(effective(pb::State::Enrolled, Some(State::Active.into())), "in-use");
        assert_eq!(effective(pb::State::Provisionable, None), "provisionable");
    }

    #[test]
    fn a_machine_that_may_not_be_used_is_shown_with_its_own_state() {
        let own = [pb::State::Failed, pb::State::Maintenance, pb::State::Deleting];
        let states = own.map(|own| effective(own, Some(State::Active.into())));
        assert_eq!(states, ["failed", "maintenance", "deleting"]);
    }
}

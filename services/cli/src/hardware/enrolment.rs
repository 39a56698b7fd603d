//! `hardware accept`, `discover` and `forget`: machines that enrolled, and those that ask and have no record.

use anyhow::bail;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::unknown_machine::Reason;

use crate::connect::{Io, View};
use crate::output::{self, List, ListOutput, Row};
use crate::resource::{self, Resource as _, Targets, required};

/// Makes the enrolled machines with these names provisionable. All are found, and are enrolled, before the first is changed.
pub(super) async fn accept(
    Targets { names, output, .. }: Targets<pb::Hardware>,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let mut machines = Vec::new();
    for name in &names {
        let machine = pb::Hardware::find(io.channel, name, View::Basic).await?;
        check_enrolled(name, &machine)?;
        machines.push(machine);
    }
    let mut accepted = Vec::new();
    for pb::Hardware { id, revision, .. } in machines {
        let state = pb::State::Provisionable.into();
        // The revision: nobody has changed the machine since it was looked at.
        let request = pb::SetHardwareStateRequest { id, state, reason: String::new(), revision };
        accepted.push(required(io.call(request).await?.hardware)?);
    }
    resource::print(&accepted, output, io).await
}

/// Passes for an enrolled machine.
fn check_enrolled(name: &str, machine: &pb::Hardware) -> anyhow::Result<()> {
    if machine.state() != pb::State::Enrolled {
        bail!("{name} is {}: only enrolled machines are accepted", output::state(machine));
    }
    Ok(())
}

/// Prints the machines that asked for a boot and have no record.
pub(super) async fn discover(output: &ListOutput, io: &mut Io<'_>) -> anyhow::Result<()> {
    let machines = resource::list_all::<pb::UnknownMachine>(io.channel, |_| {}).await?;
    let empty = "no unknown machine has asked for a boot: machines are seen once a server boots their network (serve --netboot-interface)";
    let list = List::new(&machines, |machine| &machine.mac, empty);
    list.print_rows(output, io.out).await
}

/// Forgets the machines without a record with these MACs, until they ask again. Prints each.
pub(super) async fn forget(macs: &[String], io: &mut Io<'_>) -> anyhow::Result<()> {
    for mac in macs {
        let mac = output::referenced::<pb::UnknownMachine>(mac);
        io.call(pb::DeleteUnknownMachineRequest { mac: mac.to_owned(), revision: 0 }).await?;
        io.print(&format!("unknown machine {mac} forgotten"))?;
    }
    Ok(())
}

/// Returns why a machine has no record.
fn describe(machine: &pb::UnknownMachine) -> &str {
    match machine.reason() {
        _ if !machine.refusal.is_empty() => "refused",
        Reason::Unspecified => "",
        Reason::NoSubnet => "no subnet",
        Reason::Policy => "policy",
        Reason::PoolExhausted => "pool exhausted",
        Reason::TooMany => "too many",
        Reason::NoReport => "no report",
        Reason::Infiniband => "InfiniBand",
    }
}

impl Row for pb::UnknownMachine {
    const COLUMNS: &'static str = "MAC:mac,SUBNET:subnet,SERVER:server_address,RELAY:relay,CLASS,\
        ARCH:architectures,WHY,REQUESTS:requests,FIRST:first_seen_time,LAST:last_seen_time";

    fn cell(&self, column: &str) -> String {
        match column {
            "WHY" => describe(self).to_owned(),
            // The text of a client must not reach the terminal as control characters.
            _ => self.vendor_class.chars().filter(|letter| !letter.is_control()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_enrolled_machines_are_accepted() {
        let machine = |state: pb::State| pb::Hardware { state: state.into(), ..Default::default() };
        assert!(check_enrolled("n1", &machine(pb::State::Enrolled)).is_ok());
        let refused = check_enrolled("n1", &machine(pb::State::Maintenance)).unwrap_err();
        assert_eq!(refused.to_string(), "n1 is maintenance: only enrolled machines are accepted");
    }

    #[test]
    fn the_class_of_a_client_is_printed_without_control_characters() {
        let machine = pb::UnknownMachine {
            mac: "02:00:00:00:00:01".into(),
            vendor_class: "PXE\u{1b}[2JClient".into(),
            architectures: vec![0, 7],
            refusal: "another record has its UUID".into(),
            ..pb::UnknownMachine::default()
        };
        let row = machine.row(SystemTime::UNIX_EPOCH);
        assert_eq!(row.len(), pb::UnknownMachine::COLUMNS.split(',').count());
        assert_eq!(row[4..7], ["PXE[2JClient", "0,7", "refused"]);
    }
}

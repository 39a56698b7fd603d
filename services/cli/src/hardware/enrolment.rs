//! `hardware accept`, `discover` and `forget`: machines that enrolled, and those that ask and have no record.

use std::io::Write;
use std::time::SystemTime;

use anyhow::bail;
use runtime::Channel;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::unknown_machine::Reason;

use super::own_state;
use crate::connect::{View, call};
use crate::output::{self, List, ListOutput, Row};
use crate::resource::{self, PAGE_SIZE, Resource as _, required};

/// Makes the enrolled machines with these names provisionable. All are found, and are enrolled, before the first is changed.
pub(super) async fn accept(
    names: &[String],
    channel: &Channel,
) -> anyhow::Result<Vec<pb::Hardware>> {
    let mut machines = Vec::new();
    for name in names {
        let machine = pb::Hardware::find(channel, name, View::Basic).await?;
        check_enrolled(name, &machine)?;
        machines.push(machine);
    }
    let mut accepted = Vec::new();
    for pb::Hardware { id, revision, .. } in machines {
        let state = pb::State::Provisionable.into();
        // The revision: nobody has changed the machine since it was looked at.
        let request = pb::SetHardwareStateRequest { id, state, reason: String::new(), revision };
        let response = call(channel, request).await?;
        accepted.push(required(response.hardware)?);
    }
    Ok(accepted)
}

/// Passes for an enrolled machine.
fn check_enrolled(name: &str, machine: &pb::Hardware) -> anyhow::Result<()> {
    if machine.state() != pb::State::Enrolled {
        bail!("{name} is {}: only enrolled machines are accepted", own_state(machine));
    }
    Ok(())
}

/// Returns the machines that asked for a boot and have no record.
pub(super) async fn discover(channel: &Channel) -> anyhow::Result<Vec<pb::UnknownMachine>> {
    resource::pages(async |page_token| {
        let request = pb::ListUnknownMachinesRequest { page_size: PAGE_SIZE, page_token };
        let page = call(channel, request).await?;
        Ok((page.unknown_machines, page.next_page_token))
    })
    .await
}

/// Prints machines without a record.
pub(super) async fn print(
    machines: &[pb::UnknownMachine],
    output: &ListOutput,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let empty = "no unknown machine has asked for a boot: machines are seen once a server boots their network (serve --netboot-interface)";
    let list = List::new(machines, |machine| &machine.mac, empty);
    list.print_rows(output, out).await
}

/// Forgets the machines without a record with these MACs, until they ask again. Prints each.
pub(super) async fn forget(
    macs: &[String],
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    for mac in macs {
        let mac = output::referenced::<pb::UnknownMachine>(mac);
        let request = pb::DeleteUnknownMachineRequest { mac: mac.to_owned(), revision: 0 };
        call(channel, request).await?;
        writeln!(out, "unknown machine {mac} forgotten")?;
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
    }
}

impl Row for pb::UnknownMachine {
    const COLUMNS: &'static [&'static str] =
        &["MAC", "SUBNET", "SERVER", "RELAY", "CLASS", "ARCH", "WHY", "REQUESTS", "FIRST", "LAST"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let architectures: Vec<_> = self.architectures.iter().map(u32::to_string).collect();
        // The text of a client must not reach the terminal as control characters.
        let class = self.vendor_class.chars().filter(|letter| !letter.is_control()).collect();
        vec![
            self.mac.clone(),
            self.subnet.clone(),
            self.server_address.clone(),
            self.relay.clone(),
            class,
            architectures.join(","),
            describe(self).to_owned(),
            self.requests.to_string(),
            output::age(self.first_seen_time, now),
            output::age(self.last_seen_time, now),
        ]
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(row.len(), pb::UnknownMachine::COLUMNS.len());
        assert_eq!(row[4..7], ["PXE[2JClient", "0,7", "refused"]);
    }
}

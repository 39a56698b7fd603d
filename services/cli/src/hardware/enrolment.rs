//! `hardware accept` and `hardware discover`: machines that enrolled, and those that ask and have no record.

use std::time::SystemTime;

use anyhow::bail;
use tinwright::hardware::v1 as hw;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::lease_service_client::LeaseServiceClient;
use tonic::transport::Channel;

use super::{client, own_state};
use crate::connect::View;
use crate::output::{self, Row};
use crate::resource::{PAGE_SIZE, Resource as _, required};

/// Makes the enrolled machines with these names provisionable. All are found, and are enrolled, before the first is changed.
pub(super) async fn accept(
    names: &[String],
    channel: &Channel,
) -> anyhow::Result<Vec<hw::Hardware>> {
    let mut machines = Vec::new();
    for name in names {
        let machine = hw::Hardware::find(channel, name, View::Basic).await?;
        check_enrolled(name, &machine)?;
        machines.push(machine);
    }
    let mut accepted = Vec::new();
    for hw::Hardware { id, revision, .. } in machines {
        let state = hw::State::Provisionable.into();
        // The revision: nobody has changed the machine since it was looked at.
        let request = hw::SetHardwareStateRequest { id, state, reason: String::new(), revision };
        let response = client(channel).set_hardware_state(request).await?.into_inner();
        accepted.push(required(response.hardware)?);
    }
    Ok(accepted)
}

/// Passes for an enrolled machine.
fn check_enrolled(name: &str, machine: &hw::Hardware) -> anyhow::Result<()> {
    if machine.state() != hw::State::Enrolled {
        bail!("{name} is {}: only enrolled machines are accepted", own_state(machine));
    }
    Ok(())
}

/// Returns the machines that asked for an address and have no record.
pub(super) async fn discover(channel: &Channel) -> anyhow::Result<Vec<pb::UnknownMachine>> {
    let (mut leases, mut page_token) = (LeaseServiceClient::new(channel.clone()), String::new());
    let mut machines = Vec::new();
    loop {
        let request = pb::ListUnknownMachinesRequest { page_size: PAGE_SIZE, page_token };
        let page = leases.list_unknown_machines(request).await?.into_inner();
        machines.extend(page.unknown_machines);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(machines);
        }
    }
}

impl Row for pb::UnknownMachine {
    const COLUMNS: &'static [&'static str] =
        &["MAC", "SUBNET", "SERVER", "RELAY", "CLASS", "ARCH", "REQUESTS", "FIRST", "LAST"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let architectures: Vec<_> = self.architectures.iter().map(u32::to_string).collect();
        // What a client sends must not reach the terminal as control characters.
        let class = self.vendor_class.chars().filter(|letter| !letter.is_control()).collect();
        vec![
            self.mac.clone(),
            self.subnet.clone(),
            self.server_address.clone(),
            self.relay.clone(),
            class,
            architectures.join(","),
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
        let machine = |state: hw::State| hw::Hardware { state: state.into(), ..Default::default() };
        assert!(check_enrolled("n1", &machine(hw::State::Enrolled)).is_ok());
        let refused = check_enrolled("n1", &machine(hw::State::Maintenance)).unwrap_err();
        assert_eq!(refused.to_string(), "n1 is maintenance: only enrolled machines are accepted");
    }

    #[test]
    fn the_class_of_a_client_is_printed_without_control_characters() {
        let machine = pb::UnknownMachine {
            mac: "02:00:00:00:00:01".into(),
            vendor_class: "PXE\u{1b}[2JClient".into(),
            architectures: vec![0, 7],
            ..pb::UnknownMachine::default()
        };
        let row = machine.row(SystemTime::UNIX_EPOCH);
        assert_eq!(row.len(), pb::UnknownMachine::COLUMNS.len());
        assert_eq!((row[4].as_str(), row[5].as_str()), ("PXE[2JClient", "0,7"));
    }
}

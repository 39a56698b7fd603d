//! Commands on leases of pool addresses.

use std::net::Ipv4Addr;

use anyhow::bail;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::get_lease_request::By;
use tinwright::netboot::v1::lease::State;
use tonic::Status;

use crate::connect::{Io, call};
use crate::failure;
use crate::output::{self, List, ListOutput, Row, Table};
use crate::resource::{list_all, machine_names, required};

/// Commands on leases.
#[derive(Debug, clap::Subcommand)]
pub enum LeaseCommand {
    /// List leases, ended ones too while their clients are preferred, and addresses that are withheld
    List {
        /// List only leases in this state
        #[arg(long)]
        state: Option<ListedState>,
        /// The output
        #[command(flatten)]
        output: ListOutput,
    },
    /// Delete leases: their addresses are free at once, also if their clients still use them
    Delete {
        /// The leases
        #[arg(value_name = "ADDRESS|MAC", required = true)]
        names: Vec<String>,
        /// Delete leases that have not ended, and addresses that are withheld
        #[arg(long)]
        force: bool,
    },
}

/// States of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ListedState {
    /// Its client has the address
    Bound = State::Bound as isize,
    /// Its client gave the address back
    Released = State::Released as isize,
    /// Its client found the address in use by another host
    Declined = State::Declined as isize,
    /// It was not renewed
    Expired = State::Expired as isize,
    /// Another object has the address
    Withheld = State::Withheld as isize,
}

/// Runs `command`.
pub async fn run(command: LeaseCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    let channel = io.channel;
    match command {
        LeaseCommand::List { state, output } => {
            let mut leases = list_all::<pb::Lease>(channel, |_| {}).await.map_err(add_hint)?;
            leases.retain(|lease| state.is_none_or(|state| state as i32 == lease.state));
            let table = async |now| {
                let machines = leases.iter().map(|lease| lease.hardware_id.as_str());
                Table::of(&leases, now).with_names(machine_names(channel, machines).await)
            };
            let empty = match state {
                Some(_) => "no lease matches",
                None => {
                    "no lease: machines get them from the ranges of [[subnets]] in the settings of the server"
                }
            };
            List::new(&leases, |lease| &lease.address, empty).print(&output, table, io.out).await
        }
        LeaseCommand::Delete { names, force } => {
            // All are found before the first is deleted.
            let mut leases = Vec::new();
            for name in &names {
                let by = Some(by(output::referenced::<pb::Lease>(name)));
                let found = call(channel, pb::GetLeaseRequest { by }).await.map_err(add_hint)?;
                let lease = required(found.lease)?;
                check_ended(&lease, force)?;
                leases.push(lease);
            }
            for pb::Lease { address, revision, .. } in leases {
                let line = format!("lease of {address} deleted");
                call(channel, pb::DeleteLeaseRequest { address, revision }).await?;
                io.print(&line)?;
            }
            Ok(())
        }
    }
}

/// Replaces the status of a server without netboot.
fn add_hint(status: Status) -> Status {
    failure::if_unimplemented(status, failure::WITHOUT_NETBOOT)
}

fn by(name: &str) -> By {
    match name.parse::<Ipv4Addr>() {
        Ok(address) => By::Address(address.to_string()),
        Err(_) => By::Mac(name.to_owned()),
    }
}

/// Passes for a lease that has ended, or with `force`.
fn check_ended(lease: &pb::Lease, force: bool) -> anyhow::Result<()> {
    let lasts = matches!(lease.state(), State::Bound | State::Declined | State::Withheld);
    if !lasts || force {
        return Ok(());
    }
    let (address, state) = (&lease.address, lease.state().word());
    bail!("{address} is {state}, for {}: delete it with --force", holder(lease))
}

/// Returns the client, or the object for which the address is withheld.
fn holder(lease: &pb::Lease) -> &str {
    if lease.withheld_for.is_empty() { &lease.mac } else { &lease.withheld_for }
}

impl Row for pb::Lease {
    const COLUMNS: &'static str = "ADDRESS:address,STATE:state,HOLDER,MACHINE:hardware_id,\
        ENDS:expire_time";

    fn cell(&self, _: &str) -> String {
        holder(self).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_has_not_ended_is_deleted_with_force_only() {
        for (state, ended) in [
            (State::Bound, false),
            (State::Withheld, false),
            (State::Declined, false),
            (State::Released, true),
            (State::Expired, true),
        ] {
            let address = "192.0.2.7".into();
            let lease = pb::Lease { state: state.into(), address, ..pb::Lease::default() };
            assert_eq!(check_ended(&lease, false).is_ok(), ended, "{state:?}");
            assert!(check_ended(&lease, true).is_ok());
        }
    }

    #[test]
    fn a_lease_is_named_by_its_address_or_its_client() {
        assert_eq!(by("192.0.2.7"), By::Address("192.0.2.7".into()));
        assert_eq!(by("52-54-00-00-00-01"), By::Mac("52-54-00-00-00-01".into()));
    }
}

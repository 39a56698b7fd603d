//! The inputs of a boot decision, as messages of the contract.

use std::time::Duration;

use dhcp::Mode;
use fleet::{FleetWorkflow, Freshness};
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::custom_script::Source;
use tinwright::netboot::v1::decision_inputs::{DhcpMode, Gate, LeaseState, UnknownClients};

use super::Simulation;
use crate::Mac;
use crate::allocation::Applicant;
use crate::decision::{MachineFacts, NoInstance, ScriptSource};
use crate::dhcp_server::View;
use crate::machine_view::{MachineView, PRIVATE_FILES};
use crate::pool::{State, Subnet, Unknown};

/// Returns the inputs of a simulated request.
pub(super) fn of(simulation: &Simulation<'_>) -> pb::DecisionInputs {
    let View { scripts, link, .. } = simulation.view;
    let (index, policy) = (&scripts.index, scripts.site.policy);
    let mut inputs = pb::DecisionInputs {
        feeds_live: index.feed() == Freshness::Live,
        cut_feeds: index.disconnected_feeds().into_iter().map(str::to_owned).collect(),
        mac: simulation.record_mac().map_or_else(String::new, |mac| mac.to_string()),
        policy_no_instance: match policy.no_instance {
            NoInstance::Worker => pb::BootTarget::Worker.into(),
            NoInstance::LocalDisk => pb::BootTarget::LocalDisk.into(),
            NoInstance::Shell => pb::BootTarget::Shell.into(),
        },
        policy_boot_unknown: policy.boot_unknown,
        dhcp_mode: mode(link.mode).into(),
        by_port: simulation.by_port,
        ..pb::DecisionInputs::default()
    };
    add_link(simulation, &mut inputs);
    let _has_lease = add_pool(simulation, &mut inputs);
    if let Some(subnet) = simulation.named_subnet().filter(|_| inputs.pool.is_empty()) {
        add_subnet(subnet, &mut inputs);
    }
    match &simulation.machine {
        Some(machine) => add_machine(machine, inputs),
        None => inputs,
    }
}

/// Adds the records of the machine.
fn add_machine(machine: &MachineView, inputs: pb::DecisionInputs) -> pb::DecisionInputs {
    let instance = machine.instance.as_deref();
    let gate = instance.and_then(|instance| instance.boot_gate.as_ref());
    let MachineFacts { netboot, boot_once, instance: occupant, .. } = &machine.facts;
    let waits = |workflow: &&FleetWorkflow| workflow.wants_machine || workflow.is_unprepared;
    let waiting = machine.workflows.iter().filter(waits);
    let script = occupant.as_ref().and_then(|occupant| {
        let of_platform = occupant.platform.as_ref().and_then(|platform| platform.script.as_ref());
        occupant.custom.as_ref().or(of_platform)
    });
    pb::DecisionInputs {
        allow_pxe: netboot.allow_pxe,
        allow_workflow: netboot.allow_workflow,
        interface_script: source(netboot.custom.as_ref()),
        boot_once: source(boot_once.as_ref()),
        instance_script: source(script),
        instance_has_os: occupant.as_ref().is_some_and(|occupant| occupant.has_os),
        hardware_id: machine.hardware.id.clone(),
        hardware_name: machine.hardware.name.clone(),
        hardware_state: machine.hardware.state,
        address: machine.address.map_or_else(String::new, |address| address.to_string()),
        instance_id: instance.map_or_else(String::new, |instance| instance.id.clone()),
        instance_state: instance.map_or(0, |instance| instance.state),
        waiting_workflow_ids: waiting.map(|workflow| workflow.id.clone()).collect(),
        gate: match gate.map(|gate| gate.open) {
            None => Gate::Unspecified.into(),
            Some(true) => Gate::Open.into(),
            Some(false) => Gate::Closed.into(),
        },
        ..inputs
    }
}

/// Adds the state of the interface on its link, and the machine's boot history.
fn add_link(simulation: &Simulation<'_>, inputs: &mut pb::DecisionInputs) {
    let Simulation { view, now, ref machine, ref request, .. } = *simulation;
    let View { scripts, link_state, .. } = view;
    let ago = |age: Duration| now.wall.checked_sub(age).map(Into::into);
    let interface = request.as_ref().map(|request| Mac(request.mac));
    let loader = interface.and_then(|mac| link_state.loader_age(mac, now.monotonic));
    let machine = machine.as_deref();
    inputs.chain_ipxe = link_state.grants.is_some();
    inputs.loader_time = loader.and_then(ago);
    let record = machine.map(|machine| &machine.reservation);
    inputs.declined_time = link_state.declined_age(record, now.monotonic).and_then(ago);
    inputs.boot_once_started = machine.is_some_and(|machine| scripts.history.is_used(machine));
    inputs.boot_loop = machine.is_some_and(|machine| scripts.is_boot_loop(machine, now.wall));
}

/// Adds the relay, and the client's pool and lease. None if the client has no lease.
fn add_pool(simulation: &Simulation<'_>, inputs: &mut pb::DecisionInputs) -> Option<()> {
    let applicant = simulation.applicant()?;
    let Applicant { request, link, .. } = applicant;
    inputs.relay = request.relay().map_or_else(String::new, |relay| relay.to_string());
    inputs.relay_trusted = request.relayed(link).relay.is_some();
    let allocator = simulation.view.scripts.allocator.as_deref()?;
    let (subnet, lease) = allocator.pool(applicant, simulation.now.wall)?;
    add_subnet(subnet, inputs);
    let (address, lease) = lease?;
    inputs.lease_address = address.to_string();
    inputs.lease_state = lease_state(lease.state).into();
    inputs.lease_expire_time = Some(lease.ends.into());
    Some(())
}

/// Adds the subnet of the client.
fn add_subnet(subnet: &Subnet, inputs: &mut pb::DecisionInputs) {
    inputs.pool = subnet.network.to_string();
    inputs.pool_unknown = unknown(subnet.unknown).into();
}

/// Returns the source of a script. Its text is left out: it may hold secrets.
fn source(script: Option<&ScriptSource>) -> Option<pb::CustomScript> {
    let source = match script? {
        ScriptSource::Url(url) => Source::Url(url.clone()),
        ScriptSource::PrivateFile(path) => Source::Url([PRIVATE_FILES, path].concat()),
        ScriptSource::Contents(_) => Source::Contents(true),
    };
    Some(pb::CustomScript { source: Some(source) })
}

fn mode(mode: Mode) -> DhcpMode {
    match mode {
        Mode::Reservation => DhcpMode::Reservation,
        Mode::Proxy => DhcpMode::Proxy,
        Mode::AutoProxy => DhcpMode::AutoProxy,
        Mode::Disabled => DhcpMode::Disabled,
    }
}

pub(super) fn unknown(unknown: Unknown) -> UnknownClients {
    match unknown {
        Unknown::Ignore => UnknownClients::Ignore,
        Unknown::Report => UnknownClients::Report,
        Unknown::Enrol => UnknownClients::Enrol,
        Unknown::Generic => UnknownClients::Generic,
    }
}

fn lease_state(state: State) -> LeaseState {
    match state {
        State::Offered => LeaseState::Offered,
        State::Bound => LeaseState::Bound,
        State::Released => LeaseState::Released,
        State::Expired => LeaseState::Expired,
        State::Declined => LeaseState::Declined,
        State::Withheld => LeaseState::Withheld,
    }
}

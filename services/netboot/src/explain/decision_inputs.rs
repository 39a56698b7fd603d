//! The inputs of a boot decision, for people.

use std::time::Duration;

use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::custom_script::Source;
use tinwright::netboot::v1::decision_inputs::{DhcpMode, Gate, LeaseState, UnknownClients};

use super::case::Case;
use crate::Mac;
use crate::decision::{FeedState, MachineFacts, NoInstance, ScriptSource};
use crate::machine_view::MachineView;
use crate::pool::{Lease, Unknown};
use dhcp::Mode;

/// Returns the inputs of `case`.
pub(super) fn of(case: &Case<'_>) -> pb::DecisionInputs {
    let (index, policy) = (case.boots.index(), case.boots.site().policy);
    let mac = case.known.as_ref().map(|known| known.mac).or(case.mac);
    let site = pb::DecisionInputs {
        feeds_live: index.feed() == FeedState::Live,
        cut_feeds: index.cut().into_iter().map(str::to_owned).collect(),
        mac: mac.map_or_else(String::new, |mac| mac.to_string()),
        policy_no_instance: match policy.no_instance {
            NoInstance::Worker => pb::BootTarget::Worker.into(),
            NoInstance::LocalDisk => pb::BootTarget::LocalDisk.into(),
            NoInstance::Shell => pb::BootTarget::Shell.into(),
        },
        policy_boot_unknown: policy.boot_unknown,
        dhcp_mode: mode(case.link.mode).into(),
        by_port: case.by_port,
        ..heard(case, way(case))
    };
    let Some(known) = &case.known else { return site };
    let instance = known.instance.as_deref();
    let gate = instance.and_then(|instance| instance.boot_gate.as_ref());
    let site = pb::DecisionInputs {
        hardware_id: known.hardware.id.clone(),
        hardware_name: known.hardware.name.clone(),
        hardware_state: known.hardware.state,
        address: known.address().map_or_else(String::new, |address| address.to_string()),
        instance_id: instance.map_or_else(String::new, |instance| instance.id.clone()),
        instance_state: instance.map_or(0, |instance| instance.state),
        waiting_workflow_ids: waiting_workflows(known),
        gate: match gate.map(|gate| gate.open) {
            None => Gate::Unspecified.into(),
            Some(true) => Gate::Open.into(),
            Some(false) => Gate::Closed.into(),
        },
        ..site
    };
    decided_by(known.machine(), site)
}

/// Returns the ids of the workflows that have something to run on the machine.
fn waiting_workflows(known: &MachineView) -> Vec<String> {
    let waiting = known.workflows.iter().filter(|workflow| workflow.wants_machine);
    waiting.map(|workflow| workflow.id.clone()).collect()
}

/// What was heard of the interface, and of the machine, beside what is `known`.
fn heard(case: &Case<'_>, known: pb::DecisionInputs) -> pb::DecisionInputs {
    let at = |ago: Duration| case.now.checked_sub(ago).map(Into::into);
    let interface = case.request.as_ref().map(|request| Mac(request.mac));
    let loader = interface.and_then(|mac| case.link_state.loader_age(mac, case.instant));
    let withheld = case.withheld();
    let machine = case.known.as_ref();
    pb::DecisionInputs {
        chain_ipxe: case.link_state.chainloads(),
        loader_time: loader.and_then(at),
        declined_time: withheld.and_then(at),
        boot_once_started: machine.is_some_and(|known| case.boots.one_shot.is_used(known)),
        boot_loop: machine.is_some_and(|machine| case.boots.is_boot_loop(machine, case.now)),
        ..known
    }
}

/// The relay that the request comes through, and what is lent there.
fn way(case: &Case<'_>) -> pb::DecisionInputs {
    let Some(asked) = case.asked() else { return pb::DecisionInputs::default() };
    let relay = asked.request.relay();
    let way = pb::DecisionInputs {
        relay: relay.map_or_else(String::new, |relay| relay.to_string()),
        relay_trusted: asked.request.relayed(asked.link).relay.is_some(),
        ..pb::DecisionInputs::default()
    };
    let Some((subnet, had)) =
        case.boots.lending().and_then(|lending| lending.pool(asked, case.now))
    else {
        return way;
    };
    let way = pb::DecisionInputs {
        pool: subnet.network.to_string(),
        pool_unknown: unknown(subnet.unknown).into(),
        ..way
    };
    let Some((address, lease)) = had else { return way };
    pb::DecisionInputs {
        lease_address: address.to_string(),
        lease_state: state(lease).into(),
        lease_expire_time: Some(lease.ends().into()),
        ..way
    }
}

/// The facts as the decision has them.
fn decided_by(machine: &MachineFacts, site: pb::DecisionInputs) -> pb::DecisionInputs {
    let MachineFacts { state: _, netboot, boot_once, instance, worker_wanted: _ } = machine;
    pb::DecisionInputs {
        allow_pxe: netboot.allow_pxe,
        allow_workflow: netboot.allow_workflow,
        interface_script: source(netboot.custom.as_ref()),
        boot_once: source(boot_once.as_ref()),
        instance_script: source(instance.as_ref().and_then(|instance| instance.custom.as_ref())),
        instance_has_os: instance.as_ref().is_some_and(|instance| instance.has_os),
        ..site
    }
}

/// Returns the source of a script. Its text is left out: it may hold secrets.
fn source(script: Option<&ScriptSource>) -> Option<pb::CustomScript> {
    let source = match script? {
        ScriptSource::Url(url) => Source::Url(url.clone()),
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

fn unknown(unknown: Unknown) -> UnknownClients {
    match unknown {
        Unknown::Ignore => UnknownClients::Ignore,
        Unknown::Report => UnknownClients::Report,
        Unknown::Enrol => UnknownClients::Enrol,
        Unknown::Generic => UnknownClients::Generic,
    }
}

fn state(lease: Lease) -> LeaseState {
    match lease {
        Lease::Offered { .. } => LeaseState::Offered,
        Lease::Bound { .. } => LeaseState::Bound,
        Lease::Released { .. } => LeaseState::Released,
        Lease::Expired { .. } => LeaseState::Expired,
        Lease::Declined { .. } => LeaseState::Declined,
    }
}

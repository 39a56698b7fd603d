//! The facts that answers are made from, for people.

use std::time::Duration;

use tinwright::netboot::v1 as pb;

use super::case::Case;
use crate::Mac;
use crate::decision::{FeedState, MachineFacts, NoInstance, ScriptSource};
use crate::machine_view::MachineView;
use crate::pool::{Lease, Unknown};
use dhcp::Mode;

/// All that was looked at in `case`.
pub(super) fn of(case: &Case<'_>) -> pb::LookedAt {
    let (index, policy) = (case.boots.index(), case.boots.site().policy);
    let mac = case.known.as_ref().map(|known| known.mac).or(case.mac);
    let site = pb::LookedAt {
        feeds_live: index.feed() == FeedState::Live,
        cut_feeds: index.cut().into_iter().map(str::to_owned).collect(),
        mac: mac.map_or_else(String::new, |mac| mac.to_string()),
        policy_no_instance: match policy.no_instance {
            NoInstance::Worker => "worker".into(),
            NoInstance::LocalDisk => "local_disk".into(),
            NoInstance::Shell => "shell".into(),
        },
        policy_boot_unknown: policy.boot_unknown,
        dhcp_mode: mode(case.link.mode).into(),
        by_port: case.by_port,
        ..heard(case, way(case))
    };
    let Some(known) = &case.known else { return site };
    let instance = known.instance.as_deref();
    let gate = instance.and_then(|instance| instance.boot_gate.as_ref());
    let site = pb::LookedAt {
        hardware_id: known.hardware.id.clone(),
        hardware_name: known.hardware.name.clone(),
        address: known.address().map_or_else(String::new, |address| address.to_string()),
        instance_id: instance.map_or_else(String::new, |instance| instance.id.clone()),
        instance_state: instance.map_or_else(String::new, |instance| instance.state().word()),
        waiting_workflow_ids: waiting_workflows(known),
        gate: gate.map_or("", |gate| if gate.open { "open" } else { "closed" }).into(),
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
fn heard(case: &Case<'_>, known: pb::LookedAt) -> pb::LookedAt {
    let at = |ago: Duration| case.now.checked_sub(ago).map(Into::into);
    let interface = case.request.as_ref().map(|request| Mac(request.mac));
    let loader = interface.and_then(|mac| case.link_state.loader_age(mac, case.instant));
    let withheld = case.withheld();
    let machine = case.known.as_ref();
    pb::LookedAt {
        chain_ipxe: case.link_state.chainloads(),
        loader_time: loader.and_then(at),
        declined_time: withheld.and_then(at),
        boot_once_started: machine.is_some_and(|known| case.boots.one_shot.is_used(known)),
        boot_loop: machine.is_some_and(|machine| case.boots.is_boot_loop(machine, case.now)),
        ..known
    }
}

/// The relay that the request comes through, and what is lent there.
fn way(case: &Case<'_>) -> pb::LookedAt {
    let Some(asked) = case.asked() else { return pb::LookedAt::default() };
    let relay = asked.request.relay();
    let way = pb::LookedAt {
        relay: relay.map_or_else(String::new, |relay| relay.to_string()),
        relay_believed: asked.request.relayed(asked.link).relay.is_some(),
        ..pb::LookedAt::default()
    };
    let Some((subnet, had)) =
        case.boots.lending().and_then(|lending| lending.pool(asked, case.now))
    else {
        return way;
    };
    let way = pb::LookedAt {
        pool: subnet.network.to_string(),
        pool_unknown: unknown(subnet.unknown).into(),
        ..way
    };
    let Some((address, lease)) = had else { return way };
    pb::LookedAt {
        lease_address: address.to_string(),
        lease_state: state(lease).into(),
        lease_expire_time: Some(lease.ends().into()),
        ..way
    }
}

/// The facts as the decision has them.
fn decided_by(machine: &MachineFacts, site: pb::LookedAt) -> pb::LookedAt {
    let MachineFacts { state, netboot, boot_once, instance, worker_wanted: _ } = machine;
    pb::LookedAt {
        hardware_state: state.to_string(),
        allow_pxe: netboot.allow_pxe,
        allow_workflow: netboot.allow_workflow,
        interface_script: brought(netboot.custom.as_ref()),
        boot_once: brought(boot_once.as_ref()),
        instance_script: brought(instance.as_ref().and_then(|instance| instance.custom.as_ref())),
        instance_has_os: instance.as_ref().is_some_and(|instance| instance.has_os),
        ..site
    }
}

/// Where a script comes from, and not what it says: it may hold secrets.
fn brought(script: Option<&ScriptSource>) -> String {
    match script {
        Some(ScriptSource::Url(url)) => url.clone(),
        Some(ScriptSource::Contents(_)) => "contents".into(),
        None => String::new(),
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Reservation => "reservation",
        Mode::Proxy => "proxy",
        Mode::AutoProxy => "auto_proxy",
        Mode::Disabled => "disabled",
    }
}

fn unknown(unknown: Unknown) -> &'static str {
    match unknown {
        Unknown::Ignore => "ignore",
        Unknown::Report => "report",
        Unknown::Enrol => "enrol",
        Unknown::Generic => "generic",
    }
}

fn state(lease: Lease) -> &'static str {
    match lease {
        Lease::Offered { .. } => "offered",
        Lease::Bound { .. } => "bound",
        Lease::Released { .. } => "released",
        Lease::Expired { .. } => "expired",
        Lease::Declined { .. } => "declined",
    }
}

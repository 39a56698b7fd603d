//! Text of an explanation: the result and its reason first, then the inputs.

use std::fmt::Write as _;

use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::custom_script::Source;
use tinwright::netboot::v1::decision_inputs::{LeaseState, UnknownClients};

use crate::output::{fields, word};

/// Renders `response`, with the reply of DHCP that the `firmware` gets before, if that is known and another one.
pub(super) fn explanation(
    response: &pb::ExplainBootResponse,
    firmware: Option<&pb::DhcpReply>,
) -> String {
    let inputs = response.inputs.clone().unwrap_or_default();
    let (boot, fact) = (target(response.boot()), &response.fact);
    let mut text = format!("{}: {boot}\nbecause {fact}\n", machine_names(&inputs));
    if !inputs.feeds_live {
        let cut = inputs.cut_feeds.join(", ");
        let _ = writeln!(text, "feed cut: {cut}; the inputs may be old, and no boot is opened");
    }
    let refusal = firmware.or(response.dhcp.as_ref()).map(|dhcp| dhcp.boot_refusal.as_str());
    // A refusal by the decision is the first line already.
    if let Some(reason) = refusal.filter(|reason| !reason.is_empty() && reason != fact) {
        let _ = writeln!(text, "but its request is refused a boot file: {reason}");
    }
    text.push('\n');
    let firmware = firmware.filter(|it| Some(*it) != response.dhcp.as_ref());
    text.push_str(&fields(&[
        ("firmware", firmware.map_or_else(String::new, dhcp)),
        ("DHCP", response.dhcp.as_ref().map_or_else(String::new, dhcp)),
        ("script", response.script.as_ref().map_or_else(String::new, script)),
        ("environment", environment(response)),
    ]));
    text.push_str("\ninputs\n");
    text.push_str(&fields(&[
        ("machine", machine(&inputs)),
        ("interface", interface(&inputs)),
        ("history", history(&inputs)),
        ("relay", relay(&inputs)),
        ("pool", pool(&inputs)),
        ("instance", instance(&inputs)),
        ("workflows", inputs.waiting_workflow_ids.join(" ")),
        ("gate", named(inputs.gate().as_str_name(), "GATE_")),
        ("policy", policy(&inputs)),
    ]));
    text
}

/// Returns the name of an enum's value, empty for the unspecified one.
fn named(value: &str, prefix: &str) -> String {
    if value.ends_with("_UNSPECIFIED") { String::new() } else { word(value, prefix) }
}

fn machine_names(inputs: &pb::DecisionInputs) -> String {
    let names = [&inputs.hardware_name, &inputs.hardware_id, &inputs.mac, &inputs.address];
    let names: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).cloned().collect();
    if names.is_empty() { "a machine without a record".into() } else { names.join(" ") }
}

fn target(boot: pb::BootTarget) -> &'static str {
    match boot {
        pb::BootTarget::Unspecified => "boots something that this command does not know",
        pb::BootTarget::Worker => "boots the worker's environment",
        pb::BootTarget::Node => "boots the environment of nodes",
        pb::BootTarget::CustomScript => "boots a custom script",
        pb::BootTarget::LocalDisk => "boots its disk",
        pb::BootTarget::Shell => "boots iPXE's shell",
        pb::BootTarget::Generic => "boots the generic script",
        pb::BootTarget::Refused => {
            "does not boot from the network now: it is refused, and goes on to its disk"
        }
        pb::BootTarget::Unknown => "gets no reply: it has no record",
        pb::BootTarget::Later => "has to retry: no boot is opened while a feed is cut",
    }
}

fn dhcp(dhcp: &pb::DhcpReply) -> String {
    if !dhcp.drop_reason.is_empty() {
        return format!("no reply: {}", dhcp.drop_reason);
    }
    let mut text = named(dhcp.r#type().as_str_name(), "TYPE_");
    let mut add = |word: &str, value: &str| {
        if !value.is_empty() {
            let _ = write!(text, "{word}{value}");
        }
    };
    add(" ", &dhcp.address);
    add(", file ", &dhcp.boot_file);
    add(" from ", &dhcp.next_server);
    if !dhcp.boot_offered {
        text.push_str(", no network boot");
    }
    if !dhcp.boot_refusal.is_empty() {
        let reason = &dhcp.boot_refusal;
        let _ = write!(text, ": refused, {reason}; the firmware tries its next boot device");
    }
    text
}

fn script(script: &pb::ScriptReply) -> String {
    let kind = super::script_kind(script.kind());
    match script.refusal.as_str() {
        "" => format!("{} {kind} at {}", script.status, script.url),
        refusal => format!("{} at {}: {refusal}", script.status, script.url),
    }
}

/// Returns the files of the in-memory environment that the server lacks; empty if none is missing.
fn environment(response: &pb::ExplainBootResponse) -> String {
    match response.missing_files.join(", ") {
        missing if missing.is_empty() => missing,
        missing => format!("missing: {missing}; run `tinwright osie build`"),
    }
}

fn machine(inputs: &pb::DecisionInputs) -> String {
    match inputs.hardware_id.as_str() {
        "" => "no record".into(),
        _ => named(inputs.hardware_state().as_str_name(), "STATE_"),
    }
}

/// Returns the source of a custom script, for people.
fn source(script: &pb::CustomScript) -> &str {
    match &script.source {
        Some(Source::Url(url)) => url,
        Some(Source::Contents(_)) => "contents",
        None => "",
    }
}

fn interface(inputs: &pb::DecisionInputs) -> String {
    if inputs.hardware_id.is_empty() {
        return inputs.mac.clone();
    }
    let address = match inputs.address.as_str() {
        "" => "no address",
        address => address,
    };
    let pxe = if inputs.allow_pxe { "PXE allowed" } else { "PXE not allowed" };
    let mut parts = vec![inputs.mac.clone(), address.into(), pxe.into()];
    if inputs.allow_workflow {
        parts.push("worker always offered".into());
    }
    let once = if inputs.boot_once_started { "once, already started" } else { "once" };
    let scripts = [("custom script", &inputs.interface_script), (once, &inputs.boot_once)];
    for (name, script) in scripts {
        if let Some(script) = script {
            parts.push(format!("{name}: {}", source(script)));
        }
    }
    parts.join(", ")
}

fn history(inputs: &pb::DecisionInputs) -> String {
    let mut parts = Vec::new();
    if let Some(at) = inputs.declined_time {
        parts.push(format!("its address was found in use by another host at {at}"));
    }
    match inputs.loader_time {
        Some(at) if inputs.chain_ipxe => {
            parts.push(format!("given a loader at {at}: its iPXE gets no second one now"));
        }
        None if inputs.chain_ipxe => parts.push("iPXE in a ROM gets a loader first".into()),
        Some(_) | None => {}
    }
    if inputs.boot_loop {
        parts.push("in a boot loop".into());
    }
    parts.join("; ")
}

fn relay(inputs: &pb::DecisionInputs) -> String {
    let port = if inputs.by_port { "; the machine is identified by its port" } else { "" };
    match (inputs.relay.as_str(), inputs.relay_trusted) {
        ("", _) if inputs.by_port => "none; the machine is identified by its port".into(),
        ("", _) => String::new(),
        (relay, true) => format!("{relay}, trusted to name the port{port}"),
        (relay, false) => format!("{relay}, which names no port or is not trusted"),
    }
}

fn pool(inputs: &pb::DecisionInputs) -> String {
    if inputs.pool.is_empty() {
        return String::new();
    }
    let unknown = match inputs.pool_unknown() {
        UnknownClients::Enrol => "leases addresses to machines without a record, and enrols them",
        UnknownClients::Generic => "boots machines without a record, and leases them no address",
        UnknownClients::Report => "reports machines without a record",
        UnknownClients::Ignore | UnknownClients::Unspecified => "ignores machines without a record",
    };
    let (address, state) = (&inputs.lease_address, inputs.lease_state());
    let name = named(state.as_str_name(), "LEASE_STATE_");
    let time = |word: &str| {
        let end = inputs.lease_expire_time;
        end.map_or_else(String::new, |end| format!(" {word} {end}"))
    };
    let lease = if address.is_empty() {
        String::new()
    } else if matches!(state, LeaseState::Released | LeaseState::Expired) {
        format!("; had {address}, {name}{}", time("at"))
    } else {
        format!("; {address} is {name}{}", time("until"))
    };
    format!("{} {unknown}{lease}", inputs.pool)
}

fn instance(inputs: &pb::DecisionInputs) -> String {
    if inputs.instance_id.is_empty() {
        return "none".into();
    }
    let script = inputs.instance_script.as_ref();
    let script = script.map(|script| format!(", with a custom script: {}", source(script)));
    let disk = if inputs.instance_has_os { ", with a system on its disk" } else { "" };
    let state = named(inputs.instance_state().as_str_name(), "STATE_");
    format!("{} {state}{disk}{}", inputs.instance_id, script.unwrap_or_default())
}

fn policy(inputs: &pb::DecisionInputs) -> String {
    let unknown = match inputs.pool_unknown() {
        _ if inputs.policy_boot_unknown => "booted",
        // The policy of a pool goes before that of the site.
        UnknownClients::Enrol | UnknownClients::Generic => "booted in this pool",
        UnknownClients::Ignore | UnknownClients::Report | UnknownClients::Unspecified => {
            "not booted"
        }
    };
    format!(
        "addresses by {}; machines without an instance boot {}, machines without a record are {unknown}",
        named(inputs.dhcp_mode().as_str_name(), "DHCP_MODE_"),
        named(inputs.policy_no_instance().as_str_name(), "BOOT_TARGET_"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_and_a_pool_are_shown_if_there_are_any() {
        let inputs = pb::DecisionInputs {
            relay: "192.0.2.254".into(),
            relay_trusted: true,
            by_port: true,
            pool: "192.0.2.0/24".into(),
            pool_unknown: UnknownClients::Enrol.into(),
            lease_address: "192.0.2.100".into(),
            lease_state: LeaseState::Bound.into(),
            ..pb::DecisionInputs::default()
        };
        assert_eq!(
            relay(&inputs),
            "192.0.2.254, trusted to name the port; the machine is identified by its port"
        );
        assert_eq!(
            pool(&inputs),
            "192.0.2.0/24 leases addresses to machines without a record, and enrols them; 192.0.2.100 is bound"
        );
        assert!(policy(&inputs).ends_with("machines without a record are booted in this pool"));
        let direct = pb::DecisionInputs::default();
        assert_eq!((relay(&direct), pool(&direct)), (String::new(), String::new()));
    }

    #[test]
    fn history_is_shown_if_it_has_an_effect() {
        let inputs = pb::DecisionInputs {
            hardware_id: "id".into(),
            boot_once: Some(pb::CustomScript { source: Some(Source::Contents(true)) }),
            boot_once_started: true,
            chain_ipxe: true,
            loader_time: Some(time(60)),
            declined_time: Some(time(0)),
            boot_loop: true,
            ..pb::DecisionInputs::default()
        };
        assert_eq!(
            history(&inputs),
            "its address was found in use by another host at 1970-01-01T00:00:00Z; given a loader at \
             1970-01-01T00:01:00Z: its iPXE gets no second one now; in a boot loop"
        );
        assert!(interface(&inputs).ends_with("once, already started: contents"));
        assert_eq!(history(&pb::DecisionInputs::default()), "");
    }

    fn time(seconds: i64) -> prost_types::Timestamp {
        prost_types::Timestamp { seconds, nanos: 0 }
    }

    #[test]
    fn the_result_and_its_reason_come_first_and_a_cut_feed_is_not_overlooked() {
        let inputs = pb::DecisionInputs {
            hardware_id: "id".into(),
            hardware_name: "node-1".into(),
            cut_feeds: vec!["workflow".into()],
            ..pb::DecisionInputs::default()
        };
        let response = pb::ExplainBootResponse {
            boot: pb::BootTarget::Later.into(),
            fact: "the control plane is out of reach".into(),
            inputs: Some(inputs),
            ..pb::ExplainBootResponse::default()
        };
        let text = explanation(&response, None);
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("node-1 id: has to retry: no boot is opened while a feed is cut")
        );
        assert_eq!(lines.next(), Some("because the control plane is out of reach"));
        assert_eq!(
            lines.next(),
            Some("feed cut: workflow; the inputs may be old, and no boot is opened")
        );
    }

    #[test]
    fn the_reply_to_the_firmware_is_shown_if_it_is_another_one() {
        let offer = |file: &str| pb::DhcpReply {
            r#type: pb::dhcp_reply::Type::Offer.into(),
            boot_file: file.into(),
            boot_offered: true,
            ..pb::DhcpReply::default()
        };
        let response =
            pb::ExplainBootResponse { dhcp: Some(offer("auto.ipxe")), ..Default::default() };
        let text = explanation(&response, Some(&offer("ipxe.efi")));
        assert!(
            text.contains("firmware   offer, file ipxe.efi\nDHCP       offer, file auto.ipxe\n"),
            "{text}"
        );
        let same = explanation(&response, Some(&offer("auto.ipxe")));
        assert!(!same.contains("firmware"), "{same}");
    }

    #[test]
    fn a_refused_boot_file_is_shown_with_its_reason() {
        let reason = "no loader for architecture 12";
        let refused = pb::DhcpReply {
            r#type: pb::dhcp_reply::Type::Offer.into(),
            boot_file: "netboot-not-allowed".into(),
            boot_refusal: reason.into(),
            ..pb::DhcpReply::default()
        };
        let response = pb::ExplainBootResponse { fact: "a fact".into(), ..Default::default() };
        let text = explanation(&response, Some(&refused));
        assert!(text.contains(&format!("\nbut its request is refused a boot file: {reason}\n")));
        let line = format!(
            "offer, file netboot-not-allowed, no network boot: refused, {reason}; the firmware tries its next boot device\n"
        );
        assert!(text.contains(&line), "{text}");
        let decided = pb::ExplainBootResponse { fact: reason.into(), ..response };
        assert!(!explanation(&decided, Some(&refused)).contains("but its request"));
        let ordinary = pb::DhcpReply { boot_refusal: String::new(), ..refused };
        assert!(dhcp(&ordinary).ends_with(", no network boot"), "{}", dhcp(&ordinary));
    }

    #[test]
    fn a_missing_environment_is_shown_with_what_to_do() {
        let missing_files = vec!["vmlinuz-x86_64".into(), "initramfs-x86_64".into()];
        let response = pb::ExplainBootResponse { missing_files, ..Default::default() };
        let line =
            "environment missing: vmlinuz-x86_64, initramfs-x86_64; run `tinwright osie build`\n";
        assert!(explanation(&response, None).contains(line), "{}", explanation(&response, None));
        let complete = explanation(&pb::ExplainBootResponse::default(), None);
        assert!(!complete.contains("environment"), "{complete}");
    }

    #[test]
    fn a_dropped_request_and_a_refused_script_show_the_reason() {
        let response = pb::ExplainBootResponse {
            boot: pb::BootTarget::Unknown.into(),
            dhcp: Some(pb::DhcpReply { drop_reason: "no record".into(), ..Default::default() }),
            script: Some(pb::ScriptReply {
                status: 404,
                refusal: "nothing to boot".into(),
                url: "http://a/auto.ipxe".into(),
                ..Default::default()
            }),
            ..pb::ExplainBootResponse::default()
        };
        let text = explanation(&response, None);
        assert!(text.contains("DHCP       no reply: no record\n"), "{text}");
        assert!(text.contains("404 at http://a/auto.ipxe: nothing to boot\n"), "{text}");
    }
}

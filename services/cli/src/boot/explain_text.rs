//! An explanation for people: what happens and why first, then all that was looked at.

use std::fmt::Write as _;

use tinwright::netboot::v1 as pb;

use super::kind_text;
use crate::output::facts;

/// `told` in words.
pub(super) fn explained(told: &pb::ExplainBootResponse) -> String {
    let looked = told.looked_at.clone().unwrap_or_default();
    let mut text = format!("{}: {}\nbecause {}\n", who(&looked), boot(&told.boot), told.fact);
    if !looked.feeds_live {
        let cut = looked.cut_feeds.join(", ");
        let _ = writeln!(text, "no word from {cut}: what follows may be old, and opens no boot");
    }
    text.push('\n');
    text.push_str(&facts(&[
        ("DHCP", told.dhcp.as_ref().map_or_else(String::new, dhcp)),
        ("script", told.script.as_ref().map_or_else(String::new, script)),
    ]));
    text.push_str("\nlooked at\n");
    text.push_str(&facts(&[
        ("machine", machine(&looked)),
        ("interface", interface(&looked)),
        ("heard", heard(&looked)),
        ("relay", relay(&looked)),
        ("pool", pool(&looked)),
        ("instance", instance(&looked)),
        ("workflows", looked.waiting_workflow_ids.join(" ")),
        ("gate", looked.gate.clone()),
        ("policy", policy(&looked)),
    ]));
    text
}

fn who(looked: &pb::LookedAt) -> String {
    let names = [&looked.hardware_name, &looked.hardware_id, &looked.mac, &looked.address];
    let told: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).cloned().collect();
    if told.is_empty() { "a machine that nobody knows".into() } else { told.join(" ") }
}

fn boot(boot: &str) -> &str {
    match boot {
        "worker" => "boots the worker's environment",
        "custom_script" => "boots a script of somebody else's",
        "local_disk" => "boots its disk",
        "shell" => "is given iPXE's shell",
        "generic" => "boots the generic script",
        "refused" => "is refused: it does not boot from the network now",
        "unknown" => "is not answered: nobody knows it",
        "later" => "has to ask again: nothing is opened on last word only",
        other => other,
    }
}

fn dhcp(dhcp: &pb::DhcpAnswer) -> String {
    if !dhcp.silence.is_empty() {
        return format!("no answer: {}", dhcp.silence);
    }
    let mut text = dhcp.answer.clone();
    let mut and = |word: &str, value: &str| {
        if !value.is_empty() {
            let _ = write!(text, "{word}{value}");
        }
    };
    and(" ", &dhcp.address);
    and(", file ", &dhcp.boot_file);
    and(" from ", &dhcp.next_server);
    if !dhcp.boot_offered {
        text.push_str(", and is sent to its next boot device");
    }
    if !dhcp.no_loader.is_empty() {
        let _ = write!(text, "; the site has no loader for architecture {:?}", dhcp.no_loader);
    }
    text
}

fn script(script: &pb::ScriptAnswer) -> String {
    match script.refusal.as_str() {
        "" => format!("{} {} at {}", script.status, kind_text(script.kind()), script.url),
        why => format!("{} at {}: {why}", script.status, script.url),
    }
}

fn machine(looked: &pb::LookedAt) -> String {
    if looked.hardware_id.is_empty() { "no record".into() } else { looked.hardware_state.clone() }
}

fn interface(looked: &pb::LookedAt) -> String {
    if looked.hardware_id.is_empty() {
        return looked.mac.clone();
    }
    let allowed = |name: &str, allowed| {
        if allowed { format!("{name} allowed") } else { format!("{name} not allowed") }
    };
    let address = match looked.address.as_str() {
        "" => "no address",
        address => address,
    };
    let mut told = vec![looked.mac.clone(), address.into(), allowed("PXE", looked.allow_pxe)];
    if looked.allow_workflow {
        told.push("worker offered always".into());
    }
    let once = if looked.boot_once_started { "once, and started already" } else { "once" };
    for (name, script) in [("its own script", &looked.interface_script), (once, &looked.boot_once)]
    {
        if !script.is_empty() {
            told.push(format!("{name}: {script}"));
        }
    }
    told.join(", ")
}

fn heard(looked: &pb::LookedAt) -> String {
    let mut told = Vec::new();
    if let Some(at) = looked.declined_time {
        told.push(format!("its address was found in use by somebody else at {at}"));
    }
    match looked.loader_time {
        Some(at) if looked.chain_ipxe => {
            told.push(format!("sent for a loader at {at}: its iPXE gets none now"));
        }
        None if looked.chain_ipxe => told.push("an iPXE that is firmware gets a loader".into()),
        Some(_) | None => {}
    }
    if looked.boot_loop {
        told.push("it boots again and again".into());
    }
    told.join("; ")
}

fn relay(looked: &pb::LookedAt) -> String {
    let port = if looked.by_port { "; the machine is known by its port" } else { "" };
    match (looked.relay.as_str(), looked.relay_believed) {
        ("", _) if looked.by_port => "none; the machine is known by its port".into(),
        ("", _) => String::new(),
        (relay, true) => format!("{relay}, which says where it is plugged in{port}"),
        (relay, false) => format!("{relay}, which names no port or is not believed"),
    }
}

fn pool(looked: &pb::LookedAt) -> String {
    if looked.pool.is_empty() {
        return String::new();
    }
    let unknown = match looked.pool_unknown.as_str() {
        "enrol" => "gives machines without a record an address",
        "generic" => "boots machines without a record, and gives them no address",
        "report" => "reports machines without a record",
        _ => "ignores machines without a record",
    };
    let lease = match (looked.lease_address.as_str(), looked.lease_state.as_str()) {
        ("", _) => String::new(),
        (address, state @ ("released" | "expired")) => {
            let since = looked.lease_expire_time.map(|time| format!(" at {time}"));
            format!("; had {address}, {state}{}", since.unwrap_or_default())
        }
        (address, state) => {
            let until = looked.lease_expire_time.map(|time| format!(" until {time}"));
            format!("; {address} is {state}{}", until.unwrap_or_default())
        }
    };
    format!("{} {unknown}{lease}", looked.pool)
}

fn instance(looked: &pb::LookedAt) -> String {
    if looked.instance_id.is_empty() {
        return "none".into();
    }
    let script = match looked.instance_script.as_str() {
        "" => String::new(),
        script => format!(", with its own script: {script}"),
    };
    let disk = if looked.instance_has_os { ", with a system on its disk" } else { "" };
    format!("{} {}{disk}{script}", looked.instance_id, looked.instance_state)
}

fn policy(looked: &pb::LookedAt) -> String {
    let unknown = if looked.policy_boot_unknown { "booted" } else { "not booted" };
    format!(
        "addresses by {}; machines without an instance get {}, unknown ones are {unknown}",
        looked.dhcp_mode.replace('_', "-"),
        looked.policy_no_instance.replace('_', "-")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_and_a_pool_are_told_where_there_are_any() {
        let looked = pb::LookedAt {
            relay: "192.0.2.254".into(),
            relay_believed: true,
            by_port: true,
            pool: "192.0.2.0/24".into(),
            pool_unknown: "enrol".into(),
            lease_address: "192.0.2.100".into(),
            lease_state: "bound".into(),
            ..pb::LookedAt::default()
        };
        assert_eq!(
            relay(&looked),
            "192.0.2.254, which says where it is plugged in; the machine is known by its port"
        );
        assert_eq!(
            pool(&looked),
            "192.0.2.0/24 gives machines without a record an address; 192.0.2.100 is bound"
        );
        let direct = pb::LookedAt::default();
        assert_eq!((relay(&direct), pool(&direct)), (String::new(), String::new()));
    }

    #[test]
    fn what_was_heard_is_told_where_it_bears_on_anything() {
        let looked = pb::LookedAt {
            hardware_id: "id".into(),
            boot_once: "contents".into(),
            boot_once_started: true,
            chain_ipxe: true,
            loader_time: Some(pb_time(60)),
            declined_time: Some(pb_time(0)),
            boot_loop: true,
            ..pb::LookedAt::default()
        };
        assert_eq!(
            heard(&looked),
            "its address was found in use by somebody else at 1970-01-01T00:00:00Z; sent for a loader at \
             1970-01-01T00:01:00Z: its iPXE gets none now; it boots again and again"
        );
        assert!(interface(&looked).ends_with("once, and started already: contents"));
        assert_eq!(heard(&pb::LookedAt::default()), "");
    }

    fn pb_time(seconds: i64) -> prost_types::Timestamp {
        prost_types::Timestamp { seconds, nanos: 0 }
    }

    #[test]
    fn what_happens_and_why_comes_first_and_a_cut_feed_is_not_overlooked() {
        let looked_at = pb::LookedAt {
            hardware_id: "id".into(),
            hardware_name: "node-1".into(),
            cut_feeds: vec!["workflow".into()],
            ..pb::LookedAt::default()
        };
        let told = pb::ExplainBootResponse {
            boot: "later".into(),
            fact: "the control plane is out of reach".into(),
            looked_at: Some(looked_at),
            ..pb::ExplainBootResponse::default()
        };
        let text = explained(&told);
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("node-1 id: has to ask again: nothing is opened on last word only")
        );
        assert_eq!(lines.next(), Some("because the control plane is out of reach"));
        assert_eq!(
            lines.next(),
            Some("no word from workflow: what follows may be old, and opens no boot")
        );
    }

    #[test]
    fn silence_and_a_refused_script_say_why() {
        let told = pb::ExplainBootResponse {
            boot: "unknown".into(),
            dhcp: Some(pb::DhcpAnswer { silence: "no record".into(), ..Default::default() }),
            script: Some(pb::ScriptAnswer {
                status: 404,
                refusal: "nothing to boot".into(),
                url: "http://a/auto.ipxe".into(),
                ..Default::default()
            }),
            ..pb::ExplainBootResponse::default()
        };
        let text = explained(&told);
        assert!(text.contains("DHCP       no answer: no record\n"), "{text}");
        assert!(text.contains("404 at http://a/auto.ipxe: nothing to boot\n"), "{text}");
    }
}

//! A boot step by step, with the seconds between the steps.

use std::fmt::Write as _;
use std::time::SystemTime;

use prost_types::Timestamp;
use tinwright::netboot::v1 as pb;

use crate::output::fields;

/// Renders `boot`.
pub(super) fn text(boot: &pb::Boot) -> String {
    let began = boot.create_time.map(|time| time.to_string()).unwrap_or_default();
    let mut text = fields(&[
        ("boot", boot.id.clone()),
        ("machine", boot.hardware_id.clone()),
        ("interface", boot.mac.clone()),
        ("began", began),
        ("script", super::script_kind(boot.script())),
        ("because", boot.fact.clone()),
    ]);
    text.push('\n');
    let mut last = boot.create_time;
    for event in &boot.events {
        let after = seconds(boot.create_time, event.time);
        let since = seconds(last, event.time);
        let again = match event.count {
            0 | 1 => String::new(),
            count => format!(" ({count} times)"),
        };
        let (step, since) = (step(event.kind()), format!("+{since:.1}"));
        let (source, detail) = (&event.source, &event.detail);
        let line = format!("{after:>8.1} s  {since:>8}  {step:<16} {source:<15} {detail}{again}");
        let _ = writeln!(text, "{}", line.trim_end());
        last = event.last_time.or(event.time);
    }
    if boot.events_left_out > 0 {
        let _ = writeln!(text, "and {} more", boot.events_left_out);
    }
    text
}

/// Returns the name of a step.
pub(super) fn step(kind: pb::BootEventKind) -> &'static str {
    match kind {
        pb::BootEventKind::Unspecified => "",
        pb::BootEventKind::DhcpDiscover => "DHCP discover",
        pb::BootEventKind::DhcpAck => "DHCP ack",
        pb::BootEventKind::BinaryServed => "loader served",
        pb::BootEventKind::ScriptServed => "script served",
        pb::BootEventKind::KernelServed => "kernel served",
        pb::BootEventKind::InitrdServed => "initrd served",
        pb::BootEventKind::Started => "started",
        pb::BootEventKind::Failed => "failed",
        pb::BootEventKind::GateRefused => "refused",
        pb::BootEventKind::PhoneHome => "phoned home",
        pb::BootEventKind::Declined => "address declined",
        pb::BootEventKind::UnknownMachine => "unknown machine",
    }
}

/// Returns the seconds between two times; 0 if one is absent, or if the clock was set back.
fn seconds(from: Option<Timestamp>, to: Option<Timestamp>) -> f64 {
    let time = |at: Option<Timestamp>| at.and_then(|at| SystemTime::try_from(at).ok());
    let between = time(from).zip(time(to)).and_then(|(from, to)| to.duration_since(from).ok());
    between.unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_shown_from_the_beginning_and_between_the_steps() {
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let event = |kind: pb::BootEventKind, time| pb::BootEvent {
            kind: kind.into(),
            time,
            ..pb::BootEvent::default()
        };
        let boot = pb::Boot {
            create_time: at(100),
            events: vec![
                event(pb::BootEventKind::DhcpDiscover, at(100)),
                event(pb::BootEventKind::ScriptServed, at(103)),
                event(pb::BootEventKind::Started, at(111)),
            ],
            ..pb::Boot::default()
        };
        let text = text(&boot);
        let lines: Vec<_> = text.lines().rev().take(2).collect();
        assert_eq!(lines[1], "     3.0 s      +3.0  script served");
        assert_eq!(lines[0], "    11.0 s      +8.0  started");
    }
}

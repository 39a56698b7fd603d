//! The choice of the next request, for systems that are plain values.

use super::*;
use crate::redfish::{BootOverride, Power};
use pb::operation::boot::{Device, Mode};
use pb::operation::{Boot, Power as Wanted};
use proptest::prelude::*;

fn power(power: Wanted) -> pb::Operation {
    pb::Operation { what: Some(What::Power(power.into())), ..Default::default() }
}

fn boot(device: Device, mode: Mode) -> pb::Operation {
    let boot = Boot { device: device.into(), mode: mode.into(), ..Boot::default() };
    pb::Operation { what: Some(What::Boot(boot)), ..Default::default() }
}

fn is(power: Power) -> System {
    System { power, reset: Some("/r".into()), ..System::default() }
}

fn reads(enabled: &str, target: &str) -> System {
    let boot =
        BootOverride { enabled: enabled.into(), target: target.into(), ..BootOverride::default() };
    System { boot, ..is(Power::On) }
}

fn sent(name: &str, accepted: bool) -> Progress {
    Progress { request: name.into(), accepted, ..Progress::default() }
}

fn next_of(operation: &pb::Operation, system: &System, progress: &Progress, now: i64) -> Next {
    next(operation, system, progress, &Timing::default(), now)
}

/// The name of the request.
fn name(next: Next) -> String {
    match next {
        Next::Send(request) => request.name,
        Next::Done(_) | Next::Wait | Next::Impossible(_) => format!("{next:?}"),
    }
}

#[test]
fn an_effect_that_is_there_already_needs_no_request() {
    for (wanted, power_now) in
        [(Wanted::On, Power::On), (Wanted::Off, Power::Off), (Wanted::SoftOff, Power::Off)]
    {
        let done = next_of(&power(wanted), &is(power_now), &Progress::default(), 0);
        assert_eq!(done, Next::Done(vec![]));
    }
    let done = next_of(
        &boot(Device::Pxe, Mode::Unspecified),
        &reads("Once", "Pxe"),
        &Progress::default(),
        0,
    );
    assert_eq!(done, Next::Done(vec![]));
}

#[test]
fn unlisted_and_refused_requests_are_not_sent() {
    let listed = System { reset_types: vec!["ForceOn".into()], ..is(Power::Off) };
    let on = power(Wanted::On);
    assert_eq!(name(next_of(&on, &listed, &Progress::default(), 0)), "ForceOn");
    let refused = Progress { refused: vec!["On".into()], ..sent("On", false) };
    assert_eq!(name(next_of(&on, &is(Power::Off), &refused, 0)), "ForceOn");
    let both = Progress { refused: vec!["On".into(), "ForceOn".into()], ..Progress::default() };
    let never = next_of(&on, &is(Power::Off), &both, 0);
    assert_eq!(never, Next::Impossible("the BMC refused On, ForceOn".into()));
}

#[test]
fn an_accepted_request_without_effect_is_followed_by_another_one() {
    let (on, off) = (power(Wanted::On), is(Power::Off));
    assert_eq!(next_of(&on, &off, &sent("On", true), 44_999), Next::Wait);
    assert_eq!(name(next_of(&on, &off, &sent("On", true), 45_000)), "ForceOn");
    assert_eq!(name(next_of(&on, &off, &sent("ForceOn", true), 45_000)), "On");
}

#[test]
fn a_request_that_may_not_have_arrived_is_repeated() {
    let (on, off) = (power(Wanted::On), is(Power::Off));
    assert_eq!(name(next_of(&on, &off, &sent("ForceOn", false), 1)), "ForceOn");
}

#[test]
fn without_a_graceful_shutdown_the_power_is_cut_and_the_job_reports_a_downgrade() {
    let soft = power(Wanted::SoftOff);
    assert_eq!(name(next_of(&soft, &is(Power::On), &Progress::default(), 0)), "GracefulShutdown");
    let graceful = sent("GracefulShutdown", true);
    assert_eq!(next_of(&soft, &is(Power::On), &graceful, 119_999), Next::Wait);
    assert_eq!(name(next_of(&soft, &is(Power::On), &graceful, 120_000)), "ForceOff");
    let done = next_of(&soft, &is(Power::Off), &sent("ForceOff", true), 0);
    assert!(matches!(done, Next::Done(downgrades) if downgrades.len() == 1));
}

#[test]
fn a_cycle_is_done_once_the_machine_was_off_or_the_bmc_reports_a_reset() {
    let cycle = power(Wanted::Cycle);
    assert_eq!(name(next_of(&cycle, &is(Power::On), &Progress::default(), 0)), "PowerCycle");
    let silent = sent("PowerCycle", true);
    assert_eq!(next_of(&cycle, &is(Power::On), &silent, 1), Next::Wait);
    assert_eq!(name(next_of(&cycle, &is(Power::On), &silent, 45_000)), "ForceOff");
    let off = observe(sent("ForceOff", true), &is(Power::Off));
    assert_eq!(name(next_of(&cycle, &is(Power::Off), &off, 1)), "On");
    assert_eq!(next_of(&cycle, &is(Power::On), &off, 1), Next::Done(vec![]));
    let before = Progress { reset_time: "a".into(), ..silent };
    let after = System { reset_time: "b".into(), ..is(Power::On) };
    assert_eq!(next_of(&cycle, &after, &before, 1), Next::Done(vec![]));
}

#[test]
fn a_reset_is_done_once_it_is_accepted_and_falls_back_to_a_cycle() {
    let reset = power(Wanted::Reset);
    assert_eq!(name(next_of(&reset, &is(Power::On), &Progress::default(), 0)), "ForceRestart");
    assert_eq!(
        name(next_of(&reset, &is(Power::On), &sent("ForceRestart", false), 0)),
        "ForceRestart"
    );
    assert_eq!(next_of(&reset, &is(Power::On), &sent("ForceRestart", true), 0), Next::Done(vec![]));
    let refused = Progress { refused: vec!["ForceRestart".into()], ..Progress::default() };
    assert_eq!(name(next_of(&reset, &is(Power::On), &refused, 0)), "PowerCycle");
}

#[test]
fn a_boot_once_that_reads_as_continuous_counts_only_after_a_request() {
    let pxe = boot(Device::Pxe, Mode::Unspecified);
    let system = reads("Continuous", "Pxe");
    let Next::Send(request) = next_of(&pxe, &system, &Progress::default(), 0) else { panic!() };
    let wanted =
        BootRequest { enabled: "Once", target: Some("Pxe"), mode: None, http_url: String::new() };
    assert_eq!(request.call, Call::Boot { request: wanted, in_settings: false });
    let done = next_of(&pxe, &system, &sent("boot", true), 0);
    assert_eq!(done, Next::Done(vec!["boot once reads back as continuous".into()]));
}

#[test]
fn an_override_that_cannot_be_cleared_is_set_to_the_disk() {
    let none = boot(Device::None, Mode::Unspecified);
    let mut progress = Progress::default();
    for expected in ["clear", "clear target", "disk instead of none"] {
        progress.request = name(next_of(&none, &reads("Continuous", "Pxe"), &progress, 0));
        assert_eq!(progress.request, expected);
        progress.refused.push(expected.into());
    }
    progress = sent("disk instead of none", true);
    let done = next_of(&none, &reads("Continuous", "Hdd"), &progress, 0);
    assert!(matches!(done, Next::Done(downgrades) if downgrades.len() == 1));
    assert_eq!(
        next_of(&none, &reads("Disabled", "Pxe"), &Progress::default(), 0),
        Next::Done(vec![])
    );
}

/// The system that reports `mode`, and lists `modes` as allowed.
fn in_mode(system: System, mode: &str, modes: &[&str]) -> System {
    let modes = modes.iter().map(|mode| (*mode).to_owned()).collect();
    System { boot: BootOverride { mode: mode.into(), modes, ..system.boot }, ..system }
}

/// The mode in the request.
fn sent_mode(next: Next) -> Option<&'static str> {
    let Next::Send(Request { call: Call::Boot { request, .. }, .. }) = next else {
        panic!("{next:?}")
    };
    request.mode
}

#[test]
fn a_mode_is_sent_only_to_a_bmc_that_lists_it_or_reports_another_one() {
    let uefi = boot(Device::Pxe, Mode::Uefi);
    for (reported, listed, expected) in [
        ("Legacy", &[][..], Some("UEFI")),
        ("UEFI", &[], None),
        ("", &[], None),
        ("", &["Legacy", "UEFI"], Some("UEFI")),
        ("UEFI", &["Legacy", "UEFI"], Some("UEFI")),
        ("Legacy", &["Legacy"], None),
    ] {
        let system = in_mode(reads("Disabled", "None"), reported, listed);
        let mode = sent_mode(next_of(&uefi, &system, &Progress::default(), 0));
        assert_eq!(mode, expected, "of a BMC that reports {reported:?} and lists {listed:?}");
    }
}

#[test]
fn a_refused_mode_is_left_out_and_the_job_reports_a_downgrade() {
    let uefi = boot(Device::Pxe, Mode::Uefi);
    let refused = Progress { refused: vec!["boot".into()], ..sent("boot", false) };
    let legacy = |system| in_mode(system, "Legacy", &[]);
    let without = name(next_of(&uefi, &legacy(reads("Disabled", "None")), &refused, 0));
    assert_eq!(without, "boot without mode");
    let reading = legacy(reads("Once", "Pxe"));
    let done = next_of(&uefi, &reading, &sent("boot without mode", true), 0);
    assert_eq!(done, Next::Done(vec!["mode UEFI reads back as \"Legacy\"".into()]));
}

#[test]
fn a_bmc_that_reports_no_mode_is_sent_none_and_the_job_says_so() {
    let legacy = boot(Device::Pxe, Mode::Legacy);
    let request = next_of(&legacy, &reads("Disabled", "None"), &Progress::default(), 0);
    assert_eq!(name(request), "boot without mode");
    let done = Next::Done(vec!["the BMC reports no boot mode: Legacy was not named".into()]);
    let reading = reads("Once", "Pxe");
    assert_eq!(next_of(&legacy, &reading, &Progress::default(), 0), done);
    assert_eq!(next_of(&legacy, &reading, &sent("boot without mode", true), 0), done);
}

#[test]
fn a_mode_that_changes_with_a_request_which_does_not_name_it_is_named_next() {
    let uefi = boot(Device::Pxe, Mode::Uefi);
    let present = name(next_of(
        &uefi,
        &in_mode(reads("Disabled", "None"), "UEFI", &[]),
        &Progress::default(),
        0,
    ));
    assert_eq!(present, "boot in present mode");
    let done =
        next_of(&uefi, &in_mode(reads("Once", "Pxe"), "UEFI", &[]), &sent(&present, true), 0);
    assert_eq!(done, Next::Done(vec![]));
    let changed =
        next_of(&uefi, &in_mode(reads("Once", "Pxe"), "Legacy", &[]), &sent(&present, true), 0);
    assert_eq!(sent_mode(changed), Some("UEFI"));
}

#[test]
fn a_request_that_the_system_refuses_is_sent_to_its_settings() {
    let pxe = boot(Device::Pxe, Mode::Unspecified);
    let mut system = System { settings: Some("/s".into()), ..reads("Disabled", "None") };
    let refused = Progress { refused: vec!["boot".into()], ..Progress::default() };
    assert_eq!(name(next_of(&pxe, &system, &refused, 0)), "boot in settings");
    system.pending = Some(reads("Once", "Pxe").boot);
    let done = next_of(&pxe, &system, &sent("boot in settings", true), 0);
    assert_eq!(done, Next::Done(vec![]));
}

#[test]
fn over_ipmi_a_mode_is_always_sent_and_flags_that_read_as_not_valid_are_a_downgrade() {
    const NOT_VALID: &str = BootOverride::NOT_VALID;
    use crate::redfish::Protocol;
    let ipmi = |enabled, mode: &str| {
        let system = reads(enabled, "Pxe");
        let boot = BootOverride { mode: mode.into(), ..system.boot };
        System { protocol: Protocol::Ipmi, boot, ..is(Power::On) }
    };
    let uefi = boot(Device::Pxe, Mode::Uefi);
    assert_eq!(name(next_of(&uefi, &ipmi("Once", "Legacy"), &sent("", false), 0)), "boot");
    for (system, text) in [
        (ipmi("Once", "Legacy"), "mode UEFI reads back as \"Legacy\""),
        (ipmi(NOT_VALID, ""), "the boot flags read back as not valid"),
    ] {
        let done = next_of(&uefi, &system, &sent("boot", true), 0);
        assert_eq!(done, Next::Done(vec![text.into()]));
    }
    let any = boot(Device::Disk, Mode::Unspecified);
    let Next::Send(request) = next_of(&any, &ipmi("Once", "UEFI"), &sent("", false), 0) else {
        panic!()
    };
    let Call::Boot { request, .. } = request.call else { panic!() };
    assert_eq!(request.mode, Some("UEFI"));
}

#[test]
fn the_limit_of_a_graceful_shutdown_is_the_operations() {
    let mut soft = power(Wanted::SoftOff);
    let system = is(Power::On);
    let sent = sent("GracefulShutdown", true);
    assert_eq!(next_of(&soft, &system, &sent, 119_999), Next::Wait);
    assert_eq!(name(next_of(&soft, &system, &sent, 120_000)), "ForceOff");
    soft.soft_off_limit = Some(prost_types::Duration { seconds: 900, nanos: 0 });
    assert_eq!(next_of(&soft, &system, &sent, 899_999), Next::Wait);
    assert_eq!(name(next_of(&soft, &system, &sent, 900_000)), "ForceOff");
    assert_eq!(operation_timeout(&soft, &Timing::default()).as_secs(), 1500);
}

#[test]
fn retry_delays_double_up_to_the_maximum_and_follow_retry_after_up_to_a_limit() {
    let timing = Timing::default();
    let seconds =
        |attempt, after| timing.retry_delay(attempt, Duration::from_secs(after)).as_secs();
    assert_eq!([1, 2, 5, 6, 99].map(|attempt| seconds(attempt, 0)), [1, 2, 16, 30, 30]);
    assert_eq!((seconds(1, 20), seconds(1, 86_400)), (20, 45));
}

/// The reaction of a BMC to a request.
#[derive(Clone, Copy, Debug)]
enum Reaction {
    Act,
    Refuse,
    Ignore,
    Lose,
}

fn act(system: &mut System, kind: &str) {
    system.power = match kind {
        "On" | "ForceOn" => Power::On,
        "ForceRestart" if system.power == Power::On => Power::Off,
        "PowerCycle" | "ForceOff" | "GracefulShutdown" | "PushPowerButton" => Power::Off,
        _ => system.power,
    };
}

proptest! {
    /// An operation ends within its attempts and its time, whatever the BMC does, and a done operation has its effect.
    #[test]
    fn every_power_operation_ends_and_done_means_the_wanted_state(
        wanted in 1..=5_i32,
        begins_on: bool,
        reactions in proptest::collection::vec(
            prop_oneof![Just(Reaction::Act), Just(Reaction::Refuse), Just(Reaction::Ignore), Just(Reaction::Lose)], 1..8),
    ) {
        let operation = power(wanted.try_into().unwrap());
        let mut system = is(if begins_on { Power::On } else { Power::Off });
        let (mut progress, mut now, mut sent) = (Progress::default(), 0_i64, 0_usize);
        loop {
            progress = observe(progress, &system);
            match next_of(&operation, &system, &progress, now) {
                Next::Done(_) => break,
                Next::Impossible(_) => return Ok(()),
                Next::Wait => now += 2_000,
                Next::Send(Request { name, call: Call::Reset(kind) }) => {
                    let reaction = reactions[sent % reactions.len()];
                    sent += 1;
                    progress.request = name.clone();
                    progress.request_time = now;
                    progress.accepted = matches!(reaction, Reaction::Act | Reaction::Ignore);
                    match reaction {
                        Reaction::Refuse => progress.refused.push(name),
                        Reaction::Act => act(&mut system, kind),
                        Reaction::Ignore | Reaction::Lose => {}
                    }
                }
                Next::Send(_) => prop_assert!(false, "a power operation sent a PATCH"),
            }
            if sent > 10 || now > 600_000 { return Ok(()) }
        }
        let wanted = Wanted::try_from(wanted).unwrap();
        let on = matches!(wanted, Wanted::On | Wanted::Cycle | Wanted::Reset);
        prop_assert_eq!(system.power, if on { Power::On } else { Power::Off });
        if wanted == Wanted::Cycle {
            prop_assert!(progress.was_off);
        }
    }
}

#[test]
fn a_text_of_the_bmc_is_stored_without_the_url_of_an_image() {
    let image_url = "http://192.0.2.1/token/a.iso".to_owned();
    let media = pb::operation::InsertMedia { image_url, ..Default::default() };
    let insert = pb::Operation { what: Some(What::InsertMedia(media)), ..Default::default() };
    let text = "cannot fetch http://192.0.2.1/token/a.iso: 404".to_owned();
    assert_eq!(without_image(Some(&insert), text.clone()), "cannot fetch (URL of the image): 404");
    assert_eq!(without_image(None, text.clone()), text);
}

#[test]
fn a_file_for_a_http_boot_is_read_back() {
    let boot = Boot {
        device: Device::UefiHttp.into(),
        http_url: "http://192.0.2.1/ipxe.efi".into(),
        ..Boot::default()
    };
    let wanted = pb::Operation { what: Some(What::Boot(boot.clone())), ..Default::default() };
    let reads = |http_url: &str| System {
        boot: BootOverride {
            enabled: "Once".into(),
            target: "UefiHttp".into(),
            http_url: http_url.into(),
            ..BootOverride::default()
        },
        ..System::default()
    };
    let (timing, fresh) = (Timing::default(), Progress::default());
    let Next::Send(request) = next(&wanted, &reads(""), &fresh, &timing, 0) else { panic!() };
    let Call::Boot { request: sent, .. } = &request.call else { panic!() };
    assert_eq!((sent.target, &sent.http_url), (Some("UefiHttp"), &boot.http_url));
    let done = next(&wanted, &reads(&boot.http_url), &fresh, &timing, 0);
    assert_eq!(done, Next::Done(vec![]));
    let accepted = Progress { request: request.name, accepted: true, ..fresh };
    let Next::Done(downgrades) = next(&wanted, &reads(""), &accepted, &timing, 0) else { panic!() };
    assert_eq!(downgrades, ["the file to boot reads back as \"\""]);
}

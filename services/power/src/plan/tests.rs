//! Decisions, against systems that are nothing but values.

use super::*;
use crate::redfish::{Override, Power};
use pb::operation::boot::{Device, Mode};
use pb::operation::{Boot, Power as Wanted};
use proptest::prelude::*;
use serde_json::json;

fn power(power: Wanted) -> pb::Operation {
    pb::Operation { what: Some(What::Power(power.into())) }
}

fn boot(device: Device, mode: Mode) -> pb::Operation {
    let boot = Boot { device: device.into(), persistent: false, mode: mode.into() };
    pb::Operation { what: Some(What::Boot(boot)) }
}

fn is(power: Power) -> System {
    System { power, reset: Some("/r".into()), ..System::default() }
}

fn reads(enabled: &str, target: &str) -> System {
    let boot = Override { enabled: enabled.into(), target: target.into(), ..Override::default() };
    System { boot, ..is(Power::On) }
}

fn asked(name: &str, accepted: bool) -> Progress {
    Progress { asked: name.into(), accepted, ..Progress::default() }
}

fn next_of(operation: &pb::Operation, system: &System, progress: &Progress, now: i64) -> Next {
    next(operation, system, progress, &Timing::default(), now)
}

/// The name of what is asked.
fn name(next: Next) -> String {
    match next {
        Next::Ask(ask) => ask.name,
        Next::Done(_) | Next::Wait | Next::Never(_) => format!("{next:?}"),
    }
}

#[test]
fn what_holds_already_is_done_without_a_call() {
    for (wanted, power_now) in
        [(Wanted::On, Power::On), (Wanted::Off, Power::Off), (Wanted::SoftOff, Power::Off)]
    {
        let done = next_of(&power(wanted), &is(power_now), &Progress::default(), 0);
        assert_eq!(done, Next::Done(vec![]));
    }
    let held = next_of(
        &boot(Device::Pxe, Mode::Unspecified),
        &reads("Once", "Pxe"),
        &Progress::default(),
        0,
    );
    assert_eq!(held, Next::Done(vec![]));
}

#[test]
fn what_is_not_listed_is_not_asked_and_what_was_refused_is_not_asked_again() {
    let listed = System { reset_types: vec!["ForceOn".into()], ..is(Power::Off) };
    let on = power(Wanted::On);
    assert_eq!(name(next_of(&on, &listed, &Progress::default(), 0)), "ForceOn");
    let refused = Progress { refused: vec!["On".into()], ..asked("On", false) };
    assert_eq!(name(next_of(&on, &is(Power::Off), &refused, 0)), "ForceOn");
    let both = Progress { refused: vec!["On".into(), "ForceOn".into()], ..Progress::default() };
    let never = next_of(&on, &is(Power::Off), &both, 0);
    assert_eq!(never, Next::Never("the BMC refused On, ForceOn".into()));
}

#[test]
fn a_yes_that_came_to_nothing_is_followed_by_another_way() {
    let (on, off) = (power(Wanted::On), is(Power::Off));
    assert_eq!(next_of(&on, &off, &asked("On", true), 44_999), Next::Wait);
    assert_eq!(name(next_of(&on, &off, &asked("On", true), 45_000)), "ForceOn");
    assert_eq!(name(next_of(&on, &off, &asked("ForceOn", true), 45_000)), "On");
}

#[test]
fn what_may_not_have_arrived_is_asked_again() {
    let (on, off) = (power(Wanted::On), is(Power::Off));
    assert_eq!(name(next_of(&on, &off, &asked("ForceOn", false), 1)), "ForceOn");
}

#[test]
fn a_system_that_does_not_shut_down_loses_its_power_and_the_job_says_so() {
    let soft = power(Wanted::SoftOff);
    assert_eq!(name(next_of(&soft, &is(Power::On), &Progress::default(), 0)), "GracefulShutdown");
    let gentle = asked("GracefulShutdown", true);
    assert_eq!(next_of(&soft, &is(Power::On), &gentle, 119_999), Next::Wait);
    assert_eq!(name(next_of(&soft, &is(Power::On), &gentle, 120_000)), "ForceOff");
    let done = next_of(&soft, &is(Power::Off), &asked("ForceOff", true), 0);
    assert!(matches!(done, Next::Done(downgrades) if downgrades.len() == 1));
}

#[test]
fn a_cycle_is_done_when_off_was_seen_or_the_bmc_tells_of_a_reset() {
    let cycle = power(Wanted::Cycle);
    assert_eq!(name(next_of(&cycle, &is(Power::On), &Progress::default(), 0)), "PowerCycle");
    let silent = asked("PowerCycle", true);
    assert_eq!(next_of(&cycle, &is(Power::On), &silent, 1), Next::Wait);
    assert_eq!(name(next_of(&cycle, &is(Power::On), &silent, 45_000)), "ForceOff");
    let off = observed(&asked("ForceOff", true), &is(Power::Off));
    assert_eq!(name(next_of(&cycle, &is(Power::Off), &off, 1)), "On");
    assert_eq!(next_of(&cycle, &is(Power::On), &off, 1), Next::Done(vec![]));
    let before = Progress { reset_time: "a".into(), ..silent };
    let after = System { reset_time: "b".into(), ..is(Power::On) };
    assert_eq!(next_of(&cycle, &after, &before, 1), Next::Done(vec![]));
}

#[test]
fn a_reset_is_done_on_a_yes_and_falls_back_on_a_cycle() {
    let reset = power(Wanted::Reset);
    assert_eq!(name(next_of(&reset, &is(Power::On), &Progress::default(), 0)), "ForceRestart");
    assert_eq!(
        name(next_of(&reset, &is(Power::On), &asked("ForceRestart", false), 0)),
        "ForceRestart"
    );
    assert_eq!(
        next_of(&reset, &is(Power::On), &asked("ForceRestart", true), 0),
        Next::Done(vec![])
    );
    let refused = Progress { refused: vec!["ForceRestart".into()], ..Progress::default() };
    assert_eq!(name(next_of(&reset, &is(Power::On), &refused, 0)), "PowerCycle");
}

#[test]
fn a_once_that_reads_as_continuous_counts_only_after_it_was_asked_for() {
    let pxe = boot(Device::Pxe, Mode::Unspecified);
    let system = reads("Continuous", "Pxe");
    let Next::Ask(ask) = next_of(&pxe, &system, &Progress::default(), 0) else { panic!() };
    let body =
        json!({"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}});
    assert_eq!(ask.how, How::System(body));
    let done = next_of(&pxe, &system, &asked("boot", true), 0);
    assert_eq!(done, Next::Done(vec!["boot once reads back as continuous".into()]));
}

#[test]
fn an_override_that_cannot_be_cleared_is_set_to_the_disk() {
    let none = boot(Device::None, Mode::Unspecified);
    let mut progress = Progress::default();
    for expected in ["clear", "clear target", "disk instead of none"] {
        progress.asked = name(next_of(&none, &reads("Continuous", "Pxe"), &progress, 0));
        assert_eq!(progress.asked, expected);
        progress.refused.push(expected.into());
    }
    progress = asked("disk instead of none", true);
    let done = next_of(&none, &reads("Continuous", "Hdd"), &progress, 0);
    assert!(matches!(done, Next::Done(downgrades) if downgrades.len() == 1));
    assert_eq!(
        next_of(&none, &reads("Disabled", "Pxe"), &Progress::default(), 0),
        Next::Done(vec![])
    );
}

#[test]
fn a_mode_that_is_refused_is_left_out_and_the_job_says_so() {
    let uefi = boot(Device::Pxe, Mode::Uefi);
    let refused = Progress { refused: vec!["boot".into()], ..asked("boot", false) };
    let without = name(next_of(&uefi, &reads("Disabled", "None"), &refused, 0));
    assert_eq!(without, "boot without mode");
    let done = next_of(&uefi, &reads("Once", "Pxe"), &asked("boot without mode", true), 0);
    assert_eq!(done, Next::Done(vec!["mode UEFI reads back as \"\"".into()]));
}

#[test]
fn what_is_refused_on_the_system_is_asked_of_its_settings_and_read_there() {
    let pxe = boot(Device::Pxe, Mode::Unspecified);
    let mut system = System { settings: Some("/s".into()), ..reads("Disabled", "None") };
    let refused = Progress { refused: vec!["boot".into()], ..Progress::default() };
    assert_eq!(name(next_of(&pxe, &system, &refused, 0)), "boot in settings");
    system.pending = Some(reads("Once", "Pxe").boot);
    let done = next_of(&pxe, &system, &asked("boot in settings", true), 0);
    assert_eq!(done, Next::Done(vec![]));
}

#[test]
fn pauses_double_up_to_the_longest_and_heed_the_bmc_within_reason() {
    let pace = Timing::default();
    let seconds = |attempt, after| pace.pause(attempt, Duration::from_secs(after)).as_secs();
    assert_eq!([1, 2, 5, 6, 99].map(|attempt| seconds(attempt, 0)), [1, 2, 16, 30, 30]);
    assert_eq!((seconds(1, 20), seconds(1, 86_400)), (20, 45));
}

/// What a BMC makes of a request.
#[derive(Clone, Copy, Debug)]
enum Whim {
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
    /// However a BMC behaves, an operation comes to an end within its tries and its time, and its end is the truth.
    #[test]
    fn every_power_operation_ends_and_done_is_what_was_wanted(
        wanted in 1..=5_i32,
        begins_on: bool,
        whims in proptest::collection::vec(
            prop_oneof![Just(Whim::Act), Just(Whim::Refuse), Just(Whim::Ignore), Just(Whim::Lose)], 1..8),
    ) {
        let operation = power(wanted.try_into().unwrap());
        let mut system = is(if begins_on { Power::On } else { Power::Off });
        let (mut progress, mut now, mut asks) = (Progress::default(), 0_i64, 0_usize);
        loop {
            progress = observed(&progress, &system);
            match next_of(&operation, &system, &progress, now) {
                Next::Done(_) => break,
                Next::Never(_) => return Ok(()),
                Next::Wait => now += 2_000,
                Next::Ask(Ask { name, how: How::Reset(kind) }) => {
                    let whim = whims[asks % whims.len()];
                    asks += 1;
                    progress.asked = name.clone();
                    progress.asked_at = now;
                    progress.accepted = matches!(whim, Whim::Act | Whim::Ignore);
                    match whim {
                        Whim::Refuse => progress.refused.push(name),
                        Whim::Act => act(&mut system, kind),
                        Whim::Ignore | Whim::Lose => {}
                    }
                }
                Next::Ask(_) => prop_assert!(false, "a power operation changed the boot order"),
            }
            if asks > 10 || now > 600_000 { return Ok(()) }
        }
        let on = matches!(operation_power(&operation), Wanted::On | Wanted::Cycle | Wanted::Reset);
        prop_assert_eq!(system.power, if on { Power::On } else { Power::Off });
        if operation_power(&operation) == Wanted::Cycle {
            prop_assert!(progress.seen_off);
        }
    }
}

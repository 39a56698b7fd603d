//! The choice of the next request, for systems that are plain values.

mod overrides;

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
    next(operation, system, progress, &AcceptedForms::default(), &Timing::default(), now)
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
fn a_request_for_another_effect_does_not_count_as_one_without_effect() {
    let (cycle, was_off) =
        (power(Wanted::Cycle), Progress { was_off: true, ..sent("ForceOff", true) });
    let Next::Send(on) = next_of(&cycle, &is(Power::Off), &was_off, 0) else { panic!() };
    assert!(record_request(was_off, &on, 0).ineffective.is_empty());
    let (on, off) = (power(Wanted::On), is(Power::Off));
    let Next::Send(forced) = next_of(&on, &off, &sent("On", true), 45_000) else { panic!() };
    assert_eq!(record_request(sent("On", true), &forced, 0).ineffective, ["On"]);
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
                Next::Send(request) => {
                    let Call::Reset(kind) = request.call else {
                        return Err(TestCaseError::fail("a power operation sent a PATCH"));
                    };
                    let reaction = reactions[sent % reactions.len()];
                    sent += 1;
                    progress = record_request(progress, &request, now);
                    progress.accepted = matches!(reaction, Reaction::Act | Reaction::Ignore);
                    match reaction {
                        Reaction::Refuse => progress.refused.push(request.name),
                        Reaction::Act => act(&mut system, kind),
                        Reaction::Ignore | Reaction::Lose => {}
                    }
                }
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

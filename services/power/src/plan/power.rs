//! Power operations: the `ResetType` to send, and the reading that proves the effect.

use std::time::Duration;

use tinwright::power::v1::operation::Power as Wanted;

use super::{Call, Choice, Next, Request};
use crate::forms::AcceptedForms;
use crate::redfish::{Power, System};

const ON: [&str; 2] = ["On", "ForceOn"];
const GRACEFUL: [&str; 2] = ["GracefulShutdown", "PushPowerButton"];
const OFF: &str = "ForceOff";
const CYCLE: &str = "PowerCycle";
const RESTART: &str = "ForceRestart";
/// Reset types whose refusal holds for all operations of a job. That of a graceful one may pass, once the operating system runs.
pub(super) const LASTING: [&str; 5] = [ON[0], ON[1], OFF, CYCLE, RESTART];

pub(super) fn next(
    wanted: Wanted,
    system: &System,
    choice: Choice<'_>,
    soft_off_limit: Duration,
) -> Next {
    match wanted {
        Wanted::On => switch(Power::On, &ON, system, choice),
        Wanted::Off => switch(Power::Off, &[OFF], system, choice),
        Wanted::SoftOff => soft_off(system, choice, soft_off_limit),
        Wanted::Cycle => cycle(system, choice),
        Wanted::Reset => reset(system, choice),
        Wanted::Unspecified => Next::Impossible("the operation is empty".into()),
    }
}

fn switch(wanted: Power, types: &[&'static str], system: &System, choice: Choice<'_>) -> Next {
    if system.power == wanted {
        Next::Done(Vec::new())
    } else if system.power == Power::Changing {
        Next::Wait
    } else {
        choice.send_first(supported(system, types))
    }
}

/// Requests a graceful shutdown once. If the machine is not off within `limit`, its power is cut.
fn soft_off(system: &System, choice: Choice<'_>, limit: Duration) -> Next {
    let forced = choice.progress.request == OFF;
    if forced && system.power == Power::Off {
        return Next::Done(vec!["no graceful shutdown in time: the power was cut".into()]);
    }
    let mut graceful = supported(system, &GRACEFUL).into_iter();
    match graceful.find(|request| choice.is_usable(&request.name)) {
        Some(request) if !forced && system.power != Power::Off => {
            if !choice.is_accepted(&request.name) {
                return if system.power == Power::On { Next::Send(request) } else { Next::Wait };
            }
            match choice.is_pending(limit) {
                true => Next::Wait,
                false => choice.send_first(supported(system, &[OFF])),
            }
        }
        Some(_) | None => switch(Power::Off, &[OFF], system, choice),
    }
}

/// A cycle is done once a reading found the machine off, or the BMC reports a later reset.
fn cycle(system: &System, choice: Choice<'_>) -> Next {
    match system.power {
        Power::On if has_restarted(system, choice) => Next::Done(Vec::new()),
        Power::On => choice.send_first(supported(system, &[CYCLE, OFF])),
        Power::Changing => Next::Wait,
        Power::Off => back_on(system, choice),
    }
}

/// A reset is done once the BMC accepted it: a warm restart may never read as off.
fn reset(system: &System, choice: Choice<'_>) -> Next {
    let restart = supported(system, &[RESTART]);
    let usable = restart.iter().any(|request| choice.is_usable(&request.name));
    match system.power {
        Power::On if choice.is_accepted(RESTART) => Next::Done(Vec::new()),
        Power::On if usable && !has_restarted(system, choice) => choice.send_first(restart),
        Power::On | Power::Off | Power::Changing => cycle(system, choice),
    }
}

/// Waits for a machine that is restarting to come on, else switches it on.
fn back_on(system: &System, choice: Choice<'_>) -> Next {
    let restarting = choice.is_accepted(CYCLE) || choice.is_accepted(RESTART);
    match restarting && choice.is_pending(choice.timing.effect_timeout) {
        true => Next::Wait,
        false => switch(Power::On, &ON, system, choice),
    }
}

fn has_restarted(system: &System, choice: Choice<'_>) -> bool {
    let before = &choice.progress.reset_time;
    let reset = !before.is_empty() && !system.reset_time.is_empty() && *before != system.reset_time;
    choice.progress.was_off || reset
}

/// Returns requests for those of `types` that the system lists; for all if it lists none.
fn supported(system: &System, types: &[&'static str]) -> Vec<Request> {
    let listed = &system.reset_types;
    let types = types.iter().filter(|kind| listed.is_empty() || listed.iter().any(|l| l == **kind));
    let request = |kind: &&'static str| Request {
        name: (*kind).to_owned(),
        call: Call::Reset(kind),
        is_last_resort: false,
        follows_ineffective: false,
        forms: AcceptedForms::default(),
    };
    types.map(request).collect()
}

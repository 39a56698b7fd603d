//! The power: which `ResetType` leads there, and when it has.

use tinwright::power::v1::operation::Power as Wanted;

use super::{Ask, Choice, How, Next};
use crate::redfish::{Power, System};

const ON: [&str; 2] = ["On", "ForceOn"];
const GENTLE: [&str; 2] = ["GracefulShutdown", "PushPowerButton"];
const OFF: &str = "ForceOff";
const CYCLE: &str = "PowerCycle";
const RESTART: &str = "ForceRestart";

pub(super) fn next(wanted: Wanted, system: &System, choice: Choice<'_>) -> Next {
    match wanted {
        Wanted::On => on(system, choice),
        Wanted::Off => off(system, choice),
        Wanted::SoftOff => soft_off(system, choice),
        Wanted::Cycle => cycle(system, choice),
        Wanted::Reset => reset(system, choice),
        Wanted::Unspecified => Next::Never("the operation says nothing".into()),
    }
}

fn on(system: &System, choice: Choice<'_>) -> Next {
    match system.power {
        Power::On => Next::Done(Vec::new()),
        Power::Changing => Next::Wait,
        Power::Off => choice.among(offered(system, &ON)),
    }
}

fn off(system: &System, choice: Choice<'_>) -> Next {
    match system.power {
        Power::Off => Next::Done(Vec::new()),
        Power::Changing => Next::Wait,
        Power::On => choice.among(offered(system, &[OFF])),
    }
}

/// Asks the system once; when it does not listen in time, the power goes without asking.
fn soft_off(system: &System, choice: Choice<'_>) -> Next {
    let gentle = offered(system, &GENTLE).into_iter().find(|ask| !choice.refused(&ask.name));
    let forced = choice.progress.asked == OFF;
    match (system.power, gentle) {
        (Power::Off, _) if forced => {
            Next::Done(vec!["the system did not shut down: its power was cut".into()])
        }
        (Power::Off, _) => Next::Done(Vec::new()),
        (Power::On | Power::Changing, Some(ask)) if !forced && choice.accepted(&ask.name) => {
            match choice.waits(choice.pace.soft) {
                true => Next::Wait,
                false => choice.among(offered(system, &[OFF])),
            }
        }
        (Power::Changing, _) => Next::Wait,
        (Power::On, Some(ask)) if !forced => Next::Ask(ask),
        (Power::On, _) => choice.among(offered(system, &[OFF])),
    }
}

/// Off must have been seen, or the BMC must say that the machine was reset since.
fn cycle(system: &System, choice: Choice<'_>) -> Next {
    match system.power {
        Power::On if restarted(system, choice) => Next::Done(Vec::new()),
        Power::On => choice.among(offered(system, &[CYCLE, OFF])),
        Power::Changing => Next::Wait,
        Power::Off => back_on(system, choice),
    }
}

/// The BMC's yes has to do where it is the only sign: a warm restart never reads off.
fn reset(system: &System, choice: Choice<'_>) -> Next {
    let restart = offered(system, &[RESTART]);
    let open = restart.iter().any(|ask| !choice.refused(&ask.name));
    match system.power {
        Power::On if restarted(system, choice) || choice.accepted(RESTART) => {
            Next::Done(Vec::new())
        }
        Power::On if open => choice.among(restart),
        Power::On => cycle(system, choice),
        Power::Changing => Next::Wait,
        Power::Off => back_on(system, choice),
    }
}

/// A machine that was told to restart comes on by itself; one that was off, or stays so, is told to.
fn back_on(system: &System, choice: Choice<'_>) -> Next {
    let restarting = choice.accepted(CYCLE) || choice.accepted(RESTART);
    if restarting && choice.waits(choice.pace.patience) { Next::Wait } else { on(system, choice) }
}

fn restarted(system: &System, choice: Choice<'_>) -> bool {
    let before = &choice.progress.reset_time;
    let reset = !before.is_empty() && !system.reset_time.is_empty() && *before != system.reset_time;
    choice.progress.seen_off || reset
}

/// Those of `types` that the system lists; all, where it lists none.
fn offered(system: &System, types: &[&'static str]) -> Vec<Ask> {
    let listed = &system.reset_types;
    let known = |kind: &&&str| listed.is_empty() || listed.iter().any(|listed| listed == **kind);
    let ask = |kind: &&'static str| Ask { name: (*kind).to_owned(), how: How::Reset(kind) };
    types.iter().filter(known).map(ask).collect()
}

//! The event of a change of a record, by the record before the change and after it.

use tinwright::Stored as _;
use tinwright::event::v1::{Event, EventKind};

use super::Kind;
use crate::events::{current_origin, one_line};

/// Returns the event of a change of a record from `old` to `new`, if the change is an event: if a caller asked for it, if the
/// record's state is another one, if it became overdue or has a new warning, or if a machine reported something new.
pub(super) fn of_change<K: Kind>(
    old: Option<&K::Record>,
    new: Option<&K::Record>,
) -> Option<Event> {
    let current = new.or(old).filter(|_| K::EVENTS)?;
    let origin = current_origin();
    let is_requested = origin.as_ref().is_some_and(|origin| origin.is_change_request)
        && old.zip(new).is_none_or(|(old, new)| K::is_event(old, new));
    let (old_state, new_state) = states::<K>(old, new);
    let is_garbage = new.is_none() && K::has_ended(current);
    let has_moved = old_state != new_state && !is_garbage;
    let is_late = new.is_some_and(K::is_overdue) && !old.is_some_and(K::is_overdue);
    let warning = new.map(K::warning).filter(|it| *it != old.map_or("", K::warning));
    let warning = warning.unwrap_or_default();
    let is_alarm = is_late || !warning.is_empty();
    let report = old.zip(new).map(|(old, new)| K::reported_change(old, new)).unwrap_or_default();
    let kind = match (is_requested, has_moved, is_alarm) {
        (true, ..) => EventKind::Call,
        (_, _, true) => EventKind::Alarm,
        (_, true, false) => EventKind::Transition,
        (false, false, false) if report.is_empty() => return None,
        (false, false, false) => EventKind::Report,
    };
    let mut event = Event {
        kind: kind.into(),
        noun: K::NOUN.into(),
        object_id: current.id().into(),
        object_name: K::name(current).into(),
        tenant: K::tenant(current).into(),
        old_state,
        new_state,
        text: match (warning, kind) {
            ("", EventKind::Report) => one_line(&report),
            ("", _) => one_line(&describe::<K>(old, new, is_requested)),
            (warning, _) => one_line(warning),
        },
        ..Event::default()
    };
    if let Some(origin) = origin {
        origin.write(&mut event);
    }
    Some(event)
}

/// Returns the name of a record for the log: its noun, its name if it has one, and its id.
pub(super) fn object_name<K: Kind>(record: &K::Record) -> String {
    match (K::name(record), record.id()) {
        ("", id) => format!("{} {id}", K::NOUN),
        (name, id) if name == id => format!("{} {id}", K::NOUN),
        (name, id) => format!("{} {name} {id}", K::NOUN),
    }
}

/// Returns the states before and after a change.
fn states<K: Kind>(old: Option<&K::Record>, new: Option<&K::Record>) -> (String, String) {
    let old_state = old.map(K::state).unwrap_or_default();
    let new_state = match new {
        Some(new) => K::state(new),
        None if old_state.is_empty() => String::new(),
        None => "deleted".into(),
    };
    (old_state, new_state)
}

/// Returns the text of an event: what was done, and the reason of the new state.
fn describe<K: Kind>(
    old: Option<&K::Record>,
    new: Option<&K::Record>,
    is_requested: bool,
) -> String {
    let done = match (old, new) {
        (None, _) => "created".into(),
        (_, None) => "deleted".into(),
        (Some(old), Some(new)) if is_requested => match K::changed_fields(old, new).join(", ") {
            // Such as a password, which is not part of the record.
            fields if fields.is_empty() && K::state(old) == K::state(new) => "updated".into(),
            fields if fields.is_empty() => fields,
            fields => format!("changed {fields}"),
        },
        (Some(_), Some(_)) => String::new(),
    };
    let before = old.map_or("", K::event_reason);
    let reason = new.map(K::event_reason).filter(|reason| *reason != before).unwrap_or_default();
    match (done.as_str(), reason) {
        (_, "") => done,
        ("", reason) => reason.into(),
        (done, reason) => format!("{done}: {reason}"),
    }
}

#[cfg(test)]
mod tests;

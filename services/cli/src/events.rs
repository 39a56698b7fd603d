//! `tinwright events`: what changed, when, and who asked for it.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use runtime::Clock;
use tinwright::event::v1 as pb;
use tinwright::event::v1::watch_events_response::Event as WatchEvent;

use crate::connect::{Io, stream};
use crate::follow::{watch_ended, while_unavailable};
use crate::input;
use crate::output::{self, Format, GrowingTable, List, Row, headers};
use crate::resource::pages;

/// Events in one page.
const PAGE_EVENTS: i32 = 1000;
/// Ids of printed events that are remembered, so that after a disconnect none is printed twice.
const MAX_REMEMBERED: usize = 10_000;
/// An interrupted watch begins again at this time before the last printed event: owners store events
/// at the same time, and their clocks differ.
const OVERLAP: Duration = Duration::from_secs(60);

/// Minimum widths of the columns of followed events. Most values fit.
const LEAST_CHARS: [usize; 8] = [20, 10, 14, 9, 18, 8, 14, 30];

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct EventsCommand {
    /// Print new events, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Print events that are younger than this, such as 30m, 12h or 7d
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = input::duration)]
    since: Duration,
    /// Print events of this cause
    #[arg(long)]
    kind: Option<Kind>,
    /// Print events of objects of this kind, such as instance or "power job"
    #[arg(long, default_value = "", hide_default_value = true)]
    noun: String,
    /// Print events of the object with this id
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    object: String,
    /// Print events of this caller, such as person:anna
    #[arg(long, default_value = "", hide_default_value = true)]
    subject: String,
    /// Print events of this tenant
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// Print in this format; a followed event is one row, or one line of JSON
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Causes of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Calls that changed something
    Call = pb::EventKind::Call as isize,
    /// Changes of state without a call
    Transition = pb::EventKind::Transition as isize,
    /// Alarms
    Alarm = pb::EventKind::Alarm as isize,
    /// Refused calls
    Refusal = pb::EventKind::Refusal as isize,
    /// Machines that have other parts than before
    Report = pb::EventKind::Report as isize,
}

/// Runs the command.
pub async fn run(command: EventsCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    let (follow, output) = (command.follow, command.output.clone());
    let filter = filter(command, Clock::system().wall());
    if follow {
        return self::follow(filter, output, io).await;
    }
    let events = pages(async |page_token| {
        let filter = Some(filter.clone());
        let request = pb::ListEventsRequest { filter, page_size: PAGE_EVENTS, page_token };
        let page = io.call(request).await?;
        Ok((page.events, page.next_page_token))
    });
    let events = events.await?;
    let empty = "no events; --since sets how far back to look";
    let list = List::new(&events, |event| &event.id, empty);
    list.print_rows(&output.into(), io.out).await
}

fn filter(command: EventsCommand, now: SystemTime) -> pb::EventFilter {
    let EventsCommand { follow: _, since, kind, noun, object, subject, tenant, output: _ } =
        command;
    pb::EventFilter {
        start_time: Some(now.checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH).into()),
        end_time: None,
        kind: kind.map_or(0, |kind| kind as i32),
        noun,
        object_id: object,
        subject,
        tenant,
    }
}

/// Prints stored events, then new ones. After a disconnect, prints no event again.
async fn follow(
    mut filter: pb::EventFilter,
    output: Format,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let mut printed = BTreeSet::new();
    let mut table = GrowingTable::new(&LEAST_CHARS, output == Format::Wide);
    if output.is_for_people() {
        io.print(&table.line(headers(pb::Event::COLUMNS)))?;
    }
    while_unavailable(true, async |failures| {
        let request = pb::WatchEventsRequest { filter: Some(filter.clone()) };
        let mut responses = stream(io.channel, request).await?;
        while let Some(response) = responses.message().await? {
            *failures = 0;
            let Some(WatchEvent::Added(event)) = response.event else { continue };
            if printed.insert(event.id.clone()) {
                let text = match output {
                    Format::Table | Format::Wide => {
                        let row = event.row(SystemTime::UNIX_EPOCH);
                        table.line(row.iter().map(String::as_str))
                    }
                    Format::Name => output::reference::<pb::Event>(&event.id),
                    Format::Json | Format::Yaml | Format::JsonPath(_) => {
                        tinwright::json::write(&event)?.to_string()
                    }
                };
                io.print(&text)?;
            }
            if printed.len() > MAX_REMEMBERED {
                printed.pop_first();
            }
            filter.start_time = later(filter.start_time, before(event.time));
        }
        Err(watch_ended().into())
    })
    .await
}

/// Returns the time from which to continue after an event at `time`.
fn before(time: Option<Timestamp>) -> Option<Timestamp> {
    let time: SystemTime = time?.try_into().ok()?;
    Some(time.checked_sub(OVERLAP)?.into())
}

/// Returns the later of two times.
fn later(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    std::cmp::max_by_key(one, other, |time| time.map(|time| (time.seconds, time.nanos)))
}

impl Row for pb::Event {
    const COLUMNS: &'static str = "TIME,KIND:kind,CALLER,NOUN:noun,OBJECT:object_id,\
        NAME:object_name,STATE,CALL:call,TEXT:text";

    fn cell(&self, column: &str) -> String {
        match column {
            "TIME" => time(self),
            "CALLER" => caller(self),
            _ => change(self),
        }
    }
}

fn time(event: &pb::Event) -> String {
    // Whole seconds.
    let time = event.time.map(|time| Timestamp { nanos: 0, ..time }.to_string());
    time.unwrap_or_default()
}

/// Returns the caller, with the door that forwarded the call.
fn caller(event: &pb::Event) -> String {
    match (event.subject.as_str(), event.via.as_str()) {
        ("", "") => event.owner.clone(),
        (subject, "") => subject.into(),
        (subject, via) => format!("{subject} via {via}"),
    }
}

fn change(event: &pb::Event) -> String {
    let (old, new) = (&event.old_state, &event.new_state);
    match old == new {
        true => new.clone(),
        false if old.is_empty() => new.clone(),
        false => format!("{old} > {new}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> pb::Event {
        pb::Event {
            time: Some(Timestamp { seconds: 1, nanos: 500 }),
            kind: pb::EventKind::Call.into(),
            owner: "instance".into(),
            noun: "instance".into(),
            object_id: "0192".into(),
            old_state: "active".into(),
            new_state: "deprovisioning".into(),
            call: "InstanceService/DeleteInstance".into(),
            subject: "person:anna".into(),
            text: "no longer needed".into(),
            ..pb::Event::default()
        }
    }

    #[test]
    fn a_row_has_time_caller_object_change_call_and_text() {
        let row = event().row(SystemTime::UNIX_EPOCH);
        let wanted = [
            "1970-01-01T00:00:01Z",
            "call",
            "person:anna",
            "instance",
            "0192",
            "",
            "active > deprovisioning",
            "InstanceService/DeleteInstance",
            "no longer needed",
        ];
        assert_eq!(row, wanted);
    }

    #[test]
    fn a_change_by_a_service_has_the_name_of_the_service() {
        let own = pb::Event { subject: String::new(), ..event() };
        assert_eq!(own.row(SystemTime::UNIX_EPOCH)[2], "instance");
        let forwarded = pb::Event { via: "service:gateway".into(), ..event() };
        let caller = &forwarded.row(SystemTime::UNIX_EPOCH)[2];
        assert_eq!(caller, "person:anna via service:gateway");
    }

    #[test]
    fn an_object_with_a_name_has_it_beside_its_id() {
        let named = pb::Event { object_name: "node-1".into(), ..event() };
        let row = named.row(SystemTime::UNIX_EPOCH);
        assert_eq!((row.len(), row[5].as_str()), (headers(pb::Event::COLUMNS).count(), "node-1"));
    }
}

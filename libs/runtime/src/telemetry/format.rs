//! Log lines for people: the time, the level, the target, the event, and then its fields as `name=value`.
//!
//! ```text
//! 2026-11-26T04:38:37.120514Z  INFO tinwright: call ended caller=tinwright:admin call=HardwareService/CreateHardware result=OK
//! ```
//!
//! The fields of spans follow those of the event, the innermost span first. A field whose name is there already is left out. A
//! value with spaces is quoted; no value can contain the end of a line, and one of more than 4 KiB is cut. Before the id of a machine stands `machine=` with its name, if that is
//! known.

use std::fmt::{self, Debug, Write as _};

use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::{MachineNames, beginning};

/// Between two stored fields of a span. Values do not contain it: it is a control character.
const SEPARATOR: char = '\u{1f}';

/// Maximum length of a value. A longer one is cut, because strangers can cause lines.
const MAX_VALUE_BYTES: usize = 4096;

/// The fields with the id of a machine.
const MACHINE_IDS: [&str; 3] = ["hardware.id", "machine.id", "node.id"];
/// The field with the name of a machine.
const MACHINE_NAME: &str = "machine";

/// The format of events.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    /// The names of machines that are shown with their ids.
    pub(super) names: MachineNames,
}

impl Lines {
    /// Adds the name of the machine whose id is in `fields`, unless it is there.
    fn add_machine_name(&self, fields: &mut Vec<String>) {
        let has_id = |field: &String| MACHINE_IDS.contains(&name(field));
        let Some(position) = fields.iter().position(has_id) else { return };
        let id = fields[position].split_once('=').map_or("", |(_, id)| id);
        let is_named = fields.iter().any(|field| name(field) == MACHINE_NAME);
        if let Some(machine) = self.names.get(id).filter(|_| !is_named) {
            fields.insert(position, format!("{MACHINE_NAME}={}", quoted(&machine)));
        }
    }
}

/// The format of fields, as spans store them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields;

/// The message and the other fields of an event, or the fields of a span.
#[derive(Debug, Default)]
struct Collected {
    message: String,
    /// Each as `name=value`.
    fields: Vec<String>,
}

impl Collected {
    fn add(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.replace(char::is_control, " "),
            // Of events that libraries log by the crate log: the place in their sources.
            name if name.starts_with("log.") => {}
            name => {
                let value = beginning(value, MAX_VALUE_BYTES);
                self.fields.push(format!("{name}={}", quoted(value)));
            }
        }
    }
}

impl Visit for Collected {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        self.add(field, &text);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        // The debug text of a string is quoted already.
        let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        match inner.filter(|inner| is_plain(inner)) {
            Some(inner) => self.add(field, inner),
            // A text with a display form of its own may have quotes at its ends and other characters between them.
            None if inner.is_some()
                && !text.contains(char::is_control)
                && field.name() != "message"
                && text.len() <= MAX_VALUE_BYTES =>
            {
                self.fields.push(format!("{}={text}", field.name()));
            }
            None => self.add(field, &text),
        }
    }
}

/// Returns the name of a field `name=value`.
fn name(field: &str) -> &str {
    field.split('=').next().unwrap_or_default()
}

/// True if `value` can stand in a line without quotes.
fn is_plain(value: &str) -> bool {
    let needs_quotes = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '=');
    !value.is_empty() && !value.contains(needs_quotes)
}

/// Returns `value` with quotes around it if it needs them.
fn quoted(value: &str) -> String {
    if is_plain(value) { value.to_owned() } else { format!("{value:?}") }
}

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut collected = Collected::default();
        fields.record(&mut collected);
        for field in &collected.fields {
            write!(writer, "{field}{SEPARATOR}")?;
        }
        Ok(())
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        self.format_fields(current.as_writer(), fields)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, Fields> for Lines {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, Fields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut collected = Collected::default();
        event.record(&mut collected);
        let Collected { message, mut fields } = collected;
        let mut scope = context.event_scope();
        while let Some(span) = scope.as_mut().and_then(Iterator::next) {
            let extensions = span.extensions();
            let Some(stored) = extensions.get::<FormattedFields<Fields>>() else { continue };
            for field in stored.fields.split_terminator(SEPARATOR) {
                if !fields.iter().any(|known| name(known) == name(field)) {
                    fields.push(field.to_owned());
                }
            }
        }
        self.add_machine_name(&mut fields);
        SystemTime.format_time(&mut writer)?;
        let (begin, end) = colours(&writer, *event.metadata().level());
        write!(writer, " {begin}{:>5}{end} ", event.metadata().level().as_str())?;
        write!(writer, "{}: {message}", event.metadata().target())?;
        for field in fields {
            write!(writer, " {field}")?;
        }
        writeln!(writer)
    }
}

/// Returns the escape sequences around a level; empty if `writer` takes none.
fn colours(writer: &Writer<'_>, level: Level) -> (&'static str, &'static str) {
    if !writer.has_ansi_escapes() {
        return ("", "");
    }
    let colour = match level {
        Level::ERROR => "\u{1b}[31m",
        Level::WARN => "\u{1b}[33m",
        Level::INFO => "\u{1b}[32m",
        _ => "\u{1b}[34m",
    };
    (colour, "\u{1b}[0m")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Written {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// Returns the lines that `work` logs, without their times.
    fn logged(colours: bool, work: impl FnOnce()) -> Vec<String> {
        logged_with(Lines::default(), colours, work)
    }

    /// Does the same in the format `lines`.
    fn logged_with(lines: Lines, colours: bool, work: impl FnOnce()) -> Vec<String> {
        let written = Written::default();
        let log = tracing_subscriber::fmt().with_ansi(colours).with_writer(written.clone());
        let log = log.fmt_fields(Fields).event_format(lines).finish();
        tracing::subscriber::with_default(log, work);
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let without_time = |line: &str| line.split_once(' ').unwrap().1.to_owned();
        text.lines().map(without_time).collect()
    }

    #[test]
    fn values_are_literal_and_quoted_only_if_they_need_it() {
        let lines = logged(false, || {
            let (id, reason) = ("01a2", "no machine has this address");
            let none: Option<&str> = None;
            tracing::info!(target: "t", id, shown = %id, debug = ?id, %reason, files = Some(20), none, "a b");
            tracing::info!(target: "t", empty = "", text = ?"a \"b\"", forged = "x\n2026 INFO y", shown = %"\"x\n2026 INFO y\"", "c");
        });
        assert_eq!(
            lines,
            [
                " INFO t: a b id=01a2 shown=01a2 debug=01a2 reason=\"no machine has this address\" files=20",
                r#" INFO t: c empty="" text="a \"b\"" forged="x\n2026 INFO y" shown="\"x\n2026 INFO y\"""#,
            ]
        );
    }

    #[test]
    fn a_field_of_a_span_follows_once_and_so_do_those_that_are_recorded_later() {
        let lines = logged(false, || {
            let caller = tracing::field::Empty;
            let call = tracing::info_span!("call", call = "/a", caller);
            call.record("caller", "person:anna b");
            let _call = call.enter();
            let _inner = tracing::info_span!("inner", instance = "01a2").entered();
            tracing::warn!(target: "t", instance = "01a2", state = "failed", "moved");
        });
        let line = " WARN t: moved instance=01a2 state=failed call=/a caller=\"person:anna b\"";
        assert_eq!(lines, [line]);
    }

    #[test]
    fn the_causes_of_an_error_follow_it_and_a_level_has_a_colour_only_if_wanted() {
        #[derive(Debug, thiserror::Error)]
        #[error("opening the store")]
        struct Opening(#[source] io::Error);
        let error = Opening(io::Error::other("permission denied"));
        let log = || {
            let error = &error as &dyn std::error::Error;
            tracing::error!(target: "t", error, "stopped");
        };
        let line = "ERROR t: stopped error=\"opening the store: permission denied\"";
        assert_eq!(logged(false, log), [line]);
        let coloured = line.replace("ERROR", "\u{1b}[31mERROR\u{1b}[0m");
        assert_eq!(logged(true, log), [coloured]);
    }

    #[test]
    fn the_name_of_a_machine_stands_before_its_id() {
        let names = MachineNames::default();
        names.set("01a2", "node-1");
        let lines = Lines { names: names.clone() };
        let log = || {
            let _span = tracing::info_span!("reconcile", hardware.id = "01a2").entered();
            tracing::info!(target: "t", state = "failed", "moved");
            tracing::info!(target: "t", machine = "own", "named");
            tracing::info!(target: "t", { hardware.id = "01a3" }, "unknown");
            tracing::info!(target: "t", { node.id = "01a2", hardware.id = "01a3" }, "node");
            names.set("01a2", "");
            tracing::info!(target: "t", "nameless");
        };
        assert_eq!(
            logged_with(lines, false, log),
            [
                " INFO t: moved state=failed machine=node-1 hardware.id=01a2",
                " INFO t: named machine=own hardware.id=01a2",
                " INFO t: unknown hardware.id=01a3",
                " INFO t: node machine=node-1 node.id=01a2 hardware.id=01a3",
                " INFO t: nameless hardware.id=01a2",
            ]
        );
    }
}

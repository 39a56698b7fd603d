//! The format `VERSION TIMESTAMP HOSTNAME APP-NAME PROCID MSGID STRUCTURED-DATA MSG` (RFC 5424, section 6).

use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::message::{Message, Priority, escaped};

/// Parses the text after a priority, if it has this format.
pub(crate) fn parse(priority: Priority, text: &str) -> Option<Message> {
    let rest = text.strip_prefix("1 ")?;
    let (timestamp, rest) = field(rest)?;
    let (hostname, rest) = field(rest)?;
    let (app, rest) = field(rest)?;
    let (process, rest) = field(rest)?;
    let (_message_id, rest) = field(rest)?;
    let (_data, text) = structured_data(rest)?;
    let text = text.strip_prefix(' ').unwrap_or(text);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Some(Message {
        priority,
        sent: sent(timestamp)?,
        hostname: value(hostname),
        app: value(app),
        process: value(process),
        text: escaped(text),
    })
}

/// Splits off the field before the next space, which must exist: the structured data follows the last field.
fn field(text: &str) -> Option<(&str, &str)> {
    text.split_once(' ').filter(|(field, _)| !field.is_empty())
}

/// Returns the value of a field; `-` is empty.
fn value(field: &str) -> String {
    if field == "-" { String::new() } else { escaped(field) }
}

/// Parses a time. The outer option is none for an invalid time, the inner one for `-`. More than six digits of a second are
/// accepted, although the RFC forbids them.
fn sent(timestamp: &str) -> Option<Option<SystemTime>> {
    match timestamp {
        "-" => Some(None),
        text => Some(Some(OffsetDateTime::parse(text, &Rfc3339).ok()?.into())),
    }
}

/// Splits off the structured data: `-`, or elements in brackets whose values are quoted, with `\"`, `\\` and `\]`
/// for these characters (section 6.3.3).
fn structured_data(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('-') {
        return (rest.is_empty() || rest.starts_with(' ')).then_some(("", rest));
    }
    let (mut inside, mut quoted, mut escape) = (false, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escape => escape = false,
            '\\' if quoted => escape = true,
            '"' if inside => quoted = !quoted,
            ']' if inside && !quoted => inside = false,
            '[' if !inside => inside = true,
            ' ' if !inside && at > 0 => return text.split_at_checked(at),
            _ if inside => {}
            _ => return None,
        }
    }
    (!inside && !text.is_empty()).then_some((text, ""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Message {
        crate::parse(text.as_bytes())
    }

    #[test]
    fn the_standards_own_examples_are_read() {
        let message = read(
            "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{feff}'su root' failed",
        );
        assert_eq!(message.hostname, "mymachine.example.com");
        assert_eq!((message.app.as_str(), message.process.as_str()), ("su", ""));
        assert_eq!(message.text, "'su root' failed");
        let since = message.sent.unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_millis(), 1_065_910_455_003);
        let message = read(
            "<165>1 2003-10-11T22:14:15.003Z h evntslog - ID47 [exampleSDID@32473 iut=\"3\" \
             eventSource=\"a\\]\\\"b\"][examplePriority@32473 class=\"high\"] An application event",
        );
        assert_eq!(message.text, "An application event");
        assert_eq!(read("<165>1 - h evntslog - ID47 [a@1 b=\"c\"]").app, "evntslog");
        assert_eq!(read("<14>1 - - - - - -").text, "");
    }

    #[test]
    fn seven_digits_of_a_second_are_taken() {
        let message = read("<14>1 2003-10-11T22:14:15.0031234Z h a 7 - - x");
        assert_eq!((message.process.as_str(), message.text.as_str()), ("7", "x"));
    }

    #[test]
    fn an_incomplete_rfc_5424_message_is_text() {
        for wrong in ["<14>1 yesterday h a - - - x", "<14>1 - h a - - [x", "<14>1 - h", "<14>1  "] {
            let message = read(wrong);
            assert_eq!(message.sent, None, "{wrong}");
            assert!(message.text.ends_with(wrong.rsplit(' ').next().unwrap()), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_written_message_is_parsed(
            host in "[!-~&&[^-]]{1,20}", app in "[a-z]{1,9}", process in "[0-9]{1,5}",
            value in "[ -~]{0,20}", text in "[ -~]{0,40}",
        ) {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace(']', "\\]");
            let line = format!("<14>1 - {host} {app} {process} - [x@1 a=\"{value}\"] {text}");
            let read = crate::parse(line.as_bytes());
            prop_assert_eq!((read.hostname, read.app, read.process, read.text), (host, app, process, text));
        }
    }
}

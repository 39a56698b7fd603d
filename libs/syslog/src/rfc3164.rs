//! The format `Mmm dd hh:mm:ss HOST TAG[pid]: text` (RFC 3164, section 4.1). Senders omit any part: iPXE sends
//! `host ipxe: text` without a time, busybox omits the host.

use crate::message::{Message, Priority, escaped};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// The longest tag. The RFC allows 32 octets; today's programs send longer ones.
const MAX_TAG_BYTES: usize = 48;

/// Parses the text after a priority. The time is dropped: it has neither year nor zone.
pub(crate) fn parse(priority: Priority, text: &str) -> Message {
    let rest = without_time(text);
    let message = |hostname: &str, (app, process, text): (&str, &str, &str)| Message {
        hostname: escaped(hostname),
        app: escaped(app),
        process: escaped(process),
        text: escaped(text),
        ..Message::empty(priority)
    };
    if let Some(tagged) = tag(rest) {
        return message("", tagged);
    }
    let named = rest.split_once(' ').and_then(|(host, rest)| Some((host, tag(rest)?)));
    match named.filter(|(host, _)| is_host(host)) {
        Some((host, tagged)) => message(host, tagged),
        None => message("", ("", "", rest)),
    }
}

/// Removes `Mmm dd hh:mm:ss ` from the beginning of `text`.
fn without_time(text: &str) -> &str {
    let timed = || {
        let (time, rest) = text.split_at_checked(16)?;
        let (month, day) = time.split_once(' ')?;
        let (day, clock) = day.trim_start().split_once(' ')?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let is_time = MONTHS.contains(&month)
            && number(day)
            && clock.ends_with(' ')
            && clock.trim_end().split(':').filter(|part| number(part)).count() == 3;
        is_time.then_some(rest)
    };
    timed().unwrap_or(text)
}

/// Parses `TAG[pid]: text` or `TAG: text`. Returns tag, process id and text.
fn tag(text: &str) -> Option<(&str, &str, &str)> {
    let (tag, text) = text.split_once(':')?;
    if tag.is_empty() || tag.len() > MAX_TAG_BYTES || tag.contains(char::is_whitespace) {
        return None;
    }
    let text = text.strip_prefix(' ').unwrap_or(text);
    match tag.strip_suffix(']').and_then(|tag| tag.split_once('[')) {
        Some((tag, process)) if !tag.is_empty() => Some((tag, process, text)),
        Some(_) | None => Some((tag, "", text)),
    }
}

fn is_host(text: &str) -> bool {
    let of_names = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    !text.is_empty() && text.len() <= 255 && text.bytes().all(of_names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Host, program, process and text of a message.
    fn read(text: &str) -> [String; 4] {
        let Message { hostname, app, process, text, .. } = crate::parse(text.as_bytes());
        [hostname, app, process, text]
    }

    #[test]
    fn every_part_may_be_missing() {
        assert_eq!(
            read("<34>Oct 11 22:14:15 mymachine su[12]: 'su root' failed"),
            ["mymachine", "su", "12", "'su root' failed"]
        );
        // busybox's syslogd -R and logger; iPXE with and without its host name.
        assert_eq!(read("<13>Oct  1 22:14:15 root: hi"), ["", "root", "", "hi"]);
        assert_eq!(read("<6>web-1.lab ipxe: hello"), ["web-1.lab", "ipxe", "", "hello"]);
        assert_eq!(read("<6>ipxe: hello"), ["", "ipxe", "", "hello"]);
        assert_eq!(read("<6>hello world"), ["", "", "", "hello world"]);
    }

    #[test]
    fn a_text_with_a_colon_has_no_tag() {
        assert_eq!(read("<6>see you at 12:30"), ["", "", "", "see you at 12:30"]);
        assert_eq!(read("<6>Oct 11 x"), ["", "", "", "Oct 11 x"]);
    }
}

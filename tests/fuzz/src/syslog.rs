//! Syslog: the parser of both formats (RFC 3164, RFC 5424), and the storage of lines.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use netboot::Metrics;
use netboot::syslog::Lines;
use netboot::syslog::server::{LineLimit, Server};
use runtime::Clock;
use syslog::Message;

use crate::Target;
use crate::site::{NODE1, NODE2, index};

/// Maximum size of a datagram, in octets. Longer inputs are truncated.
const MAX_DATAGRAM_OCTETS: usize = 8192;
/// Maximum length of the text for one octet of a datagram: an escape such as `\u{1b}`.
const MAX_ESCAPE_OCTETS: usize = 6;
/// The time between two lines.
const LINE_INTERVAL: Duration = Duration::from_millis(3);
/// Version and nil timestamp of RFC 5424.
const VERSION_AND_TIME: &str = "1 - ";

/// The server without its socket, and a clock.
#[derive(Debug)]
pub struct Syslog {
    server: Server,
    limit: LineLimit,
    now: Instant,
    /// The number of processed inputs.
    inputs: u32,
}

impl Default for Syslog {
    fn default() -> Self {
        Self::new()
    }
}

impl Syslog {
    /// Creates the target.
    pub fn new() -> Self {
        let lines = Arc::new(Lines::new(SystemTime::now()));
        let (index, metrics) = (index(), Metrics::default());
        let server =
            Server { index, allocator: None, lines, metrics, debug: true, clock: Clock::system() };
        Self { server, limit: LineLimit::default(), now: Instant::now(), inputs: 0 }
    }

    /// Returns the source of the next line: the first machine, the second one, or an unknown address.
    fn source(&self) -> IpAddr {
        match self.inputs % 4 {
            0 => NODE1.into(),
            1 => NODE2.into(),
            _ => Ipv4Addr::from(self.inputs.wrapping_mul(0x9e37_79b9)).into(),
        }
    }
}

impl Target for Syslog {
    fn corpus(&self) -> Vec<Vec<u8>> {
        let lines = [
            "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{feff}'su root' failed",
            "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.",
            "<165>1 2003-10-11T22:14:15.003Z h evntslog - ID47 [exampleSDID@32473 iut=\"3\" \
             eventSource=\"a\\]\\\"b\"][examplePriority@32473 class=\"high\"] An application event",
            "<14>1 - - - - - -",
            "<34>Oct 11 22:14:15 mymachine su[12]: 'su root' failed for lonvick on /dev/pts/8",
            "<13>Oct  1 22:14:15 root: hi",
            "<6>web-1.lab ipxe: hello",
            "<6>ipxe: http://198.51.100.1:7080/52-54-00-00-00-01/auto.ipxe... ok\n",
            "<191>tinwright-worker[1]: image2disk 42 %",
            "no priority at all",
        ];
        let long = format!("<14>worker: {}", "\u{1b}[31mred ".repeat(700));
        lines.into_iter().chain([long.as_str()]).map(|line| line.as_bytes().to_vec()).collect()
    }

    fn words(&self) -> Vec<Vec<u8>> {
        let words = [
            "<",
            ">",
            "<0>",
            "<191>",
            "<192>",
            "<999999999999>",
            "1 ",
            "2 ",
            " - ",
            "-",
            "[",
            "]",
            "\"",
            "\\",
            "=",
            ": ",
            "[1]:",
            "\u{feff}",
            "\u{85}",
            "\u{2028}",
            "é",
            "Feb 29 25:61:61 ",
            "2003-10-11T22:14:15.003Z",
            "9999-12-31T23:59:60.9999999999+99:99",
            "-0001-01-01T00:00:00Z",
            "\r\n",
            "\0",
            "\t",
            "\u{1b}[2J",
        ];
        let invalid_utf8 =
            [vec![0xff], vec![0xc3], vec![0xed, 0xa0, 0x80], vec![0xf4, 0x90, 0x80, 0x80]];
        words.map(|word| word.as_bytes().to_vec()).into_iter().chain(invalid_utf8).collect()
    }

    fn take(&mut self, input: &[u8]) -> anyhow::Result<()> {
        let datagram = input.get(..MAX_DATAGRAM_OCTETS).unwrap_or(input);
        let message = syslog::parse(datagram);
        check_message(datagram, &message)?;
        if let Some(line) = encode(&message) {
            let parsed = syslog::parse(line.as_bytes());
            let parsed = Message { sent: message.sent, ..parsed };
            anyhow::ensure!(
                parsed == message,
                "message changed by encoding and parsing: {parsed:?} for {message:?}"
            );
        }
        (self.inputs, self.now) = (self.inputs.wrapping_add(1), self.now + LINE_INTERVAL);
        let source = self.source();
        self.server.receive(&mut self.limit, source, datagram, self.now);
        if self.inputs.is_multiple_of(4096) {
            let lines = self.server.lines.after("", 0, usize::MAX);
            anyhow::ensure!(lines.is_sorted_by_key(|line| line.sequence), "lines out of order");
        }
        Ok(())
    }
}

/// Checks the invariants of a parsed message.
fn check_message(datagram: &[u8], message: &Message) -> anyhow::Result<()> {
    let Message { priority, sent: _, hostname, app, process, text } = message;
    let texts = [hostname, app, process, text];
    let controls = texts.iter().any(|text| text.chars().any(char::is_control));
    anyhow::ensure!(!controls, "control character in {message:?}");
    let octets: usize = texts.iter().map(|text| text.len()).sum();
    let max = MAX_ESCAPE_OCTETS * datagram.len();
    anyhow::ensure!(octets <= max, "{octets} octets of text from {}", datagram.len());
    anyhow::ensure!(!priority.facility().is_empty(), "no facility");
    Ok(())
}

/// Encodes `message` by RFC 5424, without its time. None if a header field has a blank or is the nil value `-`.
fn encode(message: &Message) -> Option<String> {
    let Message { priority, sent: _, hostname, app, process, text } = message;
    let fields = [hostname, app, process];
    if fields.iter().any(|field| field.contains(' ') || *field == "-") {
        return None;
    }
    let [hostname, app, process] = fields.map(|field| if field.is_empty() { "-" } else { field });
    let number = priority.0;
    Some(format!("<{number}>{VERSION_AND_TIME}{hostname} {app} {process} - - \u{feff}{text}"))
}

//! What happened in each boot (netboot specification, section 12.3): noted where it happens, merged per boot, and kept.
//!
//! ```text
//! DHCP, TFTP, HTTP, feeds ─note─▶ queue ─▶ merge ─▶ held ─a few at a time─▶ store
//! ```
//!
//! Whoever answers machines calls [`Timeline::note`] and goes on: it never waits. What does not fit the queue, or cannot be
//! stored while the store is away for long, is dropped and counted.
//!
//! - [`merge`]: which events are one boot, [`held`]: the boots that may grow or have yet to be kept; no clock, no store.
//! - [`records`]: the boots that are kept; `recorder`: the loop between the two; [`dhcp`]: what an exchange is worth noting.

pub mod dhcp;
pub mod held;
pub mod merge;
mod recorder;
pub mod records;

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::SystemTime;

use tinwright::netboot::v1::BootEventKind as Kind;
use tokio::sync::mpsc;

use crate::Mac;
use crate::dhcp::client::Class;
use crate::index::Known;
use crate::metrics::Metrics;

pub use recorder::Recorder;

/// How many events may wait: those of a rack that is powered on at once.
const QUEUE: usize = 8192;

/// Whose boot it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// A machine's, by the hardware's id, and the interface it shows itself by.
    Machine(String, Mac),
    /// Nobody knows whose.
    Stranger(Mac),
}

impl From<&Known> for Who {
    fn from(known: &Known) -> Self {
        Self::Machine(known.hardware.id.clone(), known.mac)
    }
}

impl Who {
    /// What ids of its boots begin with.
    pub(crate) fn owner(&self) -> Cow<'_, str> {
        match self {
            Self::Machine(id, _) => id.into(),
            Self::Stranger(mac) => format!("{}{}", records::UNKNOWN, mac.dashed()).into(),
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Firmware or a loader asked for an address.
    Discover(Class),
    /// It was given one; and told to boot this, or to go on.
    Ack(Class, String),
    /// A loader was fetched: its name.
    Binary(String),
    /// A script of this kind was served, since this is so.
    Script {
        /// As [`Served`](crate::boots::Served) has it.
        kind: &'static str,
        /// The fact that decided, for people.
        fact: String,
    },
    /// The kernel was fetched: its name.
    Kernel(String),
    /// The initramfs was fetched: its name.
    Initrd(String),
    /// The script was about to start what it had fetched.
    Started,
    /// The script gave up, or what it asked for could not be served.
    Failed(String),
    /// A script or a file was refused: why, for people.
    Refused(String),
    /// The installed system called home.
    PhoneHome,
    /// It found its address in use by somebody else.
    Declined(String),
    /// Nobody knows it, and it wanted to boot.
    Unknown(Class),
}

/// Something that happened in a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// To whom.
    pub who: Who,
    /// What.
    pub what: What,
    /// From which address, if it has one.
    pub source: Option<IpAddr>,
    /// When.
    pub at: SystemTime,
}

impl What {
    /// As the contract has it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Discover(_) => Kind::DhcpDiscover,
            Self::Ack(..) => Kind::DhcpAck,
            Self::Binary(_) => Kind::BinaryServed,
            Self::Script { .. } => Kind::ScriptServed,
            Self::Kernel(_) => Kind::KernelServed,
            Self::Initrd(_) => Kind::InitrdServed,
            Self::Started => Kind::Started,
            Self::Failed(_) => Kind::Failed,
            Self::Refused(_) => Kind::GateRefused,
            Self::PhoneHome => Kind::PhoneHome,
            Self::Declined(_) => Kind::Declined,
            Self::Unknown(_) => Kind::UnknownMachine,
        }
    }

    /// What else is to be said, for people.
    pub fn detail(&self) -> String {
        match self {
            Self::Discover(class) | Self::Unknown(class) => class_name(*class).into(),
            Self::Ack(class, told) => [class_name(*class), ", ", told].concat(),
            Self::Script { kind, .. } => (*kind).into(),
            Self::Binary(text)
            | Self::Kernel(text)
            | Self::Initrd(text)
            | Self::Failed(text)
            | Self::Refused(text)
            | Self::Declined(text) => text.clone(),
            Self::Started | Self::PhoneHome => String::new(),
        }
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Pxe => "PXE",
        Class::Http => "HTTP boot",
        Class::Ipxe { http: true } => "iPXE",
        Class::Ipxe { http: false } => "iPXE without HTTP",
        Class::Ordinary => "ordinary",
    }
}

/// Where events are noted. Cheap to share. The default one forgets them.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    queue: Option<mpsc::Sender<Event>>,
    metrics: Metrics,
}

impl Timeline {
    /// A timeline, and what it is read by.
    pub(crate) fn new(metrics: Metrics) -> (Self, mpsc::Receiver<Event>) {
        let (queue, events) = mpsc::channel(QUEUE);
        (Self { queue: Some(queue), metrics }, events)
    }

    /// Notes `event`, at once: where it cannot be, it is counted as dropped.
    pub fn note(&self, event: Event) {
        if let Some(queue) = &self.queue
            && queue.try_send(event).is_err()
        {
            self.metrics.events_dropped(1);
        }
    }
}

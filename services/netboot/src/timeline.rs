//! What happened in each boot (netboot specification, section 12.3): noted where it happens, merged per boot, and kept.
//!
//! ```text
//! DHCP, TFTP, HTTP, feeds ─note─▶ queue ─many at a time─▶ merge ─▶ held ─a few at a time─▶ store
//! ```
//!
//! Whoever answers machines calls [`Timeline::note`] and goes on: it never waits, and wakes nobody while few events wait. What
//! does not fit the queue, or cannot be stored while the store is away for long, is dropped and counted.
//!
//! - `queue`: the events that wait to be merged.
//! - [`merge`]: which events are one boot, [`held`]: the boots that may grow or have yet to be kept; no clock, no store.
//! - [`records`]: the boots that are kept; `recorder`: the loop between the two; [`exchange`]: what an exchange is worth noting.

pub mod exchange;
pub mod merge;
pub mod open_boots;
mod queue;
mod recorder;
pub mod records;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use tinwright::HardwareId;
use tinwright::netboot::v1::BootEventKind as Kind;

use crate::Mac;
use crate::decision::Fact;
use crate::index::Known;
use crate::metrics::Metrics;
use dhcp::ClientClass;

pub(crate) use self::queue::Queue;
pub use self::recorder::Recorder;

/// Whose boot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootSubject {
    /// A machine's, and the interface it shows itself by.
    Machine(HardwareId, Mac),
    /// Nobody knows whose.
    UnknownClient(Mac),
}

impl From<&Known> for BootSubject {
    fn from(known: &Known) -> Self {
        Self::Machine(known.id, known.mac)
    }
}

impl BootSubject {
    /// Whose boots this one is among.
    pub fn owner(self) -> BootOwner {
        match self {
            Self::Machine(id, _) => BootOwner::Machine(id),
            Self::UnknownClient(mac) => BootOwner::UnknownClient(mac),
        }
    }

    /// The interface.
    pub fn mac(self) -> Mac {
        let (Self::Machine(_, mac) | Self::UnknownClient(mac)) = self;
        mac
    }
}

/// Whose boots follow each other. Written as ids of its boots begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BootOwner {
    /// A machine.
    Machine(HardwareId),
    /// An interface that nobody knows.
    UnknownClient(Mac),
}

impl fmt::Display for BootOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(id) => id.fmt(f),
            Self::UnknownClient(mac) => write!(f, "{}{}", records::UNKNOWN, mac.dashed()),
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootStep {
    /// Firmware or a loader asked for an address.
    Discover(ClientClass),
    /// It was given one; and told to boot this, or to go on.
    Ack(ClientClass, String),
    /// A loader was fetched: its name.
    Binary(String),
    /// A script of this kind was served, since this is so.
    Script {
        /// As [`Served`](crate::boots::Served) has it.
        kind: &'static str,
        /// The fact that decided.
        fact: Fact,
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
    Unknown(ClientClass),
}

/// Something that happened in a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// To whom.
    pub who: BootSubject,
    /// What.
    pub what: BootStep,
    /// From which address, if it has one.
    pub source: Option<IpAddr>,
    /// When.
    pub at: SystemTime,
}

impl BootStep {
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

    /// The text in it, if there is one.
    fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Ack(_, text)
            | Self::Binary(text)
            | Self::Kernel(text)
            | Self::Initrd(text)
            | Self::Failed(text)
            | Self::Refused(text)
            | Self::Declined(text) => Some(text),
            Self::Discover(_)
            | Self::Unknown(_)
            | Self::Script { .. }
            | Self::Started
            | Self::PhoneHome => None,
        }
    }
}

fn class_name(class: ClientClass) -> &'static str {
    match class {
        ClientClass::Pxe => "PXE",
        ClientClass::Http => "HTTP boot",
        ClientClass::Ipxe { http: true } => "iPXE",
        ClientClass::Ipxe { http: false } => "iPXE without HTTP",
        ClientClass::Ordinary => "ordinary",
    }
}

/// Where events are noted. Cheap to share. The default one forgets them.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    queue: Option<Arc<Queue>>,
    metrics: Metrics,
}

impl Timeline {
    /// A timeline, and what it is read by.
    pub(crate) fn new(metrics: Metrics) -> (Self, Arc<Queue>) {
        let queue = Arc::new(Queue::default());
        (Self { queue: Some(queue.clone()), metrics }, queue)
    }

    /// Notes `event`, at once: where it cannot be, it is counted as dropped.
    pub fn record(&self, event: Event) {
        if let Some(queue) = &self.queue
            && !queue.push(event)
        {
            self.metrics.events_dropped(1);
        }
    }
}

//! Timelines of boots: events are recorded where they happen, merged into boots, and stored.
//!
//! ```text
//! DHCP, TFTP, HTTP, feeds ─record─▶ queue ─many at a time─▶ merge ─▶ open boots ─a few at a time─▶ store
//! ```
//!
//! A server that answers machines calls [`Timeline::record`] and goes on: the call never waits, and wakes no task while few
//! events wait. An event that does not fit into the queue, or cannot be stored for long, is dropped and counted.
//!
//! - `queue`: events that wait to be merged.
//! - [`merge`]: assigns events to boots; [`open_boots`]: boots that may grow or are not stored yet; no clock, no store.
//! - [`records`]: stored boots; `recorder`: the loop between the two.

pub mod merge;
pub mod open_boots;
mod queue;
mod recorder;
pub mod records;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use dhcp::ClientClass;
use tinwright::HardwareId;
use tinwright::netboot::v1::{BootEventKind as Kind, ScriptKind};

use crate::Mac;
use crate::decision::Fact;
use crate::ipxe::kind_label;
use crate::machine_view::MachineView;
use crate::metrics::Metrics;

pub(crate) use self::queue::Queue;
pub use self::recorder::Recorder;

/// The client that boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootSubject {
    /// A machine with a record, and the interface that it used.
    Machine(HardwareId, Mac),
    /// A client without a record.
    UnknownClient(Mac),
}

impl From<&MachineView> for BootSubject {
    fn from(known: &MachineView) -> Self {
        Self::Machine(known.id, known.mac)
    }
}

impl BootSubject {
    /// Returns the owner that the boot is filed under.
    pub fn owner(self) -> BootOwner {
        match self {
            Self::Machine(id, _) => BootOwner::Machine(id),
            Self::UnknownClient(mac) => BootOwner::UnknownClient(mac),
        }
    }

    /// Returns the interface.
    pub fn mac(self) -> Mac {
        let (Self::Machine(_, mac) | Self::UnknownClient(mac)) = self;
        mac
    }
}

/// Owner of a sequence of boots. Its text is what the ids of its boots begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BootOwner {
    /// A machine.
    Machine(HardwareId),
    /// An interface without a record.
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

/// A step of a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootStep {
    /// Firmware or a loader requested an address.
    Discover(ClientClass),
    /// It was given an address, and a boot file or none.
    Ack(ClientClass, String),
    /// A loader was fetched; its name.
    Binary(String),
    /// A script was served.
    Script {
        /// Kind of the script.
        kind: ScriptKind,
        /// Fact that decided.
        fact: Fact,
    },
    /// The kernel was fetched; its name.
    Kernel(String),
    /// The initramfs was fetched; its name.
    Initrd(String),
    /// The script was about to start what it had fetched.
    Started,
    /// The script gave up, or a file could not be served.
    Failed(String),
    /// A script or a file was refused; the reason.
    Refused(String),
    /// The installed system phoned home.
    PhoneHome,
    /// It found its address in use by another host.
    Declined(String),
    /// A client without a record wanted to boot.
    Unknown(ClientClass),
}

/// A step of a boot, with its subject and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Client that took the step.
    pub subject: BootSubject,
    /// The step.
    pub step: BootStep,
    /// Address of the client, if it has one.
    pub source: Option<IpAddr>,
    /// Time.
    pub at: SystemTime,
}

impl Event {
    /// A step of `machine`.
    pub fn of(
        machine: &MachineView,
        step: BootStep,
        source: Option<IpAddr>,
        at: SystemTime,
    ) -> Self {
        Self { subject: BootSubject::from(machine), step, source, at }
    }
}

impl BootStep {
    /// Returns the kind of event in the contract.
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

    /// Returns the detail, for people.
    pub fn detail(&self) -> String {
        match self {
            Self::Discover(class) | Self::Unknown(class) => class_name(*class).into(),
            Self::Ack(class, file) => [class_name(*class), ", ", file].concat(),
            Self::Script { kind, .. } => kind_label(*kind).into(),
            Self::Binary(text)
            | Self::Kernel(text)
            | Self::Initrd(text)
            | Self::Failed(text)
            | Self::Refused(text)
            | Self::Declined(text) => text.clone(),
            Self::Started | Self::PhoneHome => String::new(),
        }
    }

    /// Returns the text in it, if there is one.
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

/// Takes events. Cheap to share. The default one drops them.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    queue: Option<Arc<Queue>>,
    metrics: Metrics,
}

impl Timeline {
    /// A timeline, and the queue that its events are read from.
    pub(crate) fn new(metrics: Metrics) -> (Self, Arc<Queue>) {
        let queue = Arc::new(Queue::default());
        (Self { queue: Some(queue.clone()), metrics }, queue)
    }

    /// Records `event` without waiting. If the queue is full, the event is counted as dropped.
    pub fn record(&self, event: Event) {
        if let Some(queue) = &self.queue
            && !queue.push(event)
        {
            self.metrics.events_dropped(1);
        }
    }
}

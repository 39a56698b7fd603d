//! Timelines of boots: events are recorded where they happen, merged into boots, and stored.
//!
//! ```text
//! DHCP, TFTP, HTTP, feeds ─record─▶ queue ─many at a time─▶ merge ─▶ open boots ─a few at a time─▶ store
//! ```
//!
//! [`Timeline::record`] never waits, and wakes no task while the queue is short. An event that does not fit into the queue,
//! or cannot be stored for long, is dropped and counted.
//!
//! - `queue`: events to be merged.
//! - [`merge`]: assigns events to boots; [`open_boots`]: boots that may grow or are not stored yet. No clock, no store.
//! - [`records`]: stored boots; `recorder`: the loop that merges events and stores boots.
//! - [`step_reports`]: reports to the workflow service.

pub mod merge;
pub mod open_boots;
mod queue;
mod recorder;
pub mod records;
pub mod step_reports;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use dhcp::ClientClass;
use tinwright::HardwareId;
use tinwright::netboot::v1::{BootEventKind as Kind, ScriptKind};

use crate::Mac;
use crate::bootscripts::BootRefusal;
use crate::decision::Fact;
use crate::ipxe::kind_label;
use crate::machine_view::MachineView;
use crate::metrics::Metrics;

pub(crate) use self::queue::Queue;
pub use self::recorder::Recorder;

/// The owner of a sequence of boots. The ids of its boots begin with its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BootOwner {
    /// A machine with a record.
    Machine(HardwareId),
    /// A client without a record.
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
pub struct BootStep {
    /// The kind of event in the contract.
    pub kind: Kind,
    /// The client class, of DHCP requests and replies.
    pub class: Option<ClientClass>,
    /// The script that was served, and the fact that decided.
    pub script: Option<(ScriptKind, Fact)>,
    /// The detail, for people: the name of a file, or the reason of a failure or refusal.
    pub detail: Cow<'static, str>,
    /// The reason why a DHCP request is not offered a boot, if it is refused one.
    pub refusal: Option<String>,
    /// True for the refusal of a boot that was not seen from its firmware on.
    pub is_unseen: bool,
}

impl BootStep {
    /// A step of a kind that has nothing but a detail.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        let (class, script, refusal, detail) = (None, None, None, detail.into());
        Self { kind, class, script, detail, refusal, is_unseen: false }
    }

    /// A boot that was refused.
    pub fn refused(refusal: &BootRefusal) -> Self {
        let is_unseen = *refusal == BootRefusal::Unseen;
        Self { is_unseen, ..Self::new(Kind::GateRefused, refusal.to_string()) }
    }

    /// A request of a client of `class`.
    pub fn request(kind: Kind, class: ClientClass) -> Self {
        Self { class: Some(class), ..Self::new(kind, class_name(class)) }
    }

    /// A reply that gives a client of `class` an address, and `file` or none.
    pub fn ack(class: ClientClass, file: &str) -> Self {
        let detail = [class_name(class), ", ", file].concat();
        Self { class: Some(class), ..Self::new(Kind::DhcpAck, detail) }
    }

    /// The same step with the reason for which its client is refused a boot, if it is.
    pub fn with_refusal(mut self, refusal: Option<String>) -> Self {
        if let Some(reason) = &refusal {
            self.detail = [&self.detail, ", refused: ", reason].concat().into();
        }
        Self { refusal, ..self }
    }

    /// A script that was served.
    pub fn script(kind: ScriptKind, fact: Fact) -> Self {
        Self { script: Some((kind, fact)), ..Self::new(Kind::ScriptServed, kind_label(kind)) }
    }
}

/// A step of a boot, with its owner and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The owner of the boot.
    pub owner: BootOwner,
    /// The interface that took the step.
    pub mac: Mac,
    /// The step.
    pub step: BootStep,
    /// The address of the client, if it has one.
    pub source: Option<IpAddr>,
    /// The time.
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
        Self { owner: BootOwner::Machine(machine.id), mac: machine.mac, step, source, at }
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

/// Records events. Clones share the queue.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub(crate) queue: Arc<Queue>,
    metrics: Metrics,
}

impl Timeline {
    /// Creates a timeline that counts in `metrics`. A [`Recorder`] reads its queue.
    pub fn new(metrics: Metrics) -> Self {
        Self { queue: Arc::default(), metrics }
    }

    /// Records `event` without waiting. If the queue is full, the event is dropped and counted.
    pub fn record(&self, event: Event) {
        if !self.queue.push(event) {
            self.metrics.dropped_boot_events.inc();
        }
    }
}

//! What a machine boots now: one pure function over what is known, and the fact that decided.
//!
//! ```text
//! may it boot from the network at all?      operator, hardware state, instance, interface flag
//!   no  ─> LocalDisk, Refused
//!   yes ─> which script?                    once, interface, instance, rescue, workflow, nobody's
//!            └─> does it open a boot while the control plane is out of reach?  ─> Later
//! ```
//!
//! The order is the netboot specification's, section 7. Nothing that is missing, stale or in doubt turns a no into a
//! yes: a machine that runs somebody's system must never be given an installer by mistake.

use std::fmt;
use std::time::{Duration, SystemTime};

/// When a client that cannot be served now shall ask again.
pub const RETRY: Duration = Duration::from_secs(5);

/// The machine's own state, as its record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardwareState {
    /// Known, not verified.
    Enrolled,
    /// Free for an instance.
    Provisionable,
    /// An automatic step failed.
    Failed,
    /// An operator holds it; nothing automatic happens to it.
    Maintenance,
    /// Being removed.
    Deleting,
}

/// The state of the instance that occupies a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names are the instance service's
pub enum InstanceState {
    Queued,
    Provisioning,
    Active,
    Reinstalling,
    Rescue,
    Failed,
    Deprovisioning,
    DeprovisionFailed,
    /// Gone: the machine counts as free.
    Deleted,
}

impl InstanceState {
    /// Whether the machine is being taken from its tenant, whose scripts have nothing more to say.
    fn leaving(self) -> bool {
        matches!(self, Self::Deprovisioning | Self::DeprovisionFailed)
    }
}

/// A script that is not ours: at most one of the two is looked at, the text first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptSource {
    /// The text itself.
    Contents(String),
    /// Where the machine fetches it.
    Url(String),
}

/// What the machine's record says about booting by one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Netboot {
    /// Whether it may while nobody occupies the machine.
    pub allow_pxe: bool,
    /// Whether the worker's environment is offered although no workflow waits.
    pub allow_workflow: bool,
    /// The owner's own script.
    pub custom: Option<ScriptSource>,
}

/// What occupies the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// Its state.
    pub state: InstanceState,
    /// Its own script, where it has one in place of an operating system.
    pub custom: Option<ScriptSource>,
    /// Whether that script runs at every boot, not only at the first.
    pub always_pxe: bool,
    /// Whether the machine began that script, so that its next boot is the disk's.
    pub script_ran: bool,
    /// Whether it has an operating system of the site's on its disk, or gets one.
    pub has_os: bool,
}

/// An operator's word against everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// Whether the machine boots from the network.
    pub netboot: bool,
    /// Until when; none for until taken back.
    pub until: Option<SystemTime>,
}

impl Override {
    fn holds(&self, now: SystemTime) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// What a machine without an instance boots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoInstance {
    /// The worker's environment.
    #[default]
    Worker,
    /// Its disk.
    LocalDisk,
    /// iPXE's shell: a console without a password, so never by default.
    Shell,
}

/// What the site does where the records leave a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Machines without an instance.
    pub no_instance: NoInstance,
    /// Whether machines without a record get the generic script.
    pub boot_unknown: bool,
}

/// What is known about a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    /// Its own state.
    pub state: HardwareState,
    /// The interface it boots by.
    pub netboot: Netboot,
    /// A script for the next boot only.
    pub boot_once: Option<ScriptSource>,
    /// What occupies it.
    pub instance: Option<Occupant>,
    /// Whether its workflow still has something to run in the worker's environment: not once a terminal action's start
    /// is stored, nor after success.
    pub worker_wanted: bool,
    /// An operator's word.
    pub forced: Option<Override>,
}

/// Whether what is known is what is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedState {
    /// The control plane tells of every change.
    Live,
    /// It is out of reach: this is what it told last.
    Stale,
    /// It has not told everything yet: what is not known may be so all the same.
    Incomplete,
}

/// What to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootTarget {
    /// The worker's environment.
    Worker,
    /// The same environment without a worker, for people.
    Rescue,
    /// A script that is not ours.
    CustomScript {
        /// The script.
        script: ScriptSource,
        /// Whether it is a tenant's, so that a boot grant must be open where their platform keeps one.
        gated: bool,
    },
    /// The next boot device: the system is on disk.
    LocalDisk,
    /// iPXE's shell.
    Shell,
    /// The generic script for machines without a record.
    Generic,
    /// Nothing: this machine does not boot from the network now.
    Refused,
    /// Nothing: nobody knows the machine.
    Unknown,
    /// Nothing yet: what would be booted must not be on last word only.
    Later {
        /// When to ask again.
        retry: Duration,
    },
}

/// What decided, in one line for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each says it in its text
pub enum Fact {
    NoRecord,
    UnknownBooted,
    ForcedOff,
    ForcedOn,
    Held(HardwareState),
    InterfaceFlag,
    BootOnce,
    InterfaceScript,
    InstanceScript,
    ScriptRan,
    Instance(InstanceState),
    DisksTurn(InstanceState),
    WorkflowWaits,
    AllowWorkflow,
    NoInstance,
    StaleFeed,
    FeedIncomplete,
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRecord => f.write_str("no machine has this address"),
            Self::UnknownBooted => f.write_str("the site boots machines without a record"),
            Self::ForcedOff => f.write_str("an operator forced netboot off"),
            Self::ForcedOn => f.write_str("an operator forced netboot on"),
            Self::Held(state) => write!(f, "the machine is {}", hardware(*state)),
            Self::InterfaceFlag => f.write_str("its record does not allow PXE on this interface"),
            Self::BootOnce => f.write_str("a script waits for its next boot"),
            Self::InterfaceScript => {
                f.write_str("its record has an iPXE script for this interface")
            }
            Self::InstanceScript => f.write_str("its instance brings its own iPXE script"),
            Self::ScriptRan => f.write_str("its instance's own script was started before"),
            Self::Instance(state) => write!(f, "its instance is {}", instance(*state)),
            Self::DisksTurn(state) => write!(
                f,
                "its instance is {}, its workflow is done with the worker",
                instance(*state)
            ),
            Self::WorkflowWaits => f.write_str("its workflow waits for the worker"),
            Self::AllowWorkflow => f.write_str("its record allows workflows"),
            Self::NoInstance => f.write_str("no instance occupies it"),
            Self::StaleFeed => f.write_str("the control plane is out of reach"),
            Self::FeedIncomplete => f.write_str("the control plane has not told everything yet"),
        }
    }
}

impl fmt::Display for HardwareState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hardware(*self))
    }
}

fn hardware(state: HardwareState) -> &'static str {
    match state {
        HardwareState::Enrolled => "enrolled",
        HardwareState::Provisionable => "provisionable",
        HardwareState::Failed => "failed",
        HardwareState::Maintenance => "in maintenance",
        HardwareState::Deleting => "being deleted",
    }
}

fn instance(state: InstanceState) -> &'static str {
    match state {
        InstanceState::Queued => "queued",
        InstanceState::Provisioning => "provisioning",
        InstanceState::Active => "active",
        InstanceState::Reinstalling => "reinstalling",
        InstanceState::Rescue => "in rescue",
        InstanceState::Failed => "failed",
        InstanceState::Deprovisioning => "deprovisioning",
        InstanceState::DeprovisionFailed => "failed in deprovisioning",
        InstanceState::Deleted => "deleted",
    }
}

/// What to boot, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What.
    pub boot: BootTarget,
    /// The fact that decided.
    pub fact: Fact,
}

impl Decision {
    fn new(boot: BootTarget, fact: Fact) -> Self {
        Self { boot, fact }
    }

    /// Whether it lets a machine run something other than its disk; only a live feed may.
    pub fn opens_a_boot(&self) -> bool {
        match self.boot {
            BootTarget::Worker
            | BootTarget::Rescue
            | BootTarget::CustomScript { .. }
            | BootTarget::Shell
            | BootTarget::Generic => true,
            BootTarget::LocalDisk
            | BootTarget::Refused
            | BootTarget::Unknown
            | BootTarget::Later { .. } => false,
        }
    }

    /// What DHCP makes of it. A loader opens nothing by itself, and its script request is told when to ask again;
    /// so a machine that must wait is sent that way.
    pub fn offer(&self) -> dhcp::BootOffer {
        let later = matches!(self.boot, BootTarget::Later { .. });
        if later || self.opens_a_boot() {
            dhcp::BootOffer::Offered
        } else {
            dhcp::BootOffer::Refused
        }
    }
}

/// What `machine` boots at `now`; none is a machine without a record.
pub fn decide(
    machine: Option<&MachineFacts>,
    policy: Policy,
    feed: FeedState,
    now: SystemTime,
) -> Decision {
    let decision = match machine {
        Some(machine) => machine.decide(policy, now),
        None if policy.boot_unknown => Decision::new(BootTarget::Generic, Fact::UnknownBooted),
        None => Decision::new(BootTarget::Unknown, Fact::NoRecord),
    };
    match feed {
        FeedState::Stale if decision.opens_a_boot() => {
            Decision::new(BootTarget::Later { retry: RETRY }, Fact::StaleFeed)
        }
        FeedState::Incomplete => {
            Decision::new(BootTarget::Later { retry: RETRY }, Fact::FeedIncomplete)
        }
        FeedState::Stale | FeedState::Live => decision,
    }
}

impl MachineFacts {
    fn decide(&self, policy: Policy, now: SystemTime) -> Decision {
        let forced = self.forced.filter(|forced| forced.holds(now)).map(|forced| forced.netboot);
        let closed = match forced {
            Some(false) => Some(Decision::new(BootTarget::Refused, Fact::ForcedOff)),
            Some(true) => None,
            None => self.closed(),
        };
        closed.unwrap_or_else(|| self.script(policy, forced == Some(true)))
    }

    fn occupant(&self) -> Option<&Occupant> {
        self.instance.as_ref().filter(|instance| instance.state != InstanceState::Deleted)
    }

    /// The script that its instance brings, unless it is taken from its tenant.
    pub fn brought(&self) -> Option<&ScriptSource> {
        let instance = self.occupant()?;
        instance.custom.as_ref().filter(|_| !instance.state.leaving())
    }

    /// The same while it is that script's turn.
    fn instance_script(&self) -> Option<&ScriptSource> {
        let Occupant { state, always_pxe, script_ran, .. } = self.occupant()?;
        let first = *state == InstanceState::Provisioning && !script_ran;
        self.brought().filter(|_| first || *always_pxe)
    }

    /// Why it may not boot from the network, unless it may (control-plane specification, section 3.3: derived, never
    /// stored).
    fn closed(&self) -> Option<Decision> {
        if matches!(self.state, HardwareState::Maintenance | HardwareState::Deleting) {
            return Some(Decision::new(BootTarget::Refused, Fact::Held(self.state)));
        }
        let Some(instance) = self.occupant() else {
            return (!self.netboot.allow_pxe)
                .then_some(Decision::new(BootTarget::Refused, Fact::InterfaceFlag));
        };
        if self.worker_wanted || self.instance_script().is_some() {
            return None;
        }
        let installed = instance.has_os || instance.custom.is_some();
        match instance.state {
            InstanceState::Rescue
            | InstanceState::Failed
            | InstanceState::Deprovisioning
            | InstanceState::DeprovisionFailed => None,
            InstanceState::Provisioning if instance.script_ran => {
                Some(Decision::new(BootTarget::LocalDisk, Fact::ScriptRan))
            }
            InstanceState::Provisioning | InstanceState::Reinstalling => {
                Some(Decision::new(BootTarget::LocalDisk, Fact::DisksTurn(instance.state)))
            }
            InstanceState::Active if installed => {
                Some(Decision::new(BootTarget::LocalDisk, Fact::Instance(instance.state)))
            }
            InstanceState::Active | InstanceState::Queued | InstanceState::Deleted => {
                Some(Decision::new(BootTarget::Refused, Fact::Instance(instance.state)))
            }
        }
    }

    /// Which script, now that it may boot one.
    fn script(&self, policy: Policy, forced: bool) -> Decision {
        let custom = |script: &ScriptSource, gated| BootTarget::CustomScript {
            script: script.clone(),
            gated,
        };
        if let Some(once) = &self.boot_once {
            return Decision::new(custom(once, false), Fact::BootOnce);
        }
        if let Some(script) = &self.netboot.custom {
            return Decision::new(custom(script, false), Fact::InterfaceScript);
        }
        if let Some(script) = self.instance_script() {
            return Decision::new(custom(script, true), Fact::InstanceScript);
        }
        let state = self.occupant().map(|instance| instance.state);
        match state {
            Some(InstanceState::Rescue) => {
                Decision::new(BootTarget::Rescue, Fact::Instance(InstanceState::Rescue))
            }
            _ if self.worker_wanted => Decision::new(BootTarget::Worker, Fact::WorkflowWaits),
            _ if self.netboot.allow_workflow => {
                Decision::new(BootTarget::Worker, Fact::AllowWorkflow)
            }
            _ if forced => Decision::new(BootTarget::Worker, Fact::ForcedOn),
            Some(state) => Decision::new(BootTarget::Worker, Fact::Instance(state)),
            None => {
                let boot = match policy.no_instance {
                    NoInstance::Worker => BootTarget::Worker,
                    NoInstance::LocalDisk => BootTarget::LocalDisk,
                    NoInstance::Shell => BootTarget::Shell,
                };
                Decision::new(boot, Fact::NoInstance)
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Decides what a machine boots now: a pure function of its records.
//!
//! ```text
//! may it boot from the network at all?      hardware state, instance, interface flag
//!   no  ─> LocalDisk, Refused
//!   yes ─> which script?                    one-shot, interface, instance, workflow, policy
//!            └─> does it open a boot while the control plane is out of reach?  ─> Later
//! ```
//!
//! The table is `docs/reference/boot-decision.md`. Missing, stale or ambiguous data never turns a refusal into a boot: a
//! machine that runs an installed system must never be given an installer by mistake.

use std::time::Duration;

use fleet::Freshness;

/// The pause before a client that cannot be served now repeats its request.
pub const RETRY: Duration = Duration::from_secs(5);

/// The state of a hardware record. States of a newer server are unspecified, and count as enrolled.
pub use tinwright::hardware::v1::State as HardwareState;
/// The state of an instance. States of a newer server are unspecified, and count as active: the disk is left alone.
pub use tinwright::instance::v1::State as InstanceState;

/// A custom script: its text or its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptSource {
    /// The text, which netboot serves.
    Contents(String),
    /// The URL that the machine fetches it from.
    Url(String),
    /// The path of one of the private files of platforms that netboot serves.
    PrivateFile(String),
}

/// Boot settings of one interface in the hardware record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceSettings {
    /// True if it may boot from the network while no instance occupies the machine.
    pub allow_pxe: bool,
    /// True if the worker's environment is offered although no workflow waits.
    pub allow_workflow: bool,
    /// The operator's custom script for this interface.
    pub custom: Option<ScriptSource>,
}

/// The instance that occupies a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// Its state.
    pub state: InstanceState,
    /// Custom script that it has in place of an operating system.
    pub custom: Option<ScriptSource>,
    /// True if that script runs at every boot, not only at the first.
    pub always_pxe: bool,
    /// True if the machine started that script, so that it boots its disk next.
    pub script_ran: bool,
    /// True if it has an operating system on its disk, or is getting one.
    pub has_os: bool,
    /// The system of an outside platform that it has in place of an operating system.
    pub platform: Option<PlatformSystem>,
    /// True if the machine is a node, which loads its environment from the network at every boot.
    pub is_node: bool,
}

/// The system of an outside platform, which is loaded from the network at every boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformSystem {
    /// The platform's script; none while the boot gate is closed.
    pub script: Option<ScriptSource>,
}

impl Occupant {
    /// True if the machine is being taken from its tenant, whose scripts no longer run.
    pub fn is_leaving(&self) -> bool {
        matches!(self.state, InstanceState::Deprovisioning | InstanceState::DeprovisionFailed)
    }
}

/// The boot of machines without an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoInstance {
    /// The worker's environment.
    #[default]
    Worker,
    /// Its disk.
    LocalDisk,
    /// iPXE's shell: a console without a password, so never the default.
    Shell,
}

/// Settings of the site for what the records leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Boot of machines without an instance.
    pub no_instance: NoInstance,
    /// True if machines without a record get the generic script.
    pub boot_unknown: bool,
}

/// Facts about a machine that its boot is decided from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    /// State of its record.
    pub state: HardwareState,
    /// Settings of the interface that it boots from.
    pub netboot: InterfaceSettings,
    /// Script for the next boot only.
    pub boot_once: Option<ScriptSource>,
    /// Instance that occupies it.
    pub instance: Option<Occupant>,
    /// True if its workflow has an action left for the worker's environment: false before the machine is prepared for it, once
    /// the start of a terminal action is stored, and after success.
    pub worker_wanted: bool,
    /// True if a workflow waits until the machine was switched off and started for it. What runs on the machine until then may
    /// be its tenant's system, or a system that is to be replaced.
    pub is_unprepared: bool,
}

/// The boot of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootTarget {
    /// The worker's environment.
    Worker,
    /// The environment of nodes.
    Node,
    /// A custom script.
    CustomScript(ScriptSource),
    /// The next boot device: the system is on disk.
    LocalDisk,
    /// iPXE's shell.
    Shell,
    /// The generic script for machines without a record.
    Generic,
    /// Nothing: this machine does not boot from the network now.
    Refused,
    /// Nothing: the machine has no record.
    Unknown,
    /// Nothing yet: boots are opened only while all feeds are connected, and to a machine that was switched off and started for
    /// its workflow. The client retries after [`RETRY`].
    Later,
}

/// The fact that decided. Its text is one line for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the text of each says it
pub enum Fact {
    #[error("no machine has this address")]
    NoRecord,
    #[error("the site boots machines without a record")]
    UnknownBooted,
    #[error("its subnet boots machines without a record")]
    SubnetBooted,
    #[error("its subnet enrols machines without a record")]
    Enrols,
    #[error("the machine is {}", hardware(*.0))]
    HardwareState(HardwareState),
    #[error("its record does not allow PXE on this interface")]
    InterfaceFlag,
    #[error("a script waits for its next boot")]
    BootOnce,
    #[error("its record has an iPXE script for this interface")]
    InterfaceScript,
    #[error("its instance brings its own iPXE script")]
    InstanceScript,
    #[error("its instance's system is loaded from its platform")]
    PlatformScript,
    #[error("the boot gate of its platform's system is closed")]
    PlatformGateClosed,
    #[error("its instance's stack of images is run by the environment of nodes")]
    ImageStack,
    #[error("its instance's own script was started before")]
    ScriptRan,
    #[error("its instance is {}", instance(*.0))]
    Instance(InstanceState),
    #[error("its instance is {}, its workflow is done with the worker", instance(*.0))]
    WorkerDone(InstanceState),
    #[error("its workflow waits for the worker")]
    WorkflowWaits,
    #[error("its workflow waits until the machine is prepared")]
    Unprepared,
    #[error("its record allows workflows")]
    AllowWorkflow,
    #[error("no instance occupies it")]
    NoInstance,
    #[error("the control plane is out of reach")]
    StaleFeed,
    #[error("not all machines are known yet")]
    FeedIncomplete,
}

fn hardware(state: HardwareState) -> &'static str {
    match state {
        HardwareState::Enrolled | HardwareState::Unspecified => "enrolled",
        HardwareState::Provisionable => "provisionable",
        HardwareState::Failed => "failed",
        HardwareState::Maintenance => "in maintenance",
        HardwareState::Deleting => "being deleted",
    }
}

/// True if an instance in this state is being installed, for the first time or again.
fn is_being_installed(state: InstanceState) -> bool {
    matches!(state, InstanceState::Provisioning | InstanceState::Reinstalling)
}

fn instance(state: InstanceState) -> &'static str {
    match state {
        InstanceState::Queued => "queued",
        InstanceState::Provisioning => "provisioning",
        InstanceState::Reinstalling => "being reinstalled",
        InstanceState::Active | InstanceState::Unspecified => "active",
        InstanceState::Failed => "failed",
        InstanceState::Deprovisioning => "deprovisioning",
        InstanceState::DeprovisionFailed => "failed in deprovisioning",
        InstanceState::Deleted => "deleted",
    }
}

/// Result of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The boot.
    pub boot: BootTarget,
    /// The fact that decided.
    pub fact: Fact,
}

impl Decision {
    fn new(boot: BootTarget, fact: Fact) -> Self {
        Self { boot, fact }
    }

    /// True if it lets a machine run something other than its disk. Only live feeds may.
    pub fn opens_a_boot(&self) -> bool {
        use BootTarget::{CustomScript, Generic, Node, Shell, Worker};
        matches!(self.boot, Worker | Node | CustomScript(_) | Shell | Generic)
    }

    /// Returns the boot offer of DHCP. A machine that must wait is also offered a loader: a loader opens nothing by itself, and
    /// the reply to its script request says when to retry.
    pub fn offer(&self) -> dhcp::BootOffer {
        if self.boot == BootTarget::Later || self.opens_a_boot() {
            dhcp::BootOffer::Offered
        } else {
            dhcp::BootOffer::Refused
        }
    }
}

/// Decides what `machine` boots; none is a machine without a record.
///
/// The facts come from feeds of the freshness `feed`. Before these have synced, a machine may exist that is not listed.
pub fn decide(machine: Option<&MachineFacts>, policy: Policy, feed: Freshness) -> Decision {
    let decision = match machine {
        Some(machine) => machine.closed().unwrap_or_else(|| machine.open(policy)),
        None if policy.boot_unknown => Decision::new(BootTarget::Generic, Fact::UnknownBooted),
        None => Decision::new(BootTarget::Unknown, Fact::NoRecord),
    };
    match feed {
        // A gate may have been opened since.
        Freshness::StaleSince(_) | Freshness::Unused
            if decision.opens_a_boot() || decision.fact == Fact::PlatformGateClosed =>
        {
            Decision::new(BootTarget::Later, Fact::StaleFeed)
        }
        Freshness::NeverSynced => Decision::new(BootTarget::Later, Fact::FeedIncomplete),
        Freshness::StaleSince(_) | Freshness::Live | Freshness::Unused => decision,
    }
}

impl MachineFacts {
    /// Returns the script of the instance or of its platform, unless the machine is being taken from its tenant.
    pub fn instance_script(&self) -> Option<&ScriptSource> {
        let instance = self.instance.as_ref().filter(|instance| !instance.is_leaving())?;
        match &instance.platform {
            Some(platform) => platform.script.as_ref(),
            None => instance.custom.as_ref(),
        }
    }

    /// True if the instance is the system of an outside platform.
    pub fn is_platform(&self) -> bool {
        self.instance.as_ref().is_some_and(|instance| instance.platform.is_some())
    }

    /// True if the machine may load the system of its platform, once its boot gate matches.
    pub fn boots_platform(&self) -> bool {
        let is_kept = matches!(self.state, HardwareState::Maintenance | HardwareState::Deleting);
        self.is_platform() && self.instance_script().is_some() && !is_kept
    }

    /// True if the machine has an instance that makes it a node.
    pub fn is_node(&self) -> bool {
        self.instance.as_ref().is_some_and(|instance| instance.is_node)
    }

    /// True if the machine loads the environment of nodes while nothing else is due.
    fn boots_node(&self) -> bool {
        self.instance.as_ref().is_some_and(|instance| {
            let is_active =
                matches!(instance.state, InstanceState::Active | InstanceState::Unspecified);
            instance.is_node && (is_active || is_being_installed(instance.state))
        })
    }

    /// Returns the same while that script is what the machine boots.
    fn due_instance_script(&self) -> Option<&ScriptSource> {
        let Occupant { state, always_pxe, script_ran, .. } = self.instance.as_ref()?;
        let first = is_being_installed(*state) && !script_ran;
        self.instance_script().filter(|_| first || *always_pxe || self.is_platform())
    }

    /// Decides for a machine that may not boot from the network; none if it may. Derived at each request, never stored.
    fn closed(&self) -> Option<Decision> {
        if matches!(self.state, HardwareState::Maintenance | HardwareState::Deleting) {
            return Some(Decision::new(BootTarget::Refused, Fact::HardwareState(self.state)));
        }
        if self.instance.is_none() && !self.netboot.allow_pxe {
            return Some(Decision::new(BootTarget::Refused, Fact::InterfaceFlag));
        }
        if self.worker_wanted {
            return None;
        }
        if self.is_unprepared {
            return Some(Decision::new(BootTarget::Later, Fact::Unprepared));
        }
        let instance = self.instance.as_ref()?;
        if self.due_instance_script().is_some() || self.boots_node() {
            return None;
        }
        if instance.platform.is_some() && instance.state != InstanceState::Deprovisioning {
            return Some(Decision::new(BootTarget::Refused, Fact::PlatformGateClosed));
        }
        let installed = instance.has_os || instance.custom.is_some();
        let (boot, fact) = match instance.state {
            InstanceState::Failed if self.netboot.allow_workflow => return None,
            // Its tenant's system may run until a workflow has switched the machine off.
            InstanceState::Deprovisioning => (BootTarget::Later, Fact::Instance(instance.state)),
            state if is_being_installed(state) && instance.script_ran => {
                (BootTarget::LocalDisk, Fact::ScriptRan)
            }
            InstanceState::Provisioning | InstanceState::Reinstalling => {
                (BootTarget::LocalDisk, Fact::WorkerDone(instance.state))
            }
            InstanceState::Active | InstanceState::Unspecified if installed => {
                (BootTarget::LocalDisk, Fact::Instance(instance.state))
            }
            InstanceState::Active
            | InstanceState::Unspecified
            | InstanceState::Queued
            | InstanceState::Failed
            | InstanceState::DeprovisionFailed
            | InstanceState::Deleted => (BootTarget::Refused, Fact::Instance(instance.state)),
        };
        Some(Decision::new(boot, fact))
    }

    /// Decides for a machine that may boot from the network.
    fn open(&self, policy: Policy) -> Decision {
        let custom = |script: &ScriptSource| BootTarget::CustomScript(script.clone());
        if let Some(script) = &self.boot_once {
            return Decision::new(custom(script), Fact::BootOnce);
        }
        if let Some(script) = &self.netboot.custom {
            return Decision::new(custom(script), Fact::InterfaceScript);
        }
        if let Some(script) = self.due_instance_script() {
            let platform = self.is_platform();
            let fact = if platform { Fact::PlatformScript } else { Fact::InstanceScript };
            return Decision::new(custom(script), fact);
        }
        if self.boots_node() && !self.worker_wanted {
            return Decision::new(BootTarget::Node, Fact::ImageStack);
        }
        let fact = match &self.instance {
            _ if self.worker_wanted => Fact::WorkflowWaits,
            _ if self.netboot.allow_workflow => Fact::AllowWorkflow,
            Some(instance) => Fact::Instance(instance.state),
            None => Fact::NoInstance,
        };
        let boot = match (fact, policy.no_instance) {
            (Fact::NoInstance, NoInstance::LocalDisk) => BootTarget::LocalDisk,
            (Fact::NoInstance, NoInstance::Shell) => BootTarget::Shell,
            _ => BootTarget::Worker,
        };
        Decision::new(boot, fact)
    }
}

#[cfg(test)]
mod tests;

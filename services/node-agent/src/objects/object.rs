//! One object.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use tinwright::node::v1::container::State as ContainerState;
use tinwright::node::v1::mount;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::state::{Event, IllegalTransition, ObjectState};
use crate::definition::Definition;
use crate::kernel::{LogFile, MountTarget, RunId, WritableLayer};

/// An object of the node.
#[derive(Clone, Debug)]
pub(crate) struct NodeObject {
    /// The message of the contract, with what the node sets except the count. Nested objects are references.
    pub(crate) definition: Definition,
    pub(crate) state: ObjectState,
    /// It was posted directly.
    pub(crate) owner: bool,
    /// The objects that depend on it.
    pub(crate) users: BTreeSet<i64>,
    /// The creations under way that have obtained it, and its own.
    pub(crate) holds: u32,
    /// The text by which its effect on the kernel is found again.
    pub(crate) mark: String,
    /// Data that the kernel needs besides the mark to find an attached device.
    pub(crate) baseline: Vec<u8>,
    /// Data that the kernel needs besides the device file to detach a device.
    pub(crate) device_detail: Vec<u8>,
    pub(crate) effect: Effect,
    /// The last start of a container.
    pub(crate) run: Run,
    /// The length of the longest chain of dependencies, with itself.
    pub(crate) depth: usize,
    /// The number of objects in its view.
    pub(crate) view_objects: usize,
    /// The failed attempts to collect it.
    pub(crate) retry: Retry,
    /// Held during kernel steps of the object.
    pub(crate) lock: Arc<Mutex<()>>,
}

/// The effect of an object on the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// There is none.
    None,
    /// A step was begun whose end nobody has seen.
    Unknown,
    /// The object exists in the kernel.
    Exists,
}

/// A start of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its number; 0 if the container was never started.
    pub(crate) number: u64,
    /// The call that starts it has not ended.
    pub(crate) is_starting: bool,
}

/// Failed attempts to collect an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retry {
    pub(crate) attempts: u32,
    /// There is no further attempt before.
    pub(crate) not_before: Option<Instant>,
    pub(crate) last_error: String,
}

impl NodeObject {
    /// An object that is being created.
    pub(crate) fn new(definition: Definition) -> Self {
        Self {
            definition,
            state: ObjectState::Creating,
            owner: false,
            users: BTreeSet::new(),
            holds: 0,
            mark: String::new(),
            baseline: Vec::new(),
            device_detail: Vec::new(),
            effect: Effect::None,
            run: Run::default(),
            depth: 1,
            view_objects: 1,
            retry: Retry::default(),
            lock: Arc::new(Mutex::new(())),
        }
    }

    /// Returns the count as callers see it.
    pub(crate) fn refs(&self) -> i64 {
        let users = i64::try_from(self.users.len()).unwrap_or(i64::MAX);
        i64::from(self.owner) + i64::from(self.holds) + users
    }

    /// True if callers see it.
    pub(crate) fn is_visible(&self) -> bool {
        self.state != ObjectState::Creating
    }

    /// Changes the state.
    pub(crate) fn apply(&mut self, event: Event) -> Result<(), IllegalTransition> {
        self.state = self.state.after(event)?;
        Ok(())
    }

    /// Begins the collection if the count is 0. True if it began now.
    pub(crate) fn collect_if_unused(&mut self) -> bool {
        let before = self.state;
        let unused = self.refs() == 0 && self.apply(Event::Unused).is_ok();
        unused && self.state == ObjectState::Collecting && before != ObjectState::Collecting
    }

    /// Returns the directories of a mount.
    pub(crate) fn mount_target(&self) -> Option<MountTarget> {
        let Definition::Mount(mount) = &self.definition else { return None };
        let writable = match &mount.definition {
            Some(mount::Definition::Overlay(overlay)) => Some(WritableLayer {
                upper: PathBuf::from(&overlay.upperdir),
                work: PathBuf::from(&overlay.workdir),
            }),
            Some(
                mount::Definition::Attach(_)
                | mount::Definition::Bind(_)
                | mount::Definition::Nfs(_),
            )
            | None => None,
        };
        let recursive =
            matches!(&mount.definition, Some(mount::Definition::Bind(bind)) if bind.recursive());
        Some(MountTarget { mountpoint: PathBuf::from(&mount.mountpoint), writable, recursive })
    }

    /// Returns the log of a container.
    pub(crate) fn log(&self) -> Option<LogFile> {
        let Definition::Container(container) = &self.definition else { return None };
        Some(LogFile { path: PathBuf::from(&container.logfile), container_id: container.id })
    }

    /// Returns the state of a container.
    pub(crate) fn container_state(&self) -> ContainerState {
        match &self.definition {
            Definition::Container(container) => container.state(),
            Definition::Attachment(_) | Definition::Mount(_) => ContainerState::Unspecified,
        }
    }

    /// Sets the state of a container.
    pub(crate) fn set_container_state(&mut self, state: ContainerState) {
        if let Definition::Container(container) = &mut self.definition {
            container.set_state(state);
        }
    }

    /// Returns the last start of a container.
    pub(crate) fn run_id(&self) -> RunId {
        RunId { mark: self.mark.clone(), number: self.run.number }
    }
}

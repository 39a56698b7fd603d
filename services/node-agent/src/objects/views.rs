//! Objects as callers see them: with counts, and with nested objects in full.

use tinwright::node::v1::container::State as ContainerState;
use tinwright::node::v1::{
    Attachment, AttachmentKind, Container, Mount, MountKind, attachment, mount,
};

use super::Registry;
use crate::definition::Definition;

/// All objects of a node at one moment, in ascending order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// All attachments.
    pub attachments: Vec<Attachment>,
    /// All mounts.
    pub mounts: Vec<Mount>,
    /// All containers.
    pub containers: Vec<Container>,
}

impl Registry {
    /// Returns the object `id` with its count, and with nested objects in full. Of a dependency that was deleted by force, only the
    /// id is left.
    pub(crate) fn view(&self, id: i64) -> Option<Definition> {
        let object = self.get(id)?;
        let mut view = object.definition.clone();
        view.set_refs(object.refs());
        for mut nested in view.nested() {
            if let Some(object) = self.view(nested.get().id()) {
                nested.put(object);
            }
        }
        Some(view)
    }

    /// Returns all objects that callers see.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (id, _) in self.iter().filter(|(_, object)| object.is_visible()) {
            match self.view(id) {
                Some(Definition::Attachment(attachment)) => snapshot.attachments.push(attachment),
                Some(Definition::Mount(mount)) => snapshot.mounts.push(mount),
                Some(Definition::Container(container)) => snapshot.containers.push(container),
                None => {}
            }
        }
        snapshot
    }
}

/// True if `attachment` has the kind `kind`, or if that is unspecified.
pub(crate) fn filter_attachments(attachment: &Attachment, kind: AttachmentKind) -> bool {
    let own = match &attachment.definition {
        None => AttachmentKind::Unspecified,
        Some(attachment::Definition::Iscsi(_)) => AttachmentKind::Iscsi,
        Some(attachment::Definition::Local(_)) => AttachmentKind::Local,
        Some(attachment::Definition::Loopback(_)) => AttachmentKind::Loopback,
        Some(attachment::Definition::Rbd(_)) => AttachmentKind::Rbd,
    };
    kind == AttachmentKind::Unspecified || kind == own
}

/// True if `mount` has the kind `kind`, or if that is unspecified.
pub(crate) fn filter_mounts(mount: &Mount, kind: MountKind) -> bool {
    let own = match &mount.definition {
        None => MountKind::Unspecified,
        Some(mount::Definition::Attach(_)) => MountKind::Attach,
        Some(mount::Definition::Bind(_)) => MountKind::Bind,
        Some(mount::Definition::Nfs(_)) => MountKind::Nfs,
        Some(mount::Definition::Overlay(_)) => MountKind::Overlay,
    };
    kind == MountKind::Unspecified || kind == own
}

/// True if `container` is in the state `state`, or if that is unspecified.
pub(crate) fn filter_containers(container: &Container, state: ContainerState) -> bool {
    state == ContainerState::Unspecified || container.state() == state
}

//! The definition of an object: a message of the contract, and the objects it depends on.

mod rules;

use std::collections::BTreeSet;

use tinwright::node::v1::{
    Attachment, Container, ImageResult, Mount, attachment, image_result, mount,
};
use tinwright::secret::Secrets as _;

pub(crate) use rules::{MAX_DEPTH, check};

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectType {
    Attachment,
    Mount,
    Container,
}

impl ObjectType {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Attachment => "attachment",
            Self::Mount => "mount",
            Self::Container => "container",
        }
    }
}

/// An object as a message of the contract.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Definition {
    Attachment(Attachment),
    Mount(Mount),
    Container(Container),
}

impl Definition {
    pub(crate) const fn object_type(&self) -> ObjectType {
        match self {
            Self::Attachment(_) => ObjectType::Attachment,
            Self::Mount(_) => ObjectType::Mount,
            Self::Container(_) => ObjectType::Container,
        }
    }

    pub(crate) const fn id(&self) -> i64 {
        match self {
            Self::Attachment(attachment) => attachment.id,
            Self::Mount(mount) => mount.id,
            Self::Container(container) => container.id,
        }
    }

    pub(crate) const fn set_id(&mut self, id: i64) {
        match self {
            Self::Attachment(attachment) => attachment.id = id,
            Self::Mount(mount) => mount.id = id,
            Self::Container(container) => container.id = id,
        }
    }

    pub(crate) const fn set_refs(&mut self, refs: i64) {
        match self {
            Self::Attachment(attachment) => attachment.refs = refs,
            Self::Mount(mount) => mount.refs = refs,
            Self::Container(container) => container.refs = refs,
        }
    }

    /// Returns the places of nested objects, in the order in which they are created.
    pub(crate) fn nested(&mut self) -> Vec<Nested<'_>> {
        match self {
            Self::Attachment(Attachment { definition, .. }) => match definition {
                Some(attachment::Definition::Loopback(loopback)) => {
                    loopback.mount.as_deref_mut().map(Nested::Mount).into_iter().collect()
                }
                Some(
                    attachment::Definition::Iscsi(_)
                    | attachment::Definition::Local(_)
                    | attachment::Definition::Rbd(_),
                )
                | None => Vec::new(),
            },
            Self::Mount(Mount { definition, .. }) => match definition {
                Some(mount::Definition::Attach(attach)) => {
                    attach.attach.as_deref_mut().map(Nested::Attachment).into_iter().collect()
                }
                Some(mount::Definition::Bind(bind)) => {
                    bind.mount.as_deref_mut().map(Nested::Mount).into_iter().collect()
                }
                Some(mount::Definition::Overlay(overlay)) => {
                    overlay.lower.iter_mut().map(Nested::Mount).collect()
                }
                Some(mount::Definition::Nfs(_)) | None => Vec::new(),
            },
            Self::Container(container) => {
                container.mount.as_mut().map(Nested::Mount).into_iter().collect()
            }
        }
    }

    /// Returns the ids in the places of nested objects, in their order.
    pub(crate) fn references(&self) -> Vec<i64> {
        // The places are mutable; copying is cheap here, because the nested messages have only ids.
        let mut copy = self.clone();
        let ids = copy.nested().into_iter().map(|mut nested| nested.get().id());
        ids.filter(|&id| id != 0).collect()
    }

    /// Returns the ids of the objects that this one depends on, each once.
    pub(crate) fn dependencies(&self) -> Vec<i64> {
        let (mut ids, mut seen) = (self.references(), BTreeSet::new());
        ids.retain(|&id| seen.insert(id));
        ids
    }

    /// Removes what the node sets, and a base mount where the base is the node's root: it is not used.
    pub(crate) fn clear_output(&mut self) {
        match self {
            Self::Attachment(attachment) => {
                attachment.device_file.clear();
                match &mut attachment.definition {
                    Some(attachment::Definition::Loopback(loopback))
                        if !loopback.base().is_mount() =>
                    {
                        loopback.mount = None;
                    }
                    Some(attachment::Definition::Rbd(rbd)) => rbd.device_id = 0,
                    Some(
                        attachment::Definition::Loopback(_)
                        | attachment::Definition::Iscsi(_)
                        | attachment::Definition::Local(_),
                    )
                    | None => {}
                }
            }
            Self::Mount(mount) => {
                mount.mountpoint.clear();
                match &mut mount.definition {
                    Some(mount::Definition::Bind(bind)) if !bind.base().is_mount() => {
                        bind.mount = None
                    }
                    Some(mount::Definition::Overlay(overlay)) => {
                        overlay.upperdir.clear();
                        overlay.workdir.clear();
                    }
                    Some(
                        mount::Definition::Bind(_)
                        | mount::Definition::Attach(_)
                        | mount::Definition::Nfs(_),
                    )
                    | None => {}
                }
            }
            Self::Container(container) => container.logfile.clear(),
        }
    }

    /// Removes secrets.
    pub(crate) fn clear_secrets(&mut self) {
        match self {
            Self::Attachment(attachment) => attachment.clear_secrets(),
            Self::Mount(mount) => mount.clear_secrets(),
            Self::Container(container) => container.clear_secrets(),
        }
    }
}

/// The result that has the object.
impl From<Definition> for ImageResult {
    fn from(object: Definition) -> Self {
        let result = match object {
            Definition::Attachment(attachment) => image_result::Result::Attachment(attachment),
            Definition::Mount(mount) => image_result::Result::Mount(mount),
            Definition::Container(container) => image_result::Result::Container(container),
        };
        Self { result: Some(result) }
    }
}

/// A place of a nested object.
#[derive(Debug)]
pub(crate) enum Nested<'a> {
    Attachment(&'a mut Attachment),
    Mount(&'a mut Mount),
}

impl Nested<'_> {
    /// Returns a copy of what is in the place.
    pub(crate) fn get(&mut self) -> Definition {
        match self {
            Self::Attachment(attachment) => Definition::Attachment(attachment.clone()),
            Self::Mount(mount) => Definition::Mount(mount.clone()),
        }
    }

    /// Takes what is in the place.
    pub(crate) fn take(&mut self) -> Definition {
        match self {
            Self::Attachment(attachment) => Definition::Attachment(std::mem::take(*attachment)),
            Self::Mount(mount) => Definition::Mount(std::mem::take(*mount)),
        }
    }

    /// Puts a reference to the object `id` into the place.
    pub(crate) fn set_reference(&mut self, id: i64) {
        match self {
            Self::Attachment(attachment) => {
                **attachment = Attachment { id, ..Attachment::default() }
            }
            Self::Mount(mount) => **mount = Mount { id, ..Mount::default() },
        }
    }

    /// Puts `object` into the place, if it has the place's type.
    pub(crate) fn put(&mut self, object: Definition) {
        match (self, object) {
            (Self::Attachment(place), Definition::Attachment(attachment)) => **place = attachment,
            (Self::Mount(place), Definition::Mount(mount)) => **place = mount,
            (Self::Attachment(_) | Self::Mount(_), _) => {}
        }
    }
}

/// True for the base that is a mount.
pub(crate) trait BaseExt {
    fn is_mount(&self) -> bool;
}

impl BaseExt for tinwright::node::v1::Base {
    fn is_mount(&self) -> bool {
        *self == Self::Mount
    }
}

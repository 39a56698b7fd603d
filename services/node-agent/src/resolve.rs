//! Definitions as steps of the kernel: references are replaced by paths, and defaults are filled in.

use std::path::PathBuf;

use tinwright::node::v1::attachment::{self, Iscsi};
use tinwright::node::v1::mount;
use tinwright::node::v1::{Attachment, Mount};

use crate::definition::{BaseExt as _, Definition};
use crate::error::CallError;
use crate::kernel::{AttachSource, MountSource};
use crate::objects::Registry;

const ISCSI_PORT: i64 = 3260;
const ISCSI_MAX_COMMANDS: i64 = 128;
const ISCSI_QUEUE_DEPTH: i64 = 16;
const ISCSI_SCHEDULER: &str = "mq-deadline";
const NFS_VERSION: &str = "4.2";

/// Fills in the defaults that responses show.
pub(crate) fn fill_defaults(definition: &mut Definition) {
    if let Definition::Attachment(Attachment {
        definition: Some(attachment::Definition::Iscsi(iscsi)),
        ..
    }) = definition
    {
        let Iscsi { port, max_commands, queue_depth, scheduler, .. } = iscsi;
        port.get_or_insert(ISCSI_PORT);
        max_commands.get_or_insert(ISCSI_MAX_COMMANDS);
        queue_depth.get_or_insert(ISCSI_QUEUE_DEPTH);
        scheduler.get_or_insert_with(|| ISCSI_SCHEDULER.to_owned());
    }
}

/// Returns the source of `attachment`.
pub(crate) fn attach_source(
    registry: &Registry,
    attachment: &Attachment,
) -> Result<AttachSource, CallError> {
    match &attachment.definition {
        None => Err(CallError::no_driver("the attachment has no definition")),
        Some(attachment::Definition::Iscsi(iscsi)) => Ok(AttachSource::Iscsi(iscsi.clone())),
        Some(attachment::Definition::Local(local)) => {
            Ok(AttachSource::Local { path: PathBuf::from(&local.path) })
        }
        Some(attachment::Definition::Loopback(loopback)) => {
            let mount = loopback.mount.as_deref().filter(|_| loopback.base().is_mount());
            Ok(AttachSource::Loopback {
                base: base(registry, mount)?,
                path: loopback.path.clone(),
                read_partitions: loopback.read_partitions(),
            })
        }
        Some(attachment::Definition::Rbd(rbd)) => Ok(AttachSource::Rbd(rbd.clone())),
    }
}

/// Returns the source of `mount`.
pub(crate) fn mount_source(registry: &Registry, mount: &Mount) -> Result<MountSource, CallError> {
    match &mount.definition {
        None => Err(CallError::no_driver("the mount has no definition")),
        Some(mount::Definition::Attach(attach)) => {
            let id = attach.attach.as_ref().map_or(0, |attachment| attachment.id);
            Ok(MountSource::Device {
                device_file: device_file(registry, id)?,
                fs_type: attach.fs_type.clone(),
                options: attach.mount_options.clone(),
            })
        }
        Some(mount::Definition::Bind(bind)) => {
            let mount = bind.mount.as_deref().filter(|_| bind.base().is_mount());
            Ok(MountSource::Bind {
                base: base(registry, mount)?,
                path: bind.path.clone(),
                recursive: bind.recursive(),
                ro: bind.ro(),
            })
        }
        Some(mount::Definition::Nfs(nfs)) => Ok(MountSource::Nfs {
            host: nfs.host.clone(),
            path: nfs.path.clone(),
            ro: nfs.ro(),
            version: nfs.version.clone().unwrap_or_else(|| NFS_VERSION.to_owned()),
            options: nfs.options.clone(),
        }),
        Some(mount::Definition::Overlay(overlay)) => {
            let lower = overlay.lower.iter().map(|lower| mountpoint(registry, lower.id));
            Ok(MountSource::Overlay { lower: lower.collect::<Result<_, _>>()? })
        }
    }
}

/// Returns the mount point of the mount `id`.
pub(crate) fn mountpoint(registry: &Registry, id: i64) -> Result<PathBuf, CallError> {
    match registry.get(id).map(|object| &object.definition) {
        Some(Definition::Mount(mount)) => Ok(PathBuf::from(&mount.mountpoint)),
        Some(Definition::Attachment(_) | Definition::Container(_)) | None => {
            Err(CallError::not_found(format!("mount {id}")))
        }
    }
}

fn device_file(registry: &Registry, id: i64) -> Result<PathBuf, CallError> {
    match registry.get(id).map(|object| &object.definition) {
        Some(Definition::Attachment(attachment)) => Ok(PathBuf::from(&attachment.device_file)),
        Some(Definition::Mount(_) | Definition::Container(_)) | None => {
            Err(CallError::not_found(format!("attachment {id}")))
        }
    }
}

/// Returns the directory of a base: the mount point of `mount`, or the root directory of the node.
fn base(registry: &Registry, mount: Option<&Mount>) -> Result<PathBuf, CallError> {
    mount.map_or_else(|| Ok(PathBuf::from("/")), |mount| mountpoint(registry, mount.id))
}

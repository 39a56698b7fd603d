//! Removes the effect of an object on the kernel. Repeating it is harmless.

use std::path::{Path, PathBuf};

use tokio::time::Instant;

use crate::core::Core;
use crate::definition::Definition;
use crate::error::CallError;
use crate::kernel::{AttachSource, AttachStep, Device, KernelError, StopSignal};
use crate::objects::{Effect, NodeObject};
use crate::resolve;

/// Detaches, unmounts or ends the object `id`. The caller holds its lock.
pub(crate) async fn tear_down(core: &Core, id: i64, deadline: Instant) -> Result<(), CallError> {
    let object = core.object(id)?;
    if object.effect == Effect::None {
        return Ok(());
    }
    match &object.definition {
        Definition::Attachment(_) => detach(core, id, &object, deadline).await?,
        Definition::Mount(_) => {
            if let Some(target) = object.mount_target() {
                core.kernel.storage.unmount(&target, deadline).await?;
            }
        }
        Definition::Container(_) => undo_container(core, &object).await?,
    }
    core.update_object(id, |object| object.effect = Effect::None);
    Ok(())
}

async fn detach(
    core: &Core,
    id: i64,
    object: &NodeObject,
    deadline: Instant,
) -> Result<(), KernelError> {
    let storage = &core.kernel.storage;
    if object.effect == Effect::Exists {
        return match device(object) {
            Some(device) => storage.detach(&device, deadline).await,
            None => Ok(()),
        };
    }
    let Some(step) = step(core, object) else { return Ok(()) };
    match storage.find(&step).await? {
        // The step did nothing, and what was found belongs to another attachment.
        Some(device) if is_of_another(core, id, &device) => Ok(()),
        Some(device) => storage.detach(&device, deadline).await,
        None => Ok(()),
    }
}

/// Returns the device of a finished attachment.
pub(crate) fn device(object: &NodeObject) -> Option<Device> {
    let Definition::Attachment(attachment) = &object.definition else { return None };
    let device_id = match &attachment.definition {
        Some(tinwright::node::v1::attachment::Definition::Rbd(rbd)) => rbd.device_id,
        Some(_) | None => 0,
    };
    let file = PathBuf::from(&attachment.device_file);
    Some(Device { file, device_id, detail: object.device_detail.clone() })
}

/// Returns the step of an attachment whose end nobody has seen.
fn step(core: &Core, object: &NodeObject) -> Option<AttachStep> {
    let Definition::Attachment(attachment) = &object.definition else { return None };
    let source = core.read(|registry| resolve::attach_source(registry, attachment));
    // The device is found by its mark; the base may have been deleted by force.
    let source = source.or_else(|error| match &attachment.definition {
        Some(tinwright::node::v1::attachment::Definition::Loopback(loopback)) => {
            Ok(AttachSource::Loopback {
                base: PathBuf::new(),
                path: loopback.path.clone(),
                read_partitions: loopback.read_partitions(),
            })
        }
        Some(_) | None => Err(error),
    });
    let (mark, baseline) = (object.mark.clone(), object.baseline.clone());
    Some(AttachStep { mark, source: source.ok()?, baseline })
}

/// True if a finished attachment other than `id` has the device.
fn is_of_another(core: &Core, id: i64, device: &Device) -> bool {
    core.read(|registry| {
        registry.iter().any(|(other, object)| {
            other != id
                && object.effect == Effect::Exists
                && matches!(&object.definition, Definition::Attachment(attachment)
                    if Path::new(&attachment.device_file) == device.file)
        })
    })
}

/// Ends the processes of a container whose creation failed, and removes its log.
async fn undo_container(core: &Core, object: &NodeObject) -> Result<(), KernelError> {
    let containers = &core.kernel.containers;
    if object.run.number > 0 {
        let run = object.run_id();
        containers.signal(&run, StopSignal::Kill).await?;
        containers.wait(&run).await?;
        containers.forget(&run).await?;
    }
    match object.log() {
        Some(log) => containers.remove_log(&log).await,
        None => Ok(()),
    }
}

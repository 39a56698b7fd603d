//! Creation of objects, with the objects nested in them.
//!
//! ```text
//! obtain the dependencies (hold a referenced one, create a nested one) ─▶ check ─▶ journal: creating ─▶ kernel step
//!   ─▶ nested: journal: ready, held for its parent
//!   ─▶ posted: journal: ready, with the call's result
//! ```
//!
//! A failure undoes the creation from the failed object to its dependencies, the last obtained first, before the error is answered.
//! After a crash the same is done by the collection: a record that is not ready is undone, and a nested object whose parent has no
//! record has the count 0.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tinwright::node::v1::{ImageResult, attachment, mount};

use crate::calls::{Call, expired};
use crate::collect;
use crate::containers;
use crate::core::Core;
use crate::definition::{Definition, check};
use crate::error::CallError;
use crate::journal::{Change, Phase};
use crate::kernel::{AttachSource, AttachStep, Device, MountSource, MountStep};
use crate::objects::{Effect, Event, Registry};
use crate::resolve;

/// The kernel step of an object.
enum CreationStep {
    Attach { source: Box<AttachSource>, baseline: Vec<u8> },
    Mount(MountSource),
    Container,
}

/// Creates the object `definition` as `call`.
pub(crate) async fn create(
    core: Arc<Core>,
    call: Arc<Call>,
    definition: Definition,
) -> Result<ImageResult, CallError> {
    check(&definition)?;
    // Before the work of a nested stack. What changes meanwhile is found when the object is added.
    core.read(|registry| registry.check_name(&definition).and_then(|()| registry.check_space()))?;
    let (id, result) = build(&core, &call, definition, true).await?;
    tracing::info!(object.id = id, "created");
    containers::watch_running(&core, id);
    result.ok_or_else(|| CallError::internal("the creation has no result"))
}

/// Creates an object: `is_posted` if a call names it, nested otherwise. A nested one is held for its parent when this returns.
fn build<'a>(
    core: &'a Arc<Core>,
    call: &'a Call,
    mut definition: Definition,
    is_posted: bool,
) -> BoxFuture<'a, Result<(i64, Option<ImageResult>), CallError>> {
    async move {
        definition.clear_output();
        resolve::fill_defaults(&mut definition);
        let held = obtain_all(core, call, &mut definition).await?;
        match begin(core, call, definition, &held).await {
            Ok((id, step)) => finish(core, call, id, step, is_posted).await,
            Err(error) => {
                collect::release(core, &held).await;
                Err(error)
            }
        }
    }
    .boxed()
}

/// Obtains the dependencies of `definition` in order, and puts references into their places.
async fn obtain_all(
    core: &Arc<Core>,
    call: &Call,
    definition: &mut Definition,
) -> Result<Vec<i64>, CallError> {
    let mut held = Vec::new();
    for mut place in definition.nested() {
        match obtain(core, call, place.take()).await {
            Ok(id) => {
                held.push(id);
                place.set_reference(id);
            }
            Err(error) => {
                collect::release(core, &held).await;
                return Err(error);
            }
        }
    }
    Ok(held)
}

async fn obtain(core: &Arc<Core>, call: &Call, nested: Definition) -> Result<i64, CallError> {
    call.check_time()?;
    match nested.id() {
        0 => Ok(build(core, call, nested, false).await?.0),
        id => {
            core.update(|registry| registry.hold(id, nested.object_type()))?;
            Ok(id)
        }
    }
}

/// Adds the object to those of the node, if its step can be taken. An error changes nothing.
async fn begin(
    core: &Core,
    call: &Call,
    mut definition: Definition,
    held: &[i64],
) -> Result<(i64, CreationStep), CallError> {
    call.check_time()?;
    let mut step = core.read(|registry| first_step(registry, &definition))?;
    if let CreationStep::Attach { source, baseline } = &mut step {
        *baseline = core.kernel.storage.prepare(source).await?;
    }
    if !core.options.show_secrets {
        definition.clear_secrets();
    }
    let id = core.update(|registry| registry.insert(definition, held))?;
    set_places(core, id, &step);
    Ok((id, step))
}

fn first_step(registry: &Registry, definition: &Definition) -> Result<CreationStep, CallError> {
    match definition {
        Definition::Attachment(attachment) => {
            let source = Box::new(resolve::attach_source(registry, attachment)?);
            Ok(CreationStep::Attach { source, baseline: Vec::new() })
        }
        Definition::Mount(mount) => {
            Ok(CreationStep::Mount(resolve::mount_source(registry, mount)?))
        }
        Definition::Container(_) => Ok(CreationStep::Container),
    }
}

/// Sets the mark and the paths of a new object.
fn set_places(core: &Core, id: i64, step: &CreationStep) {
    let created = core.unix_seconds();
    core.update_object(id, |object| {
        object.mark = format!("{}-{id}", core.name);
        if let CreationStep::Attach { baseline, .. } = step {
            object.baseline.clone_from(baseline);
        }
        match &mut object.definition {
            Definition::Attachment(_) => {}
            Definition::Mount(mount) => {
                let directory = &core.options.mount_directory;
                mount.mountpoint = random_path(directory, "mount");
                if let Some(mount::Definition::Overlay(overlay)) = &mut mount.definition {
                    let directory = &core.options.upper_directory;
                    overlay.upperdir = random_path(directory, "upper");
                    overlay.workdir = random_path(directory, "work");
                }
            }
            Definition::Container(container) => {
                let file = format!("{id}-{created}.log");
                container.logfile = path_text(&core.options.log_directory.join(file));
            }
        }
    });
}

/// Takes the step of the object `id`, and completes or undoes its creation.
async fn finish(
    core: &Arc<Core>,
    call: &Call,
    id: i64,
    step: CreationStep,
    is_posted: bool,
) -> Result<(i64, Option<ImageResult>), CallError> {
    let guard = core.lock(id).await?;
    let built = async {
        take_step(core, call, id, step).await?;
        match is_posted {
            true => Ok(Some(complete(core, call, id).await?)),
            false => {
                let record = core.object(id)?.to_record(Phase::Ready);
                core.commit(vec![Change::Put(Box::new(record))]).await?;
                Ok(None)
            }
        }
    };
    match built.await {
        Ok(result) => {
            core.apply(id, Event::Created);
            Ok((id, result))
        }
        Err(error) => {
            tracing::info!(object.id = id, %error, "creation failed");
            collect::undo(core, id, guard).await;
            Err(error)
        }
    }
}

/// Writes that the object `id` will be created, and creates it in the kernel.
async fn take_step(core: &Core, call: &Call, id: i64, step: CreationStep) -> Result<(), CallError> {
    if matches!(step, CreationStep::Container) {
        containers::prepare_first_run(core, id);
    }
    let record = core.object(id)?.to_record(Phase::Creating);
    core.commit(vec![Change::Put(Box::new(record))]).await?;
    call.check_time()?;
    let (storage, deadline) = (&core.kernel.storage, call.deadline);
    core.update_object(id, |object| object.effect = Effect::Unknown);
    let taken = match step {
        CreationStep::Attach { source, baseline } => {
            let mark = core.object(id)?.mark;
            let step = AttachStep { mark, source: *source, baseline };
            match storage.attach(&step, deadline).await {
                Ok(device) => attached(core, id, device).await,
                Err(error) => Err((error.into(), Effect::None)),
            }
        }
        CreationStep::Mount(source) => {
            let target = core.object(id)?.mount_target();
            let target = target.ok_or_else(|| CallError::internal("the mount has no directory"))?;
            let mounted = storage.mount(&MountStep { target, source }, deadline).await;
            mounted.map_err(|error| (error.into(), Effect::None))
        }
        CreationStep::Container => {
            containers::first_run(core, call, id).await.map_err(|error| (error, Effect::Unknown))
        }
    };
    let effect = taken.as_ref().err().map_or(Effect::Exists, |(_, effect)| *effect);
    core.update_object(id, |object| object.effect = effect);
    taken.map_err(|(error, _)| error)?;
    call.check_time()
}

/// Records an attached device, if its device file is there.
async fn attached(core: &Core, id: i64, device: Device) -> Result<(), (CallError, Effect)> {
    core.update_object(id, |object| {
        object.device_detail.clone_from(&device.detail);
        if let Definition::Attachment(attachment) = &mut object.definition {
            attachment.device_file = path_text(&device.file);
            if let Some(attachment::Definition::Rbd(rbd)) = &mut attachment.definition {
                rbd.device_id = device.device_id;
            }
        }
    });
    match core.kernel.storage.is_attached(&device).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let error = format!("the device file {} did not appear", device.file.display());
            Err((CallError::failed(error), Effect::Exists))
        }
        Err(error) => Err((error.into(), Effect::Exists)),
    }
}

/// Writes that the posted object `id` is ready, with the result of the call.
async fn complete(core: &Core, call: &Call, id: i64) -> Result<ImageResult, CallError> {
    core.update_object(id, |object| (object.owner, object.holds) = (true, 0));
    let view = core.read(|registry| registry.view(id));
    let result =
        view.map(ImageResult::from).ok_or_else(|| CallError::internal("the object is gone"))?;
    if !call.claim() {
        return Err(expired());
    }
    let record = core.object(id)?.to_record(Phase::Ready);
    call.conclude(core, vec![Change::Put(Box::new(record))], &result).await?;
    Ok(result)
}

/// Returns a path in `directory` that no other object has.
fn random_path(directory: &Path, kind: &str) -> String {
    path_text(&directory.join(format!("{kind}_{}", uuid::Uuid::new_v4().as_u128() >> 64)))
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

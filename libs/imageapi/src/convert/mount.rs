//! Mounts.

use tinwright::node::v1::mount::{AttachmentMount, Bind, Definition, Nfs, Overlay};
use tinwright::node::v1::{Base, Mount};

use super::attachment::{attachment, attachment_fields};
use super::limits::{Depth, check_lower, check_no_id, definition, no_driver};
use super::names::{base, base_text};
use super::unused::{unused_json, with_unused};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::schema::tables;
use crate::secrets::Secrets;

/// Converts the body of a creation.
pub(crate) fn new_mount(mut fields: Fields) -> Result<Mount, ApiError> {
    check_no_id(&mut fields)?;
    mount(fields, Depth::OUTERMOST)
}

/// Converts a mount or a reference to one.
pub(super) fn mount(mut fields: Fields, depth: Depth) -> Result<Mount, ApiError> {
    if let Some(id) = fields.integer("id").filter(|id| *id != 0) {
        return Ok(Mount { id, ..Mount::default() });
    }
    let kind = fields.text("kind").unwrap_or_default();
    let convert: fn(&mut Fields, Depth) -> Result<Definition, ApiError> = match kind.as_str() {
        "attach" => |it, depth| Ok(Definition::Attach(Box::new(attachment_mount(it, depth)?))),
        "bind" => |it, depth| Ok(Definition::Bind(Box::new(bind(it, depth)?))),
        "nfs" => |it, _| Ok(Definition::Nfs(nfs(it))),
        "overlay" => |it, depth| Ok(Definition::Overlay(overlay(it, depth)?)),
        "" => return Err(no_driver("the mount has no kind")),
        _ => return Err(no_driver(&kind)),
    };
    let mut used = definition(&mut fields, &kind)?;
    let definition = Some(convert(&mut used, depth)?);
    let unused_definitions = unused_json(fields, &kind, used);
    Ok(Mount { definition, unused_definitions, ..Mount::default() })
}

fn attachment_mount(fields: &mut Fields, depth: Depth) -> Result<AttachmentMount, ApiError> {
    let device = fields.object("attach").map(|device| attachment(device, depth.deeper()?));
    Ok(AttachmentMount {
        attach: device.transpose()?.map(Box::new),
        fs_type: fields.text("fs_type").unwrap_or_default(),
        mount_options: fields.texts("mount_options"),
    })
}

fn bind(fields: &mut Fields, depth: Depth) -> Result<Bind, ApiError> {
    let (base, mount) = base_and_mount(fields, depth)?;
    Ok(Bind {
        path: fields.text("path").unwrap_or_default(),
        base: base.into(),
        mount: mount.map(Box::new),
        recursive: fields.boolean("recursive"),
        ro: fields.boolean("ro"),
    })
}

/// Takes the base of a path, and the mount if that is the base. Another mount is left: it is not
/// used.
pub(super) fn base_and_mount(
    fields: &mut Fields,
    depth: Depth,
) -> Result<(Base, Option<Mount>), ApiError> {
    let base = base(&fields.text("base").unwrap_or_default());
    let inner = match base {
        Base::Unspecified | Base::Root => None,
        Base::Mount => Some(mount(definition(fields, "mount")?, depth.deeper()?)?),
    };
    Ok((base, inner))
}

fn nfs(fields: &mut Fields) -> Nfs {
    Nfs {
        host: fields.text("host").unwrap_or_default(),
        path: fields.text("path").unwrap_or_default(),
        ro: fields.boolean("ro"),
        version: fields.text("version"),
        options: fields.texts("options"),
    }
}

fn overlay(fields: &mut Fields, depth: Depth) -> Result<Overlay, ApiError> {
    let lower = fields.objects("lower");
    check_lower(&lower)?;
    let lower = lower.into_iter().map(|element| match element {
        Some(element) => mount(element, depth.deeper()?),
        None => Err(ApiError::invalid("an element of lower is null")),
    });
    Ok(Overlay { lower: lower.collect::<Result<_, _>>()?, ..Overlay::default() })
}

/// Converts a mount of a result.
pub(crate) fn mount_fields(mount: &Mount, secrets: Secrets) -> Fields {
    let fields = Fields::new(&tables::MOUNT)
        .with("id", mount.id)
        .with("mountpoint", &mount.mountpoint)
        .with("refs", mount.refs);
    let Some(definition) = &mount.definition else { return fields };
    let (kind, definition) = match definition {
        Definition::Attach(attach) => ("attach", attachment_mount_fields(attach, secrets)),
        Definition::Bind(bind) => ("bind", bind_fields(bind, secrets)),
        Definition::Nfs(nfs) => ("nfs", nfs_fields(nfs)),
        Definition::Overlay(overlay) => ("overlay", overlay_fields(overlay, secrets)),
    };
    let fields = fields.with("kind", kind.to_owned()).with(kind, definition);
    with_unused(fields, &mount.unused_definitions)
}

fn attachment_mount_fields(mount: &AttachmentMount, secrets: Secrets) -> Fields {
    Fields::new(&tables::MOUNT_ATTACH)
        .with("attach", mount.attach.as_ref().map(|device| attachment_fields(device, secrets)))
        .with("fs_type", &mount.fs_type)
        .with("mount_options", mount.mount_options.clone())
}

fn bind_fields(bind: &Bind, secrets: Secrets) -> Fields {
    Fields::new(&tables::MOUNT_BIND)
        .with("base", base_text(bind.base()))
        .with("mount", bind.mount.as_ref().map(|base| mount_fields(base, secrets)))
        .with("path", &bind.path)
        .with("recursive", bind.recursive)
        .with("ro", bind.ro)
}

fn nfs_fields(nfs: &Nfs) -> Fields {
    Fields::new(&tables::MOUNT_NFS)
        .with("host", &nfs.host)
        .with("options", nfs.options.clone())
        .with("path", &nfs.path)
        .with("ro", nfs.ro)
        .with("version", nfs.version.as_ref())
}

fn overlay_fields(overlay: &Overlay, secrets: Secrets) -> Fields {
    let lower: Vec<_> = overlay.lower.iter().map(|mount| mount_fields(mount, secrets)).collect();
    Fields::new(&tables::MOUNT_OVERLAY)
        .with("lower", lower)
        .with("upperdir", &overlay.upperdir)
        .with("workdir", &overlay.workdir)
}

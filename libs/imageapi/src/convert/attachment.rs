//! Attachments.

use tinwright::node::v1::Attachment;
use tinwright::node::v1::attachment::{Definition, Iscsi, Local, Loopback, Rbd};

use super::limits::{Depth, check_no_id, definition, no_driver};
use super::mount::{base_and_mount, mount_fields};
use super::names::base_text;
use super::rbd_options::{rbd_options, rbd_options_fields};
use super::unused::{unused_json, with_unused};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::schema::tables;
use crate::secrets::Secrets;

/// Converts the body of a creation.
pub(crate) fn new_attachment(mut fields: Fields) -> Result<Attachment, ApiError> {
    check_no_id(&mut fields)?;
    attachment(fields, Depth::OUTERMOST)
}

/// Converts an attachment or a reference to one.
pub(super) fn attachment(mut fields: Fields, depth: Depth) -> Result<Attachment, ApiError> {
    if let Some(id) = fields.integer("id").filter(|id| *id != 0) {
        return Ok(Attachment { id, ..Attachment::default() });
    }
    let kind = fields.text("kind").unwrap_or_default();
    let convert: fn(&mut Fields, Depth) -> Result<Definition, ApiError> = match kind.as_str() {
        "iscsi" => |it, _| Ok(Definition::Iscsi(iscsi(it))),
        "local" => |it, _| Ok(Definition::Local(local(it))),
        "loopback" => |it, depth| Ok(Definition::Loopback(Box::new(loopback(it, depth)?))),
        "rbd" => |it, _| Ok(Definition::Rbd(rbd(it)?)),
        "" => return Err(no_driver("the attachment has no kind")),
        _ => return Err(no_driver(&kind)),
    };
    let mut used = definition(&mut fields, &kind)?;
    let definition = Some(convert(&mut used, depth)?);
    let unused_definitions = unused_json(fields, &kind, used);
    Ok(Attachment { definition, unused_definitions, ..Attachment::default() })
}

fn iscsi(fields: &mut Fields) -> Iscsi {
    Iscsi {
        initiator: fields.text("initiator").unwrap_or_default(),
        target: fields.text("target").unwrap_or_default(),
        host: fields.text("host").unwrap_or_default(),
        port: fields.integer("port"),
        lun: fields.integer("lun").unwrap_or_default(),
        // The key in JSON really has one m.
        max_commands: fields.integer("max_comands"),
        queue_depth: fields.integer("queue_depth"),
        scheduler: fields.text("scheduler"),
    }
}

fn local(fields: &mut Fields) -> Local {
    Local { path: fields.text("path").unwrap_or_default() }
}

fn loopback(fields: &mut Fields, depth: Depth) -> Result<Loopback, ApiError> {
    let (base, mount) = base_and_mount(fields, depth)?;
    Ok(Loopback {
        path: fields.text("path").unwrap_or_default(),
        base: base.into(),
        mount: mount.map(Box::new),
        read_partitions: fields.boolean("readPartitions"),
    })
}

fn rbd(fields: &mut Fields) -> Result<Rbd, ApiError> {
    let monitors = fields.texts("monitors");
    if monitors.is_empty() {
        return Err(ApiError::invalid("monitors is empty"));
    }
    // Optional in the API description, but the kernel needs the user and its key.
    let options = rbd_options(definition(fields, "options")?)?;
    Ok(Rbd {
        monitors,
        pool: fields.text("pool").unwrap_or_default(),
        image: fields.text("image").unwrap_or_default(),
        snapshot: fields.text("snapshot").unwrap_or_default(),
        options: Some(options),
        device_id: 0,
    })
}

/// Converts an attachment of a result.
pub(crate) fn attachment_fields(attachment: &Attachment, secrets: Secrets) -> Fields {
    let fields = Fields::new(&tables::ATTACH)
        .with("device_file", &attachment.device_file)
        .with("id", attachment.id)
        .with("refs", attachment.refs);
    let Some(definition) = &attachment.definition else { return fields };
    let (kind, definition) = match definition {
        Definition::Iscsi(iscsi) => ("iscsi", iscsi_fields(iscsi)),
        Definition::Local(local) => ("local", local_fields(local)),
        Definition::Loopback(loopback) => ("loopback", loopback_fields(loopback, secrets)),
        Definition::Rbd(rbd) => ("rbd", rbd_fields(rbd, secrets)),
    };
    let fields = fields.with("kind", kind.to_owned()).with(kind, definition);
    with_unused(fields, &attachment.unused_definitions)
}

fn iscsi_fields(iscsi: &Iscsi) -> Fields {
    Fields::new(&tables::ISCSI)
        .with("host", &iscsi.host)
        .with("initiator", &iscsi.initiator)
        .with("lun", iscsi.lun)
        .with("max_comands", iscsi.max_commands)
        .with("port", iscsi.port)
        .with("queue_depth", iscsi.queue_depth)
        .with("scheduler", iscsi.scheduler.as_ref())
        .with("target", &iscsi.target)
}

fn local_fields(local: &Local) -> Fields {
    Fields::new(&tables::LOCAL).with("path", &local.path)
}

fn loopback_fields(loopback: &Loopback, secrets: Secrets) -> Fields {
    Fields::new(&tables::LOOPBACK)
        .with("base", base_text(loopback.base()))
        .with("mount", loopback.mount.as_ref().map(|base| mount_fields(base, secrets)))
        .with("path", &loopback.path)
        .with("readPartitions", loopback.read_partitions)
}

fn rbd_fields(rbd: &Rbd, secrets: Secrets) -> Fields {
    Fields::new(&tables::RBD)
        .with("device_id", rbd.device_id)
        .with("image", &rbd.image)
        .with("monitors", rbd.monitors.clone())
        .with("options", rbd.options.as_ref().map(|options| rbd_options_fields(options, secrets)))
        .with("pool", &rbd.pool)
        .with("snapshot", &rbd.snapshot)
}

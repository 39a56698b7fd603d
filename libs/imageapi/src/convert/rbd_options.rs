//! Options of the kernel's RBD client.

use tinwright::node::v1::attachment::RbdOptions;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::schema::tables;
use crate::secrets::Secrets;

/// Converts the options of a request. They need the user and its key; a response has no key, so it cannot be sent back.
pub(super) fn rbd_options(mut fields: Fields) -> Result<RbdOptions, ApiError> {
    let mut text = |name| fields.text(name).unwrap_or_default();
    let options = RbdOptions {
        fsid: text("fsid"),
        ip: text("ip"),
        name: text("name"),
        secret: text("secret"),
        namespace: text("namespace"),
        ..switches_and_numbers(fields)
    };
    if options.name.is_empty() || options.secret.is_empty() {
        return Err(ApiError::invalid("options have no name or no secret"));
    }
    Ok(options)
}

/// Converts the options that are no texts.
fn switches_and_numbers(mut fields: Fields) -> RbdOptions {
    let mut number = |name| fields.integer(name).unwrap_or_default();
    let numbers = RbdOptions {
        mount_timeout: number("mount_timeout"),
        osdkeepalive: number("osdkeepalive"),
        osd_idle_ttl: number("osd_idle_ttl"),
        queue_depth: number("queue_depth"),
        lock_timeout: number("lock_timeout"),
        alloc_size: number("alloc_size"),
        ..RbdOptions::default()
    };
    let mut switch = |name| fields.boolean(name).unwrap_or_default();
    RbdOptions {
        share: switch("share"),
        noshare: switch("noshare"),
        crc: switch("crc"),
        nocrc: switch("nocrc"),
        ceph_requires_signatures: switch("ceph_requires_signatures"),
        noceph_requires_signatures: switch("noceph_requires_signatures"),
        tcp_nodelay: switch("tcp_nodelay"),
        notcp_nodelay: switch("notcp_nodelay"),
        cephx_sign_messages: switch("cephx_sign_messages"),
        nocephx_sign_messages: switch("nocephx_sign_messages"),
        force: switch("force"),
        rw: switch("rw"),
        ro: switch("ro"),
        lock_on_read: switch("lock_on_read"),
        exclusive: switch("exclusive"),
        notrim: switch("notrim"),
        abort_on_full: switch("abort_on_full"),
        ..numbers
    }
}

/// Converts the options of a result. Masked secrets are empty.
pub(super) fn rbd_options_fields(options: &RbdOptions, secrets: Secrets) -> Fields {
    let secret = match secrets {
        Secrets::Shown => Some(&options.secret),
        Secrets::Masked => None,
    };
    let fields = Fields::new(&tables::RBD_OPTIONS)
        .with("secret", secret)
        .with("fsid", &options.fsid)
        .with("ip", &options.ip)
        .with("name", &options.name)
        .with("namespace", &options.namespace);
    let fields = fields
        .with("share", options.share)
        .with("noshare", options.noshare)
        .with("crc", options.crc)
        .with("nocrc", options.nocrc)
        .with("ceph_requires_signatures", options.ceph_requires_signatures)
        .with("noceph_requires_signatures", options.noceph_requires_signatures)
        .with("tcp_nodelay", options.tcp_nodelay)
        .with("notcp_nodelay", options.notcp_nodelay)
        .with("cephx_sign_messages", options.cephx_sign_messages)
        .with("nocephx_sign_messages", options.nocephx_sign_messages)
        .with("force", options.force)
        .with("rw", options.rw)
        .with("ro", options.ro)
        .with("lock_on_read", options.lock_on_read)
        .with("exclusive", options.exclusive)
        .with("notrim", options.notrim)
        .with("abort_on_full", options.abort_on_full);
    fields
        .with("mount_timeout", options.mount_timeout)
        .with("osdkeepalive", options.osdkeepalive)
        .with("osd_idle_ttl", options.osd_idle_ttl)
        .with("queue_depth", options.queue_depth)
        .with("lock_timeout", options.lock_timeout)
        .with("alloc_size", options.alloc_size)
}

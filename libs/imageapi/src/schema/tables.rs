//! The tables of the objects. Required properties, types, enums and patterns are those of the ImageAPI 0.2.0.

use super::DefaultValue::{
    Boolean as DefaultBoolean, Integer as DefaultInteger, Text as DefaultText,
};
use super::TextRule::{Any, ContainerName, Ipv4, MonitorAddress, NotEmpty, OneOf};
use super::Usage::{Defaulted, Nullable, Optional, ReadOnly, Required};
use super::ValueType::{Boolean, Integer, Object as Nested, Objects, Text, Texts};
use super::{ObjectSchema, Property, Usage, ValueType};

pub(crate) const ATTACHMENT_KINDS: &[&str] = &["iscsi", "local", "loopback", "rbd"];
pub(crate) const MOUNT_KINDS: &[&str] = &["attach", "bind", "nfs", "overlay", "uri"];
pub(crate) const CONTAINER_STATES: &[&str] = &["created", "running", "stopping", "exited", "dead"];
const BASES: &[&str] = &["root", "mount"];
const NAMESPACES: &[&str] = &["cgroup", "ipc", "net", "mnt", "pid", "time", "user", "uts"];

const fn row(name: &'static str, value: ValueType, usage: Usage) -> Property {
    Property { name, value, usage }
}

pub(crate) static ATTACH: ObjectSchema = ObjectSchema {
    name: "attach",
    properties: &[
        row("device_file", Text(Any), ReadOnly),
        row("id", Integer, Optional),
        row("iscsi", Nested(&ISCSI), Optional),
        row("kind", Text(OneOf(ATTACHMENT_KINDS)), Optional),
        row("local", Nested(&LOCAL), Optional),
        row("loopback", Nested(&LOOPBACK), Optional),
        row("rbd", Nested(&RBD), Optional),
        row("refs", Integer, ReadOnly),
    ],
};

pub(crate) static ISCSI: ObjectSchema = ObjectSchema {
    name: "attach_iscsi",
    properties: &[
        row("host", Text(Any), Required),
        row("initiator", Text(Any), Required),
        row("lun", Integer, Optional),
        row("max_comands", Integer, Defaulted(DefaultInteger(128))),
        row("port", Integer, Defaulted(DefaultInteger(3260))),
        row("queue_depth", Integer, Defaulted(DefaultInteger(16))),
        row("scheduler", Text(Any), Defaulted(DefaultText("mq-deadline"))),
        row("target", Text(Any), Required),
    ],
};

pub(crate) static LOCAL: ObjectSchema =
    ObjectSchema { name: "attach_local", properties: &[row("path", Text(Any), Required)] };

pub(crate) static LOOPBACK: ObjectSchema = ObjectSchema {
    name: "attach_loopback",
    properties: &[
        row("base", Text(OneOf(BASES)), Required),
        row("mount", Nested(&MOUNT), Optional),
        row("path", Text(Any), Required),
        row("readPartitions", Boolean, Defaulted(DefaultBoolean(false))),
    ],
};

pub(crate) static RBD: ObjectSchema = ObjectSchema {
    name: "attach_rbd",
    properties: &[
        row("device_id", Integer, ReadOnly),
        row("image", Text(NotEmpty), Required),
        row("monitors", Texts(MonitorAddress), Required),
        row("options", Nested(&RBD_OPTIONS), Optional),
        row("pool", Text(NotEmpty), Required),
        row("snapshot", Text(Any), Optional),
    ],
};

pub(crate) static RBD_OPTIONS: ObjectSchema = ObjectSchema {
    name: "rbd_options",
    properties: &[
        row("abort_on_full", Boolean, Optional),
        row("alloc_size", Integer, Optional),
        row("ceph_requires_signatures", Boolean, Optional),
        row("cephx_sign_messages", Boolean, Optional),
        row("crc", Boolean, Optional),
        row("exclusive", Boolean, Optional),
        row("force", Boolean, Optional),
        row("fsid", Text(Any), Optional),
        row("ip", Text(Ipv4), Optional),
        row("lock_on_read", Boolean, Optional),
        row("lock_timeout", Integer, Optional),
        row("mount_timeout", Integer, Optional),
        row("name", Text(Any), Optional),
        row("namespace", Text(Any), Optional),
        row("noceph_requires_signatures", Boolean, Optional),
        row("nocephx_sign_messages", Boolean, Optional),
        row("nocrc", Boolean, Optional),
        row("noshare", Boolean, Optional),
        row("notcp_nodelay", Boolean, Optional),
        row("notrim", Boolean, Optional),
        row("osd_idle_ttl", Integer, Optional),
        row("osdkeepalive", Integer, Optional),
        row("queue_depth", Integer, Optional),
        row("ro", Boolean, Optional),
        row("rw", Boolean, Optional),
        row("secret", Text(Any), Optional),
        row("share", Boolean, Optional),
        row("tcp_nodelay", Boolean, Optional),
    ],
};

pub(crate) static MOUNT: ObjectSchema = ObjectSchema {
    name: "mount",
    properties: &[
        row("attach", Nested(&MOUNT_ATTACH), Optional),
        row("bind", Nested(&MOUNT_BIND), Optional),
        row("id", Integer, Optional),
        row("kind", Text(OneOf(MOUNT_KINDS)), Optional),
        row("mountpoint", Text(Any), ReadOnly),
        row("nfs", Nested(&MOUNT_NFS), Optional),
        row("overlay", Nested(&MOUNT_OVERLAY), Optional),
        row("refs", Integer, ReadOnly),
    ],
};

pub(crate) static MOUNT_ATTACH: ObjectSchema = ObjectSchema {
    name: "mount_attach",
    properties: &[
        row("attach", Nested(&ATTACH), Required),
        row("fs_type", Text(Any), Required),
        row("mount_options", Texts(Any), Nullable),
    ],
};

pub(crate) static MOUNT_BIND: ObjectSchema = ObjectSchema {
    name: "mount_bind",
    properties: &[
        row("base", Text(OneOf(BASES)), Required),
        row("mount", Nested(&MOUNT), Optional),
        row("path", Text(Any), Required),
        row("recursive", Boolean, Defaulted(DefaultBoolean(false))),
        row("ro", Boolean, Defaulted(DefaultBoolean(false))),
    ],
};

pub(crate) static MOUNT_NFS: ObjectSchema = ObjectSchema {
    name: "mount_nfs",
    properties: &[
        row("host", Text(Any), Required),
        row("options", Texts(Any), Nullable),
        row("path", Text(Any), Required),
        row("ro", Boolean, Defaulted(DefaultBoolean(false))),
        row("version", Text(Any), Defaulted(DefaultText("4.2"))),
    ],
};

pub(crate) static MOUNT_OVERLAY: ObjectSchema = ObjectSchema {
    name: "mount_overlay",
    properties: &[
        row("lower", Objects(&MOUNT), Required),
        row("upperdir", Text(Any), ReadOnly),
        row("workdir", Text(Any), ReadOnly),
    ],
};

pub(crate) static CONTAINER: ObjectSchema = ObjectSchema {
    name: "container",
    properties: &[
        row("command", Text(Any), Required),
        row("id", Integer, Optional),
        row("logfile", Text(Any), ReadOnly),
        row("mount", Nested(&MOUNT), Required),
        row("name", Text(ContainerName), Optional),
        row("namespaces", Texts(OneOf(NAMESPACES)), Nullable),
        row("refs", Integer, ReadOnly),
        row("state", Text(OneOf(CONTAINER_STATES)), Optional),
        row("systemd", Boolean, Optional),
    ],
};

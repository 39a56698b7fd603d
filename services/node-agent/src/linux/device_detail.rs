//! The data that the journal keeps of a device, to recognize and detach it. Field numbers are never used again.

use mounts::iscsi::{IscsiDevice, SessionKey};
use mounts::rbd::RbdDevice;
use prost::Message as _;

use super::steps::failed;
use crate::kernel::{Device, KernelError};

/// The detail of a device.
#[derive(Clone, PartialEq, prost::Message)]
struct DeviceDetail {
    #[prost(oneof = "Detail", tags = "1, 2, 3, 4")]
    detail: Option<Detail>,
}

/// The kinds of devices.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Detail {
    #[prost(message, tag = "1")]
    Iscsi(IscsiDetail),
    #[prost(message, tag = "2")]
    Local(LocalDetail),
    #[prost(message, tag = "3")]
    Loop(LoopDetail),
    #[prost(message, tag = "4")]
    Rbd(RbdDetail),
}

/// A logical unit of an iSCSI target.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct IscsiDetail {
    /// The mark of the step: one unit may be attached several times.
    #[prost(string, tag = "1")]
    pub(super) mark: String,
    #[prost(string, tag = "2")]
    initiator: String,
    #[prost(string, tag = "3")]
    target: String,
    #[prost(string, tag = "4")]
    portal: String,
    #[prost(uint64, tag = "5")]
    pub(super) lun: u64,
}

/// A device that the host has anyway.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LocalDetail {}

/// A loop device.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LoopDetail {
    #[prost(uint32, tag = "1")]
    pub(super) number: u32,
    #[prost(string, tag = "2")]
    pub(super) mark: String,
}

/// A mapped RBD image.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RbdDetail {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(string, tag = "2")]
    pool: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "4")]
    image: String,
    #[prost(string, tag = "5")]
    snapshot: String,
    /// It is unmapped although it is open.
    #[prost(bool, tag = "6")]
    pub(super) force: bool,
}

impl Detail {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        DeviceDetail { detail: Some(self) }.encode_to_vec()
    }

    /// Returns the detail of `device`. One that cannot be read was written by another version of the program.
    pub(super) fn of(device: &Device) -> Result<Self, KernelError> {
        let decoded = DeviceDetail::decode(device.detail.as_slice()).ok();
        let unreadable =
            || failed(format!("the record of {} is not of this version", device.file.display()));
        decoded.and_then(|decoded| decoded.detail).ok_or_else(unreadable)
    }
}

impl IscsiDetail {
    pub(super) fn new(mark: &str, key: &SessionKey, lun: u64) -> Self {
        Self {
            mark: mark.to_owned(),
            initiator: key.initiator.clone(),
            target: key.target.clone(),
            portal: key.portal.to_string(),
            lun,
        }
    }

    /// Returns the session's names and portal.
    pub(super) fn key(&self) -> Result<SessionKey, KernelError> {
        let unreadable = |_| failed(format!("{:?} is not the address of a portal", self.portal));
        Ok(SessionKey {
            initiator: self.initiator.clone(),
            target: self.target.clone(),
            portal: self.portal.parse().map_err(unreadable)?,
        })
    }

    /// Returns the device, whose file is `file`.
    pub(super) fn device(&self, file: &std::path::Path) -> Result<IscsiDevice, KernelError> {
        Ok(IscsiDevice { key: self.key()?, lun: self.lun, device_file: file.to_owned() })
    }
}

impl RbdDetail {
    pub(super) fn new(device: &RbdDevice, force: bool) -> Self {
        let RbdDevice { id, pool, namespace, image, snapshot } = device.clone();
        Self { id, pool, namespace, image, snapshot, force }
    }

    pub(super) fn device(&self) -> RbdDevice {
        let Self { id, pool, namespace, image, snapshot, force: _ } = self.clone();
        RbdDevice { id, pool, namespace, image, snapshot }
    }
}

/// The devices that existed before a step: its baseline.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Baseline {
    /// The numbers of the RBD devices.
    #[prost(uint32, repeated, tag = "1")]
    pub(super) rbd_devices: Vec<u32>,
    /// The session of an iSCSI step.
    #[prost(message, optional, tag = "2")]
    pub(super) session: Option<IscsiDetail>,
    /// The logical unit of an iSCSI step was attached.
    #[prost(bool, tag = "3")]
    pub(super) is_attached: bool,
}

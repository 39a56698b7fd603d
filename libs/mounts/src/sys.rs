//! The system calls for which no crate of ours has a safe function.
#![expect(
    unsafe_code,
    reason = "ioctls of loop devices and mount_setattr(2) have no safe function in rustix or nix"
)]

use std::{
    ffi::{c_int, c_void},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr,
};

use nix::libc;
use rustix::{
    io::{Errno, Result},
    ioctl::{self, Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter},
};

// Values and layouts: include/uapi/linux/loop.h.
const LOOP_SET_FD_FAMILY: Opcode = 0x4C00;
const LOOP_CLR_FD: Opcode = LOOP_SET_FD_FAMILY + 0x01;
const LOOP_GET_STATUS64: Opcode = LOOP_SET_FD_FAMILY + 0x05;
const LOOP_CONFIGURE: Opcode = LOOP_SET_FD_FAMILY + 0x0A;
const LOOP_CTL_GET_FREE: Opcode = LOOP_SET_FD_FAMILY + 0x82;

/// `LO_FLAGS_READ_ONLY`.
pub(crate) const LOOP_READ_ONLY: u32 = 1;
/// `LO_FLAGS_PARTSCAN`.
pub(crate) const LOOP_PARTITION_SCAN: u32 = 8;
/// Bytes of `lo_file_name`, with the zero at its end.
pub(crate) const LOOP_NAME_BYTES: usize = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LoopInfo {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) raw_device: u64,
    pub(crate) offset: u64,
    pub(crate) size_limit: u64,
    pub(crate) number: u32,
    pub(crate) encrypt_type: u32,
    pub(crate) encrypt_key_size: u32,
    pub(crate) flags: u32,
    pub(crate) file_name: [u8; LOOP_NAME_BYTES],
    pub(crate) crypt_name: [u8; LOOP_NAME_BYTES],
    pub(crate) encrypt_key: [u8; 32],
    pub(crate) init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// `LOOP_CTL_GET_FREE`, which returns a number instead of filling a buffer.
struct GetFree;

// SAFETY: the request takes no argument and writes no memory; its output is the number that the call returns.
unsafe impl Ioctl for GetFree {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::null_mut()
    }

    unsafe fn output_from_ptr(number: IoctlOutput, _: *mut c_void) -> Result<u32> {
        u32::try_from(number).map_err(|_| Errno::INVAL)
    }
}

/// Returns the number of a loop device without a file, made if there is none. It is not reserved.
pub(crate) fn free_loop_number(control: impl AsFd) -> Result<u32> {
    // SAFETY: see the implementation of `Ioctl`.
    unsafe { ioctl::ioctl(control, GetFree) }
}

/// Gives the loop device `device` the file `file`, with flags and name, in one step.
pub(crate) fn configure_loop(
    device: impl AsFd,
    file: BorrowedFd<'_>,
    flags: u32,
    file_name: [u8; LOOP_NAME_BYTES],
) -> Result<()> {
    let info = LoopInfo {
        device: 0,
        inode: 0,
        raw_device: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags,
        file_name,
        crypt_name: [0; LOOP_NAME_BYTES],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let file = u32::try_from(file.as_raw_fd()).map_err(|_| Errno::BADF)?;
    // A block size of zero is the kernel's default: 512 bytes, so that every file system and partition table fits.
    let config = LoopConfig { file, block_size: 0, info, reserved: [0; 8] };
    // SAFETY: the request reads a `struct loop_config`, of which `LoopConfig` has the layout.
    unsafe { ioctl::ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

/// Returns the state of a loop device; `ENXIO` if it has no file.
pub(crate) fn loop_info(device: impl AsFd) -> Result<LoopInfo> {
    // SAFETY: the request fills a `struct loop_info64`, of which `LoopInfo` has the layout; any bytes are valid in it.
    unsafe { ioctl::ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) }
}

/// Takes the file from a loop device, at once or when its last user closes it.
pub(crate) fn clear_loop(device: impl AsFd) -> Result<()> {
    // SAFETY: the request takes no argument.
    unsafe { ioctl::ioctl(device, NoArg::<LOOP_CLR_FD>::new()) }
}

/// Makes the mount `mount` private and, if asked, read-only; with `recursive`, also all mounts below it.
pub(crate) fn set_mount_attributes(
    mount: BorrowedFd<'_>,
    read_only: bool,
    recursive: bool,
) -> Result<()> {
    let attributes = libc::mount_attr {
        attr_set: if read_only { libc::MOUNT_ATTR_RDONLY } else { 0 },
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let size = size_of_val(&attributes);
    let descriptor: c_int = mount.as_raw_fd();
    let path = c"".as_ptr();
    // SAFETY: mount_setattr(2) reads a string ended by zero and `size` bytes of `attributes`, which both outlive the call.
    let result = unsafe {
        libc::syscall(libc::SYS_mount_setattr, descriptor, path, flags, &raw const attributes, size)
    };
    if result == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

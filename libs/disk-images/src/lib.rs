//! Formats of disk images: recognized by their magic, converted to raw, and looked into.
//!
//! The files may come from strangers. [`convert()`] is made for a sandbox, needs no network, and
//! neither panics nor leaves its directory, whatever is in a file.
//!
//! - [`convert()`]: from a file to a raw disk with holes for zeros, or to a tar. Its parts: magics
//!   (`magic`), wrappings (`streams`, `zipped`), archives (`tape`), images ([`qcow2`], `vmdk`,
//!   `vhd`, and `qemu` for all that qemu-img reads), limits (`sparse`).
//! - [`disk_in_tar`]: the disk in the layer of a container; [`convert_layer`] also converts it.
//! - [`partitions`] and `properties`: the partition table, what boots, the system.
//! - [`catalogue`], [`checksums`] and [`download`]: images of publishers, and how they are fetched.
//!
//! [`Refusal`] has the reasons why a file is not accepted.

pub mod catalogue;
pub mod checksums;
mod convert;
pub mod download;
mod format;
mod magic;
pub mod partitions;
mod properties;
pub mod qcow2;
mod qemu;
mod refusal;
mod source;
mod sparse;
mod streams;
mod tape;
mod text;
mod vhd;
mod vmdk;
mod zipped;

pub use convert::{Job, Kind, LayerDisk, Report, convert, convert_layer, disk_in_tar};
pub use format::{Format, Wrapping};
pub use properties::{Architecture, CloudInit, Properties, System};
pub use refusal::Refusal;
pub use sparse::{Limits, new_file};

//! Disk images: records, uploads, builds, and the content in an object store.
//!
//! ```text
//! client ─CreateImage─▶ images, builds ◀─LeaseBuild, ReportBuild, FinishBuild─ builder
//! client ─/uploads────▶ uploads ─────────────────/uploads─────────────────────▶ builder
//!                        blobs ◀─────────────────/blobs─────────────────────── builder
//! ```
//!
//! - [`api`]: the gRPC services, and [`http`]: content over HTTP; they decide nothing.
//! - [`images`], [`builds`]: the records, of the [`kinds`]. [`lifecycle`]: their states as values; no I/O.
//! - [`imports`]: uploads, until their build begins.
//!   [`signatures`]: of images; the service has no keys.
//! - [`quotas`]: how much a tenant may have.
//! - [`holders`]: what is about to use an image, so that it cannot be deleted.
//! - [`publish`]: the end of a build that makes its image READY.
//! - [`blobs`]: content by its digest, and the records that name its objects.
//! - [`objects`]: the object store, a directory or a bucket ([`s3`]). [`uploads`]: content that clients
//!   send.
//! - [`collection`]: removes content that no image has. [`damage`]: finds images without theirs.
//!   [`scrub`]: reads it again. [`reconcile`]: what time ends.
//!
//! # No content is lost that an image has
//!
//! Content is an object with a name of its own, which is never used again. At each moment, a record
//! of one of two kinds names an object that may be used:
//!
//! ```text
//! (none) ─stage─▶ StagedObject ─publish─▶ Blob ─collect─▶ (none)
//!                      └────────expire────────────────────▶ (none)
//! ```
//!
//! Each arrow is one commit, and an object is removed only after the commit that leaves no record
//! of it. So an object without a record is garbage whenever it is seen, and its removal cannot hit
//! another object, however late it comes.
//!
//! A commit that makes an image READY writes the blobs that the image has. A commit that collects a
//! blob expects it unchanged, and reads the images that have it after the blob. So one of the two
//! fails if both happen at once.
//!
//! A restored store is the exception: its images may lack content that was collected since. They
//! are DAMAGED until the same content is stored again. It does not know content that was stored after
//! its backup, either: nothing is collected until an operator says so.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api;
pub mod blobs;
pub mod builds;
pub mod collection;
mod content_store;
pub mod damage;
mod error;
pub mod holders;
pub mod http;
pub mod images;
pub mod imports;
pub mod kinds;
pub mod lifecycle;
pub mod objects;
mod owner;
pub mod publish;
mod quotas;
pub mod reconcile;
mod s3;
mod scrub;
mod settings;
mod signatures;
mod source;
mod stored;
mod suspects;
#[cfg(test)]
mod tests;
pub mod uploads;

pub use api::{Api, CalledServices};
pub use error::Error;
pub use settings::{ContentStore, S3Settings, Settings};

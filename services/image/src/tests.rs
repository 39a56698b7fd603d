//! Tests of the service as a whole.

mod blobs;
mod bucket;
mod contract;
mod damage;
#[path = "../tests/s3/gate.rs"]
mod gate;
mod holders;
mod images;
mod interleavings;
mod lifecycle;
#[path = "../tests/s3/moto.rs"]
mod moto;
mod restored;
mod signatures;
mod site;
mod uploads;

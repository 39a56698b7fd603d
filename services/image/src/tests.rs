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
#[path = "../tests/s3/radosgw.rs"]
mod radosgw;
mod real_server;
mod restored;
#[path = "../tests/s3/s3_bucket.rs"]
mod s3_bucket;
mod signatures;
mod site;
mod uploads;

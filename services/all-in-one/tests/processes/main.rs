//! Several processes of one site, started, killed and called over the network.
#![allow(clippy::unwrap_used, missing_docs)]

mod air_gap;
#[path = "../../../../libs/store/tests/engines/authority.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod authority;
mod backup;
mod boots;
mod builder_alone;
mod certificate_end;
mod docs;
mod door;
mod edge;
mod edge_images;
#[path = "../../../power/tests/bmc/emulator.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod emulator;
mod enrol;
mod examples;
mod full_disk;
#[path = "../../../../libs/store/tests/engines/gate.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod gate;
mod gateway_uploads;
mod grant_storm;
mod granted;
mod hegel;
mod history;
mod image_bucket;
mod image_build;
#[cfg(target_arch = "x86_64")]
mod image_kills;
mod image_radosgw;
mod image_registry;
mod images;
mod kills;
mod leased;
mod lent;
mod links;
mod messages;
mod monitoring;
#[path = "../../../image/tests/s3/moto.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod moto;
mod network;
mod order_storm;
mod outage;
#[path = "../../../../libs/store/tests/engines/peer.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod peer;
mod platform_storm;
mod process;
#[path = "../../../image/tests/s3/radosgw.rs"]
mod radosgw;
mod readdress;
mod recorded;
mod reflection;
mod replicas;
mod restored;
mod revoked;
mod rolling;
mod rotation;
#[path = "../../../image/tests/s3/s3_bucket.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod s3_bucket;
#[path = "../../../image/tests/s3/gate.rs"]
mod s3_gate;
mod scripts;
mod secrets;
mod split;
mod strangers;
#[cfg(target_arch = "x86_64")]
#[path = "../../../node-agent/tests/program/tracer.rs"]
mod tracer;
mod tus_client;
mod upgrade_images;

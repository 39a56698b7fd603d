//! A node with the ImageAPI: a virtual machine with Debian's kernel attaches and mounts images of real servers, and runs them as containers. The
//! servers are Ganesha (NFS), tgt (iSCSI) and Ceph (RBD). After each image the kernel's tables are what they were before.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "imageapi/ceph.rs"]
mod ceph;
#[path = "imageapi/images.rs"]
mod images;
#[path = "imageapi/journey.rs"]
mod journey;
#[path = "imageapi/schemes.rs"]
mod schemes;
#[path = "imageapi/servers.rs"]
mod servers;

use journey::Journey;

#[test]
fn a_node_runs_a_squashfs_of_nfs_and_a_disk_of_iscsi_and_its_agent_may_be_killed() {
    let mut journey = Journey::start(false);
    let squashfs = schemes::loopback_squashfs();
    let running = journey.start_container(&squashfs);
    journey.kill_agent(&running);
    journey.stop_and_delete(running);
    journey.run(&schemes::writable_iscsi());
    assert_eq!(journey.servers.file_of_unit(servers::WRITABLE, "/report"), images::PLAIN_REPORT);
}

#[test]
#[ignore = "long: cargo rack test --long"]
fn a_node_runs_images_of_every_scheme() {
    let mut journey = Journey::start(true);
    journey.run(&schemes::writable_nfs());
    assert_eq!(journey.servers.file(servers::NODE, "report").unwrap(), images::PLAIN_REPORT);
    journey.run(&schemes::overlay_on_nfs());
    assert_eq!(journey.servers.file(servers::IMAGES, "report"), None, "written below the overlay");
    journey.run(&schemes::loopback_squashfs());
    let running = journey.start_container(&schemes::writable_iscsi());
    journey.break_iscsi_connection();
    journey.stop_and_delete(running);
    assert_eq!(journey.servers.file_of_unit(servers::WRITABLE, "/report"), images::PLAIN_REPORT);
    journey.run(&schemes::overlay_on_iscsi());
    journey.run(&schemes::deep_chain());
    let secret = journey.servers.ceph().secret();
    journey.run(&schemes::writable_rbd(&secret));
    assert_eq!(journey.servers.ceph().file(&journey.lab, "/report"), images::PLAIN_REPORT);
    journey.run(&schemes::overlay_on_rbd(&secret));
}

//! A machine without disks is a node: it boots from the network, connects, and runs the stack of its instance. A container on it looks for an
//! identity, the control plane is killed and comes back, the machine is restarted, and freed.
#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code, reason = "only the long test uses all servers")]
#[path = "imageapi/ceph.rs"]
mod ceph;
#[path = "node/client.rs"]
mod client;
#[path = "node/identity.rs"]
mod identity;
#[allow(dead_code, reason = "only the journeys of images use all of them")]
#[path = "imageapi/images.rs"]
mod images;
#[path = "node/machine.rs"]
mod machine;
#[path = "node/running.rs"]
mod running;
#[allow(dead_code, reason = "only the journeys of images use all of them")]
#[path = "imageapi/schemes.rs"]
mod schemes;
#[allow(dead_code, reason = "only the journeys of images use all of them")]
#[path = "imageapi/servers.rs"]
mod servers;

use std::time::Duration;

use machine::{NodeSite, Peers};

/// The time without control plane in every run, and in the long one.
const SHORT_OUTAGE: Duration = Duration::from_secs(30);
const LONG_OUTAGE: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_disks_runs_its_stack_at_every_boot_and_without_control_plane() {
    let mut site = NodeSite::start(Peers::Nfs).await;
    let first = site.until_running().await;
    site.check_command_line(&first);
    let token = site.until_container_looked(1);
    site.check_token(&token, &first.boot_id);
    let first = site.until_running().await;

    site.stop_control_plane(&first, SHORT_OUTAGE).await;
    site.look_again();
    assert_eq!(site.until_container_looked(2), token, "the same boot");

    let second = site.restart(&first).await;
    assert_ne!(site.until_container_looked(1), token, "another boot");
    site.check_stack(&second);
    site.free().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: cargo rack test --long"]
async fn a_client_runs_every_scheme_on_a_node_which_needs_no_control_plane() {
    let mut site = NodeSite::start(Peers::All).await;
    let node = site.until_running().await;
    site.run_client_at_gateway();
    site.run_client_on_node();
    site.stop_control_plane(&node, LONG_OUTAGE).await;
    site.run_client_at_gateway();
    site.free().await;
}

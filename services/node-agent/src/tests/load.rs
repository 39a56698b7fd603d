//! Many calls at the same time.

use tinwright::node::v1::image_error::Reason;

use super::Bench;
use super::requests::*;
use crate::Node;

const CYCLES: usize = 200;

/// Creates a stack and deletes it, however often it takes. Half of the stacks have a base that they share.
async fn cycle(node: Node, number: usize, shared: i64) {
    let mount = match number % 2 {
        0 => stack(),
        _ => overlay(vec![attach_mount(loopback(mount_reference(shared), "/image"))]),
    };
    let name = format!("c{number}");
    let posted = match number % 3 {
        0 => container(&name, mount),
        _ => running(&name, mount),
    };
    let created = loop {
        match post_container(&node, posted.clone()).await {
            Ok(created) => break created,
            Err(Reason::Failed) => {}
            Err(reason) => panic!("{reason:?}"),
        }
    };
    loop {
        match delete_container(&node, created.id, true).await {
            Ok(_) => return,
            Err(Reason::Busy) => {}
            Err(reason) => panic!("{reason:?}"),
        }
    }
}

/// Runs the cycles. Each step of the kernel fails with the probability `rate`.
async fn cycles(bench: &Bench, node: &Node, seed: u8, rate: f64) {
    let shared = post_mount(node, nfs("/shared")).await.unwrap();
    bench.kernel.fail_at_random(seed, rate);
    let tasks: Vec<_> =
        (0..CYCLES).map(|number| tokio::spawn(cycle(node.clone(), number, shared.id))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    bench.kernel.heal();
    node.idle().await;
    let snapshot = node.snapshot();
    assert_eq!(snapshot.mounts.len(), 1);
    assert_eq!((snapshot.mounts[0].id, snapshot.mounts[0].refs), (shared.id, 1));
    assert!(snapshot.attachments.is_empty() && snapshot.containers.is_empty());
    delete_mount(node, shared.id, true).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn parallel_cycles_with_random_failures_leak_nothing_and_do_not_deadlock() {
    for (seed, rate) in [(1, 0.02), (2, 0.07), (3, 0.15)] {
        println!("seed {seed}");
        let bench = Bench::new();
        let node = bench.open().await;
        cycles(&bench, &node, seed, rate).await;
        node.close().await;
        // Ended runs that could not be forgotten are forgotten by the next process.
        let node = bench.reopen().await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        node.close().await;
        assert!(bench.kernel.tables().is_empty(), "{:?}", bench.kernel.tables());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_cycles_on_several_threads_leak_nothing_and_do_not_deadlock() {
    let mut bench = Bench::new();
    // Time is not paused here, and the machine may be busy.
    bench.options.call_timeout = std::time::Duration::from_secs(600);
    let node = bench.open().await;
    cycles(&bench, &node, 0, 0.0).await;
    node.close().await;
    assert!(bench.kernel.tables().is_empty(), "{:?}", bench.kernel.tables());
}

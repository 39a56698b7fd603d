//! The only program of the machine whose power `tests/power_cut.rs` cuts.
//!
//! It runs as the kernel's init, on a disk with nothing but the store. It first prints the content of the store
//! (`holds WRITER COUNT`, then `checked`). With `work=load` it then writes until it is stopped, and prints every acknowledged
//! write (`ack WRITER NUMBER`). A wrong content is reported as `broken`. With `work=control` it does the same, but syncs another
//! file than the store's.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};
use store::{Commit, Expect, Store, Write, sled::Sled};
use tokio::task::JoinSet;

const WRITERS: usize = 32;
const DISK: &str = "/dev/nvme0n1";
const STORE: &str = "/data/store";

fn main() -> anyhow::Result<()> {
    if let Err(error) = run() {
        println!("failed: {error:#}");
    }
    reboot(RebootCommand::PowerOff).context("powering off")
}

fn run() -> anyhow::Result<()> {
    mount("dev", "/dev", "devtmpfs", MountFlags::empty(), None).context("mounting /dev")?;
    fs::create_dir("/data")?;
    while !Path::new(DISK).exists() {
        std::thread::sleep(Duration::from_millis(10)); // the host gives up on us if it never comes
    }
    mount(DISK, "/data", "ext4", MountFlags::empty(), None).context("mounting the disk")?;
    // The kernel passes unknown parameters to init as environment variables.
    let what = std::env::var("work").unwrap_or_default();
    if let Err(error) = tokio::runtime::Runtime::new()?.block_on(work(&what)) {
        println!("broken: {error:#}");
    }
    Ok(())
}

async fn work(work: &str) -> anyhow::Result<()> {
    let store = match work {
        "control" => Sled::open_syncing(Path::new(STORE), File::create("/elsewhere")?),
        _ => Sled::open(Path::new(STORE)),
    };
    let store = Arc::new(store.context("opening the store")?);
    let mut counts = Vec::new();
    for writer in 0..WRITERS {
        let count = held(&*store, writer).await?;
        println!("holds {writer} {count}");
        counts.push(count);
    }
    println!("checked");
    let mut writers = JoinSet::new();
    for (writer, count) in counts.into_iter().enumerate().filter(|_| work != "check") {
        writers.spawn(write(store.clone(), writer, count));
    }
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    Ok(())
}

/// Returns the last number of `writer`: every number up to it is stored, and the counter agrees.
async fn held(store: &dyn Store, writer: usize) -> anyhow::Result<u64> {
    let (prefix, mut after, mut count) = (format!("{writer}/n/"), String::new(), 0);
    loop {
        let page = store.list(&prefix, &after, 100).await?;
        for (key, found) in &page.pairs {
            ensure!(*key == numbered(writer, count), "a hole before {key}");
            ensure!(found.value == value(writer, count), "{key} is not what was written");
            count += 1;
        }
        after = page.pairs.last().map_or(after, |(key, _)| key.clone());
        if !page.more {
            break;
        }
    }
    let counter = store.get(&counter(writer)).await?.map(|found| found.value);
    let expected = (count > 0).then(|| count.to_string());
    ensure!(
        counter.as_deref() == expected.as_deref().map(str::as_bytes),
        "half a commit of {writer}"
    );
    Ok(count)
}

/// Writes one number after the other, each with the counter, and prints each once it is acknowledged.
async fn write(store: Arc<Sled>, writer: usize, from: u64) -> anyhow::Result<()> {
    let found = store.get(&counter(writer)).await?;
    let mut expect = found.map_or(Expect::Absent(counter(writer)), |found| {
        Expect::At(counter(writer), found.revision)
    });
    for number in from.. {
        let entry = Write::Put(numbered(writer, number), value(writer, number).into());
        let count = Write::Put(counter(writer), (number + 1).to_string().into());
        let revision =
            store.commit(Commit { expect: vec![expect], writes: vec![entry, count] }).await?;
        println!("ack {writer} {number}");
        expect = Expect::At(counter(writer), revision);
    }
    Ok(())
}

fn counter(writer: usize) -> String {
    format!("{writer}/count")
}

fn numbered(writer: usize, number: u64) -> String {
    format!("{writer}/n/{number:08}")
}

/// A value like no other; every tenth is a long one.
fn value(writer: usize, number: u64) -> Vec<u8> {
    let words = if number % 10 == 9 { 1500 } else { 50 };
    (number << 8 | writer as u64).to_be_bytes().repeat(words)
}

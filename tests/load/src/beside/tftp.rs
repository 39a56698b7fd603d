//! TFTP beside tftpd-hpa, and beside atftpd where windows are wider than a block; and what memory it takes.

use std::path::Path;

use super::{FILE, Figure, SIZE, Table};
use crate::downloads::{Downloaded, download, stalled};
use crate::peer::Peer;
use crate::process::Measured;
use crate::quiet::{Quiet, quiet};
use crate::tftp::Wishes;

/// Downloads that are under way while memory is looked at, and what each may take, in KiB.
const STALLED: usize = 1_000;
const EACH: f64 = 64.0;
/// As large blocks as all of them grant, one at a time; and eight.
const PLAIN: Wishes = Wishes { block: Some(1428), window: None };
const WIDE: Wishes = Wishes { window: Some(8), ..PLAIN };

/// Ours beside theirs, which are unpacked at `peers`.
pub(super) fn tftp(ours: Measured<'_>, peers: &Path, table: &mut Table<'_>) -> anyhow::Result<()> {
    let file = vec![0x5a; SIZE];
    let hpa = Peer::tftpd_hpa(peers, FILE, &file)?;
    hpa.ready(|peer| mib(peer, 1, PLAIN).ok())?;
    table.heading("TFTP, blocks of 1428", "MiB/s", "tftpd-hpa");
    for (clients, goal) in [(1, 0.9), (50, 1.0)] {
        let theirs = || mib(hpa.measured(), clients, PLAIN);
        let name = format!("{clients} at a time");
        table.row(&name, Some(goal), || mib(ours, clients, PLAIN), theirs)?;
    }
    let atftpd = Peer::atftpd(peers, FILE, &file)?;
    atftpd.ready(|peer| mib(peer, 1, PLAIN).ok())?;
    table.heading("TFTP, windows of 8", "MiB/s", "atftpd");
    for clients in [1, 50] {
        let theirs = || mib(atftpd.measured(), clients, WIDE);
        let name = format!("{clients} at a time");
        table.row(&name, Some(1.0), || mib(ours, clients, WIDE), theirs)?;
    }
    let [before, with] = stalled(ours, FILE, STALLED)?;
    println!();
    table.report.each("memory of a transfer", before, with, STALLED, EACH);
    Ok(())
}

/// MiB a second, where nobody had to ask again.
fn mib(server: Measured<'_>, clients: usize, wishes: Wishes) -> anyhow::Result<Figure> {
    let downloaded = || download(server, FILE, SIZE as u64, clients, wishes);
    let Quiet { measured, disturbed } = quiet(downloaded)?;
    let Downloaded { octets, took, again, processor } = measured;
    anyhow::ensure!(again == 0, "clients had to ask {again} times again");
    Ok(Figure { disturbed, ..Figure::of(octets as f64 / f64::from(1 << 20), took, processor) })
}

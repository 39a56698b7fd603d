//! Compares TFTP with tftpd-hpa, and with atftpd for windows of several blocks; measures the memory per transfer.

use std::path::Path;

use super::{FILE_BYTES, FILE_NAME, Figure, Table};
use crate::peer::Peer;
use crate::process::Measured;
use crate::steal::{Sample, undisturbed};
use crate::tftp::TransferOptions;
use crate::tftp_load::{TftpResult, download, memory_of_open_transfers};

/// Number of open transfers while memory is measured, and the goal for each, in KiB.
const OPEN_TRANSFERS: usize = 1_000;
const KIB_PER_TRANSFER_GOAL: f64 = 64.0;
/// The largest block size that all servers grant, without windows and with windows of 8.
const SINGLE_BLOCKS: TransferOptions = TransferOptions { block: Some(1428), window: None };
const WINDOWS_OF_8: TransferOptions = TransferOptions { window: Some(8), ..SINGLE_BLOCKS };

/// Compares our server with the peers, unpacked at `peers`.
pub(super) fn tftp(ours: Measured<'_>, peers: &Path, table: &mut Table<'_>) -> anyhow::Result<()> {
    let file = vec![0x5a; FILE_BYTES];
    let hpa = Peer::tftpd_hpa(peers, FILE_NAME, &file)?;
    hpa.ready(|peer| rate(peer, 1, SINGLE_BLOCKS).ok())?;
    table.heading("TFTP, blocks of 1428", "MiB/s", "tftpd-hpa");
    for (clients, goal) in [(1, 0.9), (50, 1.0)] {
        let theirs = || rate(hpa.measured(), clients, SINGLE_BLOCKS);
        let name = format!("{clients} at a time");
        table.row(&name, Some(goal), || rate(ours, clients, SINGLE_BLOCKS), theirs)?;
    }
    let atftpd = Peer::atftpd(peers, FILE_NAME, &file)?;
    atftpd.ready(|peer| rate(peer, 1, SINGLE_BLOCKS).ok())?;
    table.heading("TFTP, windows of 8", "MiB/s", "atftpd");
    for clients in [1, 50] {
        let theirs = || rate(atftpd.measured(), clients, WINDOWS_OF_8);
        let name = format!("{clients} at a time");
        table.row(&name, Some(1.0), || rate(ours, clients, WINDOWS_OF_8), theirs)?;
    }
    let [before, during] = memory_of_open_transfers(ours, FILE_NAME, OPEN_TRANSFERS)?;
    println!();
    table.report.memory_each(
        "memory of a transfer",
        before,
        during,
        OPEN_TRANSFERS,
        KIB_PER_TRANSFER_GOAL,
    );
    Ok(())
}

/// Measures the rate in MiB per second. Fails if a packet was lost.
fn rate(server: Measured<'_>, clients: usize, options: TransferOptions) -> anyhow::Result<Figure> {
    let run = || download(server, FILE_NAME, FILE_BYTES as u64, clients, options);
    let Sample { value, disturbed } = undisturbed(run)?;
    let TftpResult { bytes, elapsed, retries, cpu } = value;
    anyhow::ensure!(retries == 0, "{retries} packets were sent again");
    Ok(Figure { disturbed, ..Figure::new(bytes as f64 / f64::from(1 << 20), elapsed, cpu) })
}

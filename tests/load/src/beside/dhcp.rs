//! DHCP beside dnsmasq: the highest rate at which less than a thousandth is lost.

use anyhow::Context as _;

use super::{FEW, Figure, MANY, Table};
use crate::highest::highest;
use crate::peer::Peer;
use crate::process::Measured;
use crate::quiet::watched;
use crate::storm::{LENGTH, Storm, Trial};

/// The rate of exchanges a second that is tried first.
const FIRST: f64 = 4_000.0;

/// Ours of few and of many machines beside theirs, and beside each other.
pub(super) fn dhcp(
    few: Measured<'_>,
    many: Measured<'_>,
    table: &mut Table<'_>,
) -> anyhow::Result<()> {
    let (small, large) = (Peer::dnsmasq(FEW)?, Peer::dnsmasq(MANY)?);
    let mut ours = (Storm::new(few, FEW)?, Storm::new(many, MANY)?);
    let mut theirs = (Storm::new(small.measured(), FEW)?, Storm::new(large.measured(), MANY)?);
    small.ready(|peer| theirs.0.trial(1.0, peer).ok().filter(Trial::is_held))?;
    large.ready(|peer| theirs.1.trial(1.0, peer).ok().filter(Trial::is_held))?;
    table.heading("DHCP, whole exchanges", "/s", "dnsmasq");
    table.row(
        "10 reservations",
        Some(2.0),
        || storm(&mut ours.0, few),
        || storm(&mut theirs.0, small.measured()),
    )?;
    table.row(
        "10,000 reservations",
        Some(5.0),
        || storm(&mut ours.1, many),
        || storm(&mut theirs.1, large.measured()),
    )?;
    table.heading("DHCP, 10,000 reservations", "/s", "ours, of 10");
    table.row("whole exchanges", Some(0.8), || storm(&mut ours.1, many), || storm(&mut ours.0, few))
}

/// The highest rate at which less than a thousandth is lost; of two seconds, the better one counts.
fn storm(storm: &mut Storm, server: Measured<'_>) -> anyhow::Result<Figure> {
    let mut disturbed = false;
    let found = highest(FIRST, |rate| {
        for _ in 0..2 {
            let trial = watched(|| storm.trial(rate, server))?;
            if trial.measured.is_held() {
                return Ok(Some(trial.measured));
            }
            disturbed |= trial.disturbed;
        }
        Ok(None)
    });
    let (rate, trial) = found?.context("no rate is held")?;
    Ok(Figure { rate, disturbed, ..Figure::of(trial.done as f64, LENGTH, trial.processor) })
}

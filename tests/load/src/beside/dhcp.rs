//! Compares DHCP with dnsmasq, by the highest rate at which less than a thousandth of the exchanges is lost.

use anyhow::Context as _;

use super::{FEW_MACHINES, Figure, MANY_MACHINES, Table};
use crate::dhcp_load::{DURATION, DhcpLoad, Trial};
use crate::max_rate::max_rate;
use crate::peer::Peer;
use crate::process::Measured;
use crate::steal::sample;

/// The first rate of the search, in exchanges per second.
const FIRST_RATE: f64 = 4_000.0;

/// Compares our servers of few and of many machines with dnsmasq, and with each other.
pub(super) fn dhcp(
    few: Measured<'_>,
    many: Measured<'_>,
    table: &mut Table<'_>,
) -> anyhow::Result<()> {
    let (small, large) = (Peer::dnsmasq(FEW_MACHINES)?, Peer::dnsmasq(MANY_MACHINES)?);
    let mut ours = (DhcpLoad::new(few, FEW_MACHINES)?, DhcpLoad::new(many, MANY_MACHINES)?);
    let mut theirs = (
        DhcpLoad::new(small.measured(), FEW_MACHINES)?,
        DhcpLoad::new(large.measured(), MANY_MACHINES)?,
    );
    small.ready(|peer| theirs.0.trial(1.0, peer).ok().filter(Trial::is_sustained))?;
    large.ready(|peer| theirs.1.trial(1.0, peer).ok().filter(Trial::is_sustained))?;
    table.heading("DHCP, complete exchanges", "/s", "dnsmasq");
    table.row(
        "10 reservations",
        Some(2.0),
        || rate(&mut ours.0, few),
        || rate(&mut theirs.0, small.measured()),
    )?;
    table.row(
        "10,000 reservations",
        Some(5.0),
        || rate(&mut ours.1, many),
        || rate(&mut theirs.1, large.measured()),
    )?;
    table.heading("DHCP, 10,000 reservations", "/s", "ours, 10 machines");
    table.row(
        "complete exchanges",
        Some(0.8),
        || rate(&mut ours.1, many),
        || rate(&mut ours.0, few),
    )
}

/// Measures the highest sustained rate. At each rate the better of two seconds counts.
fn rate(load: &mut DhcpLoad, server: Measured<'_>) -> anyhow::Result<Figure> {
    let mut disturbed = false;
    let found = max_rate(FIRST_RATE, |rate| {
        for _ in 0..2 {
            let trial = sample(|| load.trial(rate, server))?;
            if trial.value.is_sustained() {
                return Ok(Some(trial.value));
            }
            disturbed |= trial.disturbed;
        }
        Ok(None)
    });
    let (rate, trial) = found?.context("no rate is sustained")?;
    Ok(Figure { rate, disturbed, ..Figure::new(trial.done as f64, DURATION, trial.cpu) })
}

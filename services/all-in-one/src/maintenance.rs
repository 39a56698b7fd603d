//! Maintenance of the store while no server uses it: checks, and restoring a backup.

use std::io::{BufReader, Read};
use std::sync::Arc;

use anyhow::Context as _;
use runtime::authority::SiteAuthority;
use runtime::clock::Clock;
use runtime::revocation::Revocations;
use store::ScopedStore;
use store::records::CheckReport;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Storage};
use crate::endpoints::Endpoints;
use crate::services::Services;

/// Compares all records with their indexes; with `mend`, repairs these. The server must not be running.
pub async fn check(config: &Config, mend: bool) -> anyhow::Result<CheckReport> {
    ensure_exists(config)?;
    let site =
        Arc::new(SiteAuthority::open(&config.secrets()).context("opening the site's secrets")?);
    let store = crate::open_store(config, &site).await?;
    // A check makes no calls, so no peer is needed.
    let unconnected = Endpoints::unconnected();
    let (nobody, stop) = (Revocations::default(), CancellationToken::new());
    let services = Services::new(config, Some(&store), &site, &unconnected, &nobody, &stop)?;
    let leases = netboot::leases::Leases::new(store.clone(), Clock::system()).check(mend).await?;
    let boots =
        netboot::timeline::records::BootStore::new(ScopedStore::new(store.clone(), "netboot"));
    Ok(services.check(mend).await?.and(boots.check(mend).await?).and(leases))
}

/// Fails if there is nothing to check: opening the store would create it.
fn ensure_exists(config: &Config) -> anyhow::Result<()> {
    let data = config.data.display();
    let has_store = match config.store {
        Storage::Sled => crate::secrets::has_store(config),
        Storage::Memory => anyhow::bail!("a store in memory cannot be checked"),
        Storage::Etcd(_) => true,
    };
    anyhow::ensure!(
        has_store,
        "no store in {data}: give the data directory of a server with --data"
    );
    let secrets = config.secrets();
    anyhow::ensure!(
        secrets.join("ca.pem").exists(),
        "{} has no ca.pem: first copy the directory of secrets of the server",
        secrets.display()
    );
    Ok(())
}

/// Restores the backup in `from` into the store of `config`, which has to be empty. The secrets of the site have to be there.
/// Returns the number of entries.
pub async fn restore(config: &Config, from: impl Read) -> anyhow::Result<usize> {
    anyhow::ensure!(
        !matches!(config.store, Storage::Memory),
        "a store in memory cannot be restored"
    );
    let secrets = config.secrets();
    anyhow::ensure!(
        secrets.join("ca.pem").exists(),
        "{} has no ca.pem: first copy the directory of secrets of the server that was backed up",
        secrets.display()
    );
    let site = SiteAuthority::open(&secrets).context("opening the site's secrets")?;
    let store = crate::open_engine(config).await?;
    let marks = crate::site_identity::accepted_marks(&site)?;
    let restored = store::backup::restore(&*store, &marks, &mut BufReader::new(from)).await?;
    crate::site_identity::claim_store(&*store, &site).await?;
    Ok(restored)
}

/// Formats the report as text: the counts, then one line for each finding.
pub fn format_report(report: &CheckReport) -> String {
    let CheckReport { records, entries, corrupt, missing, stray, contested } = report;
    let mut lines = vec![format!("{records} records, {entries} index entries")];
    let kinds = [
        ("cannot be read", corrupt),
        ("index entry missing", missing),
        ("index entry without its record", stray),
        ("claimed by two records", contested),
    ];
    for (what, keys) in kinds {
        lines.extend(keys.iter().map(|key| format!("{what}: {key}")));
    }
    lines.join("\n")
}

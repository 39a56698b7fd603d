//! What is done to a store that nobody uses.

use hardware::Machines;
use store::records::Report;

use crate::config::Config;

/// Compares all records with their indexes; with `mend`, repairs these. The server must not be running.
pub async fn check(config: &Config, mend: bool) -> anyhow::Result<Report> {
    let store = crate::open_store(config).await?;
    store::schema::settle(&*store).await?;
    let hardware = Machines::new(store.clone()).check(mend).await?;
    let instance = instance::Instances::new(store.clone()).check(mend).await?;
    Ok(hardware.and(instance))
}

/// The report in words, a line each.
pub fn told(report: &Report) -> String {
    let Report { records, entries, corrupt, missing, stray, contested } = report;
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

//! The bytes of the store in its directory.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Adds up the sizes of the files when the metrics are scraped.
#[derive(Debug)]
pub(crate) struct StoreSize {
    directory: PathBuf,
}

impl StoreSize {
    /// Registers the metric of the store in `directory` in `registry`.
    pub(crate) fn register(directory: PathBuf, registry: &mut Registry) {
        registry.register_collector(Box::new(Self { directory }));
    }
}

impl Collector for StoreSize {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Ok(bytes) = size(&self.directory) else { return Ok(()) };
        let bytes = ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
        let (name, help) = ("store_size_bytes", "Files of the store in its directory, in bytes.");
        bytes.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }
}

/// Returns the bytes of the files in `directory` and below.
fn size(directory: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // A file may be removed meanwhile.
        let Ok(found) = entry.metadata() else { continue };
        bytes += if found.is_dir() { size(&entry.path())? } else { found.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn all_files_are_added_up() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("blobs")).unwrap();
        fs::write(directory.path().join("db"), [0; 100]).unwrap();
        fs::write(directory.path().join("blobs/1"), [0; 20]).unwrap();
        let mut registry = Registry::default();
        StoreSize::register(directory.path().into(), &mut registry);
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        assert!(page.contains("\nstore_size_bytes 120\n"), "{page}");
        drop(directory);
        page.clear();
        encode(&mut page, &registry).unwrap();
        assert_eq!(page, "# EOF\n");
    }
}

//! The ends of this process's certificates.

use std::fmt;
use std::time::UNIX_EPOCH;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::certificates::Certificates;

/// Reads the ends when the metrics are scraped: certificates are renewed while the process runs.
#[derive(Debug)]
pub(crate) struct CertificateMetrics(Certificates);

impl CertificateMetrics {
    /// Registers the metric in `registry`.
    pub(crate) fn register(certificates: Certificates, registry: &mut Registry) {
        registry.register_collector(Box::new(Self(certificates)));
    }
}

impl Collector for CertificateMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) =
            ("certificate_expiry_seconds", "End of each certificate, in seconds since 1970.");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (certificate, end) in self.0.ends() {
            let Ok(end) = end.duration_since(UNIX_EPOCH) else { continue };
            let end = ConstGauge::new(i64::try_from(end.as_secs()).unwrap_or(i64::MAX));
            end.encode(family.encode_family(&[("certificate", certificate)])?)?;
        }
        Ok(())
    }
}

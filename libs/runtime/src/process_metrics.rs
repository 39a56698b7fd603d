//! Metrics of the process, by the names that are usual for them, read from `/proc/self` whenever they are requested.

use std::fmt;

use procfs::process::{LimitValue, Process};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Registers the metrics in `registry`, which should add no prefix.
pub fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(ProcessCollector));
}

/// The name of a gauge, its description and its value.
type Gauge = (&'static str, &'static str, f64);

#[derive(Debug)]
struct ProcessCollector;

impl ProcessCollector {
    /// Returns the CPU time in seconds, and the gauges with their descriptions.
    #[expect(clippy::cast_precision_loss, reason = "all values stay far below 2^52")]
    fn read() -> procfs::ProcResult<(f64, [Gauge; 6])> {
        let process = Process::myself()?;
        let stat = process.stat()?;
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        let start_time = procfs::boot_time_secs()? as f64 + seconds(stat.starttime);
        let max_files = match process.limits()?.max_open_files.soft_limit {
            LimitValue::Unlimited => f64::INFINITY,
            LimitValue::Value(files) => files as f64,
        };
        let resident = stat.rss * procfs::page_size();
        let gauges = [
            ("process_start_time_seconds", "Start time, in seconds since 1970.", start_time),
            ("process_resident_memory_bytes", "Resident memory, in bytes.", resident as f64),
            ("process_virtual_memory_bytes", "Virtual memory, in bytes.", stat.vsize as f64),
            ("process_threads", "Threads.", stat.num_threads as f64),
            ("process_open_fds", "Open file descriptors.", process.fd_count()? as f64),
            ("process_max_fds", "Limit on open file descriptors.", max_files),
        ];
        Ok((seconds(stat.utime + stat.stime), gauges))
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Without /proc there are no such metrics.
        let Ok((cpu_seconds, gauges)) = Self::read() else { return Ok(()) };
        let (cpu, help) = (ConstCounter::new(cpu_seconds), "User and system CPU time, in seconds.");
        let kind = cpu.metric_type();
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, kind)?)?;
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            let kind = gauge.metric_type();
            gauge.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_metrics_are_those_of_this_process() {
        let mut registry = Registry::default();
        register(&mut registry);
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        let value = |name: &str| -> f64 {
            let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.unwrap_or_else(|| panic!("{name}: {page}")).parse().unwrap()
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes") > 1024.0 * 1024.0);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        let (open, most) = (value("process_open_fds"), value("process_max_fds"));
        assert!(open >= 3.0 && open <= most);
        assert!(value("process_threads") >= 1.0);
        let executable = std::fs::metadata("/proc/self").unwrap().modified().unwrap();
        let started = executable.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((value("process_start_time_seconds") - started).abs() < 60.0);
    }
}

//! What is counted (netboot specification, section 13.2). No MAC and no address is a label.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The counters.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    drops: Family<Reason, Counter>,
    replies: Family<Type, Counter>,
    scripts: Family<Kind, Counter>,
    transfers: Family<Outcome, Counter>,
    bytes: Counter,
    free: Family<Subnet, Gauge>,
    unknown: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Subnet {
    subnet: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Type {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

impl Metrics {
    /// Counters in `registry`.
    pub fn new(registry: &mut Registry) -> Self {
        let new = Self::default();
        registry.register(
            "netboot_dhcp_drops",
            "Requests not answered, by reason",
            new.drops.clone(),
        );
        registry.register("netboot_dhcp_replies", "Answers, by type", new.replies.clone());
        registry.register("netboot_scripts", "Scripts served or refused", new.scripts.clone());
        registry.register("netboot_tftp_requests", "Requests, by result", new.transfers.clone());
        registry.register("netboot_tftp_bytes", "Bytes acknowledged", new.bytes.clone());
        registry.register("netboot_pool_free", "Addresses that can be lent", new.free.clone());
        registry.register(
            "netboot_unknown_machines",
            "Machines without a record that asked",
            new.unknown.clone(),
        );
        new
    }

    /// How many addresses of a subnet can be lent.
    pub fn free(&self, subnet: String, addresses: usize) {
        let addresses = i64::try_from(addresses).unwrap_or(i64::MAX);
        self.free.get_or_create(&Subnet { subnet }).set(addresses);
    }

    /// How many machines without a record asked.
    pub fn unknown(&self, machines: usize) {
        self.unknown.set(i64::try_from(machines).unwrap_or(i64::MAX));
    }

    /// A DHCP request was not answered.
    pub fn dropped(&self, reason: &'static str) {
        self.drops.get_or_create(&Reason { reason }).inc();
    }

    /// A DHCP answer was sent.
    pub fn replied(&self, r#type: &'static str) {
        self.replies.get_or_create(&Type { r#type }).inc();
    }

    /// A script was served or refused.
    pub fn script(&self, kind: &'static str) {
        self.scripts.get_or_create(&Kind { kind }).inc();
    }

    /// A TFTP request ended.
    pub fn transfer(&self, result: &'static str, bytes: u64) {
        self.transfers.get_or_create(&Outcome { result }).inc();
        self.bytes.inc_by(bytes);
    }
}

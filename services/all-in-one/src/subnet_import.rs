//! Imports the sections `[[subnets]]` of the file into the address service of this process.

use std::sync::Arc;
use std::time::Duration;

use address::grants::Grants;
use address::import::ConfiguredSubnet;
use netboot::pool::Subnet;
use runtime::Clock;
use runtime::supervise::Tier;
use runtime::telemetry::Diagnostics;
use store::hosted::HostedService as _;
use store::{ScopedStore, Store};

use crate::config::{Config, Service};
use crate::until_stopped;

/// The pause after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Starts to import the subnets of the file into `store`, if this process serves addresses and has
/// a file with subnets.
pub(crate) fn start(
    config: &Config,
    store: Option<&Arc<dyn Store>>,
    vitals: &Diagnostics,
    tier: &mut Tier,
) {
    let is_served = config.split.serves(Service::Address) && !config.subnets.is_empty();
    let Some(store) = store.filter(|_| is_served) else { return };
    let store = ScopedStore::new(store.clone(), address::Api::NAME);
    let grants = Grants::new(store, Clock::system());
    let import = run(grants, config.subnets.clone(), vitals.clone());
    tier.spawn(until_stopped(tier.stop.clone(), import));
}

/// Creates `subnets` where they are missing. Contradictions are errors in the log, and stay in the detail of the readiness.
async fn run(grants: Grants, subnets: Vec<Subnet>, vitals: Diagnostics) {
    let subnets: Vec<_> = subnets.iter().map(configured).collect();
    loop {
        match grants.import(&subnets).await {
            Ok(contradictions) => {
                for contradiction in &contradictions {
                    tracing::error!(target: "tinwright", contradiction, "the file contradicts the stored subnets");
                }
                return vitals.add_details(move || contradictions.clone());
            }
            Err(error) => {
                tracing::warn!(
                    target: "tinwright",
                    error = &error as &dyn std::error::Error,
                    "the subnets of the file were not imported; trying again"
                );
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

fn configured(subnet: &Subnet) -> ConfiguredSubnet {
    let bounds = |range: &netboot::pool::Range| {
        let (first, last) = range.bounds();
        (first.to_string(), last.to_string())
    };
    ConfiguredSubnet {
        cidr: subnet.network.to_string(),
        gateway: subnet.gateway.map(|gateway| gateway.to_string()).unwrap_or_default(),
        ranges: subnet.ranges.iter().map(bounds).collect(),
    }
}

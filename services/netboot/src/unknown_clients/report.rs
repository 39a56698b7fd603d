//! Reports clients without a record to the hardware service.

use std::sync::Arc;
use std::time::Duration;

use runtime::retry::is_final;
use runtime::{Channel, Clock};
use tinwright::hardware::v1::RecordUnknownMachinesRequest;
use tinwright::hardware::v1::unknown_machine_service_client::UnknownMachineServiceClient;

use super::UnknownClients;
use crate::machine_view::Index;

/// The time between two reports.
const INTERVAL: Duration = Duration::from_secs(2);
/// The machines of a report.
const MAX_BATCH: usize = 10;
/// Timeout of one report.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Reports the clients that are in none of the records of `index`. Never resolves.
pub(crate) async fn run(
    hardware: Channel,
    unknown: Arc<UnknownClients>,
    index: Arc<Index>,
    clock: Clock,
) {
    let mut client = UnknownMachineServiceClient::new(hardware);
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let now = clock.wall();
        unknown.forget(|mac| index.by_mac(mac).is_some(), now);
        let unknown_machines = unknown.take_due(MAX_BATCH, now);
        if unknown_machines.is_empty() {
            continue;
        }
        let request = RecordUnknownMachinesRequest { unknown_machines: unknown_machines.clone() };
        let sent = client.record_unknown_machines(request);
        let is_retried = match tokio::time::timeout(CALL_TIMEOUT, sent).await {
            Ok(Ok(_)) => false,
            Ok(Err(status)) => {
                let (code, reason) = (status.code(), status.message());
                if is_final(code) {
                    tracing::warn!(?code, reason, "machines without a record not reported");
                }
                !is_final(code)
            }
            Err(_) => true,
        };
        if is_retried {
            unknown.put_back(&unknown_machines);
        }
    }
}

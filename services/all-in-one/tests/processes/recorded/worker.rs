//! The worker on a machine, which carries out the actions of a workflow.

use std::net::Ipv4Addr;

use runtime::Caller;
use runtime::authority::{SiteAuthority, request_certificate};
use runtime::boot_token::{BootTokens, Purpose};
use runtime::clock::Clock;
use serde_json::{Value, json};
use tinwright::HardwareId;

use super::recording::base64;
use super::site::Site;
use crate::process::soon;

/// The boot of all machines.
pub(crate) const BOOT_ID: &str = "11111111-1111-1111-1111-111111111111";

/// The worker on a machine with a workflow.
pub(crate) struct Worker {
    pub(crate) caller: Caller,
    machine: HardwareId,
    workflow: String,
}

impl Worker {
    /// Waits until `workflow` wants the worker of `machine`. Confirms a restart of the machine,
    /// which has no BMC.
    pub(crate) async fn new(site: &Site<'_>, machine: &str, workflow: &str) -> Self {
        let (machine, workflow) = (site.id(machine), site.id(workflow));
        let get = json!({"id": workflow});
        let is_prepared = |it: &Value| it["workflow"]["wants_machine"] == true;
        let found = site.until("WorkflowService/GetWorkflow", get, is_prepared).await;
        let epoch = found["workflow"]["boot_epoch"].as_str().map_or(0, |it| it.parse().unwrap());
        let machine = machine.parse().unwrap();
        Self { caller: Caller::worker(machine, epoch), machine, workflow }
    }

    /// Gets and renews the certificate of the worker.
    pub(crate) async fn redeem(&self, site: &Site<'_>) {
        let authority = SiteAuthority::open(&site.process.place.secrets()).unwrap();
        let tokens = BootTokens::new(authority.keys().clone()).unwrap();
        // The source address of connections to any loopback address.
        let (here, now) = (Ipv4Addr::LOCALHOST.into(), Clock::system().wall());
        let epoch = self.caller.boot_epoch();
        let token = tokens.mint(Purpose::Identity, self.machine, epoch, here, now).unwrap();
        let csr = base64(&request_certificate().unwrap().0);
        let redeem = json!({"boot_token": token, "csr": csr, "holder": holder()});
        site.call("WorkerService/Redeem", redeem).await;
        site.call_as(&self.caller, "WorkerService/Renew", json!({"csr": csr})).await;
    }

    /// Starts the next action, with progress and a log. Returns its lease.
    pub(crate) async fn begin(&self, site: &Site<'_>) -> Value {
        let call = async |name: &str, request: Value| {
            site.call_as(&self.caller, &format!("WorkerService/{name}"), request).await
        };
        let next = soon(async {
            loop {
                let next = call("NextAction", json!({"holder": holder()})).await;
                if next["assignment"].is_object() {
                    return next;
                }
            }
        });
        let lease = next.await["assignment"]["lease_id"].clone();
        let of_lease = json!({"workflow_id": self.workflow, "lease_id": lease});
        call("StartAction", of_lease.clone()).await;
        let mut progress = of_lease.clone();
        progress["progress"] =
            json!({"phase": "PHASE_WRITING", "bytes": "10", "total_bytes": "20"});
        call("ReportProgress", progress).await;
        let mut log = of_lease.clone();
        log["data"] = base64(b"first line\nsecond line\n");
        call("AppendLog", log).await;
        of_lease
    }

    /// Carries out both actions of the template.
    pub(crate) async fn finish_all(&self, site: &Site<'_>) {
        for _ in 0..2 {
            let lease = self.begin(site).await;
            self.finish(site, lease, "ACTION_STATE_SUCCESS").await;
        }
    }

    pub(crate) async fn finish(&self, site: &Site<'_>, lease: Value, state: &str) {
        let mut end = lease;
        end["state"] = state.into();
        end["reason"] = if state.ends_with("FAILED") { "no disk".into() } else { "".into() };
        end["tail"] = "second line\n".into();
        end["duration"] = "2s".into();
        site.call_as(&self.caller, "WorkerService/FinishAction", end).await;
    }
}

fn holder() -> Value {
    json!({"boot_id": BOOT_ID, "process_id": "p"})
}

//! Reports of started scripts: removes a one-shot script from the hardware record, and tells the instance service that its
//! script ran.

use std::sync::Arc;
use std::time::Duration;

use runtime::Channel;
use runtime::retry::{Backoff, is_final};
use tinwright::HardwareId;
use tinwright::common::v1::View;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::{
    GetHardwareRequest, Hardware, UpdateHardwareRequest, get_hardware_request::By,
};
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::custom::ScriptReport;
use super::history::{BootHistory, OneShotScript};
use crate::machine_view;

/// Pauses between attempts.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Services that reports are sent to.
#[derive(Clone, Debug)]
pub struct ReportPeers {
    /// Owner of the hardware records.
    pub hardware: HardwareServiceClient<Channel>,
    /// Owner of the instances.
    pub instance: InstanceServiceClient<Channel>,
    /// Earlier boots of each machine.
    pub history: Arc<BootHistory>,
}

/// Sends `reports`, each in a task of its own, so that one that fails delays no other. Ends with the sender; a script whose
/// report was not sent by then is served once more.
pub async fn run(peers: ReportPeers, mut reports: mpsc::UnboundedReceiver<ScriptReport>) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Some(report) = reports.recv().await {
        while tasks.try_join_next().is_some() {}
        tasks.spawn(peers.clone().send(report));
    }
}

impl ReportPeers {
    async fn send(mut self, report: ScriptReport) {
        let mut backoff = RETRY;
        loop {
            let (hardware, sent) = match &report {
                ScriptReport::OneShot { hardware, script } => {
                    (hardware.to_string(), self.remove_from_record(*hardware, script).await)
                }
                ScriptReport::Instance(report) => {
                    let sent = self.instance.report_script(report.clone()).await;
                    (report.hardware_id.clone(), sent.map(drop))
                }
            };
            let kind = report.kind();
            let Err(status) = sent else {
                return tracing::info!(hardware.id = hardware, kind, "script reported");
            };
            if is_final_for_report(status.code()) {
                return tracing::error!(hardware.id = hardware, kind, %status, "script not reported: it may be served once more");
            }
            tracing::warn!(hardware.id = hardware, kind, %status, "script not reported, retrying");
            backoff.wait().await;
        }
    }

    /// Reads the record and writes it without the script, if it still has that one and nobody else writes it meanwhile.
    async fn remove_from_record(
        &mut self,
        hardware: HardwareId,
        script: &OneShotScript,
    ) -> Result<(), Status> {
        let (by, view) = (Some(By::Id(hardware.to_string())), View::Full.into());
        let request = GetHardwareRequest { by, view };
        let record = self.hardware.get_hardware(request).await?.into_inner().hardware;
        let mut record = record.ok_or_else(|| Status::not_found("a response without a record"))?;
        if !remove(&mut record, script) {
            return Ok(());
        }
        self.history.set_revision(hardware, record.revision);
        let paths = vec!["interfaces".to_owned()];
        let request = UpdateHardwareRequest {
            hardware: Some(record),
            update_mask: Some(prost_types::FieldMask { paths }),
            force: false,
        };
        self.hardware.update_hardware(request).await.map(drop)
    }
}

/// True if repeating a report is of no use. A missing or wrong certificate of this process is replaced by its operator: the
/// start of a script must not be lost until then.
fn is_final_for_report(code: Code) -> bool {
    code != Code::Unauthenticated && is_final(code)
}

/// Removes the script from the record. True if the record had it; another script, written since, stays.
fn remove(record: &mut Hardware, script: &OneShotScript) -> bool {
    let own = |mac: &str| mac.parse() == Ok(script.mac);
    let mut interfaces = record.interfaces.iter_mut().filter(|interface| own(&interface.mac));
    let Some(netboot) = interfaces.find_map(|interface| interface.netboot.as_mut()) else {
        return false;
    };
    let present = netboot.boot_once.as_ref().and_then(machine_view::ipxe_script);
    let same = present.as_ref() == Some(&script.source);
    if same {
        netboot.boot_once = None;
    }
    same
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::SystemTime;

    use super::*;
    use crate::bootscripts::tests::{MAC, boots, hardware};
    use crate::decision::ScriptSource;
    use tinwright::hardware::v1::Ipxe;

    fn with(url: &str) -> Hardware {
        let mut record = hardware(HardwareId::new(), MAC, "192.0.2.10");
        let once = Ipxe { url: url.into(), ..Ipxe::default() };
        record.interfaces[0].netboot.as_mut().unwrap().boot_once = Some(once);
        record
    }

    #[test]
    fn a_report_is_repeated_until_this_process_is_authenticated() {
        assert!(!is_final_for_report(Code::Unauthenticated));
        assert!(!is_final_for_report(Code::Unavailable));
        assert!(is_final_for_report(Code::NotFound));
    }

    #[test]
    fn only_the_script_that_was_started_is_removed() {
        let known = boots(HardwareId::new()).index.by_mac(MAC).unwrap();
        let (history, script) = (BootHistory::default(), ScriptSource::Url("http://t/1".into()));
        history.record_one_shot(&known, &script, SystemTime::UNIX_EPOCH);
        let handed = history.not_started(known.id).unwrap();
        let mut record = with("http://t/1");
        assert!(remove(&mut record, &handed) && !remove(&mut record, &handed));
        assert_eq!(record.interfaces[0].netboot.as_ref().unwrap().boot_once, None);
        assert!(record.interfaces[0].netboot.as_ref().unwrap().allow_pxe, "the rest stays");
        let mut other = with("http://t/2");
        assert!(!remove(&mut other, &handed));
        assert_eq!(other.interfaces, with("http://t/2").interfaces);
    }
}

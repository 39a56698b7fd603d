//! Telling other services of scripts: one for one boot is taken out of the machine's record once it was started, and an
//! instance learns that its own was.

use std::sync::Arc;
use std::time::Duration;

use tinwright::common::v1::View;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::{
    GetHardwareRequest, Hardware, UpdateHardwareRequest, get_hardware_request::By,
};
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::custom::ScriptReport;
use super::one_shot::{OneShotScript, OneShotScripts};
use crate::decision::ScriptSource;
use crate::facts;

/// The pauses between attempts.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// A script for one boot that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedScript {
    /// On which machine.
    pub hardware: String,
    /// The script.
    pub handed: OneShotScript,
}

/// Whom scripts are told of.
#[derive(Clone, Debug)]
pub struct Peers {
    /// Has the records.
    pub hardware: HardwareServiceClient<Channel>,
    /// Has the instances.
    pub instance: InstanceServiceClient<Channel>,
    /// The scripts for one boot that are under way.
    pub once: Arc<OneShotScripts>,
}

/// Tells `reports`, each by itself, so that one that cannot be told holds up no other. Ends with the sender; then a script
/// whose report was not told is served once more.
pub async fn run(peers: Peers, mut reports: mpsc::UnboundedReceiver<ScriptReport>) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Some(report) = reports.recv().await {
        while tasks.try_join_next().is_some() {}
        tasks.spawn(peers.clone().tell(report));
    }
}

impl Peers {
    async fn tell(mut self, report: ScriptReport) {
        let mut pauses = PAUSES.into_iter().chain(std::iter::repeat(30));
        loop {
            let (hardware, told) = match &report {
                ScriptReport::OneShot(started) => (&started.hardware, self.clear(started).await),
                ScriptReport::Instance(report) => {
                    let told = self.instance.report_script(report.clone()).await;
                    (&report.hardware_id, told.map(drop))
                }
            };
            let script = report.kind();
            let Err(status) = told else {
                return tracing::info!(hardware.id = hardware, script, "told of a script");
            };
            if is_final(status.code()) {
                return tracing::error!(hardware.id = hardware, script, %status, "a script may be served once more");
            }
            tracing::warn!(hardware.id = hardware, script, %status, "not told of a script yet");
            tokio::time::sleep(Duration::from_secs(pauses.next().unwrap_or(30))).await;
        }
    }

    /// Reads the record and writes it without the script, if it still has that one and nobody else writes it meanwhile.
    async fn clear(
        &mut self,
        StartedScript { hardware, handed }: &StartedScript,
    ) -> Result<(), Status> {
        let view = View::Full.into();
        let request = GetHardwareRequest { by: Some(By::Id(hardware.clone())), view };
        let record = self.hardware.get_hardware(request).await?.into_inner().hardware;
        let mut record = record.ok_or_else(|| Status::not_found("an answer without a record"))?;
        if !take_out(&mut record, handed) {
            return Ok(());
        }
        self.once.still_at(hardware, record.revision);
        let paths = vec!["interfaces".to_owned()];
        let request = UpdateHardwareRequest {
            hardware: Some(record),
            update_mask: Some(prost_types::FieldMask { paths }),
        };
        self.hardware.update_hardware(request).await.map(drop)
    }
}

/// Whether asking again is of no use.
fn is_final(code: Code) -> bool {
    matches!(
        code,
        Code::NotFound
            | Code::PermissionDenied
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::Unimplemented
    )
}

/// Whether the record had the script, and now has it no longer. Another one that somebody wrote since stays.
fn take_out(record: &mut Hardware, handed: &OneShotScript) -> bool {
    let own = |mac: &str| mac.parse() == Ok(handed.mac);
    let mut interfaces = record.interfaces.iter_mut().filter(|interface| own(&interface.mac));
    let Some(netboot) = interfaces.find_map(|interface| interface.netboot.as_mut()) else {
        return false;
    };
    let had: Option<ScriptSource> = netboot.boot_once.as_ref().and_then(facts::ipxe_script);
    let same = had.as_ref() == Some(&handed.script);
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
    use tinwright::HardwareId;
    use tinwright::hardware::v1::Ipxe;

    fn with(url: &str) -> Hardware {
        let mut record = hardware(HardwareId::new(), MAC, "192.0.2.10");
        let once = Ipxe { url: url.into(), ..Ipxe::default() };
        record.interfaces[0].netboot.as_mut().unwrap().boot_once = Some(once);
        record
    }

    #[test]
    fn only_the_script_that_was_started_is_taken_out() {
        let known = boots(HardwareId::new()).index().by_mac(MAC).unwrap();
        let (once, script) = (OneShotScripts::default(), ScriptSource::Url("http://t/1".into()));
        once.hand_out(&known, &script, SystemTime::UNIX_EPOCH);
        let handed = once.started(&known.hardware.id).unwrap();
        let mut record = with("http://t/1");
        assert!(take_out(&mut record, &handed) && !take_out(&mut record, &handed));
        assert_eq!(record.interfaces[0].netboot.as_ref().unwrap().boot_once, None);
        assert!(record.interfaces[0].netboot.as_ref().unwrap().allow_pxe, "the rest stays");
        let mut other = with("http://t/2");
        assert!(!take_out(&mut other, &handed));
        assert_eq!(other.interfaces, with("http://t/2").interfaces);
    }
}

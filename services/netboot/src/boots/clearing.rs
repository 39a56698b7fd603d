//! Taking a one-time script out of the machine's record once it was started.

use std::sync::Arc;
use std::time::Duration;

use tinwright::common::v1::View;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::{
    GetHardwareRequest, Hardware, UpdateHardwareRequest, get_hardware_request::By,
};
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::once::{Handed, Once};
use crate::decision::Script;
use crate::facts;

/// The pauses between attempts.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// A script that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// On which machine.
    pub hardware: String,
    /// The script.
    pub handed: Handed,
}

/// Clears what `started` tells, each by itself, so that one record that cannot be written holds up no other. Ends with
/// the sender; then what has not been cleared is served once more.
pub async fn run(
    hardware: Channel,
    once: Arc<Once>,
    mut started: mpsc::UnboundedReceiver<Started>,
) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Some(started) = started.recv().await {
        while tasks.try_join_next().is_some() {}
        let client = HardwareServiceClient::new(hardware.clone());
        tasks.spawn(clear(client, once.clone(), started));
    }
}

async fn clear(mut client: HardwareServiceClient<Channel>, once: Arc<Once>, started: Started) {
    let mut pauses = PAUSES.into_iter().chain(std::iter::repeat(30));
    loop {
        let status = match attempt(&mut client, &once, &started).await {
            Ok(()) => {
                return tracing::info!(hardware.id = started.hardware, "one-time script cleared");
            }
            Err(status) => status,
        };
        if matches!(status.code(), Code::NotFound | Code::PermissionDenied | Code::InvalidArgument)
        {
            return tracing::error!(hardware.id = started.hardware, %status, "one-time script stays in the record");
        }
        tracing::warn!(hardware.id = started.hardware, %status, "one-time script not cleared yet");
        tokio::time::sleep(Duration::from_secs(pauses.next().unwrap_or(30))).await;
    }
}

/// Reads the record and writes it without the script, if it still has that one and nobody else writes it meanwhile.
async fn attempt(
    client: &mut HardwareServiceClient<Channel>,
    once: &Once,
    Started { hardware, handed }: &Started,
) -> Result<(), Status> {
    let view = View::Full.into();
    let request = GetHardwareRequest { by: Some(By::Id(hardware.clone())), view };
    let record = client.get_hardware(request).await?.into_inner().hardware;
    let mut record = record.ok_or_else(|| Status::not_found("an answer without a record"))?;
    if !take_out(&mut record, handed) {
        return Ok(());
    }
    once.still_at(hardware, record.revision);
    let paths = vec!["interfaces".to_owned()];
    let request = UpdateHardwareRequest {
        hardware: Some(record),
        update_mask: Some(prost_types::FieldMask { paths }),
    };
    client.update_hardware(request).await.map(drop)
}

/// Whether the record had the script, and now has it no longer. Another one that somebody wrote since stays.
fn take_out(record: &mut Hardware, handed: &Handed) -> bool {
    let own = |mac: &str| mac.parse() == Ok(handed.mac);
    let mut interfaces = record.interfaces.iter_mut().filter(|interface| own(&interface.mac));
    let Some(netboot) = interfaces.find_map(|interface| interface.netboot.as_mut()) else {
        return false;
    };
    let had: Option<Script> = netboot.boot_once.as_ref().and_then(facts::ipxe_script);
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
    use crate::boots::tests::{MAC, boots, hardware};
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
        let (once, script) = (Once::default(), Script::Url("http://t/1".into()));
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

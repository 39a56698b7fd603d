//! The files that TFTP serves, and the effects of finished transfers.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use runtime::clock::Clock;
use tftp::TransferOutcome;

use crate::bootscripts::{BootRefusal, BootScripts, ScriptFormat, ScriptRequest};
use crate::dhcp_server::link_state::LinkState;
use crate::machine_view::Index;
use crate::tftp::{
    Directories, FileError, FileSource, FinishedRequest, OpenFile, RequestResult, RequestedFile,
};

/// The files of TFTP: loaders, firmware, and scripts for iPXE without HTTP.
#[derive(Debug)]
pub(super) struct TftpFiles {
    pub(super) files: Directories,
    pub(super) boots: Arc<BootScripts>,
    pub(super) clock: Clock,
}

#[async_trait]
impl FileSource for TftpFiles {
    async fn open(&self, file: &RequestedFile, client: Ipv4Addr) -> Result<OpenFile, FileError> {
        let (mac, format) = match file {
            RequestedFile::Script(mac) => (Some(*mac), ScriptFormat::Ipxe),
            RequestedFile::Pxelinux(mac) => (*mac, ScriptFormat::Pxelinux),
            RequestedFile::Autoexec(mac) => {
                return Ok(OpenFile::Memory(self.boots.autoexec(*mac)?.into()));
            }
            RequestedFile::File { .. } => return self.files.open(file, client).await,
        };
        let neighbour = self.boots.owner_of(client.into()).await;
        let request = ScriptRequest { format, neighbour, ..ScriptRequest::new(mac, client.into()) };
        let script = self.boots.serve(&request, self.clock.wall())?;
        Ok(OpenFile::Memory(script.text.into()))
    }
}

impl From<BootRefusal> for FileError {
    fn from(refusal: BootRefusal) -> Self {
        match refusal {
            BootRefusal::Nothing(_) => Self::NotFound,
            BootRefusal::NotYours(_) | BootRefusal::Unseen => Self::NotAllowed,
            BootRefusal::Later { .. } | BootRefusal::Broken(_) => Self::TryLater,
        }
    }
}

/// Records for DHCP that an interface has fetched a loader, and needs none again.
pub(super) struct LoaderTracker {
    pub(super) index: Arc<Index>,
    pub(super) loaders: BTreeSet<String>,
    pub(super) link_state: Arc<LinkState>,
}

impl LoaderTracker {
    /// Records the end of `request` at `now`.
    pub(super) fn record(&self, request: &FinishedRequest, now: Instant) {
        let complete = request.result == RequestResult::Transfer(TransferOutcome::Complete);
        let Some(RequestedFile::File { mac, path }) = &request.file else { return };
        // TFTP finds a file in another case, too.
        let is_loader = || self.loaders.iter().any(|loader| loader.eq_ignore_ascii_case(path));
        if !complete || !is_loader() {
            return;
        }
        // If no record has the address, the path may name the interface. A false name has one effect: that interface gets a
        // script instead of a loader.
        let machine = self.index.by_address((*request.client.ip()).into());
        let Some(mac) = machine.map(|machine| machine.mac).or(*mac) else { return };
        self.link_state.record_fetched(mac, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_that_was_fetched_by_another_spelling_of_its_name_is_recorded() {
        let mac = crate::Mac([2, 0, 0, 0, 0, 1]);
        for (name, is_recorded) in [("snponly.efi", true), ("SNPONLY.EFI", true), ("x.efi", false)]
        {
            let tracker = LoaderTracker {
                index: Arc::default(),
                loaders: ["snponly.efi".to_owned()].into(),
                link_state: Arc::new(LinkState::new(Some(Arc::default()))),
            };
            let request = FinishedRequest {
                client: std::net::SocketAddrV4::new([192, 0, 2, 10].into(), 2000),
                file: Some(RequestedFile::File { mac: Some(mac), path: name.into() }),
                result: RequestResult::Transfer(TransferOutcome::Complete),
                acknowledged_bytes: 1,
            };
            let now = Instant::now();
            tracker.record(&request, now);
            assert_eq!(tracker.link_state.loader_age(mac, now).is_some(), is_recorded, "{name}");
        }
    }
}

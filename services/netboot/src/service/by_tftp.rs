//! What is served by TFTP, and what follows from a transfer that has ended.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;

use crate::bootscripts::{BootRefusal, BootScripts, ScriptRequest};
use crate::dhcp::heard::Heard;
use crate::index::Index;
use crate::tftp::server::{Ended, Verdict};
use crate::tftp::transfer::Outcome;
use crate::tftp::{self, Directories, files::Refusal as NoFile, name::Name};

/// Loaders and firmware, and scripts for iPXE builds without HTTP.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) files: Directories,
    pub(super) boots: Arc<BootScripts>,
}

#[async_trait]
impl tftp::Files for Files {
    async fn open(&self, name: &Name, client: Ipv4Addr) -> Result<tftp::files::File, NoFile> {
        let now = SystemTime::now();
        let text = match name {
            Name::Script(mac) => {
                let asked = ScriptRequest::new(Some(*mac), client.into());
                self.boots.script(&asked, now).map(|served| served.text)
            }
            Name::Autoexec(mac) => self.boots.autoexec(*mac),
            Name::Pxelinux(mac) => self.boots.pxelinux(*mac, client.into(), now),
            Name::Refused | Name::File { .. } => return self.files.open(name, client).await,
        };
        Ok(bytes::Bytes::from(text?).into())
    }
}

impl From<BootRefusal> for NoFile {
    fn from(refusal: BootRefusal) -> Self {
        match refusal {
            BootRefusal::Nothing(_) => Self::NotFound,
            BootRefusal::NotYours(_) => Self::NotAllowed,
            BootRefusal::Later { .. } | BootRefusal::Broken(_) => Self::Later,
        }
    }
}

impl From<NoFile> for BootRefusal {
    fn from(refusal: NoFile) -> Self {
        match refusal {
            NoFile::NotFound => Self::Nothing("no such file".into()),
            NoFile::NotAllowed => Self::NotYours("the file is not for this address"),
            NoFile::Later => Self::Later {
                retry: Duration::from_secs(5),
                why: "the file cannot be had yet".into(),
            },
            NoFile::Unreadable(error) => Self::Broken(error.to_string()),
        }
    }
}

/// What a finished transfer tells DHCP: who has a loader of ours and needs none again.
pub(super) struct Fetched {
    pub(super) index: Arc<Index>,
    pub(super) loaders: BTreeSet<String>,
    pub(super) heard: Arc<Heard>,
}

impl Fetched {
    pub(super) fn note(&self, ended: &Ended) {
        let complete = ended.verdict == Verdict::Served(Outcome::Complete);
        let Ok(Name::File { mac, path }) = Name::try_from(ended.name.as_bytes()) else { return };
        if !complete || !self.loaders.contains(&path) {
            return;
        }
        // Without a record of the address, the name may tell; a false one only makes a script of a loader.
        let known = self.index.by_address((*ended.client.ip()).into());
        let Some(mac) = known.map(|known| known.mac).or(mac) else { return };
        self.heard.fetched(mac, Instant::now());
    }
}

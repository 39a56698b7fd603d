//! What is served by TFTP, and what follows from a transfer that has ended.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use async_trait::async_trait;

use crate::boots::{Boots, Refusal};
use crate::dhcp::chain::Chain;
use crate::index::Index;
use crate::tftp::server::{Ended, Verdict};
use crate::tftp::transfer::Outcome;
use crate::tftp::{self, Directories, files::Refusal as NoFile, name::Name};

/// Loaders, and scripts for iPXE builds without HTTP.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) loaders: Directories,
    pub(super) boots: Arc<Boots>,
}

#[async_trait]
impl tftp::Files for Files {
    async fn open(&self, name: &Name, client: Ipv4Addr) -> Result<tftp::files::File, NoFile> {
        let Name::Script(mac) = name else { return self.loaders.open(name, client).await };
        match self.boots.script(Some(*mac), client.into(), SystemTime::now()) {
            Ok(served) => Ok(bytes::Bytes::from(served.text).into()),
            Err(Refusal::Nothing(_)) => Err(NoFile::NotFound),
            Err(Refusal::NotYours(_)) => Err(NoFile::NotAllowed),
            Err(Refusal::Later(_) | Refusal::Broken(_)) => Err(NoFile::Later),
        }
    }
}

/// What a finished transfer tells DHCP: who has a loader of ours and needs none again.
pub(super) struct Fetched {
    pub(super) index: Arc<Index>,
    pub(super) loaders: BTreeSet<String>,
    pub(super) chain: Option<Arc<Mutex<Chain>>>,
}

impl Fetched {
    pub(super) fn note(&self, ended: &Ended) {
        let Some(chain) = &self.chain else { return };
        let complete = ended.verdict == Verdict::Served(Outcome::Complete);
        let Ok(Name::File { mac, path }) = Name::try_from(ended.name.as_bytes()) else { return };
        if !complete || !self.loaders.contains(&path) {
            return;
        }
        // Without a record of the address, the name may tell; a false one only makes a script of a loader.
        let known = self.index.by_address((*ended.client.ip()).into());
        let Some(mac) = known.map(|known| known.mac).or(mac) else { return };
        chain.lock().unwrap_or_else(PoisonError::into_inner).fetched(mac, Instant::now());
    }
}

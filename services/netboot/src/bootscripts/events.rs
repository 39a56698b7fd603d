//! What machines fetch, noted in their timelines.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use runtime::feed::FeedEvent;
use tftp::TransferOutcome;
use tinwright::instance::v1::Instance;

use super::{BootRefusal, BootScripts, Found, ScriptRequest};
use crate::Mac;
use crate::index::Known;
use crate::tftp::{FinishedRequest, RequestResult, RequestedFile};
use crate::timeline::{BootStep, BootSubject, Event};

impl BootScripts {
    /// Notes that this happened at `at` to the machine with the interface `mac`, or at the address `source`.
    pub fn record(&self, mac: Option<Mac>, source: Option<IpAddr>, what: BootStep, at: SystemTime) {
        let known = self.whose(mac, source, at);
        let who = match (&known, mac) {
            (Some(known), _) => BootSubject::from(&**known),
            (None, Some(mac)) => BootSubject::UnknownClient(mac),
            // Somebody who can be told neither by name nor by place has no timeline.
            (None, None) => return,
        };
        self.timeline.record(Event { who, what, source, at });
    }

    /// Notes how a request for a script ended.
    pub(super) fn record_script(
        &self,
        asked: &ScriptRequest,
        outcome: &Result<Found, BootRefusal>,
        at: SystemTime,
    ) {
        let ScriptRequest { mac, source, .. } = *asked;
        let (known, what) = match outcome {
            Ok(Found { known, fact, script }) => {
                (known.as_deref(), BootStep::Script { kind: script.kind, fact: *fact })
            }
            Err(refusal) => (None, BootStep::Refused(refusal.to_string())),
        };
        match known {
            Some(known) => {
                let who = BootSubject::from(known);
                self.timeline.record(Event { who, what, source: Some(source), at });
            }
            None => self.record(mac, Some(source), what, at),
        }
    }

    /// Notes that a file of a boot was fetched from `source`, or why it was not.
    pub fn record_file(&self, source: IpAddr, name: &str, missing: Option<&str>, at: SystemTime) {
        let known = self.at(source, at);
        let osie = known.as_deref().and_then(super::render::osie);
        let is = |own: Option<&String>, common: &str| {
            own.is_some_and(|own| own == name) || name.starts_with(common)
        };
        let what = match missing {
            Some(why) => BootStep::Failed(format!("{name}: {why}")),
            None if is(osie.map(|osie| &osie.kernel), "vmlinuz") => BootStep::Kernel(name.into()),
            None if is(osie.map(|osie| &osie.initrd), "initr") => BootStep::Initrd(name.into()),
            None => BootStep::Binary(name.into()),
        };
        self.record(None, Some(source), what, at);
    }

    /// Notes that a loader was fetched by HTTP, for the interface that the path names, if it does.
    pub fn record_loader(&self, mac: Option<Mac>, source: IpAddr, name: &str, at: SystemTime) {
        // A path proves nothing: only a machine of ours is noted.
        if self.whose(mac, Some(source), at).is_some() {
            self.record(mac, Some(source), BootStep::Binary(name.into()), at);
        }
    }

    /// Notes how a transfer by TFTP ended. Scripts are noted where they are made.
    pub fn record_transfer(&self, request: &FinishedRequest, at: SystemTime) {
        let file = RequestedFile::parse(request.file_name.as_bytes());
        let Ok(RequestedFile::File { mac, path }) = file else { return };
        let source = IpAddr::V4(*request.client.ip());
        if self.whose(mac, Some(source), at).is_none() {
            return;
        }
        let what = match request.result {
            RequestResult::Transfer(TransferOutcome::Complete) => BootStep::Binary(path),
            // The client asks for the size first, and comes again.
            RequestResult::Transfer(TransferOutcome::SizeProbe | TransferOutcome::Restarted) => {
                return;
            }
            RequestResult::Transfer(TransferOutcome::Aborted(_) | TransferOutcome::TimedOut)
            | RequestResult::Refused(_)
            | RequestResult::Failed => {
                BootStep::Failed(format!("{path} by TFTP: {}", request.result.label()))
            }
        };
        self.record(mac, Some(source), what, at);
    }

    /// Notes that a system called home, if that is the news of an instance. To be asked before the index takes it.
    pub fn record_phone_home(&self, news: &FeedEvent<Instance>, at: SystemTime) {
        let FeedEvent::Put(instance) = news else { return };
        let Some(known) = self.index.by_id(&instance.hardware_id) else { return };
        let before = known.instance.as_ref().and_then(|old| old.phone_home_time);
        if instance.phone_home_time.is_some() && instance.phone_home_time != before {
            let who = BootSubject::from(&*known);
            self.timeline.record(Event {
                who,
                what: BootStep::PhoneHome,
                source: known.address(),
                at,
            });
        }
    }

    fn whose(
        &self,
        mac: Option<Mac>,
        source: Option<IpAddr>,
        at: SystemTime,
    ) -> Option<Arc<Known>> {
        match mac {
            Some(mac) => self.index.by_mac(mac),
            None => self.at(source?, at),
        }
    }
}

#[cfg(test)]
mod tests;

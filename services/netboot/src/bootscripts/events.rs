//! Steps of boots for the timelines.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use fleet::{FleetMachine, MachineChange};
use tftp::TransferOutcome;

use super::BootScripts;
use crate::Mac;
use crate::machine_view::MachineView;
use crate::tftp::{FinishedRequest, RequestResult, RequestedFile};
use crate::timeline::{BootOwner, BootStep, Event};
use tinwright::netboot::v1::BootEventKind as Kind;

impl BootScripts {
    /// Records `step` of the machine with the interface `mac`, or with the address `source`.
    pub fn record(&self, mac: Option<Mac>, source: IpAddr, step: BootStep, at: SystemTime) {
        if let Some(event) = self.event(mac, Some(source), step, at) {
            self.timeline.record(event);
        }
    }

    /// Returns `step` as an event. A client that neither its interface nor its address identifies has no timeline.
    pub(super) fn event(
        &self,
        mac: Option<Mac>,
        source: Option<IpAddr>,
        step: BootStep,
        at: SystemTime,
    ) -> Option<Event> {
        match (self.identify(mac, source, at), mac) {
            (Some(machine), _) => Some(Event::of(&machine, step, source, at)),
            (None, Some(mac)) => {
                Some(Event { owner: BootOwner::UnknownClient(mac), mac, step, source, at })
            }
            (None, None) => None,
        }
    }

    /// Records that a file of a boot was fetched from `source`, or why it was not.
    pub fn record_file(&self, source: IpAddr, name: &str, error: Option<&str>, at: SystemTime) {
        let machine = self.at(source, at);
        let osie = machine.as_deref().and_then(super::render::osie);
        let is = |own: Option<&String>, common: &str| {
            own.is_some_and(|own| own == name) || name.starts_with(common)
        };
        let kind = match name {
            _ if is(osie.map(|osie| &osie.kernel), "vmlinuz") => Kind::KernelServed,
            _ if is(osie.map(|osie| &osie.initrd), "initr") => Kind::InitrdServed,
            _ => Kind::BinaryServed,
        };
        let step = match error {
            Some(error) => BootStep::new(Kind::Failed, format!("{name}: {error}")),
            None => BootStep::new(kind, name.to_owned()),
        };
        self.record(None, source, step, at);
    }

    /// Records that a loader was fetched by HTTP, for the interface that the path names, if it names one.
    pub fn record_loader(&self, mac: Option<Mac>, source: IpAddr, name: &str, at: SystemTime) {
        // A path proves nothing: only machines with a record are recorded.
        if let Some(machine) = self.identify(mac, Some(source), at) {
            self.history.record_loader(&machine);
            self.record(mac, source, BootStep::new(Kind::BinaryServed, name.to_owned()), at);
        }
    }

    /// Records the end of a transfer by TFTP. Scripts are recorded where they are rendered.
    pub fn record_transfer(&self, request: &FinishedRequest, at: SystemTime) {
        let Some(RequestedFile::File { mac, path }) = &request.file else { return };
        let source = IpAddr::V4(*request.client.ip());
        let Some(machine) = self.identify(*mac, Some(source), at) else { return };
        let step = match request.result {
            RequestResult::Transfer(TransferOutcome::Complete) => {
                self.history.record_loader(&machine);
                BootStep::new(Kind::BinaryServed, path.clone())
            }
            // The client requests the file again.
            RequestResult::Transfer(TransferOutcome::SizeProbe | TransferOutcome::Restarted) => {
                return;
            }
            RequestResult::Transfer(TransferOutcome::Aborted(_) | TransferOutcome::TimedOut)
            | RequestResult::Refused(_)
            | RequestResult::Failed => {
                BootStep::new(Kind::Failed, format!("{path} by TFTP: {}", request.result.label()))
            }
        };
        self.record(*mac, source, step, at);
    }

    /// Records a phone-home call, if `change` is one.
    pub(super) fn record_phone_home(&self, change: &MachineChange, at: SystemTime) {
        let instance = |machine: &Option<Arc<FleetMachine>>| machine.as_ref()?.instance.clone();
        let (Some(before), Some(after)) = (instance(&change.before), instance(&change.after))
        else {
            return;
        };
        let called = after.phone_home_time.is_some();
        if before.id != after.id || !called || before.phone_home_time == after.phone_home_time {
            return;
        }
        if let Some(known) = self.index.by_id(&change.id.to_string()) {
            let event = Event::of(&known, BootStep::new(Kind::PhoneHome, ""), known.address, at);
            self.timeline.record(event);
        }
    }

    /// Returns the machine with the interface `mac`, or with the address `source` if `mac` is none.
    pub(crate) fn identify(
        &self,
        mac: Option<Mac>,
        source: Option<IpAddr>,
        at: SystemTime,
    ) -> Option<Arc<MachineView>> {
        match mac {
            Some(mac) => self.index.by_mac(mac),
            None => self.at(source?, at),
        }
    }
}

#[cfg(test)]
mod tests;

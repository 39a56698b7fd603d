//! Evidence that a machine boots from the network: what was seen of its boot since it was switched off for a workflow.
//!
//! ```text
//! the workflow shows a new boot epoch ──▶ nothing seen ──firmware asks DHCP──▶ exchange ──loader fetched──▶ complete
//!                                                          └─────────── iPXE asks DHCP ──────────────────────▲
//! ```
//!
//! Without it, a machine whose boot fell through to its disk would be given the script, and with it the identity, of its own
//! clean-up: its tenant's system runs again. A boot without evidence gets nothing. Its machine is prepared again when its worker does
//! not come.
//!
//! A node boots from the network again and again in one epoch, and what runs on it may ask for its script. So for its script counts only
//! what was seen since the loader last started a system:
//!
//! ```text
//! nothing seen ──firmware asks DHCP, loader fetched──▶ complete ──the loader reports `started`, or a system asks DHCP──▶ nothing seen
//! ```
//!
//! A system that imitates firmware and a loader is not told apart from them (docs/security.md).
//!
//! What was seen is not stored. A process that did not watch the begin of an epoch, because it was started or cut off from the workflow
//! service at that time, cannot tell, and asks for no evidence in that epoch. A node is asked for it always: one that boots meanwhile is
//! refused, and boots again.

use std::sync::atomic::Ordering;

use fleet::{FeedKind, FeedStates, FleetMachine, Freshness, MachineChange};
use tinwright::HardwareId;

use super::history::BootHistory;
use super::{BootRefusal, BootResult, BootScripts, ScriptFormat, ScriptRequest};
use crate::decision::{BootTarget, Decision};
use crate::machine_view::MachineView;

/// What was seen of a machine's boots in one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BootEvidence {
    /// The epoch; 0 if none began.
    epoch: u64,
    /// True if this process has watched how it began.
    is_watched: bool,
    /// True if firmware or a loader has asked DHCP.
    has_exchange: bool,
    /// True if a loader was fetched, or has asked DHCP.
    has_loader: bool,
}

impl BootEvidence {
    /// The evidence of `epoch`, which may have just begun.
    fn of(&mut self, epoch: u64) -> &mut Self {
        if self.epoch != epoch {
            *self = Self { epoch, ..Self::default() };
        }
        self
    }
}

impl BootHistory {
    /// Records that `machine` has asked DHCP with its firmware, or with a loader.
    pub fn record_exchange(&self, machine: &MachineView, is_loader: bool) {
        self.record_evidence(machine, |seen| {
            seen.has_exchange = true;
            seen.has_loader |= is_loader;
        });
    }

    /// Records that a loader was fetched for `machine`.
    pub fn record_loader(&self, machine: &MachineView) {
        self.record_evidence(machine, |seen| seen.has_loader = true);
    }

    fn record_evidence(&self, machine: &MachineView, record: impl Fn(&mut BootEvidence)) {
        let epoch = machine.boot_epoch();
        let is_node = machine.facts.is_node();
        if epoch == 0 && !is_node {
            return;
        }
        let mut all = self.all();
        let boots = all.entry(machine.id).or_default();
        if epoch != 0 {
            record(boots.evidence.of(epoch));
        }
        if is_node {
            record(&mut boots.loading);
        }
    }

    /// Records that a system runs on `machine`: its loader started one, or it has asked DHCP.
    pub fn end_loading(&self, machine: HardwareId) {
        if let Some(boots) = self.all().get_mut(&machine) {
            boots.loading = BootEvidence::default();
        }
    }

    /// What was seen since the loader of `machine` last started a system.
    fn loading(&self, machine: &MachineView) -> BootEvidence {
        self.all().get(&machine.id).map(|boots| boots.loading).unwrap_or_default()
    }

    /// Records the boot epochs that begin with `changes`.
    pub(super) fn record_epochs(&self, changes: &[MachineChange], feeds: &FeedStates) {
        let is_live = feeds.get(FeedKind::Workflow) == Freshness::Live;
        let is_watched = self.is_live.swap(is_live, Ordering::Relaxed) && is_live;
        for MachineChange { id, before, after } in changes {
            let epoch = |machine: &FleetMachine| machine.boot_epoch();
            let [before, after] = [before, after].map(|it| it.as_deref().map_or(0, epoch));
            if after != 0 && after != before {
                self.all().entry(*id).or_default().evidence.of(after).is_watched |= is_watched;
            }
        }
    }

    /// The evidence of the present boot epoch of `machine`; none if none is asked for.
    fn evidence(&self, machine: &MachineView) -> Option<BootEvidence> {
        let seen = self.all().get(&machine.id).map(|boots| boots.evidence)?;
        (seen.is_watched && seen.epoch == machine.boot_epoch()).then_some(seen)
    }
}

impl BootScripts {
    /// Refuses a boot of `machine` that was not seen from its firmware on.
    pub(super) fn check_evidence(
        &self,
        machine: &MachineView,
        decision: &Decision,
        request: &ScriptRequest,
    ) -> BootResult<()> {
        let asks = decision.opens_a_boot() && !request.is_simulated && !self.is_mac_only(request);
        let seen = if decision.boot == BootTarget::Node {
            self.answers_dhcp(machine).then(|| self.history.loading(machine))
        } else {
            self.evidence(machine)
        };
        let seen = seen.filter(|_| asks);
        // Firmware that reads PXELINUX configurations (U-Boot, OPAL) needs no loader.
        let has_loader = request.format == ScriptFormat::Pxelinux;
        let is_seen = seen.is_none_or(|it| it.has_exchange && (it.has_loader || has_loader));
        is_seen.then_some(()).ok_or(BootRefusal::Unseen)
    }

    /// Refuses the image of `machine` to its own address, unless its firmware was seen: an installed system may fetch it, too.
    pub(super) fn check_exchange(&self, machine: &MachineView) -> BootResult<()> {
        let is_seen = self.evidence(machine).is_none_or(|seen| seen.has_exchange);
        is_seen.then_some(()).ok_or(BootRefusal::Unseen)
    }

    /// The evidence of the present boot epoch of `machine`; none if none is asked for: where another server answers DHCP, nothing is
    /// seen.
    fn evidence(&self, machine: &MachineView) -> Option<BootEvidence> {
        self.history.evidence(machine).filter(|_| self.answers_dhcp(machine))
    }

    fn answers_dhcp(&self, machine: &MachineView) -> bool {
        self.site.dhcp.port_67 && !machine.reservation.disabled
    }
}

#[cfg(test)]
mod tests;

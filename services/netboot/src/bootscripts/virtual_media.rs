//! Machines that boot from an image on virtual media: access to the image, and the arguments in it.

use std::net::IpAddr;
use std::time::SystemTime;

use runtime::boot_token::Purpose;
use runtime::neighbour::NeighbourCheck;
use tinwright::hardware::v1::Interface;

use super::platform::gate_warning;
use super::warning::Warning;
use super::{BootRefusal, BootResult, BootScripts};
use crate::Mac;
use crate::decision::BootTarget;
use crate::machine_view::MachineView;
use crate::timeline::{BootStep, Event};

impl BootScripts {
    /// Refuses the image of the machine at `mac` to `source`, which has the owner `neighbour`, unless that is the machine or in the
    /// network of BMCs, and the machine boots the worker's environment.
    pub fn check_image_access(
        &self,
        mac: Mac,
        source: IpAddr,
        neighbour: NeighbourCheck,
    ) -> BootResult<()> {
        let unknown = || BootRefusal::Nothing("no machine has this address".into());
        let machine = self.index.by_mac(mac).ok_or_else(unknown)?;
        let mut bmcs = self.site.serving.iso.iter().flat_map(|iso| &iso.sources);
        let by_bmc = bmcs.any(|network| network.contains(&source));
        if !machine.has(source) && !by_bmc {
            return Err(BootRefusal::NotYours("the address is neither that machine's nor a BMC's"));
        }
        if !by_bmc {
            self.check_owner(&machine, neighbour)?;
            self.check_exchange(&machine).inspect_err(|refusal| {
                let (step, now) = (BootStep::refused(refusal), self.clock.wall());
                self.timeline.record(Event::of(&machine, step, Some(source), now));
            })?;
        }
        let decision = self.decision(Some(&machine), self.index.feed(), None);
        if decision.boot == BootTarget::Later {
            return Err(BootRefusal::later(decision.fact));
        }
        if decision.boot != BootTarget::Worker {
            return Err(BootRefusal::Nothing(decision.fact.to_string()));
        }
        // The BMC requests the image for the machine. So the gate checks the machine's own address, and no UUID but the one
        // that its firmware sent by DHCP.
        let own = machine.address.unwrap_or(source);
        let asks_uuid = self.gate_asks_uuid(&machine, &decision, None, own);
        let warning =
            |refusal: &BootRefusal| gate_warning(&machine, (Some(mac), None, own), refusal);
        if let Some(warning) = asks_uuid.as_ref().err().and_then(warning) {
            warning.log();
        }
        if asks_uuid? {
            let why = "the platform asks for a UUID, and an image presents none";
            return Err(BootRefusal::NotYours(why));
        }
        Ok(())
    }

    /// Returns the kernel arguments in the image of the machine at `mac`, with tokens for the machine's own address.
    pub fn image_arguments(&self, mac: Mac, now: SystemTime) -> BootResult<String> {
        let nothing =
            || BootRefusal::Nothing("its record has no address for this interface".into());
        let machine = self.index.by_mac(mac).ok_or_else(nothing)?;
        let interface = machine.interface().ok_or_else(nothing)?;
        let own = machine.address.ok_or_else(nothing)?;
        let boot =
            self.boot_urls((machine.id, machine.boot_epoch()), own, Some(Purpose::Identity), now)?;
        let ipam = ipam(&machine, interface).unwrap_or_default();
        let arguments = self.arguments(Some(&machine), &boot, &ipam, now)?;
        Warning::left_out(machine.id, &arguments).for_each(|warning| warning.log());
        Ok(arguments.without_initrd().to_owned())
    }
}

/// Renders the addresses of a machine that no DHCP server answers, in nine fields (Tinkerbell's `ipam=`, IPv4 only).
fn ipam(machine: &MachineView, interface: &Interface) -> Option<String> {
    let dhcp = interface.dhcp.as_ref().filter(|dhcp| dhcp.disabled)?;
    let address = machine.reservation.address?;
    let gateway = machine.reservation.gateway;
    let fields = [
        machine.mac.dashed(),
        if dhcp.vlan_id == 0 { String::new() } else { dhcp.vlan_id.to_string() },
        address.addr().to_string(),
        address.netmask().to_string(),
        gateway.map_or_else(String::new, |gateway| gateway.to_string()),
        dhcp.hostname.clone(),
        dhcp.name_servers.join(","),
        dhcp.domain_name.clone(),
        dhcp.time_servers.join(","),
    ];
    Some(format!("ipam={}", fields.join(":")))
}

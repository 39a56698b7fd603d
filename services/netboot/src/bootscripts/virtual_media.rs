//! Machines that boot from an image on virtual media: access to the image, and the arguments in it.

use std::net::IpAddr;
use std::time::SystemTime;

use tinwright::hardware::v1::Interface;

use super::gate::{self, GateResult};
use super::render::WorkerIdentity;
use super::{BootRefusal, BootScripts, ScriptWarning, broken, gate_of};
use crate::Mac;
use crate::decision::{BootTarget, Decision};
use crate::machine_view::MachineView;

impl BootScripts {
    /// Refuses the image of the machine at `mac` to `source`, unless that is the machine or in the network of BMCs, and the
    /// machine boots the worker's environment.
    pub fn check_image_access(&self, mac: Mac, source: IpAddr) -> Result<(), BootRefusal> {
        let machine = self.index.by_mac(mac);
        let unknown = || BootRefusal::Nothing("no machine has this address".into());
        let machine = machine.ok_or_else(unknown)?;
        let mut bmcs = self.site.serving.iso.iter().flat_map(|iso| &iso.sources);
        if !machine.has(source) && !bmcs.any(|network| network.contains(&source)) {
            return Err(BootRefusal::NotYours("the address is neither that machine's nor a BMC's"));
        }
        let decision = self.decision(Some(&machine), self.index.feed());
        match decision {
            Decision { boot: BootTarget::Worker, .. } => {}
            Decision { boot: BootTarget::Later { retry }, fact } => {
                return Err(BootRefusal::later(retry, fact));
            }
            Decision { fact, .. } => return Err(BootRefusal::Nothing(fact.to_string())),
        }
        let Some(gate) = gate_of(&machine, &decision) else { return Ok(()) };
        // The gate is for the machine, which asks through its BMC: it is known by its own address, and presents no UUID but
        // the one that its firmware sent by DHCP.
        let own = machine.address().unwrap_or(source);
        let presented = self.presented(&machine, None, own);
        match gate::evaluate(gate, &presented) {
            GateResult::Open => Ok(()),
            GateResult::AskUuid => {
                Err(BootRefusal::NotYours("the platform asks for a UUID, and an image shows none"))
            }
            GateResult::Closed(rule) => {
                let presented = format!("{presented:?}");
                ScriptWarning::GateClosed { machine, rule, presented }.log(&self.site);
                Err(BootRefusal::NotYours(rule))
            }
        }
    }

    /// Returns the kernel arguments in the image of the machine at `mac`, with tokens for the machine's own address.
    pub fn image_arguments(&self, mac: Mac, now: SystemTime) -> Result<String, BootRefusal> {
        let nothing =
            || BootRefusal::Nothing("its record has no address for this interface".into());
        let machine = self.index.by_mac(mac).ok_or_else(nothing)?;
        let interface = machine.interface().ok_or_else(nothing)?;
        let own = machine.address().ok_or_else(nothing)?;
        let boot = self.boot_urls(&machine, own, WorkerIdentity::Given, now)?;
        let mut arguments = self.arguments(&machine, &boot, now);
        let ipam = ipam(&machine, interface, own);
        if let Some(ipam) = &ipam {
            arguments.extra.insert(0, ipam);
        }
        let (line, left_out) = arguments.arguments().map_err(broken)?;
        for word in left_out {
            let hardware = machine.hardware.id.clone();
            ScriptWarning::ArgumentLeftOut { hardware, word }.log(&self.site);
        }
        Ok(line.beside_image().to_owned())
    }
}

/// Renders the addresses of a machine that no DHCP server answers, in nine fields (Tinkerbell's `ipam=`, IPv4 only).
fn ipam(machine: &MachineView, interface: &Interface, own: IpAddr) -> Option<String> {
    let dhcp = interface.dhcp.as_ref().filter(|dhcp| dhcp.disabled && own.is_ipv4())?;
    let address = dhcp.address.as_ref()?;
    let mask = u32::MAX.checked_shl(32_u32.checked_sub(address.prefix_length)?).unwrap_or(0);
    let fields = [
        machine.mac.dashed(),
        if dhcp.vlan_id == 0 { String::new() } else { dhcp.vlan_id.to_string() },
        own.to_string(),
        std::net::Ipv4Addr::from_bits(mask).to_string(),
        address.gateway.clone(),
        dhcp.hostname.clone(),
        dhcp.name_servers.join(","),
        dhcp.domain_name.clone(),
        dhcp.time_servers.join(","),
    ];
    Some(format!("ipam={}", fields.join(":")))
}

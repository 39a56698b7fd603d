//! Machines that boot from an image on virtual media: who may read it, and what it tells.

use std::net::IpAddr;
use std::time::SystemTime;

use tinwright::hardware::v1::Interface;

use super::gate::Verdict;
use super::render::WorkerIdentity;
use super::{BootRefusal, BootScripts, ScriptRequest};
use crate::Mac;
use crate::decision::{BootTarget, Decision};
use crate::facts;
use crate::index::Known;

impl BootScripts {
    /// Whether whoever asks from `source` may read the image of the machine at `mac`: the machine itself, or from where BMCs
    /// ask; and only while the machine boots the worker's environment.
    pub fn may_read_image(
        &self,
        mac: Mac,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<(), BootRefusal> {
        let known = self.index.by_mac(mac);
        let unknown = || BootRefusal::Nothing("no machine has this address".into());
        let known = known.ok_or_else(unknown)?;
        let bmcs = self.site.serving.iso.iter().flat_map(|iso| &iso.sources);
        if !known.has(source) && !bmcs.clone().any(|network| network.contains(&source)) {
            return Err(BootRefusal::NotYours("the address is neither that machine's nor a BMC's"));
        }
        let decision = self.decision(Some(&known), self.index.feed(), now);
        match decision {
            Decision { boot: BootTarget::Worker, .. } => {}
            Decision { boot: BootTarget::Later { retry }, fact } => {
                return Err(BootRefusal::later(retry, fact));
            }
            Decision { fact, .. } => return Err(BootRefusal::Nothing(fact.to_string())),
        }
        // The gate is for the machine, which asks through its BMC: it is known by its own address, and shows no UUID but
        // the one that DHCP was asked with.
        let own = facts::address(known.interface().ok_or_else(unknown)?).unwrap_or(source);
        match self.gate(&known, &ScriptRequest::new(Some(mac), own), &decision)? {
            Verdict::Open => Ok(()),
            Verdict::AskUuid | Verdict::Closed(_) => {
                Err(BootRefusal::NotYours("the platform asks for a UUID, and an image shows none"))
            }
        }
    }

    /// What the image tells the machine at `mac`: its environment's arguments, with tokens for its own address.
    pub fn image_arguments(&self, mac: Mac, now: SystemTime) -> Result<String, BootRefusal> {
        let nothing =
            || BootRefusal::Nothing("its record has no address for this interface".into());
        let known = self.index.by_mac(mac).ok_or_else(nothing)?;
        let interface = known.interface().ok_or_else(nothing)?;
        let own = facts::address(interface).ok_or_else(nothing)?;
        let boot = self.boot(&known, own, WorkerIdentity::Given, now)?;
        let mut arguments = self.arguments(&known, &boot, now);
        let ipam = ipam(&known, interface, own);
        if let Some(ipam) = &ipam {
            arguments.extra.insert(0, ipam);
        }
        let line = super::render::checked(&known, &arguments)?;
        Ok(line.beside_image().to_owned())
    }
}

/// The addressing of a machine that no DHCP server answers, in nine fields (Tinkerbell's `ipam=`, IPv4 only).
fn ipam(known: &Known, interface: &Interface, own: IpAddr) -> Option<String> {
    let dhcp = interface.dhcp.as_ref().filter(|dhcp| dhcp.disabled && own.is_ipv4())?;
    let address = dhcp.address.as_ref()?;
    let mask = u32::MAX.checked_shl(32_u32.checked_sub(address.prefix_length)?).unwrap_or(0);
    let fields = [
        known.mac.dashed(),
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

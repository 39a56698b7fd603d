//! The check that the client at an address of a machine is that machine: the owner of the address on our link must be.

use std::net::IpAddr;

use runtime::neighbour::{self, NeighbourCheck, SourceCheck};

use super::{BootRefusal, BootResult, BootScripts};
use crate::machine_view::MachineView;

impl BootScripts {
    /// Returns the owner of `source` on our link, as far as the site checks it.
    pub async fn owner_of(&self, source: IpAddr) -> NeighbourCheck {
        match &self.neighbours {
            Some(neighbours) if self.site.serving.source_check != SourceCheck::Address => {
                neighbour::owner_of(neighbours, source).await
            }
            Some(_) | None => NeighbourCheck::Unchecked,
        }
    }

    /// Refuses a client at an address of `machine` whose owner is another machine.
    pub(super) fn check_owner(
        &self,
        machine: &MachineView,
        owner: NeighbourCheck,
    ) -> BootResult<()> {
        let checked = self.site.serving.source_check.admits(machine.all_macs(), owner);
        checked.map_err(|_| BootRefusal::NotYours("the owner of the address is not that machine"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tinwright::HardwareId;

    use super::*;
    use crate::Mac;
    use crate::bootscripts::ScriptRequest;
    use crate::bootscripts::tests::{MAC, at, boots_at, now, site};

    const OTHER: NeighbourCheck = NeighbourCheck::Owner(Mac([2, 0, 0, 0, 0, 9]));

    /// The scripts of a site that checks addresses like this, with images for virtual media.
    fn boots(check: SourceCheck) -> BootScripts {
        let mut site = site();
        site.serving.source_check = check;
        site.serving.iso = Some(std::path::PathBuf::new().into());
        boots_at(HardwareId::new(), site)
    }

    /// Requests the machine's script, with its MAC and without, and its image. Returns true if all are served, false if none is.
    fn is_served(boots: &BootScripts, neighbour: NeighbourCheck) -> bool {
        let script = |mac| {
            let request = ScriptRequest { neighbour, ..ScriptRequest::new(mac, at("192.0.2.10")) };
            boots.serve(&request, now()).map(drop)
        };
        let image = boots.check_image_access(MAC, at("192.0.2.10"), neighbour);
        let replies = [script(Some(MAC)), script(None), image];
        let refusal = Err(BootRefusal::NotYours("the owner of the address is not that machine"));
        let is_served = replies[0].is_ok();
        assert!(
            replies.iter().all(|reply| *reply == if is_served { Ok(()) } else { refusal.clone() })
        );
        is_served
    }

    #[test]
    fn scripts_and_images_are_for_the_owner_of_the_address_on_our_link() {
        let boots = boots(SourceCheck::OnLink);
        assert!(is_served(&boots, NeighbourCheck::Owner(MAC)));
        assert!(!is_served(&boots, OTHER));
        assert!(!is_served(&boots, NeighbourCheck::NoOwner));
        assert!(is_served(&boots, NeighbourCheck::Routed), "behind a router or a relay");
    }

    #[test]
    fn a_site_may_identify_machines_by_their_address_alone() {
        assert!(is_served(&boots(SourceCheck::Address), OTHER));
        assert!(!is_served(&boots(SourceCheck::Neighbour), NeighbourCheck::Routed));
    }

    #[test]
    fn in_a_network_behind_address_translation_the_owner_of_the_address_is_the_router() {
        let mut boots = boots(SourceCheck::OnLink);
        boots.site.serving.mac_only = vec!["198.51.100.0/24".parse().unwrap()];
        let request = ScriptRequest::new(Some(MAC), at("198.51.100.7"));
        let script = boots.serve(&ScriptRequest { neighbour: OTHER, ..request }, now()).unwrap();
        assert!(!script.text.contains("boot_token="));
    }
}

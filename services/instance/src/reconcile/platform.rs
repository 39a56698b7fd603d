//! State queued of a platform's system: its machine gets an address, and its boot gate is opened.
//!
//! ```text
//! UUID, MAC and boot URL known? ─▶ reserved address? ─yes─────────────────────────────────────▶ open, in one commit
//!                                      └no─▶ grant ─▶ recorded in the instance ─▶ attached ──────┘
//! ```
//!
//! One commit opens the gate, records the boot URL and begins provisioning; the claims of UUID and MAC are part of it. From then on the values
//! stay until the instance is deleted, also across retries: the platform knows them.
//!
//! A grant is pending until it is attached, and ends by itself; it is attached only after it was recorded. So whoever deletes the instance
//! finds the grant and releases it, or it ends, wherever the process dies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tinwright::hardware::v1::{Hardware, Interface};
use tinwright::instance::v1::instance::{AttachedAddress, Os};
use tinwright::instance::v1::{BootGate, Instance, PlatformBoot};
use uuid::Uuid;

use super::addresses::attached_address;
use super::{CANCEL_POLL_INTERVAL, Error, HARDWARE_POLL_INTERVAL, Outcome, Reconciler};
use crate::instances::boot_gate;
use crate::peers::{self, NoGrant, Peers};
use crate::state::Event;

/// The values that a machine's gate and record give to a platform's system. If there are none, the
/// reason names no machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlatformValues {
    /// SMBIOS UUID.
    uuid: String,
    /// The interface that it boots from.
    interface: Interface,
    /// URL of the platform's script.
    boot_url: String,
}

impl PlatformValues {
    /// Reads the values for the system `boot` on `hardware`, or returns the reason why there are none.
    pub(crate) async fn read(
        peers: &Peers,
        boot: &PlatformBoot,
        hardware: &Hardware,
    ) -> Result<Result<Self, String>, peers::Error> {
        let (uuid, interface) = match uuid(hardware).zip(boot_interface(hardware)) {
            Some(found) => found,
            None if hardware.interfaces.is_empty() => {
                return Ok(Err("the machine's record has no interface".into()));
            }
            None => {
                let reason = "the machine's UUID is not known: neither it nor its BMC reported one";
                return Ok(Err(reason.into()));
            }
        };
        let boot_url = boot_url(peers, boot, hardware).await?;
        Ok(boot_url.map(|boot_url| Self { uuid, interface: interface.clone(), boot_url }))
    }
}

/// Returns the boot URL in force: the URL of `boot`, else of the machine's location; or the reason
/// why there is none.
async fn boot_url(
    peers: &Peers,
    boot: &PlatformBoot,
    hardware: &Hardware,
) -> Result<Result<String, String>, peers::Error> {
    if !boot.url.is_empty() {
        return Ok(Ok(boot.url.clone()));
    }
    if hardware.location_id.is_empty() {
        return Ok(Err(
            "there is no boot URL: url is empty, and the machine is in no location".into()
        ));
    }
    let location = peers.location(Ok(&hardware.location_id)).await?.unwrap_or_default();
    Ok(match location.boot_url.is_empty() {
        true => Err("there is no boot URL: url and the location's boot_url are empty".into()),
        false => Ok(location.boot_url),
    })
}

/// Returns the SMBIOS UUID that the machine reported, else that which its BMC lists.
fn uuid(hardware: &Hardware) -> Option<String> {
    let own = hardware.inventory.as_ref().map(|inventory| &inventory.uuid);
    let of_bmc = hardware.bmc_inventory.as_ref().map(|inventory| &inventory.uuid);
    let mut parsed = [own, of_bmc].into_iter().flatten().filter_map(|text| text.parse().ok());
    parsed.find(|uuid: &Uuid| !uuid.is_nil() && !uuid.is_max()).map(|uuid| uuid.to_string())
}

/// Returns the interface that the machine boots from. Interfaces that may boot from the network
/// precede others; among equals the interface that enrolled precedes, then the first one.
fn boot_interface(hardware: &Hardware) -> Option<&Interface> {
    let all = || hardware.interfaces.iter();
    let is_allowed = |it: &&Interface| it.netboot.as_ref().is_some_and(|it| it.allow_pxe);
    let enrolled = hardware.enrolment.as_ref().map_or("", |it| it.mac.as_str());
    let is_enrolled = |it: &&Interface| !enrolled.is_empty() && it.mac == enrolled;
    all()
        .filter(is_allowed)
        .find(is_enrolled)
        .or_else(|| all().find(is_allowed))
        .or_else(|| all().find(is_enrolled))
        .or_else(|| all().next())
}

/// Returns the address that the record of `interface` reserves.
fn reserved(interface: &Interface) -> Option<IpAddr> {
    interface.dhcp.as_ref()?.address.as_ref()?.address.parse().ok()
}

/// Returns the IPv4 address that the interface has without a new grant: that of a grant which is attached to `instance` as primary, else the
/// reserved one.
fn known_address(instance: &Instance, interface: &Interface) -> Option<Ipv4Addr> {
    let attached = instance.addresses.iter().filter(|it| it.primary && it.mac == interface.mac);
    let attached = attached.filter_map(|it| it.address.parse().ok()).next();
    attached.or_else(|| match reserved(interface)? {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    })
}

/// Returns the IPv6 addresses of the interface: the reserved one, and the addresses of attached grants.
fn ipv6_addresses(instance: &Instance, interface: &Interface) -> Vec<Ipv6Addr> {
    let attached = instance.addresses.iter().filter(|it| it.mac == interface.mac);
    let attached = attached.filter_map(|it| it.address.parse().ok());
    let mut all: Vec<_> = reserved(interface)
        .into_iter()
        .chain(attached)
        .filter_map(|address: IpAddr| match address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        })
        .collect();
    all.dedup();
    all
}

/// Passes if an address can be granted to `interface` of `hardware`.
fn check_grantable(hardware: &Hardware, interface: &Interface) -> Result<(), &'static str> {
    let dhcp = interface.dhcp.as_ref();
    if dhcp.is_some_and(|dhcp| dhcp.disabled || dhcp.proxy) {
        Err(
            "another DHCP server serves the boot interface, and its record reserves no IPv4 address",
        )
    } else if hardware.location_id.is_empty() {
        Err("the boot interface has no reserved IPv4 address, and the machine is in no location")
    } else {
        Ok(())
    }
}

/// A step towards the address of a machine.
enum AddressStep {
    /// The address, and the grant that was attached for it just now.
    Known(Ipv4Addr, Option<AttachedAddress>),
    /// There is none yet.
    Unknown(Outcome),
}

impl Reconciler {
    /// Opens the gate of `instance`, once its machine has an address.
    pub(super) async fn provision_platform(
        &self,
        instance: &Instance,
        boot: &PlatformBoot,
        hardware: &Hardware,
    ) -> Result<Outcome, Error> {
        if boot_gate::is_open(instance) {
            return self.advance(instance, Event::Began, "").await;
        }
        let values = match PlatformValues::read(&self.peers, boot, hardware).await? {
            Ok(values) => values,
            Err(reason) => return self.fail(instance, &reason).await,
        };
        match self.address(instance, boot, hardware, &values.interface).await? {
            AddressStep::Known(address, granted) => {
                self.open_gate(instance, values, address, granted).await
            }
            AddressStep::Unknown(outcome) => Ok(outcome),
        }
    }

    /// Returns the address of the interface, or makes the next step to get one.
    async fn address(
        &self,
        instance: &Instance,
        boot: &PlatformBoot,
        hardware: &Hardware,
        interface: &Interface,
    ) -> Result<AddressStep, Error> {
        if let Some(known) = known_address(instance, interface) {
            return Ok(AddressStep::Known(known, None));
        }
        if let Err(reason) = check_grantable(hardware, interface) {
            return Ok(AddressStep::Unknown(self.fail(instance, reason).await?));
        }
        if !instance.primary_grant_id.is_empty() {
            return self.attach(instance, interface).await;
        }
        let peers = &self.peers;
        let answer = peers.create_primary_grant(instance, &hardware.location_id, &boot.group);
        match answer.await? {
            Ok(grant) => {
                let new = Instance { primary_grant_id: grant.id, ..instance.clone() };
                self.instances.put(instance, new).await?;
                Ok(AddressStep::Unknown(Outcome::Again))
            }
            Err(refusal) => self.not_granted(instance, refusal).await,
        }
    }

    /// Attaches the recorded grant to the interface.
    async fn attach(
        &self,
        instance: &Instance,
        interface: &Interface,
    ) -> Result<AddressStep, Error> {
        let id = &instance.primary_grant_id;
        match self.peers.attach_primary_grant(id, instance, &interface.mac).await? {
            Ok(grant) => {
                let attached = attached_address(&grant);
                let address = attached.as_ref().and_then(|it| it.address.parse().ok());
                match address {
                    Some(address) => Ok(AddressStep::Known(address, attached)),
                    None => {
                        let reason = "the granted address is not an IPv4 address";
                        Ok(AddressStep::Unknown(self.fail(instance, reason).await?))
                    }
                }
            }
            Err(refusal) => self.not_granted(instance, refusal).await,
        }
    }

    /// Reacts to the refusal of a grant.
    async fn not_granted(
        &self,
        instance: &Instance,
        refusal: NoGrant,
    ) -> Result<AddressStep, Error> {
        let outcome = match refusal {
            NoGrant::Wait(reason) => {
                self.wait(instance, &format!("waits: {reason}"), HARDWARE_POLL_INTERVAL).await?
            }
            NoGrant::Refused(reason) => self.fail(instance, &reason).await?,
            NoGrant::Gone => {
                // The next grant needs another key, which a new generation has.
                let forgotten = Instance { primary_grant_id: String::new(), ..instance.clone() };
                let new = Instance { generation: instance.generation + 1, ..forgotten };
                self.instances.put(instance, new).await?;
                Outcome::After(CANCEL_POLL_INTERVAL)
            }
        };
        Ok(AddressStep::Unknown(outcome))
    }

    /// Opens the gate, records the boot URL and begins provisioning, in one commit. Fails if another instance's open gate has the UUID or MAC.
    async fn open_gate(
        &self,
        instance: &Instance,
        values: PlatformValues,
        address: Ipv4Addr,
        granted: Option<AttachedAddress>,
    ) -> Result<Outcome, Error> {
        let PlatformValues { uuid, interface, boot_url } = values;
        let ipv6 = ipv6_addresses(instance, &interface);
        let addresses =
            [IpAddr::from(address)].into_iter().chain(ipv6.into_iter().map(IpAddr::from));
        let gate = BootGate {
            open: true,
            uuid,
            mac: interface.mac,
            initial_ips: addresses.map(|address| address.to_string()).collect(),
            open_time: Some(self.instances.now().into()),
        };
        let open = |new: &mut Instance| {
            new.boot_gate = Some(gate);
            if let Some(Os::Platform(boot)) = &mut new.os {
                boot.boot_url = boot_url;
            }
            // DHCP has to know the address as soon as the gate is open; the copy of the grants may come later.
            if let Some(granted) = granted
                && new.addresses.iter().all(|it| it.grant_id != granted.grant_id)
            {
                new.addresses.insert(0, granted);
            }
        };
        let opened = self.instances.advance(instance, Event::Began, "", open).await;
        match opened.as_ref().err().and_then(boot_gate::taken_value) {
            None => {
                opened?;
                tracing::info!(instance.id, hardware.id = instance.hardware_id, "boot gate opened");
                Ok(Outcome::Again)
            }
            Some(value) => {
                let error = opened.err().map(|error| error.to_string());
                tracing::error!(instance.id, error, "boot gate not opened");
                let reason =
                    format!("the open boot gate of another machine has the {value} of this one");
                self.fail(instance, &reason).await
            }
        }
    }

    /// Releases the grant that the server got for the instance, if it got one.
    pub(super) async fn release_primary_grant(&self, instance: &Instance) -> Result<(), Error> {
        if !instance.primary_grant_id.is_empty() {
            self.peers.release_grant(&instance.primary_grant_id).await?;
        }
        Ok(())
    }
}

//! Hardware of v1alpha1 and of v1alpha2.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::fields::{Fields, put};
use super::names::Kind;
use super::{Site, bmc, push};

/// Fields of Hardware and their places here.
const HARDWARE: [(&str, &str); 5] = [
    ("metadata/labels", "labels"),
    ("spec/agentID", "agent_id"),
    ("spec/metadata/facility/facility_code", "facility"),
    ("spec/metadata/facility/plan_slug", "plan"),
    ("spec/metadata/manufacturer/slug", "manufacturer"),
];

/// Fields of an interface of v1alpha1 and their places here.
const INTERFACE: [(&str, &str); 15] = [
    ("dhcp/mac", "mac"),
    ("dhcp/iface_name", "name"),
    ("dhcp/hostname", "dhcp/hostname"),
    ("dhcp/domain_name", "dhcp/domain_name"),
    ("dhcp/name_servers", "dhcp/name_servers"),
    ("dhcp/time_servers", "dhcp/time_servers"),
    ("dhcp/tftp_server_name", "dhcp/tftp_server_name"),
    ("dhcp/boot_file_name", "dhcp/boot_file_name"),
    ("disableDhcp", "dhcp/disabled"),
    ("netboot/allowPXE", "netboot/allow_pxe"),
    ("netboot/allowWorkflow", "netboot/allow_workflow"),
    ("netboot/osie/baseURL", "netboot/osie/base_url"),
    ("netboot/osie/kernel", "netboot/osie/kernel"),
    ("netboot/osie/initrd", "netboot/osie/initrd"),
    ("netboot/osie/kernelParams", "netboot/osie/kernel_params"),
];

/// Fields of the DHCP of v1alpha2 and their places in an interface here.
const DHCP: [(&str, &str); 7] = [
    ("disabled", "dhcp/disabled"),
    ("hostname", "dhcp/hostname"),
    ("domainName", "dhcp/domain_name"),
    ("nameservers", "dhcp/name_servers"),
    ("ntpServers", "dhcp/time_servers"),
    ("tftpServerName", "dhcp/tftp_server_name"),
    ("bootFileName", "dhcp/boot_file_name"),
];

/// Converts Hardware of v1alpha1.
pub(super) fn v1alpha1(fields: &mut Fields, site: &Site) -> anyhow::Result<Value> {
    let mut hardware = named(fields, site)?;
    fields.move_to(&mut hardware, "", &HARDWARE);
    let mut interfaces = Vec::new();
    for index in 0..fields.count("/spec/interfaces") {
        let path = format!("/spec/interfaces/{index}");
        let interface = interface(fields, &path);
        interfaces.push(interface.with_context(|| format!("spec.interfaces[{index}]"))?);
        let arch = fields.text(&format!("{path}/dhcp/arch"))?;
        let iso = fields.text(&format!("{path}/isoboot/sourceISO"))?;
        settings(&mut hardware, arch, iso);
    }
    bonds(fields, &mut hardware, &mut interfaces)?;
    disks(fields, &mut hardware, "/spec/disks", "device")?;
    put(&mut hardware, "interfaces", interfaces);
    forget_bmc(fields, "/spec/bmcRef", site);
    Ok(hardware)
}

/// Converts Hardware of v1alpha2, and the BMC in it.
pub(super) fn v1alpha2(fields: &mut Fields, site: &Site) -> anyhow::Result<Vec<Value>> {
    let mut hardware = named(fields, site)?;
    fields.move_to(&mut hardware, "", &HARDWARE[..2]);
    let arch = fields.first_text(&["/spec/attributes/arch", "/spec/arch"])?;
    settings(&mut hardware, arch, String::new());
    let mut interfaces = Vec::new();
    for mac in fields.keys("/spec/networkInterfaces") {
        let path = format!("/spec/networkInterfaces/{mac}");
        let interface = network_interface(fields, &path, &mac);
        interfaces.push(interface.with_context(|| format!("spec.networkInterfaces.{mac}"))?);
        let iso = fields.text(&format!("{path}/isoboot/sourceISO"))?;
        settings(&mut hardware, String::new(), iso);
    }
    put(&mut hardware, "interfaces", interfaces);
    disks(fields, &mut hardware, "/spec/storageDevices", "name")?;
    forget_bmc(fields, "/spec/references/builtin/bmc", site);
    let name = hardware["name"].as_str().unwrap_or_default().to_owned();
    let mut objects = vec![hardware];
    if !fields.keys("/spec/bmc/connection").is_empty() {
        objects.push(bmc::connection(fields, "/spec/bmc/connection", name, site)?);
    }
    Ok(objects)
}

/// Returns a machine with its name.
fn named(fields: &mut Fields, site: &Site) -> anyhow::Result<Value> {
    let mut hardware = json!({"kind": "Hardware"});
    let name = site.names.here(Kind::Hardware, &fields.text("/metadata/name")?)?;
    if !name.is_empty() {
        put(&mut hardware, "name", name);
    }
    Ok(hardware)
}

fn settings(hardware: &mut Value, arch: String, iso: String) {
    if !arch.is_empty() {
        put(hardware, "architecture", arch);
    }
    if !iso.is_empty() {
        put(hardware, "policy", json!({"boot_method": "virtual-media", "boot_image_url": iso}));
    }
}

/// Takes the disks at `path`, each of which has its device in `key`.
fn disks(fields: &mut Fields, hardware: &mut Value, path: &str, key: &str) -> anyhow::Result<()> {
    let mut devices = fields.each(path, |fields, disk| fields.text(&format!("{disk}/{key}")))?;
    devices.retain(|device| !device.is_empty());
    let disks: Vec<_> = devices.into_iter().map(|device| json!({"device": device})).collect();
    if !disks.is_empty() {
        put(hardware, "disks", disks);
    }
    Ok(())
}

/// Takes a reference to a BMC among the objects. Nothing is lost: the BMC names its machine.
fn forget_bmc(fields: &mut Fields, path: &str, site: &Site) {
    if !site.bmcs.contains(&fields.peek(&format!("{path}/name"))) {
        return;
    }
    fields.take_value(&format!("{path}/name"));
    for (key, usual) in [("apiGroup", "bmc.tinkerbell.org"), ("kind", "Machine")] {
        let path = format!("{path}/{key}");
        if fields.peek(&path) == usual {
            fields.take_value(&path);
        }
    }
}

fn interface(fields: &mut Fields, path: &str) -> anyhow::Result<Value> {
    let mut interface = json!({});
    let at = |key: &str| format!("{path}/{key}");
    fields.move_to(&mut interface, path, &INTERFACE);
    let names = ["lease_time", "vlan_id", "classless_static_routes", "destination_descriptor"];
    dhcp_rest(fields, &at("dhcp"), &mut interface, names)?;
    let [address, mask, gateway] =
        ["address", "netmask", "gateway"].map(|key| fields.text(&at(&format!("dhcp/ip/{key}"))));
    let (address, mask) = (address?, mask?);
    let family = fields.number(&at("dhcp/ip/family"));
    if family == Some(if address.contains(':') { 6 } else { 4 }) {
        fields.take_value(&at("dhcp/ip/family"));
    }
    if !address.is_empty() {
        let length =
            push::prefix_length(&mask).with_context(|| format!("dhcp.ip.netmask {mask:?}"))?;
        set_address(&mut interface, &format!("{address}/{length}"), gateway?);
    }
    ipxe(fields, &at("netboot/ipxe"), "contents", &mut interface);
    Ok(interface)
}

fn network_interface(fields: &mut Fields, path: &str, mac: &str) -> anyhow::Result<Value> {
    let mut interface = json!({ "mac": mac });
    let at = |key: &str| format!("{path}/{key}");
    for version in ["v4", "ipv4"] {
        let dhcp = at(&format!("dhcp/{version}"));
        fields.move_to(&mut interface, &dhcp, &DHCP);
        let names =
            ["leaseTimeSeconds", "vlanID", "classlessStaticRoutes", "destinationDescriptor"];
        dhcp_rest(fields, &dhcp, &mut interface, names)?;
    }
    for version in ["ipv4", "ipv6"] {
        let [address, prefix, gateway] =
            ["address", "prefix", "gateway"].map(|key| at(&format!("ipam/{version}/{key}")));
        // A record has one address of an interface.
        let has_address = interface.pointer("/dhcp/address").is_some();
        let address = if has_address { String::new() } else { fields.text(&address)? };
        if !address.is_empty() {
            let (prefix, gateway) = (fields.text(&prefix)?, fields.text(&gateway)?);
            set_address(&mut interface, &format!("{address}/{prefix}"), gateway);
        }
    }
    let is_disabled: bool = fields.take(&at("netboot/disabled"))?;
    if !is_disabled {
        put(&mut interface, "netboot/allow_pxe", true);
    }
    ipxe(fields, &at("netboot/ipxe"), "script", &mut interface);
    Ok(interface)
}

/// Takes the lease time in seconds, the VLAN and the routes. `names` has the names of these fields
/// and of a route's destination.
fn dhcp_rest(
    fields: &mut Fields,
    path: &str,
    interface: &mut Value,
    names: [&str; 4],
) -> anyhow::Result<()> {
    let [lease_time, vlan, routes, destination] = names;
    let seconds: u64 = fields.take(&format!("{path}/{lease_time}"))?;
    if seconds > 0 {
        put(interface, "dhcp/lease_time", format!("{seconds}s"));
    }
    let vlan = fields.text(&format!("{path}/{vlan}"))?;
    if !vlan.is_empty() {
        let number: u32 =
            vlan.parse().with_context(|| format!("the VLAN {vlan:?} is not a number"))?;
        put(interface, "dhcp/vlan_id", number);
    }
    let routes = fields.each(&format!("{path}/{routes}"), |fields, route| {
        let destination = fields.text(&format!("{route}/{destination}"))?;
        Ok(json!({"destination": destination, "gateway": fields.text(&format!("{route}/router"))?}))
    })?;
    if !routes.is_empty() {
        put(interface, "dhcp/classless_routes", routes);
    }
    Ok(())
}

fn set_address(interface: &mut Value, address: &str, gateway: String) {
    let address = match gateway.as_str() {
        "" => json!(address),
        gateway => json!({"address": address, "gateway": gateway}),
    };
    put(interface, "dhcp/address", address);
}

/// Takes the script, whose text has the key `text`. Beside a URL the text has no effect in Tinkerbell, and stays.
fn ipxe(fields: &mut Fields, path: &str, text: &str, interface: &mut Value) {
    /// The first line of a script, which Tinkerbell adds where it is missing.
    const FIRST_LINE: &str = "#!ipxe";
    let places = [("binary", "netboot/ipxe/binary"), ("url", "netboot/ipxe/url")];
    fields.move_to(interface, path, &places);
    if interface.pointer("/netboot/ipxe/url").is_none() {
        fields.move_to(interface, path, &[(text, "netboot/ipxe/contents")]);
    }
    if let Some(Value::String(script)) = interface.pointer_mut("/netboot/ipxe/contents")
        && !script.starts_with(FIRST_LINE)
    {
        *script = format!("{FIRST_LINE}\n{script}");
    }
}

/// Joins the interfaces to a bond, if the metadata has a bonding mode.
fn bonds(
    fields: &mut Fields,
    hardware: &mut Value,
    interfaces: &mut [Value],
) -> anyhow::Result<()> {
    const MODE: &str = "/spec/metadata/bonding_mode";
    let mode = fields.number(MODE).unwrap_or_default();
    // One interface does not make a bond, so its mode stays.
    let Some(bond) = push::bond(mode, interfaces.len())? else { return Ok(()) };
    fields.take_value(MODE);
    interfaces.iter_mut().for_each(|interface| put(interface, "bond", bond.name.as_str()));
    put(hardware, "bonds", json!([{"name": bond.name, "mode": bond.mode}]));
    Ok(())
}

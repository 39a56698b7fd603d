//! Hardware of v1alpha1 and of v1alpha2.

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use tinwright::hardware::v1::Interface;

use super::fields::{Fields, is_empty};
use super::{Site, bmc, push};

type Object = Map<String, Value>;

/// Converts Hardware of v1alpha1.
pub(super) fn v1alpha1(fields: &mut Fields, site: &Site) -> anyhow::Result<Value> {
    let mut hardware = common(fields);
    let count = fields.count("/spec/interfaces");
    let mut interfaces = Vec::new();
    for index in 0..count {
        let path = format!("/spec/interfaces/{index}");
        interfaces
            .push(interface(fields, &path).with_context(|| format!("spec.interfaces[{index}]"))?);
        let arch = fields.text(&format!("{path}/dhcp/arch"))?;
        let iso = fields.text(&format!("{path}/isoboot/sourceISO"))?;
        settings(&mut hardware, arch, iso);
    }
    for (from, to) in [
        ("/spec/metadata/facility/facility_code", "facility"),
        ("/spec/metadata/facility/plan_slug", "plan"),
        ("/spec/metadata/manufacturer/slug", "manufacturer"),
    ] {
        fields.copy(from, &mut hardware, to);
    }
    bonds(fields, &mut hardware, &mut interfaces)?;
    let disks = (0..fields.count("/spec/disks"))
        .map(|index| fields.text(&format!("/spec/disks/{index}/device")));
    set_disks(&mut hardware, disks.collect::<anyhow::Result<_>>()?);
    hardware.insert("interfaces".into(), interfaces.into());
    forget_bmc(fields, "/spec/bmcRef", site);
    Ok(Value::Object(hardware))
}

/// Converts Hardware of v1alpha2, and the BMC in it.
pub(super) fn v1alpha2(fields: &mut Fields, site: &Site) -> anyhow::Result<Vec<Value>> {
    let mut hardware = common(fields);
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
    hardware.insert("interfaces".into(), interfaces.into());
    let count = fields.count("/spec/storageDevices");
    let disks = (0..count).map(|index| fields.text(&format!("/spec/storageDevices/{index}/name")));
    set_disks(&mut hardware, disks.collect::<anyhow::Result<_>>()?);
    forget_bmc(fields, "/spec/references/builtin/bmc", site);
    let name = hardware.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut objects = vec![Value::Object(hardware)];
    if !fields.keys("/spec/bmc/connection").is_empty() {
        objects.push(bmc::connection(fields, "/spec/bmc/connection", name, site)?);
    }
    Ok(objects)
}

/// Takes what the fields of both versions have in common.
fn common(fields: &mut Fields) -> Object {
    let mut hardware = Object::from_iter([("kind".to_owned(), "Hardware".into())]);
    fields.copy("/metadata/name", &mut hardware, "name");
    fields.copy("/metadata/labels", &mut hardware, "labels");
    fields.copy("/spec/agentID", &mut hardware, "agent_id");
    hardware
}

fn settings(hardware: &mut Object, arch: String, iso: String) {
    if !arch.is_empty() {
        hardware.insert("architecture".into(), arch.into());
    }
    if !iso.is_empty() {
        let policy = json!({"boot_method": "virtual-media", "boot_image_url": iso});
        hardware.insert("policy".into(), policy);
    }
}

fn set_disks(hardware: &mut Object, disks: Vec<String>) {
    let disks: Vec<_> =
        disks.iter().filter(|it| !it.is_empty()).map(|it| json!({"device": it})).collect();
    if !disks.is_empty() {
        hardware.insert("disks".into(), disks.into());
    }
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
    let mut interface = Object::new();
    let at = |key: &str| format!("{path}/{key}");
    fields.copy(&at("dhcp/mac"), &mut interface, "mac");
    fields.copy(&at("dhcp/iface_name"), &mut interface, "name");
    let mut dhcp = Object::new();
    for name in [
        "hostname",
        "domain_name",
        "name_servers",
        "time_servers",
        "tftp_server_name",
        "boot_file_name",
    ] {
        fields.copy(&at(&format!("dhcp/{name}")), &mut dhcp, name);
    }
    fields.copy(&at("disableDhcp"), &mut dhcp, "disabled");
    dhcp_rest(
        fields,
        &at("dhcp"),
        &mut dhcp,
        ["lease_time", "vlan_id", "classless_static_routes", "destination_descriptor"],
    )?;
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
        set_address(&mut dhcp, &format!("{address}/{length}"), gateway?);
    }
    let mut netboot = Object::new();
    fields.copy(&at("netboot/allowPXE"), &mut netboot, "allow_pxe");
    fields.copy(&at("netboot/allowWorkflow"), &mut netboot, "allow_workflow");
    ipxe(fields, &at("netboot/ipxe"), "contents", &mut netboot);
    let mut osie = Object::new();
    for (from, to) in [
        ("baseURL", "base_url"),
        ("kernel", "kernel"),
        ("initrd", "initrd"),
        ("kernelParams", "kernel_params"),
    ] {
        fields.copy(&at(&format!("netboot/osie/{from}")), &mut osie, to);
    }
    insert(&mut netboot, "osie", osie);
    insert(&mut interface, "dhcp", dhcp);
    insert(&mut interface, "netboot", netboot);
    Ok(Value::Object(interface))
}

fn network_interface(fields: &mut Fields, path: &str, mac: &str) -> anyhow::Result<Value> {
    let mut interface = Object::from_iter([("mac".to_owned(), mac.into())]);
    let at = |key: &str| format!("{path}/{key}");
    let mut dhcp = Object::new();
    for version in ["v4", "ipv4"] {
        let dhcp_path = at(&format!("dhcp/{version}"));
        for (from, to) in [
            ("disabled", "disabled"),
            ("hostname", "hostname"),
            ("domainName", "domain_name"),
            ("nameservers", "name_servers"),
            ("ntpServers", "time_servers"),
            ("tftpServerName", "tftp_server_name"),
            ("bootFileName", "boot_file_name"),
        ] {
            fields.copy(&format!("{dhcp_path}/{from}"), &mut dhcp, to);
        }
        let names =
            ["leaseTimeSeconds", "vlanID", "classlessStaticRoutes", "destinationDescriptor"];
        dhcp_rest(fields, &dhcp_path, &mut dhcp, names)?;
    }
    for version in ["ipv4", "ipv6"] {
        let [address, prefix, gateway] =
            ["address", "prefix", "gateway"].map(|key| at(&format!("ipam/{version}/{key}")));
        // A record has one address of an interface.
        let address =
            if dhcp.contains_key("address") { String::new() } else { fields.text(&address)? };
        if !address.is_empty() {
            let (prefix, gateway) = (fields.text(&prefix)?, fields.text(&gateway)?);
            set_address(&mut dhcp, &format!("{address}/{prefix}"), gateway);
        }
    }
    let is_disabled: bool = fields.take(&at("netboot/disabled"))?;
    let mut netboot = Object::from_iter([("allow_pxe".to_owned(), Value::from(!is_disabled))]);
    ipxe(fields, &at("netboot/ipxe"), "script", &mut netboot);
    insert(&mut interface, "dhcp", dhcp);
    insert(&mut interface, "netboot", netboot);
    Ok(Value::Object(interface))
}

/// Takes the lease time in seconds, the VLAN and the routes. `names` are those of these fields and of a route's destination.
fn dhcp_rest(
    fields: &mut Fields,
    path: &str,
    dhcp: &mut Object,
    names: [&str; 4],
) -> anyhow::Result<()> {
    let [lease_time, vlan, routes, destination] = names;
    let seconds: u64 = fields.take(&format!("{path}/{lease_time}"))?;
    if seconds > 0 {
        dhcp.insert("lease_time".into(), format!("{seconds}s").into());
    }
    let vlan = fields.text(&format!("{path}/{vlan}"))?;
    if !vlan.is_empty() {
        let number: u32 =
            vlan.parse().with_context(|| format!("the VLAN {vlan:?} is not a number"))?;
        dhcp.insert("vlan_id".into(), number.into());
    }
    let mut converted = Vec::new();
    for index in 0..fields.count(&format!("{path}/{routes}")) {
        let route = format!("{path}/{routes}/{index}");
        let destination = fields.text(&format!("{route}/{destination}"))?;
        converted.push(json!({"destination": destination, "gateway": fields.text(&format!("{route}/router"))?}));
    }
    if !converted.is_empty() {
        dhcp.insert("classless_routes".into(), converted.into());
    }
    Ok(())
}

fn set_address(dhcp: &mut Object, address: &str, gateway: String) {
    let address = match gateway.as_str() {
        "" => json!(address),
        gateway => json!({"address": address, "gateway": gateway}),
    };
    dhcp.insert("address".into(), address);
}

/// Takes the script, whose text has the key `text`. Beside a URL the text has no effect in Tinkerbell, and stays.
fn ipxe(fields: &mut Fields, path: &str, text: &str, netboot: &mut Object) {
    /// The first line of a script, which Tinkerbell adds where it is missing.
    const FIRST_LINE: &str = "#!ipxe";
    let mut ipxe = Object::new();
    fields.copy(&format!("{path}/binary"), &mut ipxe, "binary");
    fields.copy(&format!("{path}/url"), &mut ipxe, "url");
    if !ipxe.contains_key("url") {
        fields.copy(&format!("{path}/{text}"), &mut ipxe, "contents");
    }
    if let Some(Value::String(script)) = ipxe.get_mut("contents")
        && !script.starts_with(FIRST_LINE)
    {
        *script = format!("{FIRST_LINE}\n{script}");
    }
    insert(netboot, "ipxe", ipxe);
}

fn insert(object: &mut Object, key: &str, value: Object) {
    let value = Value::Object(value);
    if !is_empty(&value) {
        object.insert(key.to_owned(), value);
    }
}

/// Joins the interfaces to a bond, if the metadata has a bonding mode.
fn bonds(
    fields: &mut Fields,
    hardware: &mut Object,
    interfaces: &mut [Value],
) -> anyhow::Result<()> {
    const MODE: &str = "/spec/metadata/bonding_mode";
    let mode = fields.number(MODE).unwrap_or_default();
    let mut records = vec![Interface::default(); interfaces.len()];
    let metadata = Object::from_iter([("bonding_mode".to_owned(), mode.into())]);
    let bonds = push::bonds(&metadata, &mut records)?;
    for (interface, record) in
        interfaces.iter_mut().zip(records).filter(|(_, it)| !it.bond.is_empty())
    {
        interface["bond"] = record.bond.into();
    }
    // One interface does not make a bond, so its mode stays.
    if !bonds.is_empty() {
        fields.take_value(MODE);
        let bonds: Vec<_> =
            bonds.iter().map(|it| json!({"name": it.name, "mode": it.mode})).collect();
        hardware.insert("bonds".into(), bonds.into());
    }
    Ok(())
}

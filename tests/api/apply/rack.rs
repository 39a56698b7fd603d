//! A rack with twenty machines, as files have it: an object of every kind.

use std::fmt::Write as _;

/// The number of machines, and of those with a BMC, which come first.
pub const MACHINES: usize = 20;
pub const BMCS: usize = 15;

/// The objects to which the machines belong.
const SITE: &str = r#"
kind: Tenant
name: acme
description: a customer
---
kind: Location
name: kir1
zones: [{name: kir1-a, description: first row}, {name: kir1-b}]
geography: {country: SE, city: Kiruna, latitude: 67.8557, longitude: 20.2253}
boot_url: http://198.51.100.1/boot.ipxe
annotations: {note: north}
---
kind: Model
name: small
description: one processor
constraints:
  architecture: x86_64
  labels: {rack: r1}
  cores: {min: 4, max: 8}
  memory_bytes: {min: 8589934592}
  disks: [{count: {min: 1}, medium: ssd, min_size_bytes: 100000000000}]
accept_enrolled: {locations: [kir1]}
boot_silent_minutes: 10
---
kind: Subnet
name: machines
cidr: 198.51.100.0/24
gateway: 198.51.100.1
excluded: [198.51.100.2-198.51.100.9]
hold: 10m
quota: 100
tenant_quotas: {acme: 5}
---
kind: Range
name: granted
subnet: machines
first: 198.51.100.100
last: 198.51.100.119
range_kind: static
---
kind: Range
name: leased
subnet: machines
first: 198.51.100.200
last: 198.51.100.219
range_kind: dynamic
---
kind: LocationBinding
location: kir1
tenant: acme
subnets: [machines]
ranges: [granted]
configuration: '{"note": "a"}'
---
version: "0.1"
name: echo
global_timeout: 1800
tasks:
- name: os
  worker: "{{.device_1}}"
  actions:
  - {name: boot, image: rootio, command: [version]}
---
kind: Template
name: wipe
labels: {use: cleaning}
data: |
  name: wipe
  tasks:
  - name: os
    worker: "{{ .device_1 }}"
    actions:
    - {name: again, image: reboot}
---
kind: Stack
name: web
labels: {cluster: c1}
containers: [{name: os, command: /sbin/init, mount: {nfs: {host: nas, path: /x, ro: true}}}]
"#;

/// The instances, and a workflow.
const WORK: &str = r##"
kind: Instance
hardware: node-00
hostname: kept
reserve_only: true
tenant: acme
external_id: order-7
labels: {role: web}
tags: [a, b]
ssh_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEFwLV0NcVQc3xFGfoGqwvLyHWHVsvGvXPSZc0mYTg/R a@example"]
userdata: "#cloud-config\n"
vendor_data: "#cloud-config\n"
ips: [{address: 198.51.100.61/24, gateway: 198.51.100.1}]
extra: {storage: {disks: []}}
---
kind: Instance
hardware: node-01
reserve_only: true
protect: true
---
kind: Instance
hardware: node-02
hostname: c1-1
image_stack: {stack: web}
power_management: none
---
kind: Instance
hardware: node-15
template: echo
deprovision_template: wipe
power_management: none
---
kind: Instance
hardware: node-16
template: echo
power_management: none
---
kind: Instance
hardware: node-17
template: echo
power_management: none
---
kind: Instance
hardware: node-18
template: echo
power_management: none
---
kind: Workflow
name: check-19
template: echo
hardware: node-19
labels: {why: check}
"##;

/// Returns the file of the whole rack, and the number of objects in it.
pub fn file() -> (String, usize) {
    let mut text = SITE.to_owned();
    for number in 0..MACHINES {
        text.push_str(&machine(number));
    }
    for number in 0..BMCS {
        let protocol = match number % 2 {
            0 => format!("redfish: {{url: 'https://192.0.2.{}'}}", 100 + number),
            _ => format!("ipmi: {{host: 192.0.2.{}, cipher_suite: 17}}", 100 + number),
        };
        let _ = write!(
            text,
            "---\nkind: Bmc\nhardware: node-{number:02}\n{protocol}\nusername: admin\npassword: hidden-{number}\nlabels: {{of: rack}}\n"
        );
    }
    let text = format!("{text}---{WORK}");
    let count = text.split("\n---\n").count();
    (text, count)
}

/// Returns a machine. One in four has each group of fields.
fn machine(number: usize) -> String {
    let last = 10 + number;
    let more = match number % 4 {
        0 => {
            "policy: {phone_home: required, metadata_tokens: optional, user_data_window: 90m, deprovision_template: wipe}\nextra: {a: [1, 2]}\n"
        }
        1 => "bonds: [{name: bond0, mode: 802.3ad}]\nroot_disk: {medium: ssd, choose: smallest}\n",
        2 => {
            "facility: lab1\nplan: std\nmanufacturer: acme\narchitecture: x86_64\ndisks: [{device: /dev/sda}]\n"
        }
        _ => "location: kir1\nzone: kir1-a\n",
    };
    let bond = if number % 4 == 1 { ", bond: bond0" } else { "" };
    let state = if number == 12 { "enrolled" } else { "provisionable" };
    format!(
        "---\nkind: Hardware
name: node-{number:02}
state: {state}
labels: {{rack: r{}}}
interfaces:
- mac: 52-54-00-00-01-{last:02x}
  name: eno1
  dhcp:
    hostname: node-{number:02}
    address: {{address: 198.51.100.{last}/24, gateway: 198.51.100.1}}
    lease_time: 1d
    name_servers: [198.51.100.53]
    classless_routes: [{{destination: 10.0.0.0/8, gateway: 198.51.100.2}}]
  netboot: {{allow_pxe: true, ipxe: {{contents: \"#!ipxe\\nshell\"}}}}
- {{mac: 52-54-00-00-02-{last:02x}{bond}}}
{more}",
        number % 2
    )
}

//! Objects that the server refuses. Each is in a file between two right ones, which are stored and reported.

use super::Operator;

/// The stored objects: machines, networks and a template that the wrong objects name.
const SITE: &str = "\
kind: Location
name: kir1
zones: [{name: a}]
---
kind: Subnet
name: lan
cidr: 198.51.100.0/24
---
kind: Range
name: used
subnet: lan
first: 198.51.100.100
last: 198.51.100.110
range_kind: static
---
version: '0.1'
name: echo
tasks:
- name: os
  worker: '{{.device_1}}'
  actions:
  - {name: run, image: cexec, environment: {CMD_LINE: 'echo {{.text}}', BLOCK_DEVICE: /dev/sda1, FS_TYPE: ext4}}
---
kind: Hardware
name: old
state: provisionable
interfaces: [{mac: 02-00-00-00-00-01, dhcp: {address: 198.51.100.11/24}}]
---
kind: Hardware
name: young
state: enrolled
interfaces: [{mac: 02-00-00-00-00-02}]
---
kind: Hardware
name: guarded
state: provisionable
protect: true
interfaces: [{mac: 02-00-00-00-00-03}]
---
kind: Hardware
name: kept
state: provisionable
interfaces: [{mac: 02-00-00-00-00-04}]
";

/// The rest of a machine, and a part of the error.
const MACHINES: &[(&str, &str)] = &[
    ("interfaces: [{mac: zz}]", "interfaces[0].mac"),
    ("interfaces: [{mac: 01-00-5e-00-00-01}]", "interfaces[0].mac"),
    ("interfaces: [{mac: 02-00-00-00-01-01}, {mac: 02-00-00-00-01-01}]", "interfaces"),
    ("interfaces: [{mac: M, name: a name that is too long}]", "interfaces[0].name"),
    (
        "interfaces: [{mac: M, dhcp: {address: 198.51.100.11/24}}]",
        "198.51.100.11 is reserved for machine old",
    ),
    ("interfaces: [{mac: M, dhcp: {address: 198.51.100.12/33}}]", "33 is not between 1 and 32"),
    (
        "interfaces: [{mac: M, dhcp: {address: 198.51.100.300/24}}]",
        "interfaces[0].dhcp.address.address",
    ),
    (
        "interfaces: [{mac: M, dhcp: {address: {address: 198.51.100.12/24, gateway: 203.0.113.1}}}]",
        "203.0.113.1 is outside 198.51.100.12/24",
    ),
    (
        "interfaces: [{mac: M, dhcp: {address: {address: 198.51.100.12/24, gateway: '2001:db8::1'}}}]",
        "is of another family",
    ),
    ("interfaces: [{mac: M, dhcp: {lease_time: 99999d}}]", "interfaces[0].dhcp.lease_time"),
    ("interfaces: [{mac: M, dhcp: {vlan_id: 4095}}]", "4095 is not between 0 and 4094"),
    ("interfaces: [{mac: M, dhcp: {mtu: 100}}]", "100 is not between 576 and 9216"),
    ("interfaces: [{mac: M, dhcp: {proxy: true, disabled: true}}]", "interfaces[0].dhcp.proxy"),
    ("interfaces: [{mac: M, dhcp: {boot_file_name: a.efi}}]", "belongs to tftp_server_name"),
    (
        "interfaces: [{mac: M, dhcp: {name_servers: [dns.example]}}]",
        "interfaces[0].dhcp.name_servers[0]",
    ),
    ("interfaces: [{mac: M, dhcp: {time_servers: ['a b']}}]", "interfaces[0].dhcp.time_servers[0]"),
    (
        "interfaces: [{mac: M, dhcp: {classless_routes: [{destination: 10.0.0.0/33, gateway: 198.51.100.1}]}}]",
        "interfaces[0].dhcp.classless_routes[0]",
    ),
    ("interfaces: [{mac: M, dhcp: {hostname: a_b}}]", "interfaces[0].dhcp.hostname"),
    ("interfaces: [{mac: M, dhcp: {domain_name: -a}}]", "interfaces[0].dhcp.domain_name"),
    (
        "interfaces: [{mac: M, netboot: {ipxe: {url: 'ftp://a/b'}}}]",
        "interfaces[0].netboot.ipxe.url",
    ),
    ("interfaces: [{mac: M, netboot: {ipxe: {contents: exit}}}]", "does not begin with #!ipxe"),
    (
        "interfaces: [{mac: M, netboot: {ipxe: {url: 'http://a/b', contents: '#!ipxe'}}}]",
        "is set together with url",
    ),
    (
        "interfaces: [{mac: M, netboot: {boot_once: {binary: a.efi}}}]",
        "has neither url nor contents",
    ),
    (
        "interfaces: [{mac: M, netboot: {ipxe: {binary: ../a}}}]",
        "interfaces[0].netboot.ipxe.binary",
    ),
    ("interfaces: [{mac: M, bond: bond7}]", "there is no bond \"bond7\""),
    ("interfaces: [{mac: M}]\nbonds: [{name: bond0, mode: fast}]", "\"fast\" is none of"),
    (
        "interfaces: [{mac: M, relay_port: {circuit_id: xyz}}]",
        "interfaces[0].relay_port.circuit_id",
    ),
    ("interfaces: [{mac: M}]\npolicy: {metadata_hop_limit: 65}", "65 is not between 0 and 64"),
    ("interfaces: [{mac: M}]\npolicy: {boot_method: virtual-media}", "needs an image"),
    ("interfaces: [{mac: M}]\npolicy: {user_data_window: 0s}", "policy.user_data_window"),
    ("interfaces: [{mac: M}]\npolicy: {deprovision_template: nosuch}", "its template"),
    ("interfaces: [{mac: M}]\nlabels: {'': a}", "labels"),
    ("interfaces: [{mac: M}]\nstate: failed", "is neither enrolled nor provisionable"),
    ("state: provisionable", "a machine has at least one, unless its state is set to enrolled"),
    ("interfaces: [{mac: M}]\nzone: a", "zone"),
    ("interfaces: [{mac: M}]\nlocation: kir1\nzone: b", "zone"),
    ("interfaces: [{mac: M}]\nlocation: nowhere", "its location"),
    ("interfaces: [{mac: M}]\nextra: aGVsbG8=", "extra"),
    ("interfaces: [{mac: M}]\nroot_disk: {min_size_bytes: 9, max_size_bytes: 5}", "root_disk"),
];

/// A whole object, and a part of the error.
const OBJECTS: &[(&str, &str)] = &[
    ("kind: Hardware\nname: rack 1\ninterfaces: [{mac: M}]", "name"),
    ("kind: Hardware\nid: 7\nname: a", "id: is 7, not a text"),
    ("kind: Hardware\nid: '7'\ninterfaces: [{mac: M}]", "\"7\""),
    ("kind: Location\nname: -a", "name"),
    ("kind: Location\nname: b\nzones: [{name: x}, {name: x}]", "\"x\" is listed twice"),
    ("kind: Location\nname: b\ngeography: {latitude: 91}", "91 is not between -90 and 90"),
    ("kind: Location\nname: b\nboot_url: ftp://a", "boot_url"),
    ("kind: Model\nname: b\nconstraints: {architecture: arm}", "is neither x86_64 nor aarch64"),
    ("kind: Model\nname: b\nconstraints: {cores: {}}", "has neither min nor max"),
    (
        "kind: Model\nname: b\nconstraints: {cores: {min: 8, max: 4}}",
        "4 is less than min, which is 8",
    ),
    ("kind: Model\nname: b\naccept_enrolled: {locations: [nowhere]}", "its location"),
    ("kind: Tenant\nname: A b", "name"),
    ("kind: Subnet\nname: b\ncidr: 198.51.200.0/33", "cidr"),
    ("kind: Subnet\nname: b\ncidr: 198.51.100.128/25", "lan"),
    ("kind: Subnet\nname: b\ncidr: 203.0.113.0/24\ngateway: '2001:db8::1'", "is not of the family"),
    (
        "kind: Subnet\nname: b\ncidr: 203.0.113.0/24\nexcluded: [198.51.100.1]",
        "is not in 203.0.113.0/24",
    ),
    ("kind: Subnet\nname: b\ncidr: 203.0.113.0/24\nquota: -1", "quota"),
    ("kind: Subnet\nname: lan\ncidr: 198.51.200.0/24", "cidr cannot be changed from"),
    (
        "kind: Range\nname: b\nsubnet: nosuch\nfirst: 198.51.100.1\nlast: 198.51.100.2\nrange_kind: static",
        "its subnet",
    ),
    (
        "kind: Range\nname: b\nsubnet: lan\nfirst: 198.51.100.9\nlast: 198.51.100.2\nrange_kind: static",
        "does not follow",
    ),
    (
        "kind: Range\nname: b\nsubnet: lan\nfirst: 203.0.113.1\nlast: 203.0.113.2\nrange_kind: static",
        "203.0.113.1",
    ),
    (
        "kind: Range\nname: b\nsubnet: lan\nfirst: 198.51.100.105\nlast: 198.51.100.120\nrange_kind: static",
        "used",
    ),
    (
        "kind: Range\nname: b\nsubnet: lan\nfirst: 198.51.100.32\nlast: 198.51.100.63\nrange_kind: dynamic\nprefix_length: 28",
        "leases are of single addresses",
    ),
    (
        "kind: Range\nname: b\nsubnet: lan\nfirst: 198.51.100.20\nlast: 198.51.100.30\nrange_kind: fixed",
        "is \"fixed\", not one of static, dynamic",
    ),
    ("kind: LocationBinding\nlocation: nowhere", "its location"),
    ("kind: LocationBinding\nlocation: kir1\nranges: [nosuch]", "its range"),
    ("kind: LocationBinding\nlocation: kir1\nconfiguration: '['", "configuration"),
    ("kind: LocationBinding\nlocation: kir1\ngroup: a", "group"),
    ("kind: Stack\nname: b\ncontainers: [{name: os}]", "containers[0].command"),
    ("kind: Stack\nname: b\ncontainers: [{name: os, command: /a}]", "containers[0].mount"),
    ("kind: Stack\nname: b\ncontainers: [{name: os, command: /a, mount: {}}]", "has no definition"),
    (
        "kind: Stack\nname: b\ncontainers: [{name: os, command: /a, mount: {nfs: {host: a}}}]",
        "path",
    ),
    ("kind: Instance\nhardware: young\nreserve_only: true", "young is enrolled"),
    ("kind: Instance\nhardware: guarded\nreserve_only: true", "guarded is protected"),
    ("kind: Instance\nhardware: old", "reserve_only"),
    ("kind: Instance\nhardware: old\ntemplate: nosuch", "its template"),
    ("kind: Instance\nhardware: old\ntemplate: echo\ntemplate_values: {text: a}", "old has no BMC"),
    ("kind: Instance\nhardware: old\ntemplate: echo\npower_management: none", "text"),
    (
        "kind: Instance\nhardware: old\ntemplate: echo\npower_management: none\ntemplate_values: {text: a, txet: b}",
        "txet",
    ),
    ("kind: Instance\nhardware: kept\nreserve_only: true\nhostname: a_b", "hostname"),
    (
        "kind: Instance\nhardware: kept\nreserve_only: true\nips: [{address: 198.51.100.300/24}]",
        "ips[0].address",
    ),
    (
        "kind: Instance\nhardware: kept\nreserve_only: true\nips: [{address: 198.51.100.11/24}]",
        "198.51.100.11 is reserved for machine old",
    ),
    ("kind: Instance\nhardware: kept\nreserve_only: true\ntenant: nosuch", "nosuch"),
    (
        "kind: Instance\nexternal_id: a\nreserve_only: true\nplacement: {labels: {rack: none}}",
        "no machine",
    ),
    ("kind: Instance\nhardware: kept\nreserve_only: true\ncustom_ipxe: {}", "custom_ipxe"),
    ("kind: Bmc\nhardware: old\nusername: a\npassword: b", "protocol"),
    (
        "kind: Bmc\nhardware: old\nusername: a\npassword: b\nredfish: {url: 'http://192.0.2.2'}",
        "url",
    ),
    (
        "kind: Bmc\nhardware: old\nusername: a\npassword: b\nredfish: {url: 'https://u:p@192.0.2.2'}",
        "url",
    ),
    (
        "kind: Bmc\nhardware: old\nusername: 'a:b'\npassword: b\nredfish: {url: 'https://192.0.2.2'}",
        "contains a colon",
    ),
    (
        "kind: Bmc\nhardware: old\nusername: a\npassword: b\nipmi: {host: 192.0.2.2, cipher_suite: 5}",
        "cipher_suite",
    ),
    (
        "kind: Bmc\nhardware: old\nusername: a\npassword: b\nredfish: {url: 'https://192.0.2.2', certificate_sha256: abc}",
        "is not a SHA-256 digest",
    ),
    (
        "kind: Bmc\nhardware: old\nusername: a\npassword: b\nredfish: {url: 'https://127.0.0.1:1'}",
        "the BMC cannot be reached: nothing listens at 127.0.0.1:1",
    ),
    ("kind: Bmc\nhardware: old\nusername: a\npassword: b\nredfish: {}\nipmi: {}", "protocol"),
    (
        "kind: Subnet\nname: s\ncidr: 192.0.2.7",
        "subnet.cidr: 192.0.2.7 has no prefix length, as 192.0.2.0/24 has",
    ),
    ("kind: Subnet\nname: s\ncidr: '2001:db8::'", "has no prefix length, as 2001:db8::/64 has"),
    ("kind: Workflow\nname: w\ntemplate: nosuch\nhardware: old", "its template"),
    ("kind: Workflow\nname: w\ntemplate: echo\nhardware: nosuch", "its hardware"),
    ("kind: Workflow\nname: w\ntemplate: echo\nhardware: old", "text"),
    ("kind: Workflow\nname: w\ntemplate: echo\nhardware: old\nvalues: {text: a, txet: b}", "txet"),
    (
        "kind: Workflow\nname: w\ntemplat: echo\nhardware: old",
        "templat: unknown field: did you mean template",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Hardware\nmetadata: {name: tb}\nspec: {interfaces: [{dhcp: {mac: zz}}]}",
        "interfaces[0].mac",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Hardware\nmetadata: {name: tb}\nspec: {interfaces: [{dhcp: {mac: M, ip: {address: 198.51.100.11, netmask: 255.255.255.0}}}]}",
        "198.51.100.11 is reserved for machine old",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Hardware\nmetadata: {name: tb}\nspec: {metadata: {bonding_mode: 9}, interfaces: [{dhcp: {mac: M}}]}",
        "bonding_mode is 9, not a number from 0 to 6",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Template\nmetadata: {name: tb}\nspec: {data: 'tasks: 7'}",
        "template.data",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha2\nkind: Task\nmetadata: {name: tb}\nspec: {actions: [{name: a, image: 'quay.io/acme/own:v1', command: /own}]}",
        "no action own",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Workflow\nmetadata: {name: tb}\nspec: {templateRef: nosuch, hardwareRef: old}",
        "its template",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha2\nkind: Policy\nmetadata: {name: tb}",
        "has no counterpart here",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha2\nkind: Hardware\nmetadata: {name: tb}\nspec: {networkInterfaces: {M: {dhcp: {ipv4: {leaseTimeSeconds: long}}}}}",
        "leaseTimeSeconds",
    ),
    ("kind: Workflow\nname: w\nvalues: [x]", "values: is a list, not keys with values"),
];

/// Applies `wrong` in a file between two right objects. Returns the output if it is not the `expected` error, or the right objects are not stored.
pub(super) async fn find_problem(
    operator: &Operator,
    number: usize,
    wrong: &str,
    expected: &str,
) -> Option<String> {
    let right = |place: &str| format!("kind: Location\nname: {place}-{number}\n");
    let text = format!("{}---\n{wrong}\n---\n{}", right("before"), right("after"));
    let path = operator.file("three.yaml", &text);
    let (printed, result) = operator.run(&format!("apply -f {path}")).await;
    let stored = format!("location/before-{number} created\nlocation/after-{number} created\n");
    let Err(errors) = result else { return Some(format!("no error: {wrong}\n{printed}")) };
    let is_reported = printed == stored;
    let is_counted = errors.last().map(String::as_str) == Some("1 of 3 objects failed");
    let is_named = errors[0].starts_with(&format!("{path}:")) && errors[0].contains(expected);
    let is_short = errors.len() == 2 && errors[0].len() <= 700 && !errors[0].contains('\n');
    let is_right = is_reported && is_counted && is_named && is_short;
    (!is_right).then(|| format!("expected {expected:?}\n{wrong}\n{printed}{errors:#?}"))
}

#[tokio::test]
async fn each_object_that_the_server_refuses_is_named_and_those_around_it_are_stored() {
    let operator = Operator::start().await;
    let site = operator.file("site.yaml", SITE);
    operator.ok(&format!("apply -f {site}")).await;
    let machines = MACHINES.iter().enumerate().map(|(number, (rest, expected))| {
        (format!("kind: Hardware\nname: m-{number}\n{rest}"), *expected)
    });
    let objects = OBJECTS.iter().map(|(text, expected)| ((*text).to_owned(), *expected));
    let (mut problems, mut count) = (Vec::new(), 0);
    for (number, (text, expected)) in machines.chain(objects).enumerate() {
        let text = text
            .replace("mac: M", "mac: 02-00-00-00-01-07")
            .replace("{M:", "{'02:00:00:00:01:07':");
        problems.extend(find_problem(&operator, number, &text, expected).await);
        count += 1;
    }
    assert!(problems.is_empty(), "{} of {count}:\n{}", problems.len(), problems.join("\n\n"));
    let stored = operator.ok("location list -q").await;
    assert_eq!(stored.lines().count(), 1 + 2 * count);
    let machines = operator.ok("hardware list -o name").await;
    assert_eq!(machines.lines().count(), 4, "none of the wrong ones is stored: {machines}");
    operator.end().await;
}

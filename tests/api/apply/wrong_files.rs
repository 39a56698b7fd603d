//! Wrong files: position and cause in one line, and nothing is stored.

use super::Operator;

/// The fewest characters of an expected error after its position: fewer would be part of any error.
const MIN_TEXT: usize = 8;

/// A file, and its error after the name of the file.
const WRONG: &[(&str, &str)] = &[
    ("", ": no object in it"),
    ("# only a comment\n---\n", ": no object in it"),
    ("a: [", ":1: not YAML: did not find expected node content"),
    ("a: b: c", ":1: not YAML: mapping values are not allowed"),
    ("\tname: a", ":1: not YAML: found character that cannot start any token"),
    ("name: a\nname: b\ninterfaces: []", ":2: name is given twice"),
    ("just text", ":1: it is not an object: keys with values"),
    ("- 7", ":1: it is not an object: keys with values"),
    ("name: a", ":1: it has no kind: add `kind:` and one of Tenant"),
    ("kind: Hardwear\nname: a", ":1: kind \"Hardwear\" is none of"),
    ("kind: 7\nname: a\ninterfaces: []", ":1: its kind is not a text"),
    ("kind: Node\nname: a", ":1: kind \"Node\" is none of"),
    ("kind: Hardware\nnmae: a", ":2: nmae: unknown field: did you mean name?"),
    ("kind: Hardware\nname: a\nlocatoin: b", ":3: locatoin: unknown field: did you mean location"),
    ("kind: Hardware\nname: a\ncolour: red", ":3: colour: unknown field"),
    ("kind: Hardware\nname: 7", ":2: name: is 7, not a text: put it in quotes"),
    ("kind: Hardware\nname: true", ":2: name: is true, not a text: put it in quotes"),
    ("kind: Hardware\nname: [a]", ":2: name: is a list, not a text"),
    ("kind: Hardware\nname: {a: b}", ":2: name: is keys with values, not a text"),
    ("kind: Hardware\nname: a\nlabels: [a]", ":3: labels: is a list, not keys with values"),
    (
        "kind: Hardware\nname: a\nlabels:\n  rack: 7",
        ":4: labels.rack: is 7, not a text: put it in quotes",
    ),
    ("kind: Hardware\nname: a\nprotect: yes", ":3: protect: is \"yes\", not true or false"),
    ("kind: Hardware\nname: a\nprotect: 1", ":3: protect: is the number 1, not true or false"),
    (
        "kind: Hardware\nname: a\nstate: provisonable",
        ":3: state: is \"provisonable\", not one of enrolled, provisionable",
    ),
    ("kind: Hardware\nname: a\nstate: [failed]", ":3: state: is a list, not a word"),
    ("kind: Hardware\nname: a\ninterfaces: {}", ":3: interfaces: is keys with values, not a list"),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - mac",
        ":4: interfaces[0]: is \"mac\", not fields: mac",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - mac: a\n    dchp: {}",
        ":5: interfaces[0].dchp: unknown field: did you mean dhcp?",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - dhcp:\n      lease_time: 86400",
        ":5: interfaces[0].dhcp.lease_time: is 86400 without a unit",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - dhcp:\n      lease_time: a day",
        ":5: interfaces[0].dhcp.lease_time: is \"a day\", not a duration",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - dhcp:\n      lease_time: 1w",
        ":5: interfaces[0].dhcp.lease_time: is \"1w\", not a duration",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - dhcp: {address: 192.0.2.1/x}",
        ":4: interfaces[0].dhcp.address.address: is \"192.0.2.1/x\", not an address",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - dhcp: {address: 7}",
        ":4: interfaces[0].dhcp.address: is the number 7, not fields: address",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - dhcp: {mtu: -1}",
        ":4: interfaces[0].dhcp.mtu: is the number -1, not a whole number",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - dhcp: {mtu: 1.5}",
        ":4: interfaces[0].dhcp.mtu: is the number 1.5, not a whole number",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - dhcp: {mtu: 99999999999}",
        ":4: interfaces[0].dhcp.mtu: is the number 99999999999, not",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n  - dhcp: {name_servers: 192.0.2.1}",
        ":4: interfaces[0].dhcp.name_servers: is \"192.0.2.1\", not a list",
    ),
    (
        "kind: Hardware\nname: a\npolicy: {boot_method: cdrom}",
        ":3: policy.boot_method: is \"cdrom\", not one of network, virtual-media",
    ),
    (
        "kind: Hardware\nname: a\npolicy: virtual-media",
        ":3: policy: is \"virtual-media\", not fields: phone_home",
    ),
    ("kind: Hardware\nname: a\nextra: [1]", ":3: extra: is a list, not a text"),
    ("kind: Hardware\nname: a\nlocation: x\nlocation_id: x", ":4: location_id: is given twice"),
    (
        "kind: Hardware\nname: a\nlocation: nowhere",
        ":1: hardware/a: its location: location nowhere not found",
    ),
    ("kind: Hardware\nlabels: {a: b}", ":1: hardware: it has neither an id, nor a name, nor a MAC"),
    ("kind: Hardware\nname: bare", ":1: hardware/bare: interfaces: is empty"),
    (
        "kind: Location\nname: a\nzones: [a]",
        ":3: zones[0]: is \"a\", not fields: name, description",
    ),
    (
        "kind: Location\nname: a\ngeography: {latitude: north}",
        ":3: geography.latitude: is \"north\", not a number",
    ),
    (
        "kind: Model\nname: a\nconstraints: {memory_bytes: {min: 64GB}}",
        ":3: constraints.memory_bytes.min: is \"64GB\", not a whole number",
    ),
    ("kind: Template\nname: a\ndata: [x]", ":3: data: is a list, not a text"),
    ("kind: Template\nname: a\ndat: x", ":3: dat: unknown field: did you mean data?"),
    ("kind: Instance\nhostname: a", ":1: instance/a: without hardware_id it needs an external_id"),
    (
        "kind: Instance\nhardware: nosuch",
        ":1: instance/nosuch: its hardware: hardware nosuch not found",
    ),
    (
        "kind: Instance\nhardware: a\npower_management: off",
        ":3: power_management: is \"off\", not one of none",
    ),
    ("kind: Bmc\nusername: a", ":1: bmc: it has neither an id nor a machine"),
    (
        "kind: Bmc\nhardware: nosuch\nusername: a",
        ":1: bmc/nosuch: its hardware: hardware nosuch not found",
    ),
    ("kind: Subnet\nname: a\nhold: 10", ":3: hold: is 10 without a unit"),
    ("kind: Range\nname: a\nkind: dynamic", ":3: kind is given twice"),
    ("kind: Workflow\ntemplate: a", ":1: workflow: it has neither an id nor a name"),
    (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}",
        ":1: Deployment of apps/v1 is not a kind of Tinkerbell",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: WorkflowRuleSet\nmetadata: {name: a}",
        ":1: Tinkerbell's WorkflowRuleSet of v1alpha1 has no counterpart",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Hardware\nmetadata: {name: a}\nspec: {interfaces: [{dhcp: {ip: {address: 192.0.2.1, netmask: 255.0.255.0}}}]}",
        ":1: spec.interfaces[0]: dhcp.ip.netmask \"255.0.255.0\": not contiguous",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Hardware\nmetadata: {name: a}\nspec: {interfaces: [{dhcp: {vlan_id: red}}]}",
        ":1: spec.interfaces[0]: the VLAN \"red\" is not a number",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Template\nmetadata: {name: a}\nspec: {}",
        ":1: spec.data is empty: no template",
    ),
    (
        "apiVersion: bmc.tinkerbell.org/v1alpha1\nkind: Machine\nmetadata: {name: a}\nspec: {connection: {host: h, authSecretRef: {name: s}}}",
        ":1: the Secret \"s\" with its user name and password is not among the files",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Workflow\nmetadata: {name: a}\nspec: {bootOptions: {bootMode: isoboot}}",
        ":1: its boot mode isoboot is not one of a workflow here",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces: [{mac: x, netboot: {alow_pxe: true}}]",
        ":3: interfaces[0].netboot.alow_pxe: unknown field: did you mean allow_pxe?",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces: [{mac: x, netboot: {allow_pxe: 'yes'}}]",
        ":3: interfaces[0].netboot.allow_pxe: is \"yes\", not true or false",
    ),
    (
        "kind: Hardware\nname: a\ndisks: [/dev/sda]",
        ":3: disks[0]: is \"/dev/sda\", not fields: device",
    ),
    (
        "kind: Hardware\nname: a\nroot_disk: {choose: middle}",
        ":3: root_disk.choose: is \"middle\", not one of smallest, largest",
    ),
    (
        "kind: Hardware\nname: a\nroot_disk: {medium: sdd}",
        ":3: root_disk.medium: is \"sdd\", not one of",
    ),
    ("kind: Hardware\nname: a\nbonds: {name: bond0}", ":3: bonds: is keys with values, not a list"),
    (
        "kind: Hardware\nname: a\npolicy: {user_data_window: soon}",
        ":3: policy.user_data_window: is \"soon\", not a duration",
    ),
    (
        "kind: Hardware\nname: a\ninterfaces:\n- mac: a\n  dhcp: {address: {address: 192.0.2.1/24, prefix_length: 16}}",
        ":5: interfaces[0].dhcp.address.address: differs from prefix_length",
    ),
    (
        "kind: Hardware\nname: a\n? [x]\n: y",
        ":3: not YAML: invalid type: sequence, expected a string",
    ),
    (
        "kind: Hardware\nname: a\nfacilty: a\nplna: b\nmanufactrer: c\ncolour: d",
        ":3: facilty: unknown field: did you mean facility?; ",
    ),
    ("kind: [Hardware]\nname: a", ":1: its kind is not a text"),
    ("kind: Location\nname: a\nzone: [{name: b}]", ":3: zone: unknown field: did you mean zones?"),
    (
        "kind: Location\nname: a\ngeography: north",
        ":3: geography: is \"north\", not fields: country",
    ),
    (
        "kind: Model\nname: a\nconstraints: {disks: [{medium: tape}]}",
        ":3: constraints.disks[0].medium: is \"tape\", not one of",
    ),
    (
        "kind: Model\nname: a\nboot_silent_minutes: ten",
        ":3: boot_silent_minutes: is \"ten\", not a whole number",
    ),
    ("kind: Tenant\nname: a\nquota: 5", ":3: quota: unknown field"),
    ("kind: Subnet\nname: a\ncdir: 192.0.2.0/24", ":3: cdir: unknown field: did you mean cidr?"),
    (
        "kind: Subnet\nname: a\ntenant_quotas: {acme: five}",
        ":3: tenant_quotas.acme: is \"five\", not a whole number",
    ),
    ("kind: Subnet\nname: a\nexcluded: 192.0.2.1", ":3: excluded: is \"192.0.2.1\", not a list"),
    (
        "kind: Range\nname: a\nrange_kind: fixed",
        ":3: range_kind: is \"fixed\", not one of static, dynamic",
    ),
    ("kind: LocationBinding\nsubnet: a", ":2: subnet: unknown field"),
    (
        "kind: Stack\nname: a\ncontainers: [{nam: os}]",
        ":3: containers[0].nam: unknown field: did you mean name?",
    ),
    (
        "kind: Stack\nname: a\ncontainers: [{name: os, mount: {nsf: {}}}]",
        ":3: containers[0].mount.nsf: unknown field: did you mean nfs?",
    ),
    (
        "kind: Instance\nhardware: a\ntemplete: b",
        ":3: templete: unknown field: did you mean template",
    ),
    (
        "kind: Instance\nhardware: a\nssh_keys: ssh-ed25519",
        ":3: ssh_keys: is \"ssh-ed25519\", not a list",
    ),
    (
        "kind: Instance\nhardware: a\ntemplate_values: {img: 7}",
        ":3: template_values.img: is a number, not a text",
    ),
    (
        "kind: Instance\nhardware: a\nips: [192.0.2.1]",
        ":3: ips[0]: is \"192.0.2.1\", not fields: address",
    ),
    (
        "kind: Instance\nhardware: a\nips: [{address: 192.0.2.1/24, family: v5}]",
        ":3: ips[0].family: is \"v5\", not one of v4, v6",
    ),
    (
        "kind: Instance\nhardware: a\nreserve_only: x",
        ":3: reserve_only: is \"x\", not true or false",
    ),
    (
        "kind: Bmc\nhardware: a\nredfish: https://192.0.2.2",
        ":3: redfish: is \"https://192.0.2.2\", not fields: url",
    ),
    (
        "kind: Bmc\nhardware: a\nipmi: {host: a, port: ipmi}",
        ":3: ipmi.port: is \"ipmi\", not a whole number",
    ),
    ("kind: Bmc\nhardware: a\npasword: b", ":3: pasword: unknown field: did you mean password?"),
    ("kind: Template\nname: a\ntasks: []", ":3: tasks: unknown field"),
    (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}",
        ":1: ConfigMap of v1 is not a kind of Tinkerbell",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha3\nkind: Hardware\nmetadata: {name: a}",
        ":1: Tinkerbell's Hardware of v1alpha3 has no counterpart",
    ),
    (
        "apiVersion: bmc.tinkerbell.org/v1alpha1\nkind: Job\nmetadata: {name: a}",
        ":1: Tinkerbell's Job of v1alpha1 has no counterpart",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Hardware\nmetadata: {name: a}\nspec: {interfaces: [{dhcp: {lease_time: long}}]}",
        ":1: spec.interfaces[0]: spec.interfaces.0.dhcp.lease_time",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Hardware\nmetadata: {name: [a]}",
        ":1: metadata.name is not a text",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Workflow\nmetadata: {}\nspec: {templateRef: a}",
        ":1: metadata.name is empty",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha2\nkind: Workflow\nmetadata: {name: a}\nspec: {tasks: []}",
        ":1: it has 0 tasks: here a workflow is one template on one machine",
    ),
    (
        "apiVersion: tinkerbell.org/v1alpha2\nkind: Hardware\nmetadata: {name: a}\nspec: {bmc: {connection: {host: h, credentialsRef: {name: s}}}}",
        ":1: the Secret \"s\" with its user name",
    ),
    (
        r#"{"network": {"interfaces": [{"dhcp": {"lease_time": "long"}}]}}"#,
        ":1: hardware in Tinkerbell's JSON: network.interfaces[0]: lease_time is",
    ),
];

#[tokio::test]
async fn each_wrong_file_has_an_error_of_one_line_with_position_and_cause_and_nothing_is_stored() {
    let operator = Operator::start().await;
    let before = operator.ok("events -o json").await;
    let mut failures = Vec::new();
    for (text, expected) in WRONG {
        let cause = expected.trim_start_matches(|c: char| c.is_ascii_digit() || ": ".contains(c));
        assert!(cause.len() >= MIN_TEXT, "{text}: {expected:?} names no cause");
        let path = operator.file("a.yaml", text);
        let (printed, result) = operator.run(&format!("apply -f {path}")).await;
        let errors = result.err().unwrap_or_default();
        let is_right = match &errors[..] {
            [error] => {
                let rest = error.strip_prefix(path.as_str()).unwrap_or_default();
                rest.starts_with(expected) && error.len() <= 700
            }
            _ => false,
        };
        if !is_right || !printed.is_empty() {
            failures.push(format!("expected {expected:?}\n{text}\n{printed}{errors:#?}"));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n\n"));
    assert_eq!(operator.ok("events -o json").await, before, "nothing is stored");
    operator.end().await;
}

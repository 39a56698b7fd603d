//! Wrong files, and what `apply` says of each: in which line, what is wrong, what would be right, and that nothing was stored.

use clap::Parser as _;

use super::Program;
use super::apply::{Site, file};

/// A command line, and a part of its error.
const WRONG_LINES: &[(&str, &str)] = &[
    ("apply", "--file <FILE|FOLDER>"),
    ("aply -f a.yaml", "'apply'"),
    ("apply --fil a.yaml", "'--file'"),
    ("apply -f a.yaml -o yaml", "unexpected argument '-o'"),
    ("hardware list -o jsn", "did you mean json?"),
    ("hardware list -o jsonpath={.a[}", "invalid value 'jsonpath={.a[}' for '--output <OUTPUT>'"),
    ("hardware list -q -o name", "cannot be used with"),
    ("hardware list -l =a", "\"\" is no key of a label"),
    ("hardware list -l a=b=c", "\"b=c\" is no value of a label"),
    ("hardware list -l a=b,", "\"\" is no key of a label"),
    ("hardware list -l rack|in|(a", "a parenthesis is not closed"),
    ("hardware list -l rack|of|(a)", "is neither key in (a,b) nor key notin (a,b)"),
    ("hardware list --state provisonable", "'provisionable'"),
    ("hardware list --stat failed", "'--state'"),
    ("hardware lst", "'list'"),
    ("hardware delete", "<NAME|MAC|ADDRESS|ID>"),
    (
        "hardware set-state node-1 deleting",
        "possible values: enrolled, provisionable, failed, maintenance",
    ),
    ("instance list --state actve", "'active'"),
    ("instance wait node-1 --for gon", "'gone'"),
    ("workflow list --state runing", "'running'"),
    ("power jobs --state faild", "'failed'"),
    ("power boot node-1 pxee", "'pxe'"),
    ("power soft-off node-1 --limit 10", "\"10\" is no duration such as"),
    ("subnet create a 192.0.2.0/24 --hold 1w", "\"1w\" is no duration such as"),
    ("subnet create a 192.0.2.0/24 --quota many", "invalid value 'many' for '--quota <COUNT>'"),
    ("tenant create", "<NAME>"),
    ("location create a --position north", "is no position such as 67.86,20.23"),
    ("template create", "--file <FILE>"),
    ("instance create --hostname a", "--hardware"),
];

/// Bars stand for spaces in an argument.
#[test]
fn each_wrong_command_line_is_refused_with_what_would_be_right() {
    for (line, wanted) in WRONG_LINES {
        let words = line.split(' ').map(|word| word.replace('|', " "));
        let words = std::iter::once("tinwright".to_owned()).chain(words);
        let error = Program::try_parse_from(words).expect_err(line);
        let text = error.to_string();
        assert!(text.contains(wanted), "{line}\n{text}");
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

/// A file, and its error after the name of the file.
const WRONG: &[(&str, &str)] = &[
    ("", ": no object in it"),
    ("# only a comment\n---\n", ": no object in it"),
    ("a: [", ":"),
    ("a: b: c", ":1: not YAML:"),
    ("\tname: a", ":1: not YAML:"),
    ("name: a\nname: b\ninterfaces: []", ":2: name is given twice"),
    ("just text", ":1: it is no object: keys with values"),
    ("- 7", ":1: it is no object: keys with values"),
    ("name: a", ":1: it has no kind: add `kind:` and one of Tenant"),
    ("kind: Hardwear\nname: a", ":1: kind \"Hardwear\" is none of"),
    ("kind: 7\nname: a\ninterfaces: []", ":1: it has no kind"),
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
    ("kind: Hardware\nname: a\nlocation: nowhere", ":1: hardware/a: its location: nothing"),
    ("kind: Hardware\nlabels: {a: b}", ":1: hardware/"),
    ("kind: Hardware\nname: taken", ":1: hardware/taken: hardware.name: is taken"),
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
    ("kind: Instance\nhardware: nosuch", ":1: instance/nosuch: its hardware: nothing"),
    (
        "kind: Instance\nhardware: a\npower_management: off",
        ":3: power_management: is \"off\", not one of none",
    ),
    ("kind: Bmc\nusername: a", ":1: bmc/"),
    ("kind: Bmc\nhardware: nosuch\nusername: a", ":1: bmc/nosuch: its hardware: nothing"),
    ("kind: Subnet\nname: a\nhold: 10", ":3: hold: is 10 without a unit"),
    ("kind: Range\nname: a\nkind: dynamic", ":3: kind is given twice"),
    ("kind: Workflow\ntemplate: a", ":1: workflow/"),
    (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}",
        ":1: Deployment of apps/v1 is no kind of Tinkerbell",
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
        r#"{"network": {"interfaces": [{"dhcp": {"lease_time": "long"}}]}}"#,
        ":1: hardware in Tinkerbell's JSON: network.interfaces[0]: lease_time is",
    ),
];

#[tokio::test]
async fn each_wrong_file_has_one_line_that_says_where_and_what_and_nothing_is_stored() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    for (text, wanted) in WRONG {
        let path = file(folder.path(), "a.yaml", text);
        let (printed, result) = site.run(&format!("apply -f {path}")).await;
        let error = result.expect_err(text);
        let rest = error.strip_prefix(path.as_str()).unwrap_or_else(|| panic!("{text}: {error}"));
        assert!(rest.starts_with(wanted), "{text}\n{error}");
        assert!(error.lines().count() == 1 && error.len() <= 700, "{error}");
        assert_eq!((printed.as_str(), site.writes()), ("", 0), "{text}");
    }
}

#[tokio::test]
async fn a_wrong_file_beside_a_right_one_does_not_hide_what_was_stored() {
    let (site, folder) = (Site::default(), tempfile::tempdir().unwrap());
    file(folder.path(), "a.yaml", "name: [");
    file(folder.path(), "b.yaml", "kind: Hardware\nname: b\n");
    let (printed, result) = site.run(&format!("apply -f {}", folder.path().display())).await;
    assert_eq!((printed.as_str(), site.writes()), ("hardware/b created\n", 1));
    assert!(result.unwrap_err().ends_with("1 of 2 objects failed"));
    let (_, result) = site.run("apply -f /nonexistent/x.yaml").await;
    assert!(result.unwrap_err().starts_with("reading /nonexistent/x.yaml: "));
}

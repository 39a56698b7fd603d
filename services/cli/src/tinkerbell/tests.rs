//! Objects that have every field of Tinkerbell's field lists.
#![allow(clippy::unwrap_used)]

mod field_lists;
mod names;

use tinwright::hardware::v1::Hardware;
use tinwright::power::v1::Bmc;
use tinwright::power::v1::bmc::{Ipmi, Protocol, Redfish};
use tinwright::workflow::v1::{CreateWorkflowRequest, Template};

use super::*;
use crate::files::{Object, parse};

/// Returns the objects of ours in `text`, and what has no place in them.
fn converted(text: &str) -> Vec<(Value, Vec<String>)> {
    let objects = parse("a.yaml", text).unwrap();
    let values: Vec<_> = objects.iter().map(|object| &object.value).collect();
    let each = convert_all(&values).into_iter().flat_map(|it| match it.unwrap() {
        Conversion::Converted(all) => all,
        Conversion::Own => panic!("not Tinkerbell's"),
    });
    each.map(|it| (it.value, it.leftovers)).collect()
}

fn error(text: &str) -> String {
    let objects = parse("a.yaml", text).unwrap();
    let values: Vec<_> = objects.iter().map(|object| &object.value).collect();
    convert_all(&values).into_iter().find_map(Result::err).unwrap().to_string()
}

fn message<M: prost::Message + prost::Name + Default>(value: &Value) -> M {
    let object: Object = parse("a.yaml", &value.to_string()).unwrap().remove(0);
    object.message().unwrap()
}

const V1ALPHA1: &str = r##"
apiVersion: tinkerbell.org/v1alpha1
kind: Hardware
metadata: {name: node-7, namespace: tink, labels: {team: a}, uid: x, resourceVersion: "7", creationTimestamp: t}
spec:
  agentID: 02:00:00:00:00:07
  auto: {enrollmentEnabled: true}
  bmcRef: {apiGroup: bmc.tinkerbell.org, kind: Machine, name: bmc-7}
  interfaces:
    - netboot:
        allowPXE: true
        allowWorkflow: true
        ipxe: {url: http://192.0.2.1/a.ipxe, contents: "echo", binary: ipxe.efi}
        osie: {baseURL: http://192.0.2.1, kernel: k, initrd: i, kernelParams: [a=b]}
        pxelinux: {config: x}
        rpi: {serialNum: s}
      isoboot: {sourceISO: http://192.0.2.1/hook.iso}
      dhcp:
        mac: 02:00:00:00:00:07
        hostname: node-7
        domain_name: example.com
        lease_time: 86400
        name_servers: [192.0.2.53]
        time_servers: [192.0.2.123]
        arch: x86_64
        uefi: true
        iface_name: eno1
        ip: {address: 192.0.2.7, netmask: 255.255.255.0, gateway: 192.0.2.1, family: 4}
        vlan_id: "12"
        classless_static_routes: [{destination_descriptor: 10.0.0.0/8, router: 192.0.2.2}]
        tftp_server_name: t
        boot_file_name: b
      disableDhcp: false
    - dhcp: {mac: "02:00:00:00:00:08"}
  references: {lvm: {name: x, namespace: y, group: g, version: v, resource: r}}
  metadata:
    bonding_mode: 4
    facility: {facility_code: onprem, plan_slug: std-1}
    manufacturer: {slug: acme}
    instance: {id: i, hostname: h}
    state: in_use
  tinkVersion: 2
  disks: [{device: /dev/sda}]
  resources: {cpu: "4"}
  userData: "#cloud-config"
  vendorData: v
status: {state: s, attributes: {outOfBand: {cpu: {}}}}
"##;

#[test]
fn hardware_of_v1alpha1_is_taken_and_what_is_left_is_named() {
    let (value, leftovers) = converted(V1ALPHA1).remove(0);
    let hardware: Hardware = message(&value);
    assert_eq!(
        (hardware.name.as_str(), hardware.agent_id.as_str()),
        ("node-7", "02:00:00:00:00:07")
    );
    assert_eq!((hardware.facility.as_str(), hardware.plan.as_str()), ("onprem", "std-1"));
    assert_eq!(
        (hardware.architecture.as_str(), hardware.manufacturer.as_str()),
        ("x86_64", "acme")
    );
    assert_eq!(
        (hardware.bonds[0].mode.as_str(), hardware.interfaces[1].bond.as_str()),
        ("802.3ad", "bond0")
    );
    assert_eq!(hardware.disks[0].device, "/dev/sda");
    assert_eq!(hardware.policy.unwrap().boot_image_url, "http://192.0.2.1/hook.iso");
    let interface = &hardware.interfaces[0];
    let dhcp = interface.dhcp.as_ref().unwrap();
    let address = dhcp.address.as_ref().unwrap();
    assert_eq!(
        (address.address.as_str(), address.prefix_length, address.gateway.as_str()),
        ("192.0.2.7", 24, "192.0.2.1")
    );
    assert_eq!((dhcp.lease_time.unwrap().seconds, dhcp.vlan_id), (86_400, 12));
    assert_eq!(dhcp.classless_routes[0].destination, "10.0.0.0/8");
    assert_eq!((dhcp.tftp_server_name.as_str(), dhcp.boot_file_name.as_str()), ("t", "b"));
    let netboot = interface.netboot.as_ref().unwrap();
    assert!(netboot.allow_pxe && netboot.allow_workflow);
    assert_eq!(netboot.osie.as_ref().unwrap().kernel_params, ["a=b"]);
    let wanted = [
        "metadata.namespace",
        "spec.auto.enrollmentEnabled",
        "spec.bmcRef.apiGroup",
        "spec.bmcRef.kind",
        "spec.bmcRef.name",
        "spec.interfaces[0].netboot.ipxe.contents",
        "spec.interfaces[0].netboot.pxelinux.config",
        "spec.interfaces[0].netboot.rpi.serialNum",
        "spec.interfaces[0].dhcp.uefi",
        "spec.references",
        "spec.metadata.instance",
        "spec.metadata.state",
        "spec.tinkVersion",
        "spec.resources",
        "spec.userData",
        "spec.vendorData",
        "status",
    ];
    assert_eq!(leftovers, wanted);
}

#[test]
fn hardware_of_v1alpha2_is_a_machine_and_its_bmc() {
    let text = r##"
apiVersion: v1
kind: Secret
metadata: {name: s}
data: {username: YWRtaW4=, password: c2VjcmV0}
---
apiVersion: tinkerbell.org/v1alpha2
kind: Hardware
metadata: {name: node-8}
spec:
  attributes: {arch: aarch64, uefi: true}
  bmc: {bootMode: UEFI, connection: {host: 192.0.2.80, authSecretRef: {name: s, namespace: n}, insecureTLS: true}}
  instance: {lookupID: l, userdata: u, sshKeys: [k]}
  networkInterfaces:
    02:00:00:00:00:08:
      dhcp:
        v4:
          hostname: node-8
          leaseTimeSeconds: 3600
          nameservers: [192.0.2.53]
          ntpServers: [192.0.2.123]
          vlanID: "3"
          domainSearchList: [a.example]
          classlessStaticRoutes: [{destinationDescriptor: 10.0.0.0/8, router: 192.0.2.2}]
        v6: {disabled: true}
      ipam: {ipv4: {address: 192.0.2.8, gateway: 192.0.2.1, prefix: "24"}, ipv6: {address: "2001:db8::8", prefix: "64"}}
      netboot: {disabled: false, ipxe: {script: "#!ipxe"}}
  storageDevices: [{name: /dev/nvme0n1}]
"##;
    let all = converted(text);
    assert_eq!(all.len(), 2);
    let (hardware, bmc): (Hardware, Bmc) = (message(&all[0].0), message(&all[1].0));
    assert_eq!(
        (hardware.architecture.as_str(), hardware.disks[0].device.as_str()),
        ("aarch64", "/dev/nvme0n1")
    );
    let interface = &hardware.interfaces[0];
    assert_eq!(interface.mac, "02:00:00:00:00:08");
    let dhcp = interface.dhcp.as_ref().unwrap();
    assert_eq!(dhcp.address.as_ref().unwrap().prefix_length, 24);
    assert_eq!(
        (dhcp.lease_time.unwrap().seconds, dhcp.vlan_id, dhcp.classless_routes.len()),
        (3600, 3, 1)
    );
    let netboot = interface.netboot.as_ref().unwrap();
    assert_eq!(
        (netboot.allow_pxe, netboot.ipxe.as_ref().unwrap().contents.as_str()),
        (true, "#!ipxe")
    );
    assert_eq!(
        (bmc.username.as_str(), bmc.password.as_str(), bmc.hardware_id.as_str()),
        ("admin", "secret", "node-8")
    );
    let redfish = Redfish { url: "https://192.0.2.80".into(), ..Redfish::default() };
    assert_eq!(bmc.protocol, Some(Protocol::Redfish(redfish)));
    let wanted = [
        "spec.attributes.uefi",
        "spec.bmc.bootMode",
        "spec.bmc.connection.authSecretRef.namespace",
        "spec.bmc.connection.insecureTLS",
        "spec.instance.lookupID",
        "spec.instance.userdata",
        "spec.instance.sshKeys",
        "spec.networkInterfaces.02:00:00:00:00:08.dhcp.v4.domainSearchList",
        "spec.networkInterfaces.02:00:00:00:00:08.dhcp.v6.disabled",
        "spec.networkInterfaces.02:00:00:00:00:08.ipam.ipv6.address",
        "spec.networkInterfaces.02:00:00:00:00:08.ipam.ipv6.prefix",
    ];
    assert_eq!(all[0].1, wanted);
}

#[test]
fn secrets_of_one_name_in_two_namespaces_are_refused() {
    let secret = |namespace: &str| {
        format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s, namespace: {namespace}}}\nstringData: {{username: a, password: {namespace}}}\n"
        )
    };
    let machine = "---\napiVersion: bmc.tinkerbell.org/v1alpha1\nkind: Machine\nmetadata: {name: b}\nspec: {connection: {host: 192.0.2.70, authSecretRef: {name: s}}}\n";
    assert_eq!(
        error(&[secret("one"), secret("two"), machine.into()].concat()),
        "the files have different objects for the Secret \"s\": apply one namespace at a time"
    );
    assert_eq!(converted(&[secret("one"), secret("one"), machine.into()].concat()).len(), 1);
}

#[test]
fn a_machine_of_rufio_is_the_bmc_of_the_hardware_that_names_it() {
    let text = format!(
        r##"{V1ALPHA1}---
apiVersion: v1
kind: Secret
metadata: {{name: s}}
stringData: {{username: admin, password: secret}}
---
apiVersion: bmc.tinkerbell.org/v1alpha1
kind: Machine
metadata: {{name: bmc-7}}
spec:
  connection:
    host: 192.0.2.70
    port: 623
    authSecretRef: {{name: s, namespace: n}}
    insecureTLS: true
    providerOptions:
      preferredOrder: [ipmitool]
      ipmitool: {{port: 6230, cipherSuite: "17"}}
      redfish: {{useBasicAuth: true}}
      intelAMT: {{port: 16992, hostScheme: http}}
status: {{powerState: "on"}}
"##
    );
    let all = converted(&text);
    let bmc: Bmc = message(&all[1].0);
    assert_eq!(bmc.hardware_id, "node-7");
    let ipmi = Ipmi { host: "192.0.2.70".into(), port: 6230, cipher_suite: 17 };
    assert_eq!(bmc.protocol, Some(Protocol::Ipmi(ipmi)));
    let wanted = [
        "spec.connection.port",
        "spec.connection.authSecretRef.namespace",
        "spec.connection.insecureTLS",
        "spec.connection.providerOptions.redfish.useBasicAuth",
        "spec.connection.providerOptions.intelAMT.port",
        "spec.connection.providerOptions.intelAMT.hostScheme",
        "status",
    ];
    assert_eq!(all[1].1, wanted);
    assert!(
        !all[0].1.iter().any(|path| path.starts_with("spec.bmcRef")),
        "the BMC names its machine"
    );
    let alone = "apiVersion: bmc.tinkerbell.org/v1alpha1\nkind: Machine\nmetadata: {name: a}\nspec: {connection: {host: h, authSecretRef: {name: s}}}\n";
    assert_eq!(
        error(alone),
        "the Secret \"s\" with its user name and password is not among the files"
    );
}

#[test]
fn templates_and_tasks_become_templates() {
    let template = "apiVersion: tinkerbell.org/v1alpha1\nkind: Template\nmetadata: {name: debian}\nspec: {data: \"tasks: []\"}\n";
    let (value, leftovers) = converted(template).remove(0);
    let template: Template = message(&value);
    assert_eq!((template.name.as_str(), template.data.as_str()), ("debian", "tasks: []"));
    assert!(leftovers.is_empty());
    let task = r##"
apiVersion: tinkerbell.org/v1alpha2
kind: Task
metadata: {name: wipe}
spec:
  actions:
    - {name: a, if: "{{ .x }}", image: wipe, command: /bin/wipe, args: [-f], env: {A: b}, retries: 2, timeoutSeconds: 60, background: true, namespaces: {network: host, pid: host}}
  env: {C: d}
  references: {x: {name: y}}
"##;
    let (value, leftovers) = converted(task).remove(0);
    let data: Value = yaml_serde::from_str(&message::<Template>(&value).data).unwrap();
    let action = &data["tasks"][0]["actions"][0];
    assert_eq!(action["command"], json!(["/bin/wipe", "-f"]));
    assert_eq!(
        (&action["retries"], &action["timeout"], &action["if"]),
        (&json!(2), &json!(60), &json!("{{ .x }}"))
    );
    assert_eq!(data["tasks"][0]["environment"], json!({"C": "d"}));
    assert_eq!(leftovers, ["spec.actions[0].namespaces.network", "spec.references"]);
}

#[test]
fn a_workflow_is_an_order_for_one_that_has_not_run() {
    let workflow = |rest: &str| {
        format!(
            "apiVersion: tinkerbell.org/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  templateRef: debian\n  hardwareRef: node-7\n  hardwareMap: {{device_1: a}}\n{rest}"
        )
    };
    let (value, leftovers) = converted(&workflow(
        "  bootOptions: {bootMode: netboot, toggleAllowNetboot: true, isoURL: u}\n",
    ))
    .remove(0);
    assert_eq!(leftovers, ["spec.bootOptions.toggleAllowNetboot", "spec.bootOptions.isoURL"]);
    let object = parse("a.yaml", &value.to_string()).unwrap().remove(0).without(&["name"]);
    let order: CreateWorkflowRequest = object.message().unwrap();
    assert_eq!((order.template_id.as_str(), order.hardware_id.as_str()), ("debian", "node-7"));
    assert_eq!((order.values["device_1"].as_str(), order.labels[LABEL].as_str()), ("a", "w"));
    let ended = |rest: &str| converted(&workflow(rest)).remove(0).0.get("ended").cloned();
    assert_eq!(ended("status: {state: SUCCESS}\n"), Some(json!("success")));
    assert_eq!(ended("  disabled: true\n"), Some(json!("disabled")));
    assert_eq!(ended("status: {state: PENDING}\n"), None);
    let custom = error(&workflow("  bootOptions: {bootMode: customboot}\n"));
    assert!(custom.starts_with("its boot mode customboot is not one"), "{custom}");
    let two = "apiVersion: tinkerbell.org/v1alpha2\nkind: Workflow\nmetadata: {name: w}\nspec: {tasks: [{taskRef: a}, {taskRef: b}]}\n";
    assert_eq!(error(two), "it has 2 tasks: here a workflow is one template on one machine");
}

#[test]
fn kinds_without_a_counterpart_are_refused() {
    let rules = "apiVersion: tinkerbell.org/v1alpha1\nkind: WorkflowRuleSet\nmetadata: {name: a}\n";
    assert_eq!(
        error(rules),
        "Tinkerbell's WorkflowRuleSet of v1alpha1 has no counterpart here, use enrolment and models (`tinwright hardware accept`): docs/migration-tinkerbell.md"
    );
    let job = "apiVersion: bmc.tinkerbell.org/v1alpha1\nkind: Job\nmetadata: {name: a}\n";
    assert!(error(job).contains(", use power jobs (`tinwright power`): docs/"), "{}", error(job));
    assert!(
        error("apiVersion: apps/v1\nkind: Deployment\n")
            .starts_with("Deployment of apps/v1 is not a kind")
    );
}

#[test]
fn pushed_json_becomes_hardware_in_the_same_way() {
    let text = r##"{"id": "", "network": {"interfaces": [{"dhcp": {"mac": "02:00:00:00:00:01", "hostname": "node-1.example.com", "uefi": true}}]}}"##;
    let (value, leftovers) = converted(text).remove(0);
    assert_eq!(message::<Hardware>(&value).name, "node-1");
    assert_eq!(leftovers, ["network.interfaces[0].dhcp.uefi"]);
}

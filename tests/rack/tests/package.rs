//! The Debian package on a Debian machine with systemd: a former version is installed and upgraded with its data, removed and purged. Then the
//! programs of the tarball become a service.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "package/former.rs"]
mod former;
#[path = "package/machine.rs"]
mod machine;

use std::path::Path;
use std::time::Duration;

use former::Former;
use machine::{FILES, Machine};
use rack::lab::{Lab, wait};
use serde_json::Value;
use setup::package::{Contents, VERSION};

/// A template that the former version accepts.
const TEMPLATE: &str = r#"version: "0.1"
name: restart
tasks:
  - name: restart
    worker: "{{.device_1}}"
    actions:
      - name: restart
        image: reboot
        timeout: 60
"#;
/// Maximum time until the server answers, without KVM.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// Packs both versions, the new one also as a tarball, and the files for the former version, into `folder`. Returns the former version.
fn pack(former: &Former, folder: &Path) -> String {
    std::fs::create_dir(folder).unwrap();
    let new = Contents::built().unwrap();
    new.debian(folder).unwrap();
    new.tarball(folder).unwrap();
    // It sorts before the new version.
    let version = format!("{VERSION}~1");
    let old = Contents { programs: former.programs.clone(), version: version.clone(), ..new };
    old.debian(folder).unwrap();
    std::fs::copy(&former.hardware, folder.join("hardware.yaml")).unwrap();
    std::fs::write(folder.join("template.yaml"), TEMPLATE).unwrap();
    version
}

impl Machine {
    /// Runs `line`, which has to succeed. Returns what it prints, without the last line's end.
    fn sh(&mut self, line: &str) -> String {
        println!("{line}");
        self.run(line).unwrap().trim_end().to_owned()
    }

    /// Returns the objects that `tinwright` lists, as pairs of id and name, in their order.
    fn list(&mut self, line: &str) -> Vec<(String, String)> {
        let text = self.sh(&format!("tinwright {line} list -o json"));
        let list: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let text = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let objects = list.as_array().unwrap().iter();
        let mut pairs: Vec<_> = objects.map(|it| (text(it, "id"), text(it, "name"))).collect();
        pairs.sort();
        pairs
    }

    fn install(&mut self, version: &str) {
        self.sh(&format!(
            "DEBIAN_FRONTEND=noninteractive dpkg -i {FILES}/tinwright_{version}_amd64.deb"
        ));
        assert_eq!(self.sh("dpkg-query -W -f \\${Version} tinwright"), version);
    }

    /// Waits until the service's server answers.
    fn wait_for_server(&mut self) {
        let started =
            wait("the server", START_TIMEOUT, || self.run("tinwright hardware list").ok());
        if started.is_err() {
            let answer = self.run("tinwright hardware list");
            let journal = self.run("journalctl --output cat --lines 60 --unit tinwright");
            panic!("the server does not answer: {answer:?}\n{}", journal.unwrap());
        }
    }

    /// Waits until the service's server answers. Returns the SHA-256 of its program.
    fn serving(&mut self) -> String {
        self.wait_for_server();
        assert_eq!(self.sh("systemctl is-enabled tinwright"), "enabled");
        let process = self.sh("systemctl show -P MainPID tinwright");
        assert_eq!(self.sh(&format!("ps -o user= -p {process}")), "tinwright");
        let digest = self.sh(&format!("sha256sum </proc/{process}/exe"));
        assert_eq!(digest, self.sh("sha256sum </usr/bin/tinwright"), "the installed program runs");
        digest
    }

    fn exists(&mut self, path: &str) -> bool {
        self.sh(&format!("test -e {path} && echo there || echo absent")) == "there"
    }
}

/// The objects of a site.
#[derive(Debug, PartialEq, Eq)]
struct Site {
    hardware: Vec<(String, String)>,
    templates: Vec<(String, String)>,
}

impl Site {
    fn of(machine: &mut Machine) -> Self {
        Self { hardware: machine.list("hardware"), templates: machine.list("template") }
    }

    /// Creates objects, a certificate, and a setting of the administrator.
    fn create(machine: &mut Machine) -> Self {
        machine.sh(&format!("tinwright hardware create -f {FILES}/hardware.yaml"));
        machine.sh(&format!("tinwright template create -f {FILES}/template.yaml"));
        let issue = "tinwright identity issue --role operator --subject person:anna";
        let context = "tinwright context add anna --server https://127.0.0.1:42113";
        let files = "--ca anna-ca.pem --certificate anna.pem --key anna-key.pem";
        machine.sh(&format!("cd /root && {issue} --out anna && {context} {files}"));
        machine.sh("echo 'log_format = \"json\"' >>/etc/tinwright/tinwright.toml");
        machine.sh("systemctl restart tinwright");
        machine.serving();
        let site = Self::of(machine);
        assert_eq!((site.hardware.len(), site.templates.len()), (2, 1), "{site:?}");
        site
    }

    /// Checks that everything is there.
    fn check(&self, machine: &mut Machine) {
        assert_eq!(Self::of(machine), *self);
        assert!(machine.sh("tinwright identity list").contains("person:anna"));
        let seen = machine.sh("tinwright hardware list --context anna -o json");
        assert!(self.hardware.iter().all(|(id, _)| seen.contains(id)), "{seen}");
        assert!(machine.sh("cat /etc/tinwright/tinwright.toml").ends_with("log_format = \"json\""));
        let last = machine.sh("journalctl --output cat --lines 1 _SYSTEMD_UNIT=tinwright.service");
        assert!(last.starts_with('{'), "the administrator's setting is in force: {last}");
    }
}

/// Has the server boot machines from an interface for a moment: the unit gives it the capabilities for that.
fn serve_machines(machine: &mut Machine) {
    let settings = "/etc/tinwright/tinwright.toml";
    // The recommended package with loaders is not installed here.
    machine.sh("mkdir -p /usr/lib/ipxe && ip link add eth1 type dummy");
    machine.sh("ip address add 198.51.100.1/24 dev eth1 && ip link set eth1 up");
    for key in ["netboot_interface", "metadata_link_local"] {
        machine.sh(&format!("echo '{key} = \"eth1\"' >>{settings}"));
    }
    machine.sh("systemctl restart tinwright");
    machine.serving();
    let sockets = machine.sh("ss -Huln");
    for socket in ["0.0.0.0%eth1:67", "198.51.100.1:69", "198.51.100.1:514"] {
        assert!(sockets.contains(&format!(" {socket} ")), "{socket}: {sockets}");
    }
    assert!(machine.sh("ip address show eth1").contains(" 169.254.169.254/32 "));
    let log = machine.sh("journalctl -o cat _PID=$(systemctl show -P MainPID tinwright)");
    assert!(log.contains("ready") && !log.contains("CAP_"), "{log}");
    machine
        .sh(&format!("sed -i '/^[a-z_]* = \"eth1\"/d' {settings} && systemctl restart tinwright"));
    machine.sh("ip link delete eth1");
    machine.serving();
}

/// Removes the package: the service ends, settings and data stay. Purges it: the data stays, since nobody agreed to its deletion.
fn remove_and_purge(machine: &mut Machine) {
    machine.sh("dpkg --remove tinwright");
    let state = machine.sh("systemctl is-active tinwright || true");
    assert!(state != "active" && !machine.exists("/usr/bin/tinwright"), "{state}");
    assert!(machine.exists("/etc/tinwright/tinwright.toml"));
    assert!(machine.exists("/var/lib/tinwright/store"));
    let output = machine.sh("DEBIAN_FRONTEND=noninteractive dpkg --purge tinwright");
    assert!(output.contains("/var/lib/tinwright is kept"), "{output}");
    assert!(!machine.exists("/etc/tinwright/tinwright.toml"));
    assert!(machine.exists("/var/lib/tinwright/secrets/site.key"));
}

/// Purges the package after the administrator has agreed to the deletion of the data.
fn purge_with_data(machine: &mut Machine) {
    machine.sh("echo tinwright tinwright/purge-data boolean true | debconf-set-selections");
    machine.sh("DEBIAN_FRONTEND=noninteractive dpkg --purge tinwright");
    assert!(!machine.exists("/var/lib/tinwright"));
    assert!(!machine.exists("/etc/tinwright"));
    assert_eq!(machine.sh("systemctl is-active tinwright || true"), "inactive");
}

/// Makes the programs of the tarball a service, twice.
fn install_service(machine: &mut Machine) {
    machine.sh(&format!("tar -xf {FILES}/tinwright-{VERSION}-linux-amd64.tar.gz -C /opt"));
    machine.sh(&format!(
        "cp -r /opt/tinwright-{VERSION}/bin /opt/tinwright-{VERSION}/share /usr/local"
    ));
    let (unit, settings) =
        ("/etc/systemd/system/tinwright.service", "/etc/tinwright/tinwright.toml");
    let first = machine.sh("tinwright install-service --user bare");
    let created = format!(
        "user bare created\n{settings} created\n{unit} created\nnext: systemctl enable --now tinwright"
    );
    assert_eq!(first, created);
    machine.sh("systemctl enable --now tinwright");
    machine.wait_for_server();
    assert_eq!(machine.sh("stat -c %U /var/lib/tinwright/store"), "bare");
    let again = machine.sh("tinwright install-service --user bare");
    let unchanged = first.replace("created", "unchanged");
    let (unchanged, _) = unchanged.rsplit_once('\n').unwrap();
    assert_eq!(again, format!("{unchanged}\nthe server runs: systemctl status tinwright"));
}

#[test]
#[ignore = "long: cargo rack test --long"]
fn a_package_is_installed_upgraded_with_its_data_and_removed_and_the_tarball_becomes_a_service() {
    let former = former::build().unwrap();
    let mut lab = Lab::new().unwrap();
    let files = lab.path("files");
    let former = pack(&former, &files);
    let mut machine = Machine::boot(&mut lab, &files).unwrap();
    let machine = &mut machine;

    machine.install(&former);
    let old_program = machine.serving();
    let site = Site::create(machine);

    machine.install(VERSION);
    assert_ne!(machine.serving(), old_program, "the new program runs");
    site.check(machine);
    let output = machine.sh("tinwright install-service");
    assert!(output.contains("unchanged: the Debian package has installed it"), "{output}");

    machine.restart(&mut lab).unwrap();
    machine.serving();
    site.check(machine);

    serve_machines(machine);
    remove_and_purge(machine);
    machine.install(VERSION);
    machine.serving();
    assert_eq!(Site::of(machine), site, "the data was kept");
    purge_with_data(machine);
    install_service(machine);
}

//! The first screen of README.md: its lines, typed at a terminal one after another, lead from the tarball to a shell on the installed machine.
//!
//! ```text
//! network namespace of the lab ── br0
//!    ├─ operator   198.51.100.1 on eth1: the terminal, and the server that the lines start
//!    ├─ BMC        198.51.100.2
//!    └─ node-1     the machine of docs/examples/node-1.yaml, with UEFI and an empty disk
//! ```
//!
//! Of the Internet there is the publisher of the image only, emulated on the operator's host. The files in the lines are those of the tarball.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use rack::SERVER;
use rack::bmc::Redfish;
use rack::client::Client;
use rack::lab::Lab;
use rack::machines::{Firmware, Hypervisor, Machine};
use rack::provision::{image, images};
use rack::publisher::Publisher;
use rack::terminal::Terminal;
use setup::package::Contents;
use setup::pages::{Block, typed};
use setup::run;

/// The address of the BMC in the lines.
const BMC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The longest time of a line that installs nothing.
const LINE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The longest time of an installation.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// The longest time until a program asks or answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3 * 60);

/// The hosts of the lab, and the machine.
struct Site {
    machine: Machine,
    hypervisor: Hypervisor,
    publisher: Publisher,
    operator: Client,
    _bmc: Client,
    lab: Lab,
}

impl Site {
    fn start() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "run this as root: it creates network namespaces"
        );
        let images = images().unwrap();
        let image = image(&images, Firmware::Uefi).unwrap();
        let mut lab = Lab::new().unwrap();
        // The server is on another host, and adds the metadata address itself.
        lab.ip("addr flush dev br0").unwrap();
        let operator = Client::new(&lab, 1, "52:54:00:00:02:01").unwrap();
        for line in ["link set eth0 down", "link set eth0 name eth1", "link set eth1 up"] {
            operator.ip(line).unwrap();
        }
        operator.ip(&format!("addr add {SERVER}/24 dev eth1")).unwrap();
        let bmc = Client::new(&lab, 2, "52:54:00:00:02:02").unwrap();
        bmc.ip(&format!("addr add {BMC}/24 dev eth0")).unwrap();
        let hypervisor = Hypervisor::start(&mut lab).unwrap();
        let machine = Machine::new(&lab, 1, Firmware::Uefi).unwrap();
        // The record of node-1 names /dev/sda.
        let machine = machine.with_scsi_disk(&lab, 2, true).unwrap();
        hypervisor.define(&lab, &machine).unwrap();
        Redfish::start_on(&mut lab, &hypervisor, &bmc, BMC).unwrap();
        let publisher = Publisher::start(&mut lab, &operator, &images.join(image.name)).unwrap();
        Self { machine, hypervisor, publisher, operator, _bmc: bmc, lab }
    }

    /// Opens a terminal on the operator's host, which has directories of its own, the tarball, and an SSH key. Kernel packages are cached there: it
    /// does not reach Debian's mirror.
    fn terminal(&self) -> Terminal {
        let home = self.lab.path("root");
        std::fs::create_dir_all(home.join(".ssh")).unwrap();
        run(Command::new("chmod").args(["-R", "go="]).arg(&home)).unwrap();
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(home.join(".ssh/id_ed25519"));
        run(&mut keygen).unwrap();
        Contents::built().unwrap().tarball(&home).unwrap();
        let mut mounts = vec![
            (self.publisher.hosts.clone(), "/etc/hosts"),
            (self.publisher.authorities.clone(), "/etc/ssl/certs/ca-certificates.crt"),
            (setup::root().join("target/peers/kernel"), "/var/cache/tinwright"),
            (home, "/root"),
        ];
        for (name, place) in
            [("srv", "/srv"), ("local", "/usr/local"), ("data", "/var/lib/tinwright")]
        {
            std::fs::create_dir(self.lab.path(name)).unwrap();
            mounts.push((self.lab.path(name), place));
        }
        let mounts = mounts.iter().map(|(from, place)| {
            let is_folder =
                if from.is_dir() { format!("mkdir -p {place}; ") } else { String::new() };
            format!("{is_folder}mount --bind {} {place}\n", from.display())
        });
        // The emulated publisher is at a loopback address, from which nothing is downloaded otherwise.
        let variables = "TINWRIGHT_IMAGES_ALLOW_NETWORKS=127.0.0.0/8";
        let mounts = mounts.collect::<String>();
        Terminal::start(&self.lab, &self.operator, variables, &mounts).unwrap()
    }
}

/// Types `line`, and the password if it is asked for. Waits until the line has succeeded.
fn type_line(terminal: &mut Terminal, line: &str) {
    terminal.type_line(line).unwrap();
    if line.contains("bmc create") {
        terminal.wait_for("assword", ANSWER_TIMEOUT).unwrap();
        terminal.type_line("unused").unwrap();
    }
    let timeout = if line.contains(" --wait") { INSTALL_TIMEOUT } else { LINE_TIMEOUT };
    println!("{line}: {}", terminal.wait_for_prompt(timeout).unwrap());
}

/// Types `line`, which logs in to the installed machine. Accepts its host key, and reads user, host name and system there.
fn log_in(terminal: &mut Terminal, line: &str) {
    terminal.type_line(line).unwrap();
    terminal.wait_for("(yes/no", ANSWER_TIMEOUT).unwrap();
    terminal.type_line("yes").unwrap();
    terminal.wait_for("debian@node-1:~$ ", ANSWER_TIMEOUT).unwrap();
    let question =
        "echo user=$(id -un) host=$(hostname) system=$(. /etc/os-release; echo $ID-$VERSION_ID)";
    terminal.type_line(question).unwrap();
    terminal.wait_for("user=debian host=node-1 system=debian-12", ANSWER_TIMEOUT).unwrap();
    terminal.run("exit", ANSWER_TIMEOUT).unwrap();
}

/// Builds an environment with the kernel of the lines, and drops it: the kernel's package is cached.
fn cache_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let mut build = Command::new(setup::program("tinwright"));
    build.args(["osie", "build", "--worker", "/bin/busybox", "--output"]).arg(folder.path());
    build.arg("--cache").arg(setup::root().join("target/peers/kernel"));
    run(build.stdout(Stdio::null())).unwrap();
}

#[test]
fn the_first_screen_leads_from_the_tarball_to_a_shell_on_the_installed_machine() {
    cache_kernel();
    let lines: Vec<_> = typed("README.md", "Tinwright").iter().flat_map(Block::commands).collect();
    let (last, lines) = lines.split_last().unwrap();
    let site = Site::start();
    assert!(!site.hypervisor.is_on(&site.machine).unwrap(), "powered off at first");
    let mut terminal = site.terminal();
    for line in lines {
        let begun = site.lab.log("terminal");
        assert!(!begun.contains("WARN"), "nothing is wrong before the installation: {begun}");
        type_line(&mut terminal, line);
    }
    log_in(&mut terminal, last);
    let instances = terminal.run("tinwright instance list", LINE_TIMEOUT).unwrap();
    assert!(instances.contains("active"), "{instances}");
    // The server is the only job of the shell.
    terminal.run("kill %1 && wait %1", LINE_TIMEOUT).unwrap();
    assert!(site.lab.log("terminal").contains("tinwright: stopped"), "an orderly stop");
}

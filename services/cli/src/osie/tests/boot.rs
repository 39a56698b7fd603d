//! A virtual machine boots the image with Debian's kernel, in a network namespace of the test.
//!
//! It has two network cards, and only the second has a cable. Worker and node agent are scripts that print what they find, and end.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::{Flavour, build};

const MAC: &str = "52:54:00:00:00:11";

/// Timeout of the whole boot under emulation; long enough for a busy host.
const BOOT_TIMEOUT: Duration = Duration::from_secs(600);

const WORKER: &str = r#"#!/bin/sh
say() { echo "worker: $*"; }
say address $(ip -4 -o addr show | grep -v ' lo ')
say route $(ip route show default)
say hostname $(hostname), $(cat /etc/resolv.conf)
say mtu $(cat /sys/class/net/*/mtu)
mkdir -p /mnt && mount -t ext4 -o ro /dev/vda /mnt && say mounted $(cat /mnt/marker)
umount /mnt
truncate -s 16M /tmp/new && mkfs.ext4 -q /tmp/new && say formatted $(dd if=/tmp/new bs=1 skip=1080 count=2 | od -An -tx1)
say file systems $(cat /proc/filesystems)
say device mapper $(modprobe dm-mod && grep device-mapper /proc/misc)
say trusts $(grep -c BEGIN /etc/ssl/certs/ca-certificates.crt) authorities
exit 3
"#;

/// A line is printed for each fact; the last line follows when all programs of a node run.
const NODE_AGENT: &str = r#"#!/bin/sh
say() { echo "agent: $*"; }
say "flags [$*]"
say address $(ip -4 -o addr show | grep -v ' lo ')
say root $(grep ' / ' /proc/mounts), control groups $(cat /sys/fs/cgroup/cgroup.controllers)
mkdir -p /tmp/image && unshare -m sh -c 'mount -t tmpfs image /tmp/image && cd /tmp/image && mkdir old && pivot_root . old && echo "agent: pivoted"'
say transports $(ls /sys/class/iscsi_transport), rbd $(ls /sys/bus/rbd | grep -x add)
for type in nfs squashfs overlay erofs ext4 xfs; do grep -qw $type /proc/filesystems || say without $type; done
say elevators $(modprobe -a bfq kyber-iosched && echo loaded)
until iscsiadm -m iface >/dev/null 2>&1 && pidof iscsid >/dev/null; do sleep 1; done
kill $(pidof iscsid)
exit 4
"#;

#[test]
fn a_node_runs_from_a_tmpfs_and_restarts_its_programs() {
    let site = Site::new(Flavour::Node, NODE_AGENT);
    let _server = site.serve_addresses();
    let parameters = "tinwright.node.port=8080 tinwright.node.lazy-unmount";
    let mut machine = site.boot(&format!("hw_addr={MAC} {parameters}"));
    machine.says("osie: eth1 has 198.51.100.77/24");
    machine.says("agent: flags [--scheme=unix --port=8080 --lazy-unmount]");
    machine.says("agent: address 3: eth1 inet 198.51.100.77/24");
    let root = machine.says("agent: root root / tmpfs rw");
    let groups = root.split_once("control groups").unwrap().1;
    assert!(["memory", "pids"].iter().all(|name| groups.contains(name)), "{root}");
    machine.says("agent: pivoted");
    machine.says("agent: transports tcp, rbd add");
    machine.says("agent: elevators loaded");
    let mut restarts = [machine.says("ended with exit code"), machine.says("ended with exit code")];
    restarts.sort();
    assert!(restarts[0].starts_with("osie: iscsid ended with exit code"), "{restarts:?}");
    assert_eq!(
        restarts[1],
        "osie: tinwright-node ended with exit code 4: starting it again in 1 s"
    );
    machine.says("osie: starting tinwright-node");
    assert!(!machine.printed.contains("agent: without"), "{}", machine.printed);
}

#[test]
fn a_machine_boots_with_network_and_disk_and_restarts_its_worker() {
    let site = Site::new(Flavour::Install, WORKER);
    // The last of two equal keys counts.
    let mac = MAC.to_uppercase();
    let mut machine = site.boot(&format!("hw_addr=52:54:00:00:00:10 hw_addr={mac}"));
    machine.says(&format!("osie: requesting an address on eth1, {MAC}"));
    machine.says("osie: no address yet: trying again in 5 s");
    let _late = site.serve_addresses();
    machine.says("osie: eth1 has 198.51.100.77/24, router 198.51.100.1, name servers 198.51.100.1");
    machine.says("osie: disks: /dev/vda (64 MiB)");
    machine.says("osie: starting the worker");
    machine.says("worker: address 3: eth1 inet 198.51.100.77/24 brd 198.51.100.255");
    machine.says("worker: route default via 198.51.100.1 dev eth1");
    machine.says("worker: hostname machine-1, search rack.example nameserver 198.51.100.1");
    machine.says("worker: mtu 1500 1400 65536");
    machine.says("worker: mounted from the host");
    machine.says("worker: formatted 53 ef");
    assert!(machine.says("worker: file systems").ends_with("ext4 xfs vfat"));
    assert!(machine.says("worker: device mapper").ends_with("device-mapper"));
    machine.says(&format!("worker: trusts {} authorities", authorities()));
    machine.says("osie: the worker ended with exit code 3: starting it again in 1 s");
    machine.says("osie: starting the worker");
}

#[test]
fn without_a_mac_address_every_interface_is_used_with_the_vlan_tag() {
    let site = Site::new(Flavour::Install, WORKER);
    let mut cable = site.command("tcpdump");
    cable.args("-i tap0 -n -e -l vlan 5 and udp dst port 67".split(' ')).stderr(Stdio::null());
    let mut cable = Program::start(cable);
    let mut machine = site.boot("vlan_id=5");
    machine.says("osie: requesting an address on eth0.5, 52:54:00:00:00:10");
    machine.says(&format!("osie: requesting an address on eth1.5, {MAC}"));
    cable.says(&format!("Request from {MAC}"));
}

/// Returns the number of authorities that this host trusts, and the image too.
fn authorities() -> usize {
    let bundle = std::fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap();
    bundle.lines().filter(|line| line.contains("BEGIN")).count()
}

static SITES: AtomicU32 = AtomicU32::new(0);

/// A network namespace with the machine's cable, and the files to boot. Deleted when dropped.
struct Site {
    namespace: String,
    flavour: Flavour,
    place: tempfile::TempDir,
}

impl Site {
    /// Makes a site whose machine runs `program`.
    fn new(flavour: Flavour, program: &str) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this makes a network namespace: run it as root"
        );
        let number = SITES.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("osie-{}-{number}", std::process::id());
        let site = Self { namespace, flavour, place: tempfile::tempdir().unwrap() };
        site.build(program);
        site.make_disk();
        let name = &site.namespace;
        for command in [
            format!("netns add {name}"),
            format!("-n {name} tuntap add tap0 mode tap"),
            format!("-n {name} addr add 198.51.100.1/24 dev tap0"),
            format!("-n {name} link set tap0 up"),
        ] {
            done(Command::new("ip").args(command.split(' ')));
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn build(&self, program: &str) {
        let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/kernel");
        let path = self.path("program");
        std::fs::write(&path, program).unwrap();
        let name = match self.flavour {
            Flavour::Install => "install",
            Flavour::Node => "node",
        };
        let options =
            [(self.flavour.option(), &*path), ("--cache", &cache), ("--flavour", Path::new(name))];
        build(self.place.path(), &options).unwrap();
    }

    /// Returns the path of a file of the build.
    fn built(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}-{}x86_64", self.flavour.infix()))
    }

    fn make_disk(&self) {
        let (content, disk) = (self.path("content"), self.path("disk"));
        std::fs::create_dir(&content).unwrap();
        std::fs::write(content.join("marker"), "from the host").unwrap();
        std::fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
        done(Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(content).arg(disk));
    }

    /// Runs `program` on the site's network.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, program]).stdin(Stdio::null());
        command
    }

    fn serve_addresses(&self) -> Program {
        let (conf, leases) = (self.path("udhcpd.conf"), self.path("leases"));
        std::fs::write(&leases, "").unwrap();
        let text = format!(
            "interface tap0\nlease_file {}\npidfile {}\nstatic_lease {MAC} 198.51.100.77\n\
             start 198.51.100.80\nend 198.51.100.90\nopt subnet 255.255.255.0\nopt router 198.51.100.1\n\
             opt dns 198.51.100.1\nopt domain rack.example\nopt hostname machine-1\nopt mtu 1400\n",
            leases.display(),
            self.path("pid").display(),
        );
        std::fs::write(&conf, text).unwrap();
        let mut server = self.command("/bin/busybox");
        server.arg("udhcpd").arg("-f").arg(conf).stderr(Stdio::null());
        Program::start(server)
    }

    /// Starts the machine with `parameters` in the kernel's command line.
    fn boot(&self, parameters: &str) -> Program {
        let mut qemu = self.command("qemu-system-x86_64");
        qemu.args("-accel tcg,thread=single -cpu max -m 512 -nodefaults -no-reboot".split(' '));
        qemu.args(["-display", "none", "-serial", "stdio"]);
        qemu.arg("-kernel").arg(self.built("vmlinuz"));
        qemu.arg("-initrd").arg(self.built("initramfs"));
        // On a busy host an emulated timer is late; a kernel that checks it stops.
        let quick = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check";
        qemu.arg("-append").arg(format!("{quick} {parameters}"));
        qemu.args(["-device", "e1000e,mac=52:54:00:00:00:10"]);
        qemu.args(["-netdev", "tap,id=n,ifname=tap0,script=no,downscript=no"]);
        qemu.args(["-device", &format!("virtio-net-pci,netdev=n,mac={MAC}")]);
        qemu.arg("-drive")
            .arg(format!("if=virtio,format=raw,file={}", self.path("disk").display()));
        Program::start(qemu)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _gone = Command::new("ip").args(["netns", "delete", &self.namespace]).status();
    }
}

/// A running program and its output. It is killed when dropped.
struct Program {
    process: Child,
    lines: Receiver<String>,
    /// The lines so far.
    printed: String,
    until: Instant,
}

impl Program {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                let _closed = sender.send(String::from_utf8_lossy(&line).trim().to_owned());
            }
        });
        Self { process, lines, printed: String::new(), until: Instant::now() + BOOT_TIMEOUT }
    }

    /// Waits for a line that contains `text`; lines before it are only printed.
    fn says(&mut self, text: &str) -> String {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("waiting for `{text}`: {error}"));
            println!("{line}");
            self.printed.push_str(&line);
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Runs `command`, which must succeed.
fn done(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

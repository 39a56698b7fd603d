//! A machine with Debian's network tools. cloud-init writes their configuration from the network document of the metadata.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::network::{Network, OURS, Program};
use super::super::process::soon;

/// Mounts the guest's own directories, so that its clients leave nothing on this host, and runs the rest of the line.
const IN_GUEST: &str = r#"#!/bin/sh -e
dir=$1
shift
mkdir -p "$dir/run/network" "$dir/leases"
mount --bind "$dir/leases" /var/lib/dhcp
mount --bind "$dir/run" /run
exec "$@"
"#;

/// Sets the address that udhcpc gets.
const SET: &str = r#"#!/bin/sh -e
case "$1" in
bound) ip addr add "$ip/$mask" dev "$interface" ;;
deconfig) ip -4 addr flush dev "$interface" ;;
esac
"#;

/// Gets an address by DHCP, reads the network document with it, gives it back, and sets up the interfaces as the document says.
const START: &str = r#"#!/bin/sh -e
dir=$1 url=$2 python=$3
busybox udhcpc -i eth0 -n -q -f -t 10 -T 2 -s "$dir/set"
curl -sf --max-time 10 --retry 10 --retry-delay 1 --retry-all-errors -o "$dir/network.yaml" "$url"
ip addr flush dev eth0 scope global
rm -rf "$dir/root"
"$python" -m cloudinit.cmd.devel.net_convert --network-data "$dir/network.yaml" --kind yaml \
    --output-kind eni --distro debian --mac "eth0,$(cat /sys/class/net/eth0/address)" --directory "$dir/root"
ifup --no-scripts --state-dir /run/network -i "$dir/root/etc/network/interfaces.d/50-cloud-init" -a
echo "the guest is up"
"#;

/// Takes the interfaces down, which ends the DHCP client.
const STOP: &str = r#"#!/bin/sh
dir=$1
ifdown --no-scripts --force --state-dir /run/network -i "$dir/root/etc/network/interfaces.d/50-cloud-init" eth0
ip addr flush dev eth0 scope global
ip link set eth0 up
"#;

/// Returns the directory of cloud-init and its Python. They may have to be downloaded, which no namespace of a test can do.
pub(super) fn peers() -> PathBuf {
    setup::peers("services/metadata/tests/peers.sh").unwrap()
}

/// The first machine of a network, with Debian's network tools. It is stopped when this is dropped.
pub(super) struct Guest<'a> {
    network: &'a Network,
    dir: tempfile::TempDir,
    /// The directory of cloud-init and its Python.
    peers: PathBuf,
}

impl<'a> Guest<'a> {
    /// A guest with cloud-init of the directory `peers`.
    pub(super) fn new(network: &'a Network, peers: PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("in-guest", IN_GUEST), ("set", SET), ("start", START), ("stop", STOP)]
        {
            write_script(&dir.path().join(name), text);
        }
        Self { network, dir, peers }
    }

    /// Starts it: sets up its interfaces as its metadata says.
    pub(super) fn start(&self) {
        let library = self.peers.join("cloud-init/usr/lib/python3/dist-packages");
        let python = self.peers.join("metadata-venv/bin/python");
        let url = format!("http://{OURS}:8080/nocloud/network-config");
        let library = format!("env PYTHONPATH={}", library.display());
        let output = self.run(&format!(
            "{library} {}/start {} {url} {}",
            self.path(),
            self.path(),
            python.display()
        ));
        assert!(output.contains("the guest is up\n"), "{output}");
    }

    /// Restarts it.
    pub(super) fn restart(&self) {
        self.stop();
        self.start();
    }

    /// Starts a DHCP client that keeps its lease, and nothing else. Its output goes to the file `log`.
    pub(super) fn start_dhcp_client(&self, log: &Path) -> Program {
        let line = format!("busybox udhcpc -f -i eth0 -t 20 -T 1 -A 1 -s {}/set", self.path());
        self.network.start(0, &line, log)
    }

    /// Stops it: it has no address any more.
    pub(super) fn stop(&self) {
        self.run(&format!("{}/stop {}", self.path(), self.path()));
    }

    /// Waits until it answers the site at these addresses, and at no others of `all`.
    pub(super) async fn until_answers(&self, all: &[&str], expected: &[&str]) {
        let answers = async {
            while all.iter().any(|it| is_answered(it) != expected.contains(it)) {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        };
        soon(answers).await;
    }

    fn path(&self) -> std::path::Display<'_> {
        self.dir.path().display()
    }

    /// Returns the output of a program in the guest.
    fn run(&self, line: &str) -> String {
        // Its own UTS namespace, because dhclient may set the name of the host.
        self.network
            .run(0, &format!("unshare --uts {}/in-guest {} {line}", self.path(), self.path()))
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn write_script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// True if the site gets an echo reply from `address`.
fn is_answered(address: &str) -> bool {
    let mut ping = Command::new("busybox");
    ping.args(["ping", "-c", "1", "-W", "1", address]).stdout(Stdio::null());
    ping.stderr(Stdio::null()).status().unwrap().success()
}

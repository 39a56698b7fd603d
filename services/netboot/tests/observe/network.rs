//! A link of network namespaces: one for the server, one for a machine, and one for a router.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The machine's interface.
pub(crate) const MAC: netboot::Mac = netboot::Mac([0x52, 0x54, 0, 0, 0, 1]);
/// The server's address.
pub(crate) const SERVER: &str = "198.51.100.1";
/// The machine's address.
pub(crate) const MACHINE: &str = "198.51.100.50";

static MADE: AtomicU32 = AtomicU32::new(0);

/// Dropping it removes the namespaces and ends their programs.
pub(crate) struct Network {
    server: String,
    machine: String,
    router: String,
    /// The program of the router.
    routing: Option<Child>,
}

impl Network {
    /// The server is at `v0`, the machine at `eth0`.
    pub(crate) fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "namespaces are root's: run tests as root");
        let name = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let [server, machine, router] =
            ["obs", "obm", "obr"].map(|place| format!("{place}-{name}"));
        let new = Self { server, machine, router, routing: None };
        let (server, machine, router) = (&new.server, &new.machine, &new.router);
        for namespace in [server, machine, router] {
            ip(&format!("netns add {namespace}"));
            ip(&format!("-n {namespace} link set lo up"));
            // Addresses are usable at once, without duplicate address detection.
            ip(&format!("netns exec {namespace} sysctl -q -w net.ipv6.conf.default.accept_dad=0"));
        }
        for command in [
            format!(
                "-n {server} link add v0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
            ),
            format!("-n {server} link add p0 type veth peer name eth0 netns {machine}"),
            format!("-n {server} link add p1 type veth peer name eth0 netns {router}"),
            format!("-n {server} link set p0 master v0 up"),
            format!("-n {server} link set p1 master v0 up"),
            format!("-n {server} addr add {SERVER}/24 dev v0"),
            format!("-n {server} link set v0 up"),
            format!("-n {machine} link set eth0 address {MAC} up"),
            format!("-n {router} link set eth0 up"),
            format!("-n {router} addr add 2001:db8::1/64 dev eth0"),
            format!("-n {machine} addr add {MACHINE}/24 dev eth0"),
            format!("-n {machine} addr add 198.51.100.77/24 dev eth0"),
        ] {
            ip(&command);
        }
        // A link is up a moment after the command.
        let ready = |namespace: &str, interface: &str| {
            let shown = Command::new("ip")
                .args(["-n", namespace, "-6", "addr", "show", "dev", interface, "scope", "link"])
                .output()
                .expect("ip");
            let shown = String::from_utf8_lossy(&shown.stdout);
            shown.contains("fe80::") && !shown.contains("tentative")
        };
        let up = || ready(&new.server, "v0") && ready(&new.machine, "eth0");
        let came = (0..300).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            up()
        });
        assert!(came, "the link comes up");
        new
    }

    /// Runs `open` in the namespace of the server. The socket stays there.
    pub(crate) fn at_server<T: Send + 'static>(
        &self,
        open: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        Self::inside(&self.server, open)
    }

    /// Runs `open` in the namespace of the machine.
    pub(crate) fn at_machine<T: Send + 'static>(
        &self,
        open: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        Self::inside(&self.machine, open)
    }

    fn inside<T: Send + 'static>(name: &str, open: impl FnOnce() -> T + Send + 'static) -> T {
        let namespace = Path::new("/run/netns").join(name);
        // Only this thread enters the namespace, and it ends there.
        let moved = std::thread::spawn(move || {
            use std::os::fd::AsFd as _;
            let namespace = File::open(namespace).expect("the namespace");
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).expect("to enter it");
            open()
        });
        moved.join().expect("what was opened")
    }

    /// Starts the router's advertisements.
    pub(crate) fn route(&mut self) {
        let dnsmasq = "dnsmasq -d --port=0 --user=root --pid-file= --leasefile-ro --interface=eth0 --bind-interfaces \
                       --enable-ra --dhcp-range=2001:db8::,ra-only,64";
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.router]).args(dnsmasq.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.routing = Some(command.spawn().expect("dnsmasq"));
    }

    /// Runs a shell command on the machine, for at most a minute.
    pub(crate) async fn run(&self, line: &str) -> Output {
        let mut command = tokio::process::Command::new("ip");
        command.args(["netns", "exec", &self.machine, "timeout", "60", "sh", "-c", line]);
        command.output().await.expect("a program on the machine")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(routing) = &mut self.routing {
            let _already_gone = routing.kill();
            let _already_waited_for = routing.wait();
        }
        for namespace in [&self.machine, &self.router, &self.server] {
            let _may_not_exist = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

fn ip(line: &str) {
    let done = Command::new("ip").args(line.split(' ')).output().expect("ip");
    assert!(done.status.success(), "ip {line}: {}", String::from_utf8_lossy(&done.stderr));
}

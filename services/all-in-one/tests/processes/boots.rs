//! A process that serves only machines, without the authority's key: it also explains boots to operators.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The time limit of a step on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
const MAC: &str = "52:54:00:00:00:01";
const RECORD: &str = "name: node-1
state: STATE_PROVISIONABLE
interfaces:
- mac: 52:54:00:00:00:01
  dhcp: {address: {address: 198.51.100.50, prefix_length: 24}}
  netboot: {allow_pxe: true}
";

/// A network with the site's processes at one end, and a machine at the other.
struct Site {
    server: String,
    machine: String,
    processes: Vec<Child>,
    dir: tempfile::TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _already_gone = process.kill();
            let _already_waited_for = process.wait();
        }
        for namespace in [&self.machine, &self.server] {
            let _may_not_exist = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

fn site() -> Site {
    assert!(rustix::process::geteuid().is_root(), "namespaces are root's: run tests as root");
    let name = std::process::id();
    let (server, machine) = (format!("bts-{name}"), format!("btm-{name}"));
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("machine.yaml"), RECORD).unwrap();
    let mut site = Site { server, machine, processes: Vec::new(), dir };
    site.cable();
    let owners =
        "--only address,hardware,identity,instance,power,workflow --listen 198.51.100.1:42113";
    site.serve("owners", 9464, owners);
    let edge = site.dir.path().join("edge/secrets");
    std::fs::create_dir_all(&edge).unwrap();
    for name in ["site.key", "ca.pem", "service.pem", "service-key.pem"] {
        std::fs::copy(site.dir.path().join("owners/secrets").join(name), edge.join(name)).unwrap();
    }
    site.serve(
        "edge",
        9465,
        "--only netboot --netboot-interface v0 --listen 198.51.100.1:42213 \
         --peers https://198.51.100.1:42113",
    );
    site
}

impl Site {
    fn cable(&self) {
        let Self { server, machine, .. } = self;
        for command in [
            format!("netns add {server}"),
            format!("netns add {machine}"),
            format!("-n {server} link set lo up"),
            format!("-n {server} link add v0 type veth peer name eth0 netns {machine}"),
            format!("-n {server} addr add 198.51.100.1/24 dev v0"),
            format!("-n {server} link set v0 up"),
            format!("-n {machine} link set eth0 address {MAC} up"),
            format!("-n {machine} addr add 198.51.100.50/24 dev eth0"),
        ] {
            let done = Command::new("ip").args(command.split(' ')).output().unwrap();
            assert!(done.status.success(), "ip {command}: {done:?}");
        }
    }

    fn inside(&self, namespace: &str, line: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).args(line.split_whitespace());
        command.current_dir(self.dir.path());
        command
    }

    /// Starts a process with its data below `name`, and waits until it is ready.
    fn serve(&mut self, name: &str, vitals: u16, flags: &str) {
        let program = env!("CARGO_BIN_EXE_tinwright");
        let line =
            format!("{program} serve --data {name} --metrics-listen 127.0.0.1:{vitals} {flags}");
        let log = std::fs::File::create(self.dir.path().join(format!("{name}.log"))).unwrap();
        let mut command = self.inside(&self.server, &line);
        command.env("TINWRIGHT_GATEWAY_LISTEN", "127.0.0.1:0");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.processes.push(process.spawn().unwrap());
        let ready = format!("curl -sf http://127.0.0.1:{vitals}/readyz");
        self.until(Path::new(&format!("{name}.log")), || {
            self.inside(&self.server, &ready).output().unwrap().status.success()
        });
    }

    /// Waits until `good` returns true; otherwise panics with the log at `path`.
    fn until(&self, path: &Path, good: impl Fn() -> bool) {
        let began = Instant::now();
        while !good() {
            let log = || std::fs::read_to_string(self.dir.path().join(path)).unwrap_or_default();
            assert!(began.elapsed() < STEP_TIMEOUT, "{}", log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Runs the client with the process at `port`.
    fn client(&self, port: u16, words: &str) -> Output {
        let program = env!("CARGO_BIN_EXE_tinwright");
        let server = format!("--server https://198.51.100.1:{port} --secrets owners/secrets");
        self.inside(&self.server, &format!("{program} {words} {server}")).output().unwrap()
    }

    /// Does the same, and returns the output of the client, which has to succeed.
    fn client_output(&self, port: u16, words: &str) -> String {
        let output = self.client(port, words);
        let (out, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{words}: {error}");
        out.into_owned()
    }

    /// Waits until the client with the arguments `words` prints all of `expected`, as the edge returns it.
    fn until_printed(&self, words: &str, expected: &[&str]) {
        self.until(Path::new("edge.log"), || {
            let output = self.client(42213, words);
            let text = String::from_utf8_lossy(&output.stdout);
            expected.iter().all(|expected| text.contains(expected))
        });
    }

    fn machine(&self, line: &str) -> Output {
        self.inside(&self.machine, &format!("timeout 30 {line}")).output().unwrap()
    }
}

#[test]
fn an_edge_explains_the_boot_of_a_machine_and_shows_its_steps_and_its_log() {
    let site = site();
    site.client_output(42113, "hardware create -f machine.yaml");
    // The record arrives by the feed.
    site.until_printed("boot explain node-1", &["boots the worker's environment", "no instance"]);
    let explained = site.client_output(42213, &format!("boot explain {MAC} -o json"));
    assert!(explained.contains("\"fact\": \"no instance occupies it\""), "{explained}");
    let loader = site.client_output(42213, &format!("boot explain {MAC} --class pxe --arch 0"));
    assert!(loader.contains("undionly.kpxe from 198.51.100.1"), "{loader}");

    let leased = site.machine(
        "busybox udhcpc -f -n -q -i eth0 -s /bin/true -V PXEClient:Arch:00007:UNDI:003000 -x 0x5d:0007",
    );
    assert!(leased.status.success(), "{leased:?}");
    let script = site.machine("curl -sf http://198.51.100.1:7080/52-54-00-00-00-01/auto.ipxe");
    let script = String::from_utf8(script.stdout).unwrap();
    assert!(script.contains("set syslog 198.51.100.1"), "{script}");
    let steps = ["DHCP discover", "DHCP ack", "PXE, file snponly.efi", "script served", "worker"];
    site.until_printed("boot get node-1", &steps);
    assert_eq!(
        site.client_output(42213, "boot list node-1").lines().count(),
        2,
        "a header and a boot"
    );

    let sent = site.machine("logger -n 198.51.100.1 -P 514 -d -t prog hello");
    assert!(sent.status.success(), "{sent:?}");
    site.until_printed("boot log node-1", &["user.notice prog", "hello"]);

    let nobody = site.client(42213, "boot explain nowhere");
    let why = String::from_utf8_lossy(&nobody.stderr);
    assert!(!nobody.status.success() && why.contains("machine nowhere not found"), "{why}");
    let owners = site.client(42113, "boot list");
    let why = String::from_utf8_lossy(&owners.stderr);
    assert!(why.contains("this server does not boot machines"), "{why}");
}

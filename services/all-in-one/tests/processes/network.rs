//! A link of network namespaces: the site's processes at a bridge, and machines attached to it.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The site's address, at its br0.
pub(crate) const OURS: &str = "198.51.100.1";

static MADE: AtomicU32 = AtomicU32::new(0);

/// The network. Its namespaces are deleted when it is dropped.
pub(crate) struct Network {
    site: String,
    machines: Vec<String>,
}

impl Network {
    /// Creates the site, and machines with these Ethernet addresses at their eth0.
    pub(crate) fn new(macs: &[&str]) -> Self {
        assert!(rustix::process::geteuid().is_root(), "namespaces are root's: run tests as root");
        let name = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let machines = (0..macs.len()).map(|n| format!("ptm{n}-{name}")).collect();
        let network = Self { site: format!("pts-{name}"), machines };
        let site = &network.site;
        run_ip(&format!("netns add {site}"));
        run_ip(&format!("-n {site} link set lo up"));
        run_ip(&format!("-n {site} link add br0 type bridge stp_state 0 forward_delay 0"));
        run_ip(&format!("-n {site} addr add {OURS}/24 dev br0"));
        run_ip(&format!("-n {site} link set br0 up"));
        for (n, (machine, mac)) in network.machines.iter().zip(macs).enumerate() {
            run_ip(&format!("netns add {machine}"));
            run_ip(&format!("-n {site} link add v{n} type veth peer name eth0 netns {machine}"));
            run_ip(&format!("-n {site} link set v{n} master br0 up"));
            run_ip(&format!("-n {machine} link set eth0 address {mac} up"));
        }
        network
    }

    /// Runs `work` in the namespace of the site's processes. Its sockets and child processes stay there.
    pub(crate) fn on_site(&self, work: impl AsyncFnOnce() + Send) {
        within(&self.site, work);
    }

    /// Runs `work` on the machine.
    pub(crate) fn on(&self, machine: usize, work: impl AsyncFnOnce() + Send) {
        within(&self.machines[machine], work);
    }

    /// Returns the name of the machine's namespace.
    pub(crate) fn machine(&self, machine: usize) -> &str {
        &self.machines[machine]
    }

    /// Returns the output of `program` on the machine.
    pub(crate) fn run(&self, machine: usize, program: &str) -> String {
        let words = format!("netns exec {} timeout 60 {program}", self.machines[machine]);
        let done = ip(&words);
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    }

    /// Starts a program on the machine, with its output in the file `log`.
    pub(crate) fn start(&self, machine: usize, program: &str, log: &Path) -> Program {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.machines[machine]]).args(program.split(' '));
        let file = File::create(log).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Program(command.spawn().unwrap())
    }

    /// Changes the machine's interfaces.
    pub(crate) fn set(&self, machine: usize, line: &str) {
        run_ip(&format!("-n {} {line}", self.machines[machine]));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in self.machines.iter().chain([&self.site]) {
            let _may_not_exist = ip(&format!("netns del {namespace}"));
        }
    }
}

/// A program that is stopped when this is dropped.
pub(crate) struct Program(Child);

impl Program {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(id, signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _already_waited_for = self.0.wait();
    }
}

/// Runs `work` in a namespace, on a new thread that only this call uses.
fn within(namespace: &str, work: impl AsyncFnOnce() + Send) {
    let namespace = Path::new("/run/netns").join(namespace);
    let work = move || {
        let namespace = File::open(namespace).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(work());
    };
    let ended = std::thread::scope(|threads| threads.spawn(work).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn ip(command: &str) -> Output {
    Command::new("ip").args(command.split(' ')).output().unwrap()
}

/// Changes the interfaces of the namespace in which this is called.
pub(crate) fn run_ip(command: &str) {
    let done = ip(command);
    assert!(done.status.success(), "ip {command}: {}", String::from_utf8_lossy(&done.stderr));
}

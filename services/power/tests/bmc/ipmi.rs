//! BMCs that serve IPMI: Debian's ipmi_sim, and virtualbmc in front of libvirt's test driver. Killed when dropped.

mod privilege_limit;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use power::{Login, Timing};
use store::memory::MemoryStore;
use tempfile::TempDir;
use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::{Ipmi, Protocol};
use tinwright::power::v1::operation::Power;
use tinwright::power::v1::power_job::State;

use self::privilege_limit::PrivilegeLimit;
use crate::emulator::{PEERS, USER};
use crate::site::{self, TIMING, power, work};
use crate::suite;

/// The password of [`USER`]; ipmi_sim allows no space in it.
const PASSWORD: &str = "correct-horse";

/// Reads and writes the power and the boot device in the files of its directory.
const CHASSIS_CONTROL: &str = r#"#!/bin/sh
dir=$(dirname "$0")
shift
verb=$1
shift
while [ $# -gt 0 ]; do
    case $verb,$1 in
    get,*) echo "$1:$(cat "$dir/$1")" ;;
    set,shutdown) echo 0 > "$dir/power"; shift ;;
    set,*) echo "$2" > "$dir/$1"; shift ;;
    esac
    shift
done
"#;

/// The commands that make its management controller.
const EMULATOR_COMMANDS: &str = "mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
";
/// The octets of its system GUID.
const GUID: &str = "a123456789abcdefa123456789abcdef";
/// The command that makes it answer.
const ENABLE: &str = "mc_enable 0x20\n";
/// Its UDP port. The kernel gives it to no socket that names none (ip(7), `ip_local_port_range`).
const SIM_PORT: u16 = 9623;
/// The time limit of its start, in seconds.
const SIM_START: u32 = 60;

/// The number of simulators that were started.
static SIMS: AtomicU8 = AtomicU8::new(0);

/// A running ipmi_sim with one machine, which is off.
pub(crate) struct IpmiSim {
    process: Child,
    address: Ipv4Addr,
    _directory: TempDir,
}

impl IpmiSim {
    pub(crate) fn start() -> Self {
        Self::start_with(GUID, "")
    }

    /// One that has this FRU data, and the system GUID with these hex digits.
    pub(crate) fn with_fru(data: &[u8], guid: &str) -> Self {
        let bytes: Vec<_> = data.iter().map(|byte| format!("{byte:#04x}")).collect();
        let (size, bytes) = (data.len(), bytes.join(" "));
        Self::start_with(guid, &format!("mc_add_fru_data 0x20 0 {size} data {bytes}\n"))
    }

    /// One that tells nothing of its machine.
    pub(crate) fn anonymous() -> Self {
        Self::start_with("00000000000000000000000000000000", "")
    }

    fn start_with(guid: &str, commands: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let at = |name: &str| directory.path().join(name);
        let address = own_address();
        let control = at("chassis");
        fs::write(&control, CHASSIS_CONTROL).unwrap();
        fs::set_permissions(&control, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(at("power"), "0").unwrap();
        fs::write(at("boot"), "default").unwrap();
        fs::create_dir(at("state")).unwrap();
        let configuration = format!(
            "name \"bmc\"\nset_working_mc 0x20\nstartlan 1\n  addr {address} {SIM_PORT}\n  priv_limit admin\n\
             allowed_auths_admin none md2 md5 straight\n  guid {guid}\nendlan\n\
             chassis_control \"{} 0x20\"\n\
             user 2 true \"{USER}\" \"{PASSWORD}\" admin 10 none md2 md5 straight\n",
            control.display()
        );
        fs::write(at("lan.conf"), configuration).unwrap();
        fs::write(at("commands"), format!("{EMULATOR_COMMANDS}{commands}{ENABLE}")).unwrap();
        let mut command = Command::new("ipmi_sim");
        command.arg("-c").arg(at("lan.conf")).arg("-f").arg(at("commands"));
        command.arg("-s").arg(at("state")).arg("-n").stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().expect("ipmi_sim of Debian's package openipmi");
        let mut sim = Self { process, address, _directory: directory };
        sim.until_listening();
        sim
    }

    /// Waits until it has opened its socket.
    fn until_listening(&mut self) {
        // As in proc_pid_net(5): the address is in network byte order, and read as a number of this host.
        let address = u32::from_ne_bytes(self.address.octets());
        let socket = format!(": {address:08X}:{SIM_PORT:04X} ");
        for _ in 0..SIM_START * 100 {
            if fs::read_to_string("/proc/net/udp").unwrap().contains(&socket) {
                return;
            }
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "ipmi_sim ended: {ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("ipmi_sim does not listen");
    }

    /// Its record for `hardware`.
    pub(crate) fn bmc(&self, hardware: HardwareId) -> pb::Bmc {
        bmc_at(hardware, self.address, SIM_PORT, PASSWORD)
    }

    fn socket(&self) -> SocketAddr {
        (self.address, SIM_PORT).into()
    }
}

impl Drop for IpmiSim {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// A running virtualbmc with one machine, which is off.
pub(crate) struct VirtualBmc {
    process: Child,
    port: u16,
}

impl VirtualBmc {
    pub(crate) fn start() -> Self {
        let port = free_port();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bmc/vbmc.py");
        let mut command = Command::new(PEERS.join("power-venv/bin/python"));
        command.args([script, &port.to_string(), USER, PASSWORD]).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "listening\n");
        Self { process, port }
    }

    /// Its record for `hardware`.
    pub(crate) fn bmc(&self, hardware: HardwareId) -> pb::Bmc {
        bmc(hardware, self.port, PASSWORD)
    }
}

impl Drop for VirtualBmc {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

pub(crate) fn bmc(hardware: HardwareId, port: u16, password: &str) -> pb::Bmc {
    bmc_at(hardware, Ipv4Addr::LOCALHOST, port, password)
}

fn bmc_at(hardware: HardwareId, address: Ipv4Addr, port: u16, password: &str) -> pb::Bmc {
    let ipmi = Ipmi { host: address.to_string(), port: port.into(), cipher_suite: 3 };
    pb::Bmc {
        hardware_id: hardware.to_string(),
        protocol: Some(Protocol::Ipmi(ipmi)),
        username: USER.into(),
        password: password.into(),
        ..pb::Bmc::default()
    }
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns a loopback address that no other simulator has.
fn own_address() -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    // 127.0.0.1 is that of others.
    Ipv4Addr::new(127, high, low, SIMS.fetch_add(1, Ordering::Relaxed) + 2)
}

/// Creates the record of `bmc` without a login, and returns its failed job to switch the machine on.
async fn failed_job(bmc: pb::Bmc, timing: Timing) -> pb::PowerJob {
    let hardware = bmc.hardware_id.parse().unwrap();
    let jobs = site::jobs(Arc::new(MemoryStore::default()));
    jobs.bmcs.create(bmc, Login::Skip, None).await.unwrap();
    let made = jobs.create(site::job(hardware, vec![power(Power::On)]), None).await;
    work(&jobs, hardware, timing).await.unwrap();
    let job = jobs.get(made.unwrap().id.parse().unwrap()).await.unwrap();
    assert_eq!(job.state(), State::Failed);
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_fails_the_job_at_once() {
    let (sim, peer) = (IpmiSim::start(), VirtualBmc::start());
    for right in [sim.bmc(HardwareId::new()), peer.bmc(HardwareId::new())] {
        let wrong = pb::Bmc { password: "wrong".into(), ..right };
        let job = failed_job(wrong, TIMING).await;
        assert_eq!(job.attempt, 0);
        let text = "the BMC refuses the user name or the password: RAKP";
        assert!(job.state_reason.starts_with(text), "{}", job.state_reason);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_with_the_privilege_operator_suffices() {
    let sim = IpmiSim::start();
    let limit = PrivilegeLimit::start(sim.socket(), privilege_limit::OPERATOR).await;
    let limits = suite::Limits { unreadable_boot: true, ..suite::Limits::default() };
    suite::passes(limit.bmc(HardwareId::new()), limits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_with_less_than_operator_is_refused_without_blame_for_its_password() {
    let sim = IpmiSim::start();
    let limit = PrivilegeLimit::start(sim.socket(), privilege_limit::USER).await;
    let job = failed_job(limit.bmc(HardwareId::new()), TIMING).await;
    let text = "the BMC gives this account less than the privilege OPERATOR";
    assert!(job.state_reason.starts_with(text), "{}", job.state_reason);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_hangs_fails_the_job_at_its_deadline() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let timing = Timing { operation_timeout: Duration::from_secs(3), ..TIMING };
    let job = failed_job(bmc(HardwareId::new(), port, PASSWORD), timing).await;
    let text = "the BMC did not answer in ";
    assert!(job.state_reason.contains(text), "{}", job.state_reason);
}

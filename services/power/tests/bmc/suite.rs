//! The suite of power, which every kind of BMC has to pass: each operation, verified by reading back.

use std::sync::Arc;
use std::time::Duration;

use power::bmc_client::{self, Reading};
use power::redfish::Power as Reads;
use power::{Jobs, Login, Timing};
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::boot::{Device, Mode};
use tinwright::power::v1::operation::{Boot, Power, What};
use tinwright::power::v1::power_job::State;

use crate::emulator::Emulator;
use crate::ipmi::{IpmiSim, VirtualBmc};
use crate::site::{self, TIMING, power, work};

/// What a BMC cannot do or report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// An override for every boot is refused or has no effect.
    pub(crate) once_only: bool,
    /// An override cannot be read back.
    pub(crate) unreadable_boot: bool,
}

struct Rig {
    jobs: Jobs,
    hardware: HardwareId,
}

impl Rig {
    /// Carries out one job, which has to succeed.
    async fn success(&self, operations: Vec<pb::Operation>) -> pb::PowerJob {
        let job = self.job(operations, TIMING).await;
        assert_eq!(job.state(), State::Success, "{:?}: {}", job.operations, job.state_reason);
        job
    }

    async fn job(&self, operations: Vec<pb::Operation>, timing: Timing) -> pb::PowerJob {
        let made = self.jobs.create(site::job(self.hardware, operations), None).await;
        work(&self.jobs, self.hardware, timing).await.unwrap();
        self.jobs.get(made.unwrap().id.parse().unwrap()).await.unwrap()
    }

    async fn read(&self) -> Reading {
        let bmc = self.jobs.bmcs.get_by_hardware(&self.hardware.to_string()).await.unwrap();
        let target = self.jobs.bmcs.target(&bmc).await.unwrap();
        bmc_client::read_system(target).await.unwrap()
    }
}

fn boot(device: Device, persistent: bool, mode: Mode) -> pb::Operation {
    let boot = Boot { device: device.into(), persistent, mode: mode.into(), ..Boot::default() };
    pb::Operation { what: Some(What::Boot(boot)), ..Default::default() }
}

/// Carries out every operation on the machine of `bmc`, which is off.
pub(crate) async fn passes(bmc: pb::Bmc, limits: Limits) {
    let hardware = bmc.hardware_id.parse().unwrap();
    let rig = Rig { jobs: site::jobs(Arc::new(MemoryStore::default())), hardware };
    rig.jobs.bmcs.create(bmc, Login::Try, None).await.unwrap();
    assert_eq!(rig.read().await.system.power, Reads::Off);

    rig.success(vec![boot(Device::Pxe, false, Mode::Uefi), power(Power::On)]).await;
    let system = rig.read().await.system;
    assert_eq!((system.power, system.boot.target.as_str()), (Reads::On, "Pxe"));

    // A wanted state that is there already needs no request.
    assert_eq!(rig.success(vec![power(Power::On)]).await.attempt, 0);
    rig.success(vec![power(Power::Cycle), power(Power::Reset)]).await;
    assert_eq!(rig.read().await.system.power, Reads::On);

    if limits.once_only {
        let timing =
            Timing { effect_timeout: Duration::from_millis(500), max_attempts: 2, ..TIMING };
        let job = rig.job(vec![boot(Device::Disk, true, Mode::Legacy)], timing).await;
        assert_eq!(job.state(), State::Failed);
        assert!(job.state_reason.contains("had no effect"), "{}", job.state_reason);
    } else {
        rig.success(vec![boot(Device::Disk, true, Mode::Legacy)]).await;
        if !limits.unreadable_boot {
            let boot = rig.read().await.system.boot;
            assert_eq!((boot.enabled.as_str(), boot.target.as_str()), ("Continuous", "Hdd"));
        }
    }
    rig.success(vec![power(Power::SoftOff)]).await;
    assert_eq!(rig.read().await.system.power, Reads::Off);
    rig.success(vec![power(Power::Off), power(Power::On), power(Power::Off)]).await;
    assert_eq!(rig.read().await.system.power, Reads::Off);
}

#[tokio::test(flavor = "multi_thread")]
async fn redfish_with_tls_and_a_password_passes() {
    let emulator = Emulator::guarded("node1");
    passes(site::bmc(HardwareId::new(), &emulator.url, "node1"), Limits::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipmi_sim_passes() {
    let sim = IpmiSim::start();
    let limits = Limits { unreadable_boot: true, ..Limits::default() };
    passes(sim.bmc(HardwareId::new()), limits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn virtualbmc_passes() {
    let peer = VirtualBmc::start();
    let limits = Limits { once_only: true, ..Limits::default() };
    passes(peer.bmc(HardwareId::new()), limits).await;
}

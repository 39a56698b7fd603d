//! The service under test, over a store in memory.

use std::sync::Arc;
use std::time::Duration;

use power::forms::AcceptedForms;
use power::reconcile::Worker;
use power::{Bmcs, Error, Jobs, PlaintextHttp, Timing, redfish};
use runtime::Clock;
use runtime::retry::Backoff;
use runtime::seal::Seal;
use runtime::secret::{Secret, SiteKey};
use store::Store;
use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::{Protocol, Redfish};
use tinwright::power::v1::operation::boot::Device;
use tinwright::power::v1::operation::{Boot, Power, What};

/// Limits for a busy host. A test in which one of them passes has a shorter one.
pub(crate) const TIMING: Timing = Timing {
    poll: Duration::from_millis(100),
    effect_timeout: Duration::from_secs(60),
    shutdown_timeout: Duration::from_secs(60),
    operation_timeout: Duration::from_secs(60),
    backoff: Backoff::new(Duration::from_millis(50), Duration::from_millis(400)),
    max_attempts: 10,
    claim: Duration::from_secs(20),
};

/// The jobs in `store`, for the only process that uses it.
pub(crate) fn jobs(store: Arc<dyn Store>) -> Jobs {
    jobs_of("single", store)
}

/// The jobs in `store`, for the process of this name.
pub(crate) fn jobs_of(process: &str, store: Arc<dyn Store>) -> Jobs {
    let seal = Seal::new(&SiteKey::new([7; 32]), "bmc").unwrap();
    Jobs::new(Bmcs::new(store, seal, PlaintextHttp::Allowed, Clock::system()), process.into())
}

/// The record of the BMC at `url` for `hardware`.
pub(crate) fn bmc(hardware: HardwareId, url: &str, system: &str) -> pb::Bmc {
    pb::Bmc {
        hardware_id: hardware.to_string(),
        protocol: Some(Protocol::Redfish(Redfish {
            url: url.to_owned(),
            system_id: system.to_owned(),
            ..Redfish::default()
        })),
        username: crate::emulator::USER.into(),
        password: crate::emulator::PASSWORD.into(),
        ..pb::Bmc::default()
    }
}

/// The only system of the BMC at `url`, for a user and a password that it does not know.
pub(crate) fn target(url: String) -> redfish::Target {
    redfish::Target {
        url,
        system: String::new(),
        username: "u".into(),
        password: Secret::new("p".into()),
        trust: redfish::Trust::FirstUse,
        legacy_tls: false,
        accepted: AcceptedForms::default(),
        sessions: redfish::Sessions::default(),
    }
}

/// A job of `operations` on `hardware`.
pub(crate) fn job(hardware: HardwareId, operations: Vec<pb::Operation>) -> pb::PowerJob {
    let hardware_id = hardware.to_string();
    pb::PowerJob { hardware_id, operations, ..pb::PowerJob::default() }
}

/// An operation that changes the power.
pub(crate) fn power(power: Power) -> pb::Operation {
    pb::Operation { what: Some(What::Power(power.into())), ..Default::default() }
}

/// An operation that sets the device of the next boot.
pub(crate) fn boot(device: Device) -> pb::Operation {
    let boot = Boot { device: device.into(), ..Boot::default() };
    pb::Operation { what: Some(What::Boot(boot)), ..Default::default() }
}

/// Carries out the jobs of `hardware` until there are none, or until the store fails, as a process that is killed then.
pub(crate) async fn work(jobs: &Jobs, hardware: HardwareId, timing: Timing) -> Result<(), Error> {
    let mut worker = Worker::new(jobs.clone(), hardware.to_string(), timing);
    let steps = async {
        while let Some(pause) = worker.step().await? {
            tokio::time::sleep(pause).await;
        }
        Ok(())
    };
    let result = tokio::time::timeout(Duration::from_secs(300), steps).await;
    worker.close().await;
    result.expect("all jobs end")
}

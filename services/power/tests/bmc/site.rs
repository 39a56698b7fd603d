//! The service under test, over a store in memory.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use power::reconcile::{Outcome, Worker};
use power::{Bmcs, Error, Jobs, PlaintextHttp, Timing};
use runtime::seal::Seal;
use runtime::secret::SiteKey;
use store::Store;
use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::boot::{Device, Mode};
use tinwright::power::v1::operation::{Boot, Power, What};

/// As patient as the emulator needs, and no more.
pub(crate) const PACE: Timing = Timing {
    poll: Duration::from_millis(100),
    patience: Duration::from_secs(8),
    soft: Duration::from_secs(4),
    deadline: Duration::from_secs(60),
    first: Duration::from_millis(50),
    longest: Duration::from_millis(400),
    tries: 10,
    claim: Duration::from_secs(20),
};

/// The jobs in `store`, as the one process that has it sees them.
pub(crate) fn jobs(store: Arc<dyn Store>) -> Jobs {
    jobs_of("the only one", store)
}

/// The same, as seen by one of several.
pub(crate) fn jobs_of(process: &str, store: Arc<dyn Store>) -> Jobs {
    let seal = Seal::new(&SiteKey::new([7; 32]), "bmc").unwrap();
    Jobs::new(Bmcs::new(store, seal, PlaintextHttp::Allowed), process.into())
}

/// The record of the BMC at `url` for `hardware`.
pub(crate) fn bmc(hardware: HardwareId, url: &str, system: &str) -> pb::Bmc {
    pb::Bmc {
        hardware_id: hardware.to_string(),
        redfish_url: url.to_owned(),
        system_id: system.to_owned(),
        username: crate::emulator::USER.into(),
        password: crate::emulator::PASSWORD.into(),
        ..pb::Bmc::default()
    }
}

/// To change the power.
pub(crate) fn power(power: Power) -> pb::Operation {
    pb::Operation { what: Some(What::Power(power.into())) }
}

/// To boot something once.
pub(crate) fn boot(device: Device) -> pb::Operation {
    let boot = Boot { device: device.into(), persistent: false, mode: Mode::Unspecified.into() };
    pb::Operation { what: Some(What::Boot(boot)) }
}

/// Carries out all jobs of `hardware`, or as many as the store lets it.
pub(crate) async fn work(jobs: &Jobs, hardware: HardwareId, pace: Timing) -> Result<(), Error> {
    let mut worker = Worker::new(jobs.clone(), hardware.to_string(), pace);
    let done = async {
        while let Outcome::Again(pause) = worker.turn(SystemTime::now()).await? {
            tokio::time::sleep(pause).await;
        }
        Ok(())
    };
    let done = tokio::time::timeout(Duration::from_secs(120), done).await.expect("an end");
    worker.close().await;
    done
}

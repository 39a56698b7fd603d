//! Machines on which no automatic step is taken: those in maintenance, and those that are being deleted.
//!
//! The machine's state is read from the hardware service before each step that touches it, so nothing is stored here but the
//! last result, which is shown to people. If the hardware service cannot be reached, the step is not taken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runtime::Channel;
use runtime::clock::Clock;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tonic::{Code, Status};

/// The interval at which a machine on which steps wait is read again.
pub const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// The time for which a result is shown without being read again.
const SHOWN_FOR: Duration = Duration::from_secs(90);

/// The permission to take a step on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The step may be taken.
    Granted,
    /// The step has to wait.
    Suspended(Suspension),
    /// The machine has no record any more.
    Gone,
}

/// The reason why steps on a machine wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Suspension {
    /// A person works on it.
    #[error("waits: the machine is in maintenance")]
    Maintenance,
    /// Its deletion has begun.
    #[error("waits: the machine is being deleted")]
    Deleting,
}

/// Reads the permission to take steps on machines.
#[derive(Clone, Debug)]
pub struct MachineGate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    hardware: HardwareServiceClient<Channel>,
    clock: Clock,
    /// The machines whose steps waited when they were last read, and the time of that.
    latest: Mutex<HashMap<String, (Instant, Suspension)>>,
}

impl MachineGate {
    /// Reads machines over `hardware`.
    pub fn new(hardware: Channel, clock: Clock) -> Self {
        let hardware = HardwareServiceClient::new(hardware);
        Self(Arc::new(GateState { hardware, clock, latest: Mutex::default() }))
    }

    /// Returns the permission to take a step on `machine` now.
    pub async fn permission(&self, machine: &str) -> Result<Permission, Status> {
        let by = Some(hw::get_hardware_request::By::Id(machine.to_owned()));
        let request = hw::GetHardwareRequest { by, ..Default::default() };
        let permission = match self.0.hardware.clone().get_hardware(request).await {
            Ok(found) => permission(found.into_inner().hardware.unwrap_or_default().state()),
            Err(status) if status.code() == Code::NotFound => Permission::Gone,
            Err(status) => return Err(status),
        };
        let (now, mut latest) = (self.0.clock.monotonic(), self.lock());
        latest.retain(|_, (read, _)| is_recent(*read, now));
        match permission {
            Permission::Suspended(cause) => latest.insert(machine.to_owned(), (now, cause)),
            Permission::Granted | Permission::Gone => latest.remove(machine),
        };
        Ok(permission)
    }

    /// Returns the reason why steps on `machine` wait, as it was read a short time ago.
    pub fn latest(&self, machine: &str) -> Option<Suspension> {
        let now = self.0.clock.monotonic();
        let latest = self.lock().get(machine).copied();
        latest.and_then(|(read, cause)| is_recent(read, now).then_some(cause))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Instant, Suspension)>> {
        self.0.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_recent(read: Instant, now: Instant) -> bool {
    now.saturating_duration_since(read) < SHOWN_FOR
}

fn permission(state: hw::State) -> Permission {
    match state {
        hw::State::Maintenance => Permission::Suspended(Suspension::Maintenance),
        hw::State::Deleting => Permission::Suspended(Suspension::Deleting),
        hw::State::Unspecified
        | hw::State::Enrolled
        | hw::State::Provisionable
        | hw::State::Failed => Permission::Granted,
    }
}

//! An instance as the platform sees it.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::State;

use crate::ial::fault::{Code, Fault};
use crate::ial::responses::{Identity, ProvisionStatus};

/// The annotation with the object that the platform gets as `extra`. Operators may set it.
pub(super) const EXTRA: &str = "ial/extra";
/// A failed build is reported as running for this time.
const RETRY_TIME: Duration = Duration::from_secs(15 * 60);

/// Returns the status of a build. One that failed for good is a fault.
pub(super) fn provision_status(
    instance: &inst::Instance,
    now: SystemTime,
) -> Result<ProvisionStatus, Fault> {
    if is_ending(instance) {
        return Err(Fault::new(Code::InvalidState, "the machine is decommissioned"));
    }
    let mut status = ProvisionStatus {
        server_id: instance.id.clone(),
        provisioned: is_provisioned(instance),
        auth: Identity::default(),
        extra: Value::Object(extra(instance)),
    };
    if status.provisioned {
        status.auth = identity(instance.boot_gate.clone().unwrap_or_default());
    } else if instance.state() == State::Failed {
        if has_failed_for_good(instance, now) {
            let fault = Fault::new(Code::Unknown, "the machine could not be built");
            return Err(fault.with_detail(instance.state_reason.clone()));
        }
        status.extra["failed"] = true.into();
        status.extra["reason"] = instance.state_reason.clone().into();
    } else {
        status.extra["step"] = instance.state().word().into();
    }
    Ok(status)
}

/// Returns the values that come back with the next calls.
pub(super) fn extra(instance: &inst::Instance) -> Map<String, Value> {
    let text = instance.annotations.get(EXTRA).map(String::as_str).unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

/// True if the machine may boot, or might until it was given back. It stays so.
pub(super) fn is_provisioned(instance: &inst::Instance) -> bool {
    instance.boot_gate.as_ref().is_some_and(|gate| gate.open_time.is_some())
}

/// True if the instance is being deleted, or is deleted.
pub(crate) fn is_ending(instance: &inst::Instance) -> bool {
    matches!(instance.state(), State::Deprovisioning | State::DeprovisionFailed | State::Deleted)
}

/// Refuses a machine that is being built, has failed, or is given back.
pub(crate) fn check_usable(instance: &inst::Instance) -> Result<(), Fault> {
    if is_provisioned(instance) && instance.state() != State::Failed && !is_ending(instance) {
        return Ok(());
    }
    let state = instance.state().word();
    let fault = Fault::new(Code::InvalidState, "the machine is not provisioned");
    Err(fault.with_detail(format!("the machine is {state}")))
}

fn has_failed_for_good(instance: &inst::Instance, now: SystemTime) -> bool {
    let since = instance.state_time.and_then(|time| SystemTime::try_from(time).ok());
    since.is_some_and(|since| now.duration_since(since).is_ok_and(|age| age >= RETRY_TIME))
}

fn identity(gate: inst::BootGate) -> Identity {
    let some = |text: String| (!text.is_empty()).then(|| text.to_ascii_lowercase());
    Identity { uuid: some(gate.uuid), initial_ips: gate.initial_ips, mac_addr: some(gate.mac) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn instance(state: State) -> inst::Instance {
        let gate = inst::BootGate {
            open: true,
            uuid: "4C4C4544-0051-3610-8052-b4c04f4d3532".into(),
            mac: "b4:96:91:0a:7e:21".into(),
            initial_ips: vec!["198.51.100.37".into()],
            open_time: None,
        };
        inst::Instance {
            id: "i".into(),
            state: state.into(),
            boot_gate: Some(gate),
            state_reason: "no link".into(),
            state_time: Some(SystemTime::UNIX_EPOCH.into()),
            annotations: [(EXTRA.to_owned(), r#"{"rack":"b-12"}"#.to_owned())].into(),
            ..inst::Instance::default()
        }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn no_identity_is_shown_before_the_machine_may_boot() {
        let status = provision_status(&instance(State::Provisioning), at(0)).unwrap();
        assert_eq!((status.provisioned, &status.auth), (false, &Identity::default()));
        assert_eq!(status.extra, json!({"rack": "b-12", "step": "provisioning"}));
    }

    #[test]
    fn the_answer_for_a_finished_machine_stays_the_same() {
        let mut done = instance(State::Provisioning);
        done.boot_gate.as_mut().unwrap().open_time = Some(at(5).into());
        let first = provision_status(&done, at(5)).unwrap();
        assert_eq!(first.auth.uuid.as_deref(), Some("4c4c4544-0051-3610-8052-b4c04f4d3532"));
        assert_eq!(first.extra, json!({"rack": "b-12"}));
        done.state = State::Active.into();
        assert_eq!(provision_status(&done, at(50_000)).unwrap(), first);
        done.state = State::Failed.into();
        assert_eq!(
            provision_status(&done, at(50_000)).unwrap(),
            first,
            "it never returns to false"
        );
        assert_eq!(check_usable(&done).unwrap_err().code, Code::InvalidState);
        for state in [State::Deprovisioning, State::DeprovisionFailed, State::Deleted] {
            done.state = state.into();
            assert_eq!(provision_status(&done, at(0)).unwrap_err().code, Code::InvalidState);
            assert!(check_usable(&done).is_err());
        }
    }

    #[test]
    fn a_failed_build_goes_on_for_a_quarter_of_an_hour() {
        let failed = instance(State::Failed);
        let status = provision_status(&failed, at(899)).unwrap();
        assert_eq!(status.extra, json!({"rack": "b-12", "failed": true, "reason": "no link"}));
        let fault = provision_status(&failed, at(900)).unwrap_err();
        assert_eq!((fault.code, fault.detail.as_deref()), (Code::Unknown, Some("no link")));
    }
}

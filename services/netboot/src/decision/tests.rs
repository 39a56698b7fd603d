//! The table of the netboot specification's section 7, row by row, and what may never happen.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

fn url(text: &str) -> ScriptSource {
    ScriptSource::Url(text.into())
}

/// Free, allowed to boot, nothing waiting.
fn free() -> MachineFacts {
    MachineFacts {
        state: HardwareState::Provisionable,
        netboot: Netboot { allow_pxe: true, ..Netboot::default() },
        boot_once: None,
        instance: None,
        worker_wanted: false,
        forced: None,
    }
}

/// Occupied by an instance with an operating system. The interface's flag is off: it does not matter.
fn occupied(state: InstanceState) -> MachineFacts {
    let instance =
        Occupant { state, custom: None, always_pxe: false, script_ran: false, has_os: true };
    MachineFacts { instance: Some(instance), netboot: Netboot::default(), ..free() }
}

/// Occupied by an instance with its own script.
fn scripted(state: InstanceState, always_pxe: bool) -> MachineFacts {
    let custom = Some(url("http://t/"));
    let instance = Occupant { state, custom, always_pxe, script_ran: false, has_os: false };
    MachineFacts { instance: Some(instance), ..occupied(state) }
}

fn waiting(machine: MachineFacts) -> MachineFacts {
    MachineFacts { worker_wanted: true, ..machine }
}

fn forced(netboot: bool, machine: MachineFacts) -> MachineFacts {
    MachineFacts { forced: Some(Override { netboot, until: None }), ..machine }
}

fn live(machine: &MachineFacts) -> Decision {
    decide(Some(machine), Policy::default(), FeedState::Live, NOW)
}

#[track_caller]
fn all(rows: impl IntoIterator<Item = (MachineFacts, BootTarget, Fact)>) {
    for (machine, boot, fact) in rows {
        assert_eq!(live(&machine), Decision { boot, fact }, "{machine:?}");
    }
}

fn tenants() -> BootTarget {
    BootTarget::CustomScript { script: url("http://t/"), gated: true }
}

#[test]
fn row_1_a_machine_without_a_record_boots_only_where_the_site_says_so() {
    let generic = Policy { boot_unknown: true, ..Policy::default() };
    assert_eq!(
        decide(None, Policy::default(), FeedState::Live, NOW),
        Decision::new(BootTarget::Unknown, Fact::NoRecord)
    );
    assert_eq!(
        decide(None, generic, FeedState::Live, NOW),
        Decision::new(BootTarget::Generic, Fact::UnknownBooted)
    );
}

#[test]
fn row_2_what_is_not_allowed_is_refused_before_any_script() {
    let script = Some(url("http://s/"));
    let closed =
        MachineFacts { netboot: Netboot::default(), boot_once: script.clone(), ..waiting(free()) };
    let queued = MachineFacts { boot_once: script, ..occupied(InstanceState::Queued) };
    all([
        (closed, BootTarget::Refused, Fact::InterfaceFlag),
        (queued, BootTarget::Refused, Fact::Instance(InstanceState::Queued)),
        (forced(false, waiting(free())), BootTarget::Refused, Fact::ForcedOff),
        (forced(false, occupied(InstanceState::Rescue)), BootTarget::Refused, Fact::ForcedOff),
    ]);
}

#[test]
fn row_2_nothing_automatic_happens_to_a_machine_an_operator_holds() {
    for state in [HardwareState::Maintenance, HardwareState::Deleting] {
        let held = MachineFacts { state, ..waiting(occupied(InstanceState::Provisioning)) };
        all([(held.clone(), BootTarget::Refused, Fact::Held(state))]);
        all([(forced(true, held), BootTarget::Worker, Fact::WorkflowWaits)]);
    }
}

#[test]
fn rows_3_and_4_the_owners_scripts_go_before_the_instances() {
    let netboot = Netboot { custom: Some(url("http://nic/")), ..free().netboot };
    let nic = MachineFacts { netboot, ..scripted(InstanceState::Provisioning, true) };
    let once = MachineFacts { boot_once: Some(url("http://once/")), ..nic.clone() };
    let custom = |text| BootTarget::CustomScript { script: url(text), gated: false };
    all([
        (once, custom("http://once/"), Fact::BootOnce),
        (nic, custom("http://nic/"), Fact::InterfaceScript),
    ]);
}

#[test]
fn row_5_a_tenants_script_runs_while_provisioning_and_then_only_if_always() {
    use InstanceState::*;
    all([
        (scripted(Provisioning, false), tenants(), Fact::InstanceScript),
        (scripted(Active, false), BootTarget::LocalDisk, Fact::Instance(Active)),
    ]);
    for state in [Queued, Provisioning, Active, Reinstalling, Rescue, Failed] {
        all([(scripted(state, true), tenants(), Fact::InstanceScript)]);
    }
}

#[test]
fn row_5_after_a_tenants_script_it_is_the_disks_turn_unless_always() {
    let ran = |always_pxe| {
        let mut machine = scripted(InstanceState::Provisioning, always_pxe);
        machine.instance.as_mut().unwrap().script_ran = true;
        machine
    };
    all([
        (ran(false), BootTarget::LocalDisk, Fact::ScriptRan),
        (ran(true), tenants(), Fact::InstanceScript),
    ]);
}

#[test]
fn row_5_a_tenants_script_never_keeps_a_machine_from_its_cleaning() {
    for state in [InstanceState::Deprovisioning, InstanceState::DeprovisionFailed] {
        all([(scripted(state, true), BootTarget::Worker, Fact::Instance(state))]);
    }
}

#[test]
fn row_6_rescue_goes_before_the_workflow() {
    let rescue = occupied(InstanceState::Rescue);
    let fact = Fact::Instance(InstanceState::Rescue);
    all([(rescue.clone(), BootTarget::Rescue, fact), (waiting(rescue), BootTarget::Rescue, fact)]);
}

#[test]
fn row_7_the_worker_is_offered_while_its_workflow_waits() {
    use InstanceState::*;
    all([(waiting(free()), BootTarget::Worker, Fact::WorkflowWaits)]);
    for state in
        [Queued, Provisioning, Active, Reinstalling, Failed, Deprovisioning, DeprovisionFailed]
    {
        all([(waiting(occupied(state)), BootTarget::Worker, Fact::WorkflowWaits)]);
    }
}

#[test]
fn row_7_a_failed_or_leaving_instance_keeps_the_worker_without_a_workflow() {
    for state in
        [InstanceState::Failed, InstanceState::Deprovisioning, InstanceState::DeprovisionFailed]
    {
        all([(occupied(state), BootTarget::Worker, Fact::Instance(state))]);
    }
}

#[test]
fn row_7_allow_workflow_opens_nothing_by_itself() {
    let allowed = |machine: MachineFacts| {
        let netboot = Netboot { allow_workflow: true, ..machine.netboot.clone() };
        MachineFacts { netboot, ..machine }
    };
    all([
        (allowed(free()), BootTarget::Worker, Fact::AllowWorkflow),
        (
            allowed(occupied(InstanceState::Active)),
            BootTarget::LocalDisk,
            Fact::Instance(InstanceState::Active),
        ),
    ]);
}

#[test]
fn rows_7_and_8_the_disk_has_its_turn_before_the_instance_is_active() {
    for state in [InstanceState::Provisioning, InstanceState::Reinstalling] {
        all([(occupied(state), BootTarget::LocalDisk, Fact::DisksTurn(state))]);
    }
}

#[test]
fn row_8_an_active_instance_boots_its_disk() {
    let active = occupied(InstanceState::Active);
    let bare = Occupant { custom: None, ..scripted(InstanceState::Active, true).instance.unwrap() };
    let bare = MachineFacts { instance: Some(bare), ..free() };
    let fact = Fact::Instance(InstanceState::Active);
    all([(active, BootTarget::LocalDisk, fact), (bare, BootTarget::Refused, fact)]);
}

#[test]
fn row_9_a_free_machine_boots_what_the_site_says() {
    let rows = [
        (NoInstance::Worker, BootTarget::Worker),
        (NoInstance::LocalDisk, BootTarget::LocalDisk),
        (NoInstance::Shell, BootTarget::Shell),
    ];
    for (no_instance, boot) in rows {
        let policy = Policy { no_instance, ..Policy::default() };
        let decision = decide(Some(&free()), policy, FeedState::Live, NOW);
        assert_eq!(decision, Decision { boot, fact: Fact::NoInstance });
    }
    all([(occupied(InstanceState::Deleted), BootTarget::Refused, Fact::InterfaceFlag)]);
}

#[test]
fn an_operators_word_goes_before_everything_until_it_expires() {
    let until = NOW + Duration::from_secs(60);
    let active = occupied(InstanceState::Active);
    let word =
        MachineFacts { forced: Some(Override { netboot: true, until: Some(until) }), ..active };
    assert_eq!(live(&word), Decision::new(BootTarget::Worker, Fact::ForcedOn));
    let expired = decide(Some(&word), Policy::default(), FeedState::Live, until);
    assert_eq!(expired.boot, BootTarget::LocalDisk);
}

#[test]
fn a_stale_feed_still_refuses_and_still_boots_disks() {
    let stale = |machine: &MachineFacts| {
        decide(Some(machine), Policy::default(), FeedState::Stale, NOW).boot
    };
    assert_eq!(stale(&occupied(InstanceState::Active)), BootTarget::LocalDisk);
    assert_eq!(stale(&forced(false, free())), BootTarget::Refused);
    assert_eq!(decide(None, Policy::default(), FeedState::Stale, NOW).boot, BootTarget::Unknown);
    assert_eq!(stale(&waiting(free())), BootTarget::Later { retry: RETRY });
}

#[test]
fn before_all_was_told_everybody_waits() {
    let untold = |machine| decide(machine, Policy::default(), FeedState::Incomplete, NOW);
    let machines = [None, Some(free()), Some(occupied(InstanceState::Active))];
    for machine in &machines {
        let decision = untold(machine.as_ref());
        assert_eq!(
            decision,
            Decision::new(BootTarget::Later { retry: RETRY }, Fact::FeedIncomplete)
        );
        assert_eq!(decision.offer(), dhcp::BootOffer::Offered);
    }
}

#[test]
fn the_reason_is_one_line() {
    let decision = live(&occupied(InstanceState::Provisioning));
    assert_eq!(
        decision.fact.to_string(),
        "its instance is provisioning, its workflow is done with the worker"
    );
}

fn machine() -> impl Strategy<Value = MachineFacts> {
    let state = prop::sample::select(vec![
        HardwareState::Enrolled,
        HardwareState::Provisionable,
        HardwareState::Failed,
        HardwareState::Maintenance,
        HardwareState::Deleting,
    ]);
    let script = || prop::option::of(Just(url("http://s/")));
    let netboot =
        (any::<bool>(), any::<bool>(), script()).prop_map(|(allow_pxe, allow_workflow, custom)| {
            Netboot { allow_pxe, allow_workflow, custom }
        });
    let instance_state = prop::sample::select(vec![
        InstanceState::Queued,
        InstanceState::Provisioning,
        InstanceState::Active,
        InstanceState::Reinstalling,
        InstanceState::Rescue,
        InstanceState::Failed,
        InstanceState::Deprovisioning,
        InstanceState::DeprovisionFailed,
        InstanceState::Deleted,
    ]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let instance = (instance_state, script(), flags).prop_map(
        |(state, custom, (always_pxe, script_ran, has_os))| Occupant {
            state,
            custom,
            always_pxe,
            script_ran,
            has_os,
        },
    );
    let forced =
        prop::option::of(any::<bool>().prop_map(|netboot| Override { netboot, until: None }));
    (state, netboot, script(), prop::option::of(instance), any::<bool>(), forced).prop_map(
        |(state, netboot, boot_once, instance, worker_wanted, forced)| MachineFacts {
            state,
            netboot,
            boot_once,
            instance,
            worker_wanted,
            forced,
        },
    )
}

proptest! {
    #[test]
    fn a_stale_feed_never_opens_a_boot(machine in prop::option::of(machine()), boot_unknown: bool) {
        let policy = Policy { boot_unknown, no_instance: NoInstance::Shell };
        prop_assert!(!decide(machine.as_ref(), policy, FeedState::Stale, NOW).opens_a_boot());
    }

    #[test]
    fn a_machine_in_use_is_never_offered_a_boot_nobody_asked_for(machine in machine(), script in any::<bool>()) {
        let custom = script.then(|| url("http://t/"));
        let in_use = Occupant { custom, has_os: !script, ..occupied(InstanceState::Active).instance.unwrap() };
        let machine = MachineFacts { forced: None, worker_wanted: false, instance: Some(in_use), ..machine };
        prop_assert!(!live(&machine).opens_a_boot());
    }

    #[test]
    fn a_tenants_script_is_always_gated(machine in machine()) {
        let theirs = machine.boot_once.is_none() && machine.netboot.custom.is_none();
        if let BootTarget::CustomScript { gated, .. } = live(&machine).boot {
            prop_assert_eq!(gated, theirs);
        }
    }
}

//! The table of the netboot specification's section 7, row by row, and what may never happen.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

fn url(text: &str) -> Script {
    Script::Url(text.into())
}

/// Free, allowed to boot, nothing waiting.
fn free() -> Machine {
    Machine {
        state: HardwareState::Provisionable,
        netboot: Netboot { allow_pxe: true, ..Netboot::default() },
        boot_once: None,
        instance: None,
        worker_wanted: false,
        forced: None,
    }
}

/// Occupied by an instance with an operating system. The interface's flag is off: it does not matter.
fn occupied(state: InstanceState) -> Machine {
    let instance =
        Instance { state, custom: None, always_pxe: false, script_ran: false, has_os: true };
    Machine { instance: Some(instance), netboot: Netboot::default(), ..free() }
}

/// Occupied by an instance with its own script.
fn scripted(state: InstanceState, always_pxe: bool) -> Machine {
    let custom = Some(url("http://t/"));
    let instance = Instance { state, custom, always_pxe, script_ran: false, has_os: false };
    Machine { instance: Some(instance), ..occupied(state) }
}

fn waiting(machine: Machine) -> Machine {
    Machine { worker_wanted: true, ..machine }
}

fn forced(netboot: bool, machine: Machine) -> Machine {
    Machine { forced: Some(Override { netboot, until: None }), ..machine }
}

fn live(machine: &Machine) -> Decision {
    decide(Some(machine), Policy::default(), Feed::Live, NOW)
}

#[track_caller]
fn all(rows: impl IntoIterator<Item = (Machine, Boot, Fact)>) {
    for (machine, boot, fact) in rows {
        assert_eq!(live(&machine), Decision { boot, fact }, "{machine:?}");
    }
}

fn tenants() -> Boot {
    Boot::CustomScript { script: url("http://t/"), gated: true }
}

#[test]
fn row_1_a_machine_without_a_record_boots_only_where_the_site_says_so() {
    let generic = Policy { boot_unknown: true, ..Policy::default() };
    assert_eq!(
        decide(None, Policy::default(), Feed::Live, NOW),
        Decision::new(Boot::Unknown, Fact::NoRecord)
    );
    assert_eq!(
        decide(None, generic, Feed::Live, NOW),
        Decision::new(Boot::Generic, Fact::UnknownBooted)
    );
}

#[test]
fn row_2_what_is_not_allowed_is_refused_before_any_script() {
    let script = Some(url("http://s/"));
    let closed =
        Machine { netboot: Netboot::default(), boot_once: script.clone(), ..waiting(free()) };
    let queued = Machine { boot_once: script, ..occupied(InstanceState::Queued) };
    all([
        (closed, Boot::Refused, Fact::InterfaceFlag),
        (queued, Boot::Refused, Fact::Instance(InstanceState::Queued)),
        (forced(false, waiting(free())), Boot::Refused, Fact::ForcedOff),
        (forced(false, occupied(InstanceState::Rescue)), Boot::Refused, Fact::ForcedOff),
    ]);
}

#[test]
fn row_2_nothing_automatic_happens_to_a_machine_an_operator_holds() {
    for state in [HardwareState::Maintenance, HardwareState::Deleting] {
        let held = Machine { state, ..waiting(occupied(InstanceState::Provisioning)) };
        all([(held.clone(), Boot::Refused, Fact::Held(state))]);
        all([(forced(true, held), Boot::Worker, Fact::WorkflowWaits)]);
    }
}

#[test]
fn rows_3_and_4_the_owners_scripts_go_before_the_instances() {
    let netboot = Netboot { custom: Some(url("http://nic/")), ..free().netboot };
    let nic = Machine { netboot, ..scripted(InstanceState::Provisioning, true) };
    let once = Machine { boot_once: Some(url("http://once/")), ..nic.clone() };
    let custom = |text| Boot::CustomScript { script: url(text), gated: false };
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
        (scripted(Active, false), Boot::LocalDisk, Fact::Instance(Active)),
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
        (ran(false), Boot::LocalDisk, Fact::ScriptRan),
        (ran(true), tenants(), Fact::InstanceScript),
    ]);
}

#[test]
fn row_5_a_tenants_script_never_keeps_a_machine_from_its_cleaning() {
    for state in [InstanceState::Deprovisioning, InstanceState::DeprovisionFailed] {
        all([(scripted(state, true), Boot::Worker, Fact::Instance(state))]);
    }
}

#[test]
fn row_6_rescue_goes_before_the_workflow() {
    let rescue = occupied(InstanceState::Rescue);
    let fact = Fact::Instance(InstanceState::Rescue);
    all([(rescue.clone(), Boot::Rescue, fact), (waiting(rescue), Boot::Rescue, fact)]);
}

#[test]
fn row_7_the_worker_is_offered_while_its_workflow_waits() {
    use InstanceState::*;
    all([(waiting(free()), Boot::Worker, Fact::WorkflowWaits)]);
    for state in
        [Queued, Provisioning, Active, Reinstalling, Failed, Deprovisioning, DeprovisionFailed]
    {
        all([(waiting(occupied(state)), Boot::Worker, Fact::WorkflowWaits)]);
    }
}

#[test]
fn row_7_a_failed_or_leaving_instance_keeps_the_worker_without_a_workflow() {
    for state in
        [InstanceState::Failed, InstanceState::Deprovisioning, InstanceState::DeprovisionFailed]
    {
        all([(occupied(state), Boot::Worker, Fact::Instance(state))]);
    }
}

#[test]
fn row_7_allow_workflow_opens_nothing_by_itself() {
    let allowed = |machine: Machine| {
        let netboot = Netboot { allow_workflow: true, ..machine.netboot.clone() };
        Machine { netboot, ..machine }
    };
    all([
        (allowed(free()), Boot::Worker, Fact::AllowWorkflow),
        (
            allowed(occupied(InstanceState::Active)),
            Boot::LocalDisk,
            Fact::Instance(InstanceState::Active),
        ),
    ]);
}

#[test]
fn rows_7_and_8_the_disk_has_its_turn_before_the_instance_is_active() {
    for state in [InstanceState::Provisioning, InstanceState::Reinstalling] {
        all([(occupied(state), Boot::LocalDisk, Fact::DisksTurn(state))]);
    }
}

#[test]
fn row_8_an_active_instance_boots_its_disk() {
    let active = occupied(InstanceState::Active);
    let bare = Instance { custom: None, ..scripted(InstanceState::Active, true).instance.unwrap() };
    let bare = Machine { instance: Some(bare), ..free() };
    let fact = Fact::Instance(InstanceState::Active);
    all([(active, Boot::LocalDisk, fact), (bare, Boot::Refused, fact)]);
}

#[test]
fn row_9_a_free_machine_boots_what_the_site_says() {
    let rows = [
        (NoInstance::Worker, Boot::Worker),
        (NoInstance::LocalDisk, Boot::LocalDisk),
        (NoInstance::Shell, Boot::Shell),
    ];
    for (no_instance, boot) in rows {
        let policy = Policy { no_instance, ..Policy::default() };
        let decision = decide(Some(&free()), policy, Feed::Live, NOW);
        assert_eq!(decision, Decision { boot, fact: Fact::NoInstance });
    }
    all([(occupied(InstanceState::Deleted), Boot::Refused, Fact::InterfaceFlag)]);
}

#[test]
fn an_operators_word_goes_before_everything_until_it_expires() {
    let until = NOW + Duration::from_secs(60);
    let active = occupied(InstanceState::Active);
    let word = Machine { forced: Some(Override { netboot: true, until: Some(until) }), ..active };
    assert_eq!(live(&word), Decision::new(Boot::Worker, Fact::ForcedOn));
    let expired = decide(Some(&word), Policy::default(), Feed::Live, until);
    assert_eq!(expired.boot, Boot::LocalDisk);
}

#[test]
fn a_stale_feed_still_refuses_and_still_boots_disks() {
    let stale = |machine: &Machine| decide(Some(machine), Policy::default(), Feed::Stale, NOW).boot;
    assert_eq!(stale(&occupied(InstanceState::Active)), Boot::LocalDisk);
    assert_eq!(stale(&forced(false, free())), Boot::Refused);
    assert_eq!(decide(None, Policy::default(), Feed::Stale, NOW).boot, Boot::Unknown);
    assert_eq!(stale(&waiting(free())), Boot::Later { retry: RETRY });
}

#[test]
fn before_all_was_told_everybody_waits() {
    let untold = |machine| decide(machine, Policy::default(), Feed::Untold, NOW);
    let machines = [None, Some(free()), Some(occupied(InstanceState::Active))];
    for machine in &machines {
        let decision = untold(machine.as_ref());
        assert_eq!(decision, Decision::new(Boot::Later { retry: RETRY }, Fact::Untold));
        assert_eq!(decision.offer(), crate::dhcp::BootOffer::Offered);
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

fn machine() -> impl Strategy<Value = Machine> {
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
        |(state, custom, (always_pxe, script_ran, has_os))| Instance {
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
        |(state, netboot, boot_once, instance, worker_wanted, forced)| Machine {
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
        prop_assert!(!decide(machine.as_ref(), policy, Feed::Stale, NOW).opens_a_boot());
    }

    #[test]
    fn a_machine_in_use_is_never_offered_a_boot_nobody_asked_for(machine in machine(), script in any::<bool>()) {
        let custom = script.then(|| url("http://t/"));
        let in_use = Instance { custom, has_os: !script, ..occupied(InstanceState::Active).instance.unwrap() };
        let machine = Machine { forced: None, worker_wanted: false, instance: Some(in_use), ..machine };
        prop_assert!(!live(&machine).opens_a_boot());
    }

    #[test]
    fn a_tenants_script_is_always_gated(machine in machine()) {
        let theirs = machine.boot_once.is_none() && machine.netboot.custom.is_none();
        if let Boot::CustomScript { gated, .. } = live(&machine).boot {
            prop_assert_eq!(gated, theirs);
        }
    }
}

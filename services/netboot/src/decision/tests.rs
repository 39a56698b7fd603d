//! The rows of `docs/reference/boot-decision.md`, and what may never happen.

use proptest::prelude::*;

use super::*;

fn stale() -> Freshness {
    Freshness::StaleSince(std::time::Instant::now())
}

fn url(text: &str) -> ScriptSource {
    ScriptSource::Url(text.into())
}

/// Free, allowed to boot, nothing waiting.
fn free() -> MachineFacts {
    MachineFacts {
        state: HardwareState::Provisionable,
        netboot: InterfaceSettings { allow_pxe: true, ..InterfaceSettings::default() },
        boot_once: None,
        instance: None,
        worker_wanted: false,
        is_unprepared: false,
    }
}

/// Occupied by an instance with an operating system. The interface's flag is off: it does not matter.
fn occupied(state: InstanceState) -> MachineFacts {
    let instance = Occupant {
        state,
        custom: None,
        always_pxe: false,
        script_ran: false,
        has_os: true,
        platform: None,
        is_node: false,
    };
    MachineFacts { instance: Some(instance), netboot: InterfaceSettings::default(), ..free() }
}

/// Occupied by an instance with its own script.
fn scripted(state: InstanceState, always_pxe: bool) -> MachineFacts {
    let mut machine = occupied(state);
    let instance = machine.instance.as_mut().unwrap();
    (instance.custom, instance.always_pxe) = (Some(url("http://t/")), always_pxe);
    instance.has_os = false;
    machine
}

/// Occupied by the system of an outside platform; its gate is open if there is a script.
fn of_platform(state: InstanceState, script: Option<ScriptSource>) -> MachineFacts {
    let mut machine = occupied(state);
    let instance = machine.instance.as_mut().unwrap();
    (instance.has_os, instance.platform) = (false, Some(PlatformSystem { script }));
    machine
}

/// Occupied by an instance with a stack of images.
fn node(state: InstanceState) -> MachineFacts {
    let mut machine = occupied(state);
    let instance = machine.instance.as_mut().unwrap();
    (instance.has_os, instance.is_node) = (false, true);
    machine
}

fn waiting(machine: MachineFacts) -> MachineFacts {
    MachineFacts { worker_wanted: true, ..machine }
}

fn live(machine: &MachineFacts) -> Decision {
    decide(Some(machine), Policy::default(), Freshness::Live)
}

#[track_caller]
fn all(rows: impl IntoIterator<Item = (MachineFacts, BootTarget, Fact)>) {
    for (machine, boot, fact) in rows {
        assert_eq!(live(&machine), Decision { boot, fact }, "{machine:?}");
    }
}

fn tenants() -> BootTarget {
    BootTarget::CustomScript(url("http://t/"))
}

#[test]
fn row_1_a_machine_without_a_record_boots_only_if_the_policy_allows_it() {
    let generic = Policy { boot_unknown: true, ..Policy::default() };
    assert_eq!(
        decide(None, Policy::default(), Freshness::Live),
        Decision::new(BootTarget::Unknown, Fact::NoRecord)
    );
    assert_eq!(
        decide(None, generic, Freshness::Live),
        Decision::new(BootTarget::Generic, Fact::UnknownBooted)
    );
}

#[test]
fn row_2_a_machine_that_may_not_boot_is_refused_before_any_script() {
    let script = Some(url("http://s/"));
    let closed = MachineFacts {
        netboot: InterfaceSettings::default(),
        boot_once: script.clone(),
        ..waiting(free())
    };
    let queued = MachineFacts { boot_once: script, ..occupied(InstanceState::Queued) };
    all([
        (closed, BootTarget::Refused, Fact::InterfaceFlag),
        (queued, BootTarget::Refused, Fact::Instance(InstanceState::Queued)),
    ]);
}

#[test]
fn row_2_a_machine_in_maintenance_or_deletion_is_refused() {
    for state in [HardwareState::Maintenance, HardwareState::Deleting] {
        let held = MachineFacts { state, ..waiting(occupied(InstanceState::Provisioning)) };
        all([(held, BootTarget::Refused, Fact::HardwareState(state))]);
    }
}

#[test]
fn rows_3_and_4_scripts_of_the_record_precede_those_of_the_instance() {
    let netboot = InterfaceSettings { custom: Some(url("http://nic/")), ..free().netboot };
    let nic = MachineFacts { netboot, ..scripted(InstanceState::Provisioning, true) };
    let once = MachineFacts { boot_once: Some(url("http://once/")), ..nic.clone() };
    let custom = |text| BootTarget::CustomScript(url(text));
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
        (scripted(Reinstalling, false), tenants(), Fact::InstanceScript),
        (scripted(Active, false), BootTarget::LocalDisk, Fact::Instance(Active)),
    ]);
    for state in [Queued, Provisioning, Active, Failed] {
        all([(scripted(state, true), tenants(), Fact::InstanceScript)]);
    }
}

#[test]
fn row_5_after_a_tenants_script_the_disk_boots_unless_always_pxe() {
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
fn row_5_a_tenants_script_never_runs_while_its_machine_is_taken_back() {
    use InstanceState::*;
    for (state, boot) in
        [(Deprovisioning, BootTarget::Later), (DeprovisionFailed, BootTarget::Refused)]
    {
        all([
            (scripted(state, true), boot, Fact::Instance(state)),
            (waiting(scripted(state, true)), BootTarget::Worker, Fact::WorkflowWaits),
        ]);
    }
}

#[test]
fn a_platforms_system_boots_at_every_boot_while_its_gate_is_open() {
    use InstanceState::*;
    for state in [Provisioning, Active, Failed, Unspecified] {
        let mut machine = of_platform(state, Some(url("http://t/")));
        machine.instance.as_mut().unwrap().script_ran = true;
        all([
            (machine.clone(), tenants(), Fact::PlatformScript),
            (waiting(machine), tenants(), Fact::PlatformScript),
            (of_platform(state, None), BootTarget::Refused, Fact::PlatformGateClosed),
        ]);
    }
    all([(of_platform(Queued, None), BootTarget::Refused, Fact::PlatformGateClosed)]);
    let kept = MachineFacts {
        state: HardwareState::Maintenance,
        ..of_platform(Active, Some(url("http://t/")))
    };
    assert!(!kept.boots_platform());
    all([(kept, BootTarget::Refused, Fact::HardwareState(HardwareState::Maintenance))]);
}

#[test]
fn a_platforms_system_never_boots_while_its_machine_is_taken_back() {
    use InstanceState::*;
    // Whatever the record of the gate says.
    for script in [None, Some(url("http://t/"))] {
        let leaving = |state| of_platform(state, script.clone());
        assert!(!leaving(Deprovisioning).boots_platform());
        all([
            (leaving(Deprovisioning), BootTarget::Later, Fact::Instance(Deprovisioning)),
            (waiting(leaving(Deprovisioning)), BootTarget::Worker, Fact::WorkflowWaits),
            (leaving(DeprovisionFailed), BootTarget::Refused, Fact::PlatformGateClosed),
            (waiting(leaving(DeprovisionFailed)), BootTarget::Worker, Fact::WorkflowWaits),
        ]);
    }
}

#[test]
fn a_node_loads_its_environment_at_every_boot_but_not_before_or_after_its_instance() {
    use InstanceState::{
        Active, DeprovisionFailed, Deprovisioning, Failed, Provisioning, Queued, Reinstalling,
    };
    for state in [Provisioning, Reinstalling, Active, InstanceState::Unspecified] {
        all([
            (node(state), BootTarget::Node, Fact::ImageStack),
            (waiting(node(state)), BootTarget::Worker, Fact::WorkflowWaits),
        ]);
    }
    for state in [Queued, Failed, DeprovisionFailed] {
        all([(node(state), BootTarget::Refused, Fact::Instance(state))]);
    }
    all([(node(Deprovisioning), BootTarget::Later, Fact::Instance(Deprovisioning))]);
    let once = MachineFacts { boot_once: Some(url("http://once/")), ..node(Active) };
    let custom = BootTarget::CustomScript(url("http://once/"));
    all([(once, custom, Fact::BootOnce)]);
}

#[test]
fn a_stale_feed_may_hide_that_a_gate_was_opened() {
    let closed = of_platform(InstanceState::Queued, None);
    let decision = decide(Some(&closed), Policy::default(), stale());
    assert_eq!(decision, Decision::new(BootTarget::Later, Fact::StaleFeed));
}

#[test]
fn row_7_the_worker_is_offered_while_its_workflow_waits() {
    use InstanceState::*;
    all([(waiting(free()), BootTarget::Worker, Fact::WorkflowWaits)]);
    for state in
        [Queued, Provisioning, Reinstalling, Active, Failed, Deprovisioning, DeprovisionFailed]
    {
        all([(waiting(occupied(state)), BootTarget::Worker, Fact::WorkflowWaits)]);
    }
}

#[test]
fn row_6_a_machine_that_is_not_prepared_for_its_workflow_waits_whatever_its_instance_is() {
    use InstanceState::*;
    let unprepared = |machine| MachineFacts { is_unprepared: true, ..machine };
    let later = |machine| (unprepared(machine), BootTarget::Later, Fact::Unprepared);
    all([later(free()), later(scripted(Provisioning, false)), later(scripted(Active, true))]);
    for state in
        [Queued, Provisioning, Reinstalling, Active, Failed, Deprovisioning, DeprovisionFailed]
    {
        all([later(occupied(state))]);
    }
    let other = unprepared(waiting(occupied(Provisioning)));
    all([(other, BootTarget::Worker, Fact::WorkflowWaits)]);
}

#[test]
fn row_7_a_failed_or_leaving_instance_gets_no_worker_without_a_workflow() {
    use InstanceState::*;
    all([
        (occupied(Failed), BootTarget::Refused, Fact::Instance(Failed)),
        (occupied(Deprovisioning), BootTarget::Later, Fact::Instance(Deprovisioning)),
        (occupied(DeprovisionFailed), BootTarget::Refused, Fact::Instance(DeprovisionFailed)),
    ]);
}

#[test]
fn row_7_allow_workflow_opens_nothing_by_itself() {
    let allowed = |machine: MachineFacts| {
        let netboot = InterfaceSettings { allow_workflow: true, ..machine.netboot.clone() };
        MachineFacts { netboot, ..machine }
    };
    all([
        (allowed(free()), BootTarget::Worker, Fact::AllowWorkflow),
        (allowed(occupied(InstanceState::Failed)), BootTarget::Worker, Fact::AllowWorkflow),
        (
            allowed(occupied(InstanceState::DeprovisionFailed)),
            BootTarget::Refused,
            Fact::Instance(InstanceState::DeprovisionFailed),
        ),
        (
            allowed(occupied(InstanceState::Active)),
            BootTarget::LocalDisk,
            Fact::Instance(InstanceState::Active),
        ),
    ]);
}

#[test]
fn rows_7_and_8_the_disk_boots_before_the_instance_is_active() {
    for state in [InstanceState::Provisioning, InstanceState::Reinstalling] {
        all([(occupied(state), BootTarget::LocalDisk, Fact::WorkerDone(state))]);
    }
}

#[test]
fn row_8_an_active_instance_boots_its_disk() {
    let active = occupied(InstanceState::Active);
    let bare = Occupant { custom: None, ..scripted(InstanceState::Active, true).instance.unwrap() };
    let bare = MachineFacts { instance: Some(bare), ..free() };
    let fact = Fact::Instance(InstanceState::Active);
    let newer = InstanceState::Unspecified;
    all([
        (active, BootTarget::LocalDisk, fact),
        (bare, BootTarget::Refused, fact),
        (occupied(newer), BootTarget::LocalDisk, Fact::Instance(newer)),
    ]);
}

#[test]
fn row_9_a_free_machine_boots_by_the_policy() {
    let rows = [
        (NoInstance::Worker, BootTarget::Worker),
        (NoInstance::LocalDisk, BootTarget::LocalDisk),
        (NoInstance::Shell, BootTarget::Shell),
    ];
    for (no_instance, boot) in rows {
        let policy = Policy { no_instance, ..Policy::default() };
        let decision = decide(Some(&free()), policy, Freshness::Live);
        assert_eq!(decision, Decision { boot, fact: Fact::NoInstance });
    }
}

#[test]
fn a_stale_feed_still_refuses_and_still_boots_disks() {
    let boot_of = |machine: &MachineFacts| decide(Some(machine), Policy::default(), stale()).boot;
    assert_eq!(boot_of(&occupied(InstanceState::Active)), BootTarget::LocalDisk);
    assert_eq!(boot_of(&occupied(InstanceState::Queued)), BootTarget::Refused);
    assert_eq!(decide(None, Policy::default(), stale()).boot, BootTarget::Unknown);
    assert_eq!(boot_of(&waiting(free())), BootTarget::Later);
}

#[test]
fn before_the_feeds_are_complete_every_machine_waits() {
    let decided = |machine| decide(machine, Policy::default(), Freshness::NeverSynced);
    let machines = [None, Some(free()), Some(occupied(InstanceState::Active))];
    for machine in &machines {
        let decision = decided(machine.as_ref());
        assert_eq!(decision, Decision::new(BootTarget::Later, Fact::FeedIncomplete));
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

/// The machines and policies of the rows in `docs/reference/boot-decision.md`.
fn reference_rows() -> Vec<(Option<MachineFacts>, Policy)> {
    use InstanceState::*;
    let with = |change: fn(&mut MachineFacts), mut machine: MachineFacts| {
        change(&mut machine);
        machine
    };
    let started = |machine: &mut MachineFacts| machine.instance.as_mut().unwrap().script_ran = true;
    let bare = |machine: &mut MachineFacts| machine.instance.as_mut().unwrap().has_os = false;
    let machines = [
        with(|machine| machine.state = HardwareState::Maintenance, free()),
        with(|machine| machine.state = HardwareState::Deleting, free()),
        with(|machine| machine.netboot.allow_pxe = false, free()),
        with(|machine| machine.is_unprepared = true, occupied(Deprovisioning)),
        of_platform(Queued, None),
        occupied(Queued),
        with(started, scripted(Provisioning, false)),
        occupied(Provisioning),
        occupied(Active),
        with(bare, occupied(Active)),
        occupied(Failed),
        occupied(Deprovisioning),
        occupied(DeprovisionFailed),
        with(|machine| machine.boot_once = Some(url("http://once/")), free()),
        with(|machine| machine.netboot.custom = Some(url("http://nic/")), free()),
        scripted(Provisioning, false),
        of_platform(Active, Some(url("http://t/"))),
        waiting(occupied(Provisioning)),
        node(Active),
        with(|machine| machine.netboot.allow_workflow = true, free()),
    ];
    let boot_unknown = Policy { boot_unknown: true, ..Policy::default() };
    let free_with = |no_instance| (Some(free()), Policy { no_instance, ..Policy::default() });
    let mut rows = vec![(None, boot_unknown), (None, Policy::default())];
    rows.extend(machines.map(|machine| (Some(machine), Policy::default())));
    rows.extend([NoInstance::Worker, NoInstance::LocalDisk, NoInstance::Shell].map(free_with));
    rows
}

#[test]
fn the_reference_page_has_the_result_of_each_row() {
    let page = include_str!("../../../../docs/reference/boot-decision.md");
    let rows = reference_rows();
    for (row, (machine, policy)) in rows.iter().enumerate() {
        let Decision { boot, fact } = decide(machine.as_ref(), *policy, Freshness::Live);
        let name = match boot {
            BootTarget::Worker => "worker",
            BootTarget::Node => "environment of nodes",
            BootTarget::CustomScript(_) => "custom script",
            BootTarget::LocalDisk => "local disk",
            BootTarget::Shell => "shell",
            BootTarget::Generic => "generic script",
            BootTarget::Refused => "refused",
            BootTarget::Unknown => "unknown",
            BootTarget::Later => "later",
        };
        let begin = format!("| {} |", row + 1);
        let line = page.lines().find(|line| line.starts_with(&begin)).unwrap();
        assert!(line.ends_with(&format!("| {name} | {fact} |")), "{line}: {name}, {fact}");
    }
    let listed = page.lines().filter(|line| line.as_bytes().get(2).is_some_and(u8::is_ascii_digit));
    assert_eq!(listed.count(), rows.len());
}

fn machine() -> impl Strategy<Value = MachineFacts> {
    let state = prop::sample::select(vec![
        HardwareState::Enrolled,
        HardwareState::Provisionable,
        HardwareState::Failed,
        HardwareState::Maintenance,
        HardwareState::Deleting,
        HardwareState::Unspecified,
    ]);
    let script = || prop::option::of(Just(url("http://s/")));
    let netboot =
        (any::<bool>(), any::<bool>(), script()).prop_map(|(allow_pxe, allow_workflow, custom)| {
            InterfaceSettings { allow_pxe, allow_workflow, custom }
        });
    let instance_state = prop::sample::select(vec![
        InstanceState::Queued,
        InstanceState::Provisioning,
        InstanceState::Reinstalling,
        InstanceState::Active,
        InstanceState::Failed,
        InstanceState::Deprovisioning,
        InstanceState::DeprovisionFailed,
        InstanceState::Unspecified,
    ]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let platform = prop::option::of(script().prop_map(|script| PlatformSystem { script }));
    let instance = (instance_state, script(), flags, platform).prop_map(
        |(state, custom, (always_pxe, script_ran, has_os, is_node), platform)| Occupant {
            state,
            custom,
            always_pxe,
            script_ran,
            has_os,
            platform,
            is_node,
        },
    );
    let workflow = (any::<bool>(), any::<bool>());
    (state, netboot, script(), prop::option::of(instance), workflow).prop_map(
        |(state, netboot, boot_once, instance, (worker_wanted, is_unprepared))| MachineFacts {
            state,
            netboot,
            boot_once,
            instance,
            worker_wanted,
            is_unprepared,
        },
    )
}

proptest! {
    #[test]
    fn a_stale_feed_never_opens_a_boot(machine in prop::option::of(machine()), boot_unknown: bool) {
        let policy = Policy { boot_unknown, no_instance: NoInstance::Shell };
        prop_assert!(!decide(machine.as_ref(), policy, stale()).opens_a_boot());
    }

    #[test]
    fn a_machine_that_is_not_prepared_or_is_taken_back_boots_nothing_else(machine in machine()) {
        let taken_back = machine.instance.as_ref().is_some_and(Occupant::is_leaving);
        let machine = MachineFacts { worker_wanted: false, ..machine };
        prop_assume!(taken_back || machine.is_unprepared);
        let boot = live(&machine).boot;
        prop_assert!(matches!(boot, BootTarget::Later | BootTarget::Refused), "{:?}", boot);
    }

    #[test]
    fn a_machine_in_use_is_never_offered_a_boot_without_a_workflow(machine in machine(), script in any::<bool>()) {
        let custom = script.then(|| url("http://t/"));
        let in_use = Occupant { custom, has_os: !script, ..occupied(InstanceState::Active).instance.unwrap() };
        let machine = MachineFacts { worker_wanted: false, instance: Some(in_use), ..machine };
        prop_assert!(!live(&machine).opens_a_boot());
    }
}

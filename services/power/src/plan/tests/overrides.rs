//! Boot overrides: the requests that set and clear one, and their modes.

use super::*;
use crate::forms::{BootMode, BootResource};

#[test]
fn a_boot_once_that_reads_as_continuous_counts_only_after_a_request() {
    let pxe = boot(Device::Pxe, Mode::Unspecified);
    let system = reads("Continuous", "Pxe");
    let Next::Send(request) = next_of(&pxe, &system, &Progress::default(), 0) else { panic!() };
    let wanted =
        BootRequest { enabled: "Once", target: Some("Pxe"), mode: None, http_url: String::new() };
    assert_eq!(request.call, Call::Boot { request: wanted, in_settings: false });
    let done = next_of(&pxe, &system, &sent("boot", true), 0);
    assert_eq!(done, Next::Done(vec!["boot once reads back as continuous".into()]));
}

#[test]
fn an_override_that_cannot_be_cleared_is_set_to_the_disk() {
    let none = boot(Device::None, Mode::Unspecified);
    let mut progress = Progress::default();
    for expected in ["clear", "clear target", "disk instead of none"] {
        progress.request = name(next_of(&none, &reads("Continuous", "Pxe"), &progress, 0));
        assert_eq!(progress.request, expected);
        progress.refused.push(expected.into());
    }
    progress = sent("disk instead of none", true);
    let done = next_of(&none, &reads("Continuous", "Hdd"), &progress, 0);
    assert!(matches!(done, Next::Done(downgrades) if downgrades.len() == 1));
    assert_eq!(
        next_of(&none, &reads("Disabled", "Pxe"), &Progress::default(), 0),
        Next::Done(vec![])
    );
}

/// The system that reports `mode`, and lists `modes` as allowed.
fn in_mode(system: System, mode: &str, modes: &[&str]) -> System {
    let modes = modes.iter().map(|mode| (*mode).to_owned()).collect();
    System { boot: BootOverride { mode: mode.into(), modes, ..system.boot }, ..system }
}

/// The mode in the request.
fn sent_mode(next: Next) -> Option<&'static str> {
    let Next::Send(Request { call: Call::Boot { request, .. }, .. }) = next else {
        panic!("{next:?}")
    };
    request.mode
}

#[test]
fn a_mode_is_sent_only_to_a_bmc_that_lists_it_or_reports_another_one() {
    let uefi = boot(Device::Pxe, Mode::Uefi);
    for (reported, listed, expected) in [
        ("Legacy", &[][..], Some("UEFI")),
        ("UEFI", &[], None),
        ("", &[], None),
        ("", &["Legacy", "UEFI"], Some("UEFI")),
        ("UEFI", &["Legacy", "UEFI"], Some("UEFI")),
        ("Legacy", &["Legacy"], None),
    ] {
        let system = in_mode(reads("Disabled", "None"), reported, listed);
        let mode = sent_mode(next_of(&uefi, &system, &Progress::default(), 0));
        assert_eq!(mode, expected, "of a BMC that reports {reported:?} and lists {listed:?}");
    }
}

#[test]
fn a_refused_mode_is_left_out_and_the_job_reports_a_downgrade() {
    let uefi = boot(Device::Pxe, Mode::Uefi);
    let refused = Progress { refused: vec!["boot".into()], ..sent("boot", false) };
    let legacy = |system| in_mode(system, "Legacy", &[]);
    let without = name(next_of(&uefi, &legacy(reads("Disabled", "None")), &refused, 0));
    assert_eq!(without, "boot without mode");
    let reading = legacy(reads("Once", "Pxe"));
    let done = next_of(&uefi, &reading, &sent("boot without mode", true), 0);
    assert_eq!(done, Next::Done(vec!["mode UEFI reads back as \"Legacy\"".into()]));
}

#[test]
fn a_bmc_that_reports_no_mode_is_sent_none_and_the_job_says_so() {
    let legacy = boot(Device::Pxe, Mode::Legacy);
    let request = next_of(&legacy, &reads("Disabled", "None"), &Progress::default(), 0);
    assert_eq!(name(request), "boot without mode");
    let done = Next::Done(vec!["the BMC reports no boot mode: Legacy was not named".into()]);
    let reading = reads("Once", "Pxe");
    assert_eq!(next_of(&legacy, &reading, &Progress::default(), 0), done);
    assert_eq!(next_of(&legacy, &reading, &sent("boot without mode", true), 0), done);
}

#[test]
fn a_mode_that_changes_with_a_request_which_does_not_name_it_is_named_next() {
    let uefi = boot(Device::Pxe, Mode::Uefi);
    let present = name(next_of(
        &uefi,
        &in_mode(reads("Disabled", "None"), "UEFI", &[]),
        &Progress::default(),
        0,
    ));
    assert_eq!(present, "boot in present mode");
    let done =
        next_of(&uefi, &in_mode(reads("Once", "Pxe"), "UEFI", &[]), &sent(&present, true), 0);
    assert_eq!(done, Next::Done(vec![]));
    let changed =
        next_of(&uefi, &in_mode(reads("Once", "Pxe"), "Legacy", &[]), &sent(&present, true), 0);
    assert_eq!(sent_mode(changed), Some("UEFI"));
}

/// Maximum number of requests of an operation.
const MAX_REQUESTS: usize = 10;

/// Each request until the operation ends, with a reading after each by `reaction`, which returns
/// false to refuse it.
fn requests(
    wanted: &pb::Operation,
    mut system: System,
    mut progress: Progress,
    reaction: impl Fn(&mut System, &BootRequest) -> bool,
) -> (Vec<String>, Next) {
    let mut names = Vec::new();
    for now in 0.. {
        progress = observe(progress, &system);
        match next_of(wanted, &system, &progress, now * 1_000) {
            Next::Send(sent) if names.len() < MAX_REQUESTS => {
                let Call::Boot { request, .. } = &sent.call else { panic!("{sent:?}") };
                names.push(sent.name.clone());
                progress = record_request(progress, &sent, now * 1_000);
                progress.accepted = reaction(&mut system, request);
                if !progress.accepted {
                    progress.refused.push(sent.name);
                }
            }
            Next::Wait => {}
            end @ (Next::Done(_) | Next::Impossible(_) | Next::Send(_)) => return (names, end),
        }
    }
    unreachable!()
}

/// Carries out `request`, as a BMC does that names its mode `mode` then.
fn carry_out(system: &mut System, request: &BootRequest, mode: &str) {
    system.boot.enabled = request.enabled.into();
    system.boot.target = request.target.unwrap_or(&system.boot.target).to_owned();
    system.boot.mode = request.mode.unwrap_or(mode).into();
}

#[test]
fn a_bmc_that_requires_the_mode_is_sent_the_one_that_it_reports() {
    let requires = |system: &mut System, request: &BootRequest| {
        let is_named = request.mode.is_some();
        if is_named {
            carry_out(system, request, "");
        }
        is_named
    };
    let uefi = in_mode(reads("Disabled", "None"), "UEFI", &["Legacy", "UEFI"]);
    let pxe = boot(Device::Pxe, Mode::Unspecified);
    let (names, end) = requests(&pxe, uefi, Progress::default(), requires);
    assert_eq!(
        (names, end),
        (vec!["boot".into(), "boot in former mode".into()], Next::Done(vec![]))
    );
    let once = in_mode(reads("Once", "Pxe"), "UEFI", &["Legacy", "UEFI"]);
    let none = boot(Device::None, Mode::Unspecified);
    let (names, end) = requests(&none, once, Progress::default(), requires);
    assert_eq!(
        (names, end),
        (
            vec!["clear".into(), "clear target".into(), "clear in former mode".into()],
            Next::Done(vec![])
        )
    );
}

#[test]
fn a_mode_that_the_bmc_changed_is_set_back() {
    let falls_back = |system: &mut System, request: &BootRequest| {
        carry_out(system, request, "Legacy");
        true
    };
    for (device, reading, first) in [
        (Device::Pxe, reads("Disabled", "None"), "boot"),
        (Device::None, reads("Once", "Pxe"), "clear"),
    ] {
        let system = in_mode(reading, "UEFI", &[]);
        let wanted = boot(device, Mode::Unspecified);
        let (names, end) = requests(&wanted, system, Progress::default(), falls_back);
        let second = format!("{first} in former mode");
        assert_eq!((names, end), (vec![first.into(), second], Next::Done(vec![])));
    }
}

#[test]
fn a_mode_that_cannot_be_set_back_is_a_downgrade() {
    let never_uefi = |system: &mut System, request: &BootRequest| {
        let is_accepted = request.mode.is_none();
        if is_accepted {
            carry_out(system, request, "Legacy");
        }
        is_accepted
    };
    let system = in_mode(reads("Disabled", "None"), "UEFI", &[]);
    let pxe = boot(Device::Pxe, Mode::Unspecified);
    let (_, end) = requests(&pxe, system, Progress::default(), never_uefi);
    assert_eq!(end, Next::Done(vec!["the boot mode changed from UEFI to Legacy".into()]));
}

#[test]
fn a_bmc_that_requires_a_mode_and_reports_none_is_sent_a_listed_one() {
    let requires = |system: &mut System, request: &BootRequest| {
        let is_named = request.mode == Some("Legacy");
        if is_named {
            carry_out(system, request, "");
            system.boot.mode.clear();
        }
        is_named
    };
    let pxe = boot(Device::Pxe, Mode::Unspecified);
    let listed = in_mode(reads("Disabled", "None"), "", &["Legacy"]);
    let (names, _) = requests(&pxe, listed, Progress::default(), requires);
    assert_eq!(names, ["boot", "boot by legacy"]);
    let missing =
        Progress { missing: vec!["BootSourceOverrideMode".into()], ..Progress::default() };
    let (names, _) = requests(&pxe, reads("Disabled", "None"), missing, requires);
    assert_eq!(names, ["boot", "boot by uefi", "boot by legacy"]);
}

#[test]
fn what_a_bmc_accepted_before_comes_first() {
    let mut accepted = AcceptedForms::only(BootMode::Named);
    let system =
        System { settings: Some("/s".into()), ..in_mode(reads("Disabled", "None"), "UEFI", &[]) };
    let first = |accepted: &AcceptedForms| {
        let pxe = boot(Device::Pxe, Mode::Unspecified);
        name(next(&pxe, &system, &Progress::default(), accepted, &Timing::default(), 0))
    };
    assert_eq!(first(&accepted), "boot in former mode");
    accepted.accept(BootResource::Settings);
    assert_eq!(first(&accepted), "boot in former mode in settings");
    assert_eq!(first(&AcceptedForms::default()), "boot");
}

#[test]
fn a_mode_that_was_named_before_is_no_reason_to_guess_one() {
    let named = AcceptedForms::only(BootMode::Named);
    let unknown = reads("Disabled", "None");
    for (device, reading, first, guess) in [
        (Device::Pxe, &unknown, "boot", "boot by uefi"),
        (Device::None, &reads("Once", "Pxe"), "clear", "clear by uefi"),
    ] {
        let wanted = boot(device, Mode::Unspecified);
        let next_after = |progress: &Progress| {
            name(next(&wanted, reading, progress, &named, &Timing::default(), 0))
        };
        assert_eq!(next_after(&Progress::default()), first);
        let missing = vec!["BootSourceOverrideMode".into()];
        let refused = vec![first.into(), "clear target".into()];
        assert_eq!(next_after(&Progress { missing, refused, ..sent(first, false) }), guess);
    }
}

#[test]
fn a_wish_that_names_the_mode_tells_nothing_of_requests_that_leave_it_unchanged() {
    let system = in_mode(reads("Disabled", "None"), "UEFI", &[]);
    let form = |mode, progress: &Progress| {
        let Next::Send(request) = next_of(&boot(Device::Pxe, mode), &system, progress, 0) else {
            panic!()
        };
        (sent_mode(Next::Send(request.clone())), request.forms.get::<BootMode>())
    };
    let refused = Progress {
        refused: vec!["boot in present mode".into(), "boot".into()],
        ..Progress::default()
    };
    let named = Progress { refused: vec!["boot in present mode".into()], ..Progress::default() };
    assert_eq!(form(Mode::Uefi, &named), (Some("UEFI"), None));
    assert_eq!(form(Mode::Unspecified, &refused), (Some("UEFI"), Some(BootMode::Named)));
}

#[test]
fn a_request_that_failed_in_the_bmc_is_repeated_after_all_others_and_a_last_resort_comes_last() {
    let uefi = boot(Device::Pxe, Mode::Uefi);
    let system = System {
        settings: Some("/s".into()),
        ..in_mode(reads("Disabled", "None"), "Legacy", &["Legacy", "UEFI"])
    };
    let after = |faltered: &[&str]| {
        let faltered = faltered.iter().map(|name| (*name).to_owned()).collect();
        let progress = Progress { faltered, ..sent("boot", false) };
        name(next_of(&uefi, &system, &progress, 0))
    };
    let (here, settings) = ("boot", "boot in settings");
    assert_eq!(after(&[here]), settings);
    assert_eq!(after(&[here, settings]), here);
    assert_eq!(after(&[here, here, here, settings, settings, settings]), "boot without mode");
}

#[test]
fn a_request_that_the_system_refuses_is_sent_to_its_settings() {
    let pxe = boot(Device::Pxe, Mode::Unspecified);
    let mut system = System { settings: Some("/s".into()), ..reads("Disabled", "None") };
    let refused = Progress { refused: vec!["boot".into()], ..Progress::default() };
    assert_eq!(name(next_of(&pxe, &system, &refused, 0)), "boot in settings");
    system.pending = Some(reads("Once", "Pxe").boot);
    let done = next_of(&pxe, &system, &sent("boot in settings", true), 0);
    assert_eq!(done, Next::Done(vec![]));
}

#[test]
fn an_override_is_cleared_in_the_settings_too() {
    let none = boot(Device::None, Mode::Unspecified);
    let mut system = System { settings: Some("/s".into()), ..reads("Disabled", "None") };
    system.pending = Some(reads("Once", "Pxe").boot);
    let refused =
        Progress { refused: vec!["clear".into(), "clear target".into()], ..sent("", false) };
    assert_eq!(name(next_of(&none, &system, &refused, 0)), "clear in settings");
    system.pending = Some(BootOverride::default());
    assert_eq!(next_of(&none, &system, &Progress::default(), 0), Next::Done(vec![]));
}

#[test]
fn over_ipmi_a_mode_is_always_sent_and_flags_that_read_as_not_valid_are_a_downgrade() {
    const NOT_VALID: &str = BootOverride::NOT_VALID;
    use crate::redfish::Protocol;
    let ipmi = |enabled, mode: &str| {
        let system = reads(enabled, "Pxe");
        let boot = BootOverride { mode: mode.into(), ..system.boot };
        System { protocol: Protocol::Ipmi, boot, ..is(Power::On) }
    };
    let uefi = boot(Device::Pxe, Mode::Uefi);
    assert_eq!(name(next_of(&uefi, &ipmi("Once", "Legacy"), &sent("", false), 0)), "boot");
    for (system, text) in [
        (ipmi("Once", "Legacy"), "mode UEFI reads back as \"Legacy\""),
        (ipmi(NOT_VALID, ""), "the boot flags read back as not valid"),
    ] {
        let done = next_of(&uefi, &system, &sent("boot", true), 0);
        assert_eq!(done, Next::Done(vec![text.into()]));
    }
    let any = boot(Device::Disk, Mode::Unspecified);
    let Next::Send(request) = next_of(&any, &ipmi("Once", "UEFI"), &sent("", false), 0) else {
        panic!()
    };
    let Call::Boot { request, .. } = request.call else { panic!() };
    assert_eq!(request.mode, Some("UEFI"));
}

#[test]
fn requests_without_effect_are_all_followed_by_a_last_resort_before_one_is_repeated() {
    let ignores = |except: &'static str| {
        move |system: &mut System, request: &BootRequest| {
            if request.target == Some(except) {
                carry_out(system, request, "");
            }
            true
        }
    };
    let none = boot(Device::None, Mode::Unspecified);
    let (names, end) =
        requests(&none, reads("Continuous", "Pxe"), Progress::default(), ignores("Hdd"));
    assert_eq!(names, ["clear", "clear target", "disk instead of none"]);
    assert!(matches!(end, Next::Done(downgrades) if downgrades.len() == 1));
    let (names, end) =
        requests(&none, reads("Continuous", "Pxe"), Progress::default(), ignores(""));
    assert_eq!(names[..4], ["clear", "clear target", "disk instead of none", "clear"]);
    assert!(matches!(end, Next::Send(_)), "{end:?}");
}

#[test]
fn a_mode_that_is_accepted_and_ignored_is_left_out_and_the_job_reports_a_downgrade() {
    let ignores_mode = |system: &mut System, request: &BootRequest| {
        let mode = system.boot.mode.clone();
        carry_out(system, &BootRequest { mode: None, ..request.clone() }, &mode);
        true
    };
    let uefi = boot(Device::Pxe, Mode::Uefi);
    let legacy = in_mode(reads("Disabled", "None"), "Legacy", &[]);
    let (names, end) = requests(&uefi, legacy, Progress::default(), ignores_mode);
    assert_eq!(names, ["boot", "boot without mode"]);
    assert_eq!(end, Next::Done(vec!["mode UEFI reads back as \"Legacy\"".into()]));
}

#[test]
fn a_file_for_a_http_boot_is_read_back() {
    let boot = Boot {
        device: Device::UefiHttp.into(),
        http_url: "http://192.0.2.1/ipxe.efi".into(),
        ..Boot::default()
    };
    let wanted = pb::Operation { what: Some(What::Boot(boot.clone())), ..Default::default() };
    let reads = |http_url: &str| System {
        boot: BootOverride {
            enabled: "Once".into(),
            target: "UefiHttp".into(),
            http_url: http_url.into(),
            ..BootOverride::default()
        },
        ..System::default()
    };
    let fresh = Progress::default();
    let Next::Send(request) = next_of(&wanted, &reads(""), &fresh, 0) else { panic!() };
    let Call::Boot { request: sent, .. } = &request.call else { panic!() };
    assert_eq!((sent.target, &sent.http_url), (Some("UefiHttp"), &boot.http_url));
    let done = next_of(&wanted, &reads(&boot.http_url), &fresh, 0);
    assert_eq!(done, Next::Done(vec![]));
    let accepted = Progress { request: request.name, accepted: true, ..fresh };
    let Next::Done(downgrades) = next_of(&wanted, &reads(""), &accepted, 0) else { panic!() };
    assert_eq!(downgrades, ["the file to boot reads back as \"\""]);
}

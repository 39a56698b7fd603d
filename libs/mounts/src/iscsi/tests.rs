//! Sessions and units with a program that plays iscsiadm, and a directory in place of sysfs.

use std::{fs, os::unix::fs::symlink};

use super::*;

const TARGET: &str = "iqn.2024-05.example.cluster:store";

struct FakeHost(tempfile::TempDir);

impl FakeHost {
    fn with_units(luns: &str) -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(host.path("sys/class/iscsi_transport/tcp")).unwrap();
        fs::create_dir(host.path("dev")).unwrap();
        fs::write(host.path("luns"), luns).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/iscsiadm");
        symlink(program, host.path("iscsiadm")).unwrap();
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns an initiator as a newly started process has it.
    fn initiator(&self) -> Iscsi {
        Iscsi::with_roots(&self.path("iscsiadm"), &self.path("sys"), &self.path("dev"))
    }

    /// Returns how many calls of the program contained `word`.
    fn calls(&self, word: &str) -> usize {
        self.read("calls").lines().filter(|line| line.split(' ').any(|part| part == word)).count()
    }
}

fn unit(lun: u64) -> IscsiUnit {
    IscsiUnit {
        initiator: "iqn.2024-05.example.cluster:n7".into(),
        target: TARGET.into(),
        host: "10.20.0.21".into(),
        port: DEFAULT_PORT,
        lun,
        max_commands: DEFAULT_MAX_COMMANDS,
        queue_depth: 32,
        scheduler: "none".into(),
    }
}

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(120))
}

#[test]
fn d25_a_unit_is_found_by_its_number_and_its_queue_is_set() {
    let host = FakeHost::with_units("0 2 10");
    let device = host.initiator().attach(&unit(2), limit()).unwrap();
    assert_eq!(device.device_file, host.path("dev/sd12"));
    let queue = |name: &str| host.read(&format!("sys/block/sd12/queue/{name}"));
    assert_eq!(
        (queue("scheduler"), queue("nr_requests"), queue("rotational")),
        ("none".into(), "32".into(), "0".into())
    );
}

#[test]
fn the_records_say_who_logs_in_where_and_how() {
    let host = FakeHost::with_units("1");
    host.initiator().attach(&unit(1), limit()).unwrap();
    let session = host.initiator().list().unwrap().remove(0);
    assert_eq!(session.key.portal.to_string(), "10.20.0.21:3260");
    let interface = &session.interface;
    let node = format!("-m node -T {TARGET} -p 10.20.0.21:3260 -I {interface}");
    let expected = [
        format!("-m iface -I {interface} -o new"),
        format!(
            "-m iface -I {interface} -o update -n iface.initiatorname -v {}",
            unit(1).initiator
        ),
        format!("{node} -o new"),
        format!("{node} -o update -n node.startup -v manual"),
        format!("{node} -o update -n node.session.scan -v manual"),
        format!("{node} -o update -n node.session.cmds_max -v 128"),
        format!("{node} -o update -n node.session.queue_depth -v 32"),
        format!("{node} -o update -n node.session.auth.authmethod -v None"),
        format!("{node} --login"),
    ];
    assert_eq!(host.read("calls").lines().collect::<Vec<_>>(), expected);
}

#[test]
fn units_of_one_target_share_a_session_that_ends_with_the_last_one() {
    let host = FakeHost::with_units("0 1");
    let initiator = host.initiator();
    let first = initiator.attach(&unit(0), limit()).unwrap();
    let second = initiator.attach(&unit(1), limit()).unwrap();
    let again = initiator.attach(&unit(1), limit()).unwrap();
    assert_eq!((host.calls("--login"), &second), (1, &again));
    initiator.detach(&first, limit()).unwrap();
    initiator.detach(&second, limit()).unwrap();
    assert_eq!((host.calls("--logout"), initiator.list().unwrap().len()), (0, 1));
    initiator.detach(&again, limit()).unwrap();
    assert_eq!((host.calls("--logout"), initiator.list().unwrap().len()), (1, 0));
    assert_eq!(fs::read_dir(host.path("records")).unwrap().count(), 0);
    initiator.detach(&again, limit()).unwrap();
}

#[test]
fn a_unit_that_the_target_has_not_is_invalid_and_leaves_no_session() {
    let host = FakeHost::with_units("0 1");
    let initiator = host.initiator();
    let error = initiator.attach(&unit(7), limit()).unwrap_err();
    assert_eq!(error, Error::Invalid(format!("target {TARGET} has no logical unit 7")));
    assert_eq!(initiator.list().unwrap(), []);
    let used = initiator.attach(&unit(1), limit()).unwrap();
    initiator.attach(&unit(7), limit()).unwrap_err();
    let scanned = initiator.list().unwrap().remove(0).id;
    assert_eq!(host.read(&format!("sys/class/scsi_host/host{scanned}/scan")), "- - 7");
    initiator.detach(&used, limit()).unwrap();
    assert_eq!(initiator.list().unwrap(), []);
}

#[test]
fn a_unit_with_a_holder_is_busy_and_stays_attached() {
    let host = FakeHost::with_units("0");
    let initiator = host.initiator();
    let device = initiator.attach(&unit(0), limit()).unwrap();
    let holder = host.path("sys/block/sd10/holders/dm-0");
    fs::create_dir(&holder).unwrap();
    let busy = initiator.detach(&device, limit()).unwrap_err();
    assert_eq!(busy, Error::Busy("sd10 is used by dm-0".into()));
    assert_eq!(host.calls("--logout"), 0);
    fs::remove_dir(holder).unwrap();
    initiator.detach(&device, limit()).unwrap();
    assert_eq!(initiator.list().unwrap(), []);
}

#[test]
fn d25_units_are_found_again_after_a_restart_and_the_session_ends_with_them() {
    let host = FakeHost::with_units("0 1");
    let before = host.initiator();
    let first = before.attach(&unit(0), limit()).unwrap();
    let second = before.attach(&unit(1), limit()).unwrap();
    let after = host.initiator();
    assert_eq!(after.adopt(&first, limit()).unwrap(), Some(first.clone()));
    assert_eq!(after.adopt(&second, limit()).unwrap(), Some(second.clone()));
    after.detach(&first, limit()).unwrap();
    assert_eq!(after.list().unwrap().len(), 1);
    after.detach(&second, limit()).unwrap();
    assert_eq!(after.list().unwrap(), []);
    assert_eq!(after.adopt(&second, limit()).unwrap(), None);
}

#[test]
fn a_session_of_others_is_used_and_not_ended() {
    let host = FakeHost::with_units("0");
    host.initiator().attach(&unit(0), limit()).unwrap();
    fs::write(host.path("sys/class/iscsi_session/session1/ifacename"), "default\n").unwrap();
    let initiator = host.initiator();
    let device = initiator.attach(&unit(0), limit()).unwrap();
    initiator.detach(&device, limit()).unwrap();
    assert_eq!((host.calls("--login"), host.calls("--logout")), (1, 0));
    assert_eq!(initiator.list().unwrap().len(), 1);
}

#[test]
fn another_initiator_name_has_a_session_of_its_own() {
    let host = FakeHost::with_units("0");
    let initiator = host.initiator();
    initiator.attach(&unit(0), limit()).unwrap();
    let other = IscsiUnit { initiator: "iqn.2024-05.example.cluster:n8".into(), ..unit(0) };
    initiator.attach(&other, limit()).unwrap();
    assert_eq!((host.calls("--login"), initiator.list().unwrap().len()), (2, 2));
}

#[test]
fn the_status_of_the_program_tells_a_refusal_from_a_daemon_that_does_not_run() {
    let host = FakeHost::with_units("0");
    fs::write(host.path("status"), "24").unwrap();
    let refused = host.initiator().attach(&unit(0), limit()).unwrap_err();
    let expected = format!(
        "log in to {TARGET} at 10.20.0.21:3260: iscsiadm ended with status 24: login failed"
    );
    assert_eq!(refused.to_string(), expected);
    assert!(matches!(refused, Error::Failed { errno: None, .. }));
    fs::write(host.path("status"), "20").unwrap();
    let missing = host.initiator().attach(&unit(0), limit()).unwrap_err();
    assert!(matches!(missing, Error::Missing(_)), "{missing}");
}

#[test]
fn d25_a_login_that_does_not_end_is_given_up_and_its_records_are_removed() {
    let host = FakeHost::with_units("0");
    fs::write(host.path("hang"), "").unwrap();
    let initiator = host.initiator();
    let error = initiator.attach(&unit(0), Deadline::after(Duration::from_secs(5))).unwrap_err();
    assert!(error.to_string().ends_with("time limit reached"), "{error}");
    assert_eq!(fs::read_dir(host.path("records")).unwrap().count(), 0);
}

#[test]
fn without_the_module_or_with_impossible_names_nothing_is_run() {
    let host = FakeHost::with_units("0");
    let changes: [fn(&mut IscsiUnit); 7] = [
        |unit| unit.target.clear(),
        |unit| unit.initiator = "iqn with blank".into(),
        |unit| unit.target = "--logout".into(),
        |unit| unit.target = "iqn/../x".into(),
        |unit| unit.max_commands = 0,
        |unit| unit.queue_depth = 0,
        |unit| unit.scheduler = "no such\n".into(),
    ];
    for change in changes {
        let mut unit = unit(0);
        change(&mut unit);
        let error = host.initiator().attach(&unit, limit()).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
    fs::remove_dir(host.path("sys/class/iscsi_transport/tcp")).unwrap();
    assert!(matches!(host.initiator().attach(&unit(0), limit()), Err(Error::Missing(_))));
    assert!(!host.path("calls").exists());
}

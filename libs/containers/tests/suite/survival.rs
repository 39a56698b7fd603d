//! Deaths of the daemon and of the supervisor.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Stdio};

use containers::record::{Init, ProcessIdentity};
use containers::spec::STOP_GRACE;
use containers::{End, Phase, Record, Run, Spec};

use crate::host::{DAEMON, Host, is_running, on_host, processes_naming, sigkill, until};

/// Starts `spec` in a daemon of its own, and kills that daemon.
fn start_and_kill_the_daemon(host: &Host, spec: &Spec) {
    let arguments =
        [host.directory(spec).into_os_string(), serde_json::to_string(spec).unwrap().into()];
    let mut daemon =
        Command::new(DAEMON).arg("start").args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

fn init_pid(run: &Run) -> i32 {
    match run.record().unwrap().unwrap().phase {
        Phase::Running(init) => init.process.pid,
        phase @ (Phase::Starting | Phase::Stopping(_) | Phase::Ended(_)) => panic!("{phase:?}"),
    }
}

fn kill_the_supervisor(run: &Run) {
    sigkill(run.record().unwrap().unwrap().writer.pid);
}

#[test]
fn a_container_survives_its_daemon_and_is_adopted_stopped_and_its_status_found() {
    on_host(async |host| {
        host.script(
            "init",
            "#!/bin/sh\ntrap 'exit 5' 15\necho > /ready\nwhile :; do sleep 1 & wait $!; done\n",
        );
        let spec = host.spec("/init");
        start_and_kill_the_daemon(host, &spec);
        until("the container is ready", || host.image("ready").exists());
        let run = Run::adopt(&host.directory(&spec)).await.unwrap().unwrap();
        assert!(is_running(init_pid(&run)) && run.outcome().unwrap().is_none());
        run.stop(STOP_GRACE).await.unwrap();
        let outcome = run.wait().await.unwrap();
        assert_eq!((outcome.end, outcome.stop_requested), (End::Exited(5), true));
        run.remove().unwrap();
        assert!(Run::adopt(&host.directory(&spec)).await.unwrap().is_none());
    });
}

#[test]
fn an_end_without_a_daemon_is_found_later() {
    on_host(async |host| {
        host.script("init", "#!/bin/sh\nuntil [ -e /go ]; do sleep 1; done\nexit 3\n");
        let spec = host.spec("/init");
        start_and_kill_the_daemon(host, &spec);
        fs::write(host.image("go"), "").unwrap();
        until("the supervisor has ended", || processes_naming(&host.root).is_empty());
        let run = Run::adopt(&host.directory(&spec)).await.unwrap().unwrap();
        let outcome = run.outcome().unwrap().unwrap();
        assert_eq!((outcome.end, outcome.stop_requested), (End::Exited(3), false));
    });
}

#[test]
fn nothing_of_a_container_survives_its_supervisor_and_adopting_says_so() {
    on_host(async |host| {
        host.script("init", "#!/bin/sh\nsleep 1000 &\nexec sleep 1000\n");
        let spec = host.spec("/init");
        let run = host.start(&spec).await;
        let pid = init_pid(&run);
        kill_the_supervisor(&run);
        until("PID 1 has ended with its supervisor", || !is_running(pid));
        let adopted = Run::adopt(run.directory()).await.unwrap().unwrap();
        assert_eq!(adopted.outcome().unwrap().unwrap().end, End::Lost);
        assert_eq!(run.wait().await.unwrap().end, End::Lost);
        assert!(Host::log(&spec).contains("supervisor lost"));
    });
}

#[test]
fn a_waiting_daemon_ends_a_container_that_escaped_the_death_of_its_supervisor() {
    on_host(async |host| {
        // A change of the group clears the parent-death signal.
        let program = host.image("bin/busybox-setgid");
        fs::copy(host.image("bin/busybox"), &program).unwrap();
        chown(&program, None, Some(5)).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o2755)).unwrap();
        let run = host.start(&host.spec("/bin/busybox-setgid sleep 1000")).await;
        let pid = init_pid(&run);
        let supervisor = run.record().unwrap().unwrap().writer.pid;
        sigkill(supervisor);
        until("the supervisor has ended", || !is_running(supervisor));
        assert!(is_running(pid));
        assert_eq!(run.wait().await.unwrap().end, End::Lost);
        assert!(!is_running(pid));
    });
}

#[test]
fn a_process_with_a_recorded_id_is_left_alone_unless_it_is_the_same_of_the_same_boot() {
    on_host(async |host| {
        let mut bystander = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = bystander.id().cast_signed();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let start_time = stat.split(' ').nth(21).unwrap().parse().unwrap();
        let run = host.start(&host.spec("/bin/sleep 1000")).await;
        run.kill().await.unwrap();
        run.wait().await.unwrap();
        let record = run.record().unwrap().unwrap();
        let this_boot = record.boot_id.clone();
        for (boot_id, start_time) in [("another boot", start_time), (&this_boot, start_time - 1)] {
            let init = Init { process: ProcessIdentity { pid, start_time }, started_at: 0 };
            let record = Record {
                boot_id: boot_id.to_owned(),
                phase: Phase::Running(init),
                ..record.clone()
            };
            fs::write(run.directory().join("state.json"), serde_json::to_string(&record).unwrap())
                .unwrap();
            assert_eq!(run.wait().await.unwrap().end, End::Lost);
            assert!(bystander.try_wait().unwrap().is_none());
        }
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    });
}

#[test]
fn a_start_that_nobody_finished_is_recorded_as_not_started() {
    on_host(async |host| {
        let spec = host.spec("/bin/sleep 1000");
        fs::create_dir(host.directory(&spec)).unwrap();
        assert!(Run::adopt(&host.directory(&spec)).await.unwrap().is_none());
        fs::write(host.directory(&spec).join("spec.json"), serde_json::to_string(&spec).unwrap())
            .unwrap();
        let run = Run::adopt(&host.directory(&spec)).await.unwrap().unwrap();
        assert!(matches!(run.outcome().unwrap().unwrap().end, End::NotStarted(_)));
    });
}

//! Starts and ends.

use std::fs;
use std::os::unix::fs::symlink;

use containers::{End, Error, Quotes};

use crate::host::{Host, on_host, until};

fn invalid_cause(result: Result<containers::Run, Error>) -> String {
    match result {
        Err(Error::Invalid(fault)) => fault.cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_exit_status_or_the_signal_is_reported() {
    on_host(async |host| {
        for status in [0, 3, 255] {
            let (outcome, _) = host.run(&host.spec(&format!("/bin/sh -c \"exit {status}\""))).await;
            assert_eq!((outcome.end, outcome.stop_requested), (End::Exited(status), false));
        }
        // PID 1 is not killed by its own signals: the kernel ends it for another cause.
        let run = host.start(&host.spec("/bin/sleep 1000")).await;
        let containers::Phase::Running(init) = run.record().unwrap().unwrap().phase else {
            panic!("not running")
        };
        crate::host::sigkill(init.process.pid);
        assert_eq!(run.wait().await.unwrap().end, End::Signaled(9));
        assert_eq!(run.wait().await.unwrap().end, End::Signaled(9));
    });
}

#[test]
fn the_log_has_the_steps_in_order_with_the_real_status() {
    on_host(async |host| {
        let spec = host.spec("/bin/sh -c \"echo hello; exit 3\"");
        host.run(&spec).await;
        let log = Host::log(&spec);
        let texts: Vec<&str> =
            log.lines().map(|line| line.rsplit_once(": ").map_or(line, |(_, text)| text)).collect();
        let expected = [
            "starting container",
            "validating image",
            "validating init",
            "entering the control group",
            "creating namespaces",
            "entering the image",
            "mounting file systems",
            "creating devices",
            "executing the program",
            "hello",
            "process ended with status 3",
            "dead",
        ];
        assert_eq!(texts, expected, "{log}");
        assert!(
            log.contains(" container(0): starting container\n")
                && log.contains(" init: creating devices\n")
        );
    });
}

#[test]
fn a_bad_executable_format_fails_the_start() {
    on_host(async |host| {
        host.script("init", "echo no interpreter line\n");
        let spec = host.spec("/init");
        let Err(Error::Failed(fault)) = host.try_start(&spec).await else { panic!("started") };
        assert_eq!(fault.step, "execve");
        assert!(fault.cause.contains("ENOEXEC"), "{fault}");
        assert!(!host.directory(&spec).exists());
        let log = Host::log(&spec);
        assert!(
            log.contains("start failed: execve") && log.ends_with("container state: dead\n"),
            "{log}"
        );
    });
}

#[test]
fn a_missing_init_or_one_that_leads_out_of_the_image_is_invalid() {
    on_host(async |host| {
        // busybox takes the name of its applet from the first word of the command.
        symlink("/bin/sh", host.image("sh")).unwrap();
        symlink("../../../../../../../../etc/passwd", host.image("passwd")).unwrap();
        symlink(crate::host::DAEMON, host.image("daemon")).unwrap();
        for program in ["/missing", "/passwd", "/daemon"] {
            let cause = invalid_cause(host.try_start(&host.spec(program)).await);
            assert!(cause.contains("No such file"), "{cause}");
        }
        let cause = invalid_cause(host.try_start(&host.spec("/bin")).await);
        assert!(cause.contains("not a regular file"), "{cause}");
        fs::write(host.image("plain"), "#!/bin/sh\n").unwrap();
        let cause = invalid_cause(host.try_start(&host.spec("plain")).await);
        assert!(cause.contains("not executable"), "{cause}");
        let blank = host.spec(" ");
        assert!(invalid_cause(host.try_start(&blank).await).contains("empty"));
        assert!(Host::log(&blank).contains("start failed: command: the command is empty"));
        // Nothing was changed in this process: paths still resolve on the host.
        assert!(fs::metadata(crate::host::DAEMON).is_ok());
        let (outcome, _) = host.run(&host.spec("/sh -c \"exit 4\"")).await;
        assert_eq!(outcome.end, End::Exited(4));
    });
}

#[test]
fn a_missing_image_fails_the_start() {
    on_host(async |host| {
        let mut spec = host.spec("/bin/sh");
        spec.image = host.root.join("missing");
        let Err(Error::Failed(fault)) = host.try_start(&spec).await else { panic!("started") };
        assert_eq!(fault.step, "image");
    });
}

#[test]
fn a_relative_init_starts_at_the_root_of_the_image() {
    on_host(async |host| {
        let (outcome, output) = host.run(&host.spec("bin/sh -c \"pwd; umask; exit 6\"")).await;
        assert_eq!((outcome.end, output.as_str()), (End::Exited(6), "/\n0022\n"));
    });
}

#[test]
fn quotes_reach_the_program_unless_they_are_stripped() {
    on_host(async |host| {
        host.script("show", "#!/bin/sh\nfor word; do echo \"<$word>\"; done\n");
        let mut spec = host.spec("/show \"a b\" [c d] e");
        assert_eq!(host.run(&spec).await.1, "<a b>\n<[c d]>\n<e>\n");
        spec = host.spec("/show \"a b\" [c d] e");
        spec.quotes = Quotes::Keep;
        assert_eq!(host.run(&spec).await.1, "<\"a b\">\n<[c d]>\n<e>\n");
    });
}

#[test]
fn two_starts_at_once_are_two_runs_but_not_in_one_directory() {
    on_host(async |host| {
        let specs = [host.spec("/bin/sh -c \"exit 1\""), host.spec("/bin/sh -c \"exit 2\"")];
        let (first, second) = tokio::join!(host.run(&specs[0]), host.run(&specs[1]));
        assert_eq!([first.0.end, second.0.end], [End::Exited(1), End::Exited(2)]);
        let spec = host.spec("/bin/sleep 1000");
        let (first, second) = tokio::join!(host.try_start(&spec), host.try_start(&spec));
        let (started, refused): (Vec<_>, Vec<_>) =
            [first, second].into_iter().partition(Result::is_ok);
        assert!(matches!(refused[..], [Err(Error::InUse(_))]), "{refused:?}");
        let run = started.into_iter().next().unwrap().unwrap();
        run.kill().await.unwrap();
        assert_eq!(run.wait().await.unwrap().end, End::Signaled(9));
    });
}

#[test]
fn a_container_that_leaves_processes_behind_ends_with_its_pid_1() {
    on_host(async |host| {
        host.script(
            "init",
            "#!/bin/sh\n(while :; do sleep 1000; done) &\nsleep 1000 &\necho > /started\nexit 0\n",
        );
        let (outcome, _) = host.run(&host.spec("/init")).await;
        assert_eq!(outcome.end, End::Exited(0));
        until("the file of the container exists", || host.image("started").exists());
    });
}

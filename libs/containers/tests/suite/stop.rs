//! Stops.

use std::time::Duration;

use containers::spec::STOP_GRACE;
use containers::{End, Phase, RunOutcome, Spec};

use crate::host::{Host, on_host, until};

/// A container that notes `signal` and then ends with status 5.
fn obedient(host: &Host, signal: u32) -> Spec {
    let script = format!(
        "#!/bin/sh\ntrap 'echo {signal} > /signal; exit 5' {signal}\necho > /ready\nwhile :; do sleep 1 & wait $!; done\n"
    );
    host.script("init", &script);
    host.spec("/init")
}

async fn stopped(host: &Host, spec: &Spec, grace: Duration) -> RunOutcome {
    let run = host.start(spec).await;
    until("the container is ready", || host.image("ready").exists());
    run.stop(grace).await.unwrap();
    let outcome = run.wait().await.unwrap();
    assert!(outcome.stop_requested);
    run.stop(grace).await.unwrap();
    outcome
}

#[test]
fn a_stop_asks_with_sigterm_and_ends_in_exited_whatever_the_status() {
    on_host(async |host| {
        let spec = obedient(host, 15);
        assert_eq!(stopped(host, &spec, STOP_GRACE).await.end, End::Exited(5));
        assert_eq!(host.read("signal"), "15\n");
        let log = Host::log(&spec);
        assert!(
            log.contains("stop requested") && log.ends_with("container state: exited\n"),
            "{log}"
        );
    });
}

#[test]
fn systemd_is_asked_with_sigrtmin_plus_3() {
    on_host(async |host| {
        let spec = Spec { systemd: true, ..obedient(host, 37) };
        assert_eq!(stopped(host, &spec, spec.stop_grace()).await.end, End::Exited(5));
        assert_eq!(host.read("signal"), "37\n");
    });
}

#[test]
fn a_process_that_ignores_sigterm_is_killed_after_the_grace() {
    on_host(async |host| {
        host.script("init", "#!/bin/sh\ntrap '' 15\necho > /ready\nwhile :; do sleep 1; done\n");
        let run = host.start(&host.spec("/init")).await;
        until("the container is ready", || host.image("ready").exists());
        // The grace has not passed when the record is read below, also on a busy host.
        run.stop(Duration::from_secs(3)).await.unwrap();
        assert!(matches!(run.record().unwrap().unwrap().phase, Phase::Stopping(_)));
        let outcome = run.wait().await.unwrap();
        assert_eq!((outcome.end, outcome.stop_requested), (End::Signaled(9), true));
    });
}

#[test]
fn no_grace_kills_at_once_and_overtakes_an_earlier_stop() {
    on_host(async |host| {
        let spec = obedient(host, 15);
        assert_eq!(stopped(host, &spec, Duration::ZERO).await.end, End::Signaled(9));
        assert_eq!(host.read("signal"), "");
        let run = host.start(&host.spec("/bin/sleep 1000")).await;
        run.stop(Duration::from_secs(3600)).await.unwrap();
        assert!(matches!(run.record().unwrap().unwrap().phase, Phase::Stopping(_)));
        run.kill().await.unwrap();
        assert_eq!(run.wait().await.unwrap().end, End::Signaled(9));
    });
}

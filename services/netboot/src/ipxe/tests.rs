//! What scripts say, and what never gets into one.
#![allow(clippy::unwrap_used)]

use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;

static CONSOLES: OnceLock<[String; 2]> = OnceLock::new();
const NOTES: &str = "http://192.0.2.1:7080/v1/boot/T";

fn arguments() -> WorkerArguments<'static> {
    WorkerArguments {
        facility: "lab",
        syslog_host: Some("198.51.100.1"),
        grpc_authority: "198.51.100.1:42113",
        tls: Some(true),
        worker_id: "0a1b",
        hw_addr: Some("52:54:00:00:00:01".parse().unwrap()),
        boot_token: "secret",
        boot_time: Some(1_750_000_000),
        x86: true,
        consoles: CONSOLES.get_or_init(|| ["tty0", "ttyS1,115200"].map(Into::into)),
        ..WorkerArguments::default()
    }
}

fn environment(arguments: &Arguments) -> WorkerEnvironment<'_> {
    WorkerEnvironment {
        base_url: "http://198.51.100.1:7080/v1/boot/T",
        notes_url: "http://198.51.100.1:7080/v1/boot/T",
        syslog: Some("198.51.100.1"),
        kernel: "vmlinuz-x86_64",
        initrd: "initramfs-x86_64",
        arguments,
    }
}

#[test]
fn the_worker_is_told_who_it_is_in_the_specified_order() {
    let (line, left_out) = arguments().arguments().unwrap();
    assert_eq!(left_out, []);
    assert_eq!(
        line.line(),
        "initrd=initrd facility=lab syslog_host=198.51.100.1 grpc_authority=198.51.100.1:42113 tinkerbell_tls=true \
         worker_id=0a1b hw_addr=52:54:00:00:00:01 boot_token=secret boot_time=1750000000 intel_iommu=on iommu=pt \
         console=tty0 console=ttyS1,115200"
    );
}

#[test]
fn the_workers_script_is_the_one_that_was_tried_on_firmware() {
    let line = WorkerArguments::default().arguments().unwrap().0;
    let expected = "#!ipxe
set base http://198.51.100.1:7080/v1/boot/T
set syslog 198.51.100.1 ||
set try:int32 0
:again
imgfree ||
kernel --name kernel ${base}/vmlinuz-x86_64 initrd=initrd && initrd --name initrd ${base}/initramfs-x86_64 && goto ready ||
iseq ${try} 5 && goto failed ||
inc try
echo retry ${try} in 5 s
sleep 5
goto again
:ready
imgfetch --name note ${base}/started && imgfree note ||
boot ||
:failed
imgfetch --name note ${base}/failed && imgfree note ||
exit 1
";
    assert_eq!(worker(&environment(&line)).unwrap(), expected);
}

#[test]
fn another_servers_files_leave_the_notes_with_us() {
    let line = WorkerArguments::default().arguments().unwrap().0;
    let elsewhere = WorkerEnvironment { base_url: "http://192.0.2.9/hook", ..environment(&line) };
    let script = worker(&elsewhere).unwrap();
    assert!(script.contains("set base http://192.0.2.9/hook\n"), "{script}");
    assert!(script.contains("note http://198.51.100.1:7080/v1/boot/T/started "), "{script}");
}

#[test]
fn a_script_of_somebody_elses_is_told_of_before_it_runs_and_when_it_is_given_up() {
    let expected = "#!ipxe
imgfetch --name note http://192.0.2.1:7080/v1/boot/T/instance.started && imgfree note ||
set try:int32 0
:again
chain --autofree http://t/x && goto end ||
iseq ${try} 3 && goto failed ||
inc try
sleep 5
goto again
:failed
imgfetch --name note http://192.0.2.1:7080/v1/boot/T/instance.failed && imgfree note ||
:end
exit 1
";
    let own = format!("{NOTES}/instance");
    assert_eq!(custom("http://t/x", &own).unwrap(), expected);
}

#[test]
fn every_script_of_ours_ends_with_exit_1() {
    let line = arguments().arguments().unwrap().0;
    let scripts = [
        worker(&environment(&line)).unwrap(),
        custom("https://example.org/x.ipxe", NOTES).unwrap(),
        custom("tftp://192.0.2.1/x.ipxe", NOTES).unwrap(),
        with_uuid("http://192.0.2.1:7080/02-00-00-00-00-01").unwrap(),
        by_labels("http://192.0.2.1:7080").unwrap(),
        SHELL.into(),
        local_disk(false).into(),
        local_disk(true).into(),
    ];
    for script in scripts {
        assert!(script.starts_with("#!ipxe\n") && script.ends_with("\nexit 1\n"), "{script}");
    }
}

#[test]
fn a_word_that_ipxe_would_take_apart_is_refused() {
    for bad in ["", "a b", "a\tb", "a\nexit", "#x", "||", "&&", ";", "x${uuid}", "x\\", "naïve"] {
        assert!(Word::try_from(bad).is_err(), "{bad:?}");
    }
    for good in ["ds=nocloud-net;s=http://x/", "a#b", "a||b", "$x", "a\\b"] {
        assert!(Word::try_from(good).is_ok(), "{good:?}");
    }
}

#[test]
fn a_bad_addition_is_left_out_and_named() {
    let extra = vec!["quiet ${password} loglevel=7", "#no"];
    let (line, left_out) =
        WorkerArguments { extra, ..WorkerArguments::default() }.arguments().unwrap();
    assert_eq!(line.line(), "initrd=initrd quiet loglevel=7");
    assert_eq!(
        left_out,
        [BadWord::Expansion("${password}".into()), BadWord::Comment("#no".into())]
    );
}

#[test]
fn a_bad_value_of_our_own_is_an_error() {
    let bad = WorkerArguments { worker_id: "a b", ..WorkerArguments::default() };
    let error = Error::Value("worker_id", BadWord::Character("worker_id=a b".into()));
    assert_eq!(bad.arguments().err(), Some(error));
}

#[test]
fn the_longest_command_line_fits_and_one_octet_more_does_not() {
    let fixed = "kernel initrd=initrd ".len();
    let of = |length: usize| {
        let long = "x".repeat(length - fixed);
        WorkerArguments { extra: vec![&long], ..WorkerArguments::default() }.arguments().map(drop)
    };
    assert_eq!(of(2047), Ok(()));
    assert_eq!(of(2048), Err(Error::CommandLine(2048)));
}

#[test]
fn only_what_a_machine_can_fetch_is_chained_to() {
    for bad in ["file:///etc/passwd", "ftp://h/x", "/x", "http"] {
        assert!(matches!(custom(bad, NOTES), Err(Error::Scheme(_))), "{bad}");
    }
    assert!(matches!(custom("http://h/x || shell", NOTES), Err(Error::Value(..))));
}

#[test]
fn a_brought_script_is_marked_and_otherwise_left_alone() {
    assert_eq!(custom_text("#!ipxe\r\necho ${uuid}\r\n").unwrap(), "#!ipxe\necho ${uuid}\n");
    assert_eq!(custom_text("echo hi").unwrap(), "#!ipxe\necho hi");
    assert_eq!(
        custom_text(&"x".repeat(MAX_SCRIPT_BYTES)),
        Err(Error::Length(MAX_SCRIPT_BYTES + 7))
    );
}

proptest! {
    #[test]
    fn no_value_of_a_record_becomes_a_command(value in ".{0,60}") {
        let texts = [
            custom(&format!("http://{value}"), NOTES),
            with_uuid(&format!("http://{value}")),
            autoexec(&format!("http://{value}"), true),
        ];
        let bare = [
            custom("http://x", NOTES),
            with_uuid("http://x"),
            autoexec("http://x", true),
        ];
        for (text, bare) in texts.into_iter().zip(bare) {
            let (Ok(text), Ok(bare)) = (text, bare) else { continue };
            let words = |text: &str| text.lines().map(|line| line.split(' ').count()).collect::<Vec<_>>();
            prop_assert_eq!(words(&text), words(&bare));
            prop_assert_eq!(text.matches("${").count(), bare.matches("${").count());
        }
    }

    #[test]
    fn no_addition_ever_leaves_its_line(extra in prop::collection::vec(".{0,40}", 0..8)) {
        let extra = extra.iter().map(String::as_str).collect();
        let line = WorkerArguments { extra, ..WorkerArguments::default() }.arguments().unwrap().0;
        let script = worker(&environment(&line)).unwrap();
        let bare = worker(&environment(&WorkerArguments::default().arguments().unwrap().0)).unwrap();
        prop_assert_eq!(script.lines().count(), bare.lines().count());
        prop_assert_eq!(script.matches("${").count(), bare.matches("${").count());
        prop_assert_eq!(script.split(' ').filter(|word| *word == "||").count(), bare.split(' ').filter(|word| *word == "||").count());
    }
}

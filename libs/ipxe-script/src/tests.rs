//! Tests of the rendered scripts: their texts, and values that must not break out of a line.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

mod run;

const OWN_URL: &str = "http://192.0.2.1:7080/v1/boot/T";

/// Returns a kernel command line with the additional arguments in `lists`.
fn arguments(lists: &[&str]) -> Arguments {
    let mut arguments = Arguments::default();
    lists.iter().for_each(|list| arguments.extend(list));
    arguments
}

fn environment(arguments: &Arguments) -> Environment<'_> {
    Environment {
        base_url: "http://198.51.100.1:7080/v1/boot/T",
        status_url: "http://198.51.100.1:7080/v1/boot/T",
        site_url: "http://198.51.100.1:7080",
        script_url: "http://198.51.100.1:7080/02-00-00-00-00-01/auto.ipxe",
        syslog: Some("198.51.100.1"),
        files: Some(["vmlinuz-x86_64", "initramfs-x86_64"]),
        arguments,
    }
}

#[test]
fn arguments_are_written_in_order_and_empty_ones_are_left_out() {
    let mut arguments = Arguments::default();
    for (key, value) in [("facility", "lab"), ("syslog_host", ""), ("tinkerbell_tls", "true")] {
        arguments.set(key, value).unwrap();
    }
    arguments.extend("console=tty0 console=ttyS1,115200");
    let expected =
        "initrd=initrd facility=lab tinkerbell_tls=true console=tty0 console=ttyS1,115200";
    assert_eq!((arguments.line(), &arguments.left_out[..]), (expected, &[][..]));
}

#[test]
fn the_address_of_a_script_may_name_some_settings_and_nothing_else() {
    let settings = "https://t/?u=${uuid}&m=${mac:hexhyp}&n=${mac}";
    let text = custom(settings, OWN_URL).unwrap();
    assert!(text.contains(&format!("\nchain --autofree {settings} && goto end ||\n")), "{text}");
    for bad in [
        "https://t/${password}",
        "https://t/${uuid",
        "https://t/${${uuid}}",
        "https://t/ ${uuid}",
        "https://t/${uuid}\nshell",
        "file:/x",
        "/platform/x",
        "",
    ] {
        assert!(custom(bad, OWN_URL).is_err(), "{bad}");
    }
}

#[test]
fn the_workers_script_fetches_its_files_until_it_has_them() {
    let line = arguments(&[]);
    let expected = "#!ipxe
set base http://198.51.100.1:7080/v1/boot/T
set syslog 198.51.100.1 ||
set try:int32 0
:again
imgfree ||
kernel --name kernel ${base}/vmlinuz-x86_64 initrd=initrd && initrd --name initrd ${base}/initramfs-x86_64 && goto ready ||
inc try
echo files not fetched, attempt ${try} of 9, next in 20 s
sleep 20
iseq ${try} 9 || goto again
set refused:int32 0
:new
chain --replace http://198.51.100.1:7080/02-00-00-00-00-01/auto.ipxe ||
imgfetch --name note http://198.51.100.1:7080/healthz && imgfree note && inc refused ||
iseq ${refused} 3 && goto failed ||
echo no new script, next attempt in 20 s
sleep 20
goto new
:ready
imgfetch --name note ${base}/started && imgfree note ||
boot ||
:failed
imgfetch --name note ${base}/failed && imgfree note ||
exit 1
";
    assert_eq!(load(&environment(&line)).unwrap(), expected);
}

#[test]
fn status_is_reported_to_us_also_with_files_of_another_server() {
    let line = arguments(&[]);
    let elsewhere = Environment { base_url: "http://192.0.2.9/hook", ..environment(&line) };
    let script = load(&elsewhere).unwrap();
    assert!(script.contains("set base http://192.0.2.9/hook\n"), "{script}");
    assert!(script.contains("note http://198.51.100.1:7080/v1/boot/T/started "), "{script}");
}

#[test]
fn the_wrapper_reports_before_a_custom_script_runs_and_when_it_gives_up() {
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
    let own = format!("{OWN_URL}/instance");
    assert_eq!(custom("http://t/x", &own).unwrap(), expected);
}

#[test]
fn every_own_script_ends_with_exit_1() {
    let line = arguments(&["quiet"]);
    let scripts = [
        load(&environment(&line)).unwrap(),
        custom("https://example.org/x.ipxe", OWN_URL).unwrap(),
        custom("tftp://192.0.2.1/x.ipxe", OWN_URL).unwrap(),
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
fn only_words_that_ipxe_takes_as_they_stand_are_valid() {
    for bad in ["", "a b", "a\tb", "a\nexit", "#x", "||", "&&", ";", "x${uuid}", "x\\", "naïve"] {
        assert!(check_word(bad).is_err(), "{bad:?}");
    }
    for good in ["ds=nocloud-net;s=http://x/", "a#b", "a||b", "$x", "a\\b"] {
        assert!(check_word(good).is_ok(), "{good:?}");
    }
}

#[test]
fn an_invalid_addition_is_left_out_and_named() {
    let arguments = arguments(&["quiet ${password} loglevel=7", "#no"]);
    assert_eq!(arguments.line(), "initrd=initrd quiet loglevel=7");
    let bad = |word: &str, reason| BadWord { word: word.into(), reason };
    assert_eq!(
        arguments.left_out,
        [bad("${password}", "has an expansion"), bad("#no", "begins with #, as a comment does")]
    );
}

#[test]
fn an_invalid_value_of_our_own_is_an_error() {
    let reason = "has a blank or a character outside printable ASCII";
    let error = Error::Value("worker_id", BadWord { word: "worker_id=a b".into(), reason });
    assert_eq!(Arguments::default().set("worker_id", "a b"), Err(error));
}

#[test]
fn the_longest_command_line_fits_and_one_octet_more_does_not() {
    let fixed = "kernel initrd=initrd ".len();
    let check = |length: usize| arguments(&[&"x".repeat(length - fixed)]).check_length();
    assert_eq!(check(2047), Ok(()));
    assert_eq!(check(2048), Err(Error::CommandLine(2048)));
}

#[test]
fn a_script_chains_only_to_urls_that_a_machine_can_fetch() {
    for bad in ["file:///etc/passwd", "ftp://h/x", "/x", "http"] {
        assert!(matches!(custom(bad, OWN_URL), Err(Error::Scheme(_))), "{bad}");
    }
    assert!(matches!(custom("http://h/x || shell", OWN_URL), Err(Error::Value(..))));
}

#[test]
fn a_custom_script_is_marked_and_otherwise_unchanged() {
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
            custom(&format!("http://{value}"), OWN_URL),
            with_uuid(&format!("http://{value}")),
            autoexec(&format!("http://{value}"), true),
        ];
        let bare = [
            custom("http://x", OWN_URL),
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
        let line = arguments(&extra.iter().map(String::as_str).collect::<Vec<_>>());
        let script = load(&environment(&line)).unwrap();
        let bare = load(&environment(&arguments(&[]))).unwrap();
        prop_assert_eq!(script.lines().count(), bare.lines().count());
        prop_assert_eq!(script.matches("${").count(), bare.matches("${").count());
        prop_assert_eq!(script.split(' ').filter(|word| *word == "||").count(), bare.split(' ').filter(|word| *word == "||").count());
    }
}

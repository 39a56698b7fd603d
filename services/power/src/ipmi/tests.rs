//! Output of `ipmitool`, and its process.

use super::*;
use crate::plan::BootRequest;
use crate::redfish::BootOverride;

fn flags(first: u8, second: u8) -> BootFlags {
    BootFlags::read(&format!(" 01 05 {first:02x} {second:02x} 00 00 00\n")).unwrap()
}

#[test]
fn the_power_state_is_found_after_other_lines() {
    assert_eq!(power_state("Loading registry...\nChassis Power is on\n").unwrap(), Power::On);
    assert_eq!(power_state("CHASSIS POWER IS OFF").unwrap(), Power::Off);
    assert!(power_state("Up/On").is_err());
}

#[test]
fn boot_flags_are_read_as_an_override() {
    let read = |first, second| {
        let read = flags(first, second).to_override();
        (read.enabled, read.target, read.mode)
    };
    let texts = |enabled: &str, target: &str, mode: &str| {
        (enabled.to_owned(), target.to_owned(), mode.to_owned())
    };
    assert_eq!(read(0xe0, 0x04), texts("Continuous", "Pxe", "UEFI"));
    assert_eq!(read(0x80, 0x08), texts("Once", "Hdd", "Legacy"));
    assert_eq!(read(0x00, 0x08), texts(BootOverride::NOT_VALID, "Hdd", ""));
    assert_eq!(read(0x80, 0x00), texts("Disabled", "None", "Legacy"));
    assert!(BootFlags::read("Up/On").is_err());
}

#[test]
fn a_request_has_the_flags_that_read_back() {
    let pxe = BootRequest {
        enabled: "Continuous",
        target: Some("Pxe"),
        mode: Some("UEFI"),
        http_url: String::new(),
    };
    assert_eq!(BootFlags::of(&pxe).unwrap().bytes(), [0xe0, 0x04, 0, 0, 0]);
    let clear =
        BootRequest { enabled: "Disabled", target: None, mode: None, http_url: String::new() };
    assert_eq!(BootFlags::of(&clear).unwrap().bytes(), [0x80, 0, 0, 0, 0]);
    assert_eq!(BootFlags::of(&BootRequest { target: Some("UefiHttp"), ..pxe }), None);
}

#[test]
fn messages_of_ipmitool_become_reasons() {
    let read = |text| Error::read("chassis power on", text);
    let denied = "> RAKP 2 HMAC is invalid\nError: Unable to establish IPMI v2 / RMCP+ session\n";
    assert!(matches!(read(denied), Error::Denied(text) if text == "RAKP 2 HMAC is invalid"));
    let role = "> RAKP 2 message indicates an error : unauthorized role or privilege level requested\n\
                Error: Unable to establish IPMI v2 / RMCP+ session\n";
    let error = read(role);
    assert!(matches!(error, Error::Privilege(_)), "{error}");
    assert!(!error.to_string().contains("password"), "{error}");
    let full = "> RAKP 2 message indicates an error : insufficient resources for session\n";
    assert!(read(full).is_transient());
    let suite = "Error in open session response message : invalid authentication algorithm\n";
    assert!(matches!(read(suite), Error::NoSession(_)));
    let silent =
        "Get Auth Capabilities error\nError: Unable to establish IPMI v2 / RMCP+ session\n";
    assert!(read(silent).is_transient());
    let refused = read("Set Chassis Power Control to Cycle failed: Invalid data field in request");
    assert!(refused.is_refusal() && !refused.is_transient());
}

/// The ids of the running `ipmitool` processes whose environment has `password`.
fn processes(password: &str) -> Vec<String> {
    let has = |path: String, text: &str| {
        let bytes = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(text)
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok());
    let ids = all.filter_map(|entry| entry.file_name().into_string().ok());
    ids.filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
        .inspect(|id| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&line).contains(password), "on a command line");
        })
        .filter(|id| has(format!("/proc/{id}/environ"), password))
        .filter(|id| has(format!("/proc/{id}/cmdline"), PROGRAM))
        .collect()
}

/// Waits until there are `count` of these processes.
async fn until_processes(password: &str, count: usize) {
    for _ in 0..1000 {
        if processes(password).len() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not {count} processes: {:?}", processes(password));
}

/// A client of a BMC that never answers.
fn silent(password: &str) -> (std::net::UdpSocket, Ipmi) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = Endpoint {
        host: "127.0.0.1".into(),
        port: socket.local_addr().unwrap().port(),
        username: "operator".into(),
        password: Secret::new(password.into()),
        cipher_suite: Some(3),
        accepted: AcceptedForms::default(),
    };
    (socket, Ipmi::new(target))
}

#[tokio::test]
async fn the_password_is_on_no_command_line_and_an_abandoned_process_is_killed() {
    let password = "s3cret-of-this-test";
    let (_socket, bmc) = silent(password);
    let reading = tokio::spawn(async move { bmc.system().await });
    until_processes(password, 1).await;
    reading.abort();
    until_processes(password, 0).await;
}

/// A client whose program is this shell script, which notes its arguments in the file `calls`.
fn scripted(script: &str) -> (tempfile::TempDir, Ipmi) {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::TempDir::new().unwrap();
    let program = directory.path().join("ipmitool");
    let text =
        format!("#!/bin/sh\necho \"$*\" >> {}/calls\n{script}\n", directory.path().display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (_socket, bmc) = silent("pw");
    (directory, Ipmi { program, ..bmc })
}

/// The privilege levels of the calls.
fn levels(directory: &tempfile::TempDir) -> Vec<String> {
    let calls = std::fs::read_to_string(directory.path().join("calls")).unwrap();
    let level =
        |call: &str| call.split_once("-L ").unwrap().1.split(' ').next().unwrap().to_owned();
    calls.lines().map(level).collect()
}

#[tokio::test]
async fn a_higher_privilege_is_asked_for_only_after_a_refusal_and_then_at_once() {
    let refused = "> RAKP 2 message indicates an error : unauthorized role requested";
    let script = format!(
        "case \"$*\" in *OPERATOR*) echo '{refused}' >&2; exit 1;; esac\necho Chassis Power is on"
    );
    let (directory, bmc) = scripted(&script);
    for _ in 0..2 {
        bmc.run(&["chassis", "power", "status"]).await.unwrap();
    }
    assert_eq!(levels(&directory), ["OPERATOR", "ADMINISTRATOR", "ADMINISTRATOR"]);
    assert_eq!(bmc.accepted().get(), Some(Privilege::Administrator));
    let (directory, bmc) = scripted("echo Chassis Power is on");
    bmc.run(&["chassis", "power", "status"]).await.unwrap();
    assert_eq!(levels(&directory), ["OPERATOR"]);
    assert_eq!(bmc.accepted(), AcceptedForms::default());
}

#[tokio::test]
async fn a_command_that_needs_a_higher_privilege_is_sent_with_it() {
    let refused = "Unable to send RAW command (rsp=0xd4): Insufficient privilege level";
    let script = format!("case \"$*\" in *OPERATOR*) echo '{refused}' >&2; exit 1;; esac");
    let (directory, bmc) = scripted(&script);
    bmc.run(&["raw", "0x00", "0x08"]).await.unwrap();
    assert_eq!(levels(&directory), ["OPERATOR", "ADMINISTRATOR"]);
    let (_directory, bmc) = scripted(&format!("echo '{refused}' >&2; exit 1"));
    let error = bmc.run(&["raw", "0x00", "0x08"]).await.unwrap_err();
    assert!(error.is_refusal() && !error.to_string().contains("password"), "{error}");
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let (_socket, bmc) = silent("pw");
    let bmc = Ipmi { program: "/nowhere/ipmitool".into(), ..bmc };
    let error = bmc.system().await.unwrap_err();
    let text = "the program /nowhere/ipmitool is not installed on this server: IPMI needs it";
    assert_eq!(error.to_string(), text);
    assert!(!error.is_transient());
}

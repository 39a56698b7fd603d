//! A rack of machines is enrolled from a CSV file of their BMCs, with wrong lines in it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use runtime::Channel;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::location_service_client::LocationServiceClient;
use tinwright::power::v1 as pw;
use tinwright::power::v1::power_job::State;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tokio::process::Command;

use super::emulator::{Emulator, PASSWORD, USER, mac};
use super::process::{Place, Process};

/// The machines whose lines are right.
const RIGHT: usize = 20;
/// The machines that are enrolled at a time. One process is all of their BMCs, and answers one request after another.
const PARALLEL: &str = "4";
/// Limit of the time in which the command enrols all machines, on a busy host.
const ENROL_TIMEOUT: Duration = Duration::from_secs(600);

/// Enrols the machines in `csv`.
async fn enrol(site: &Process, csv: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinwright"));
    command.args(["hardware", "enrol", "--parallel", PARALLEL, "--csv"]).arg(csv);
    command.args(["--server", &format!("https://{}", site.place.grpc), "--secrets"]);
    command.arg(site.place.secrets()).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(ENROL_TIMEOUT, command.output()).await;
    let output = output.expect("all machines are enrolled in time").unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains(PASSWORD) && !text.contains("not the password"), "{text}");
    output
}

/// Returns a file with a line for each of the first systems at `url`, and five wrong ones, with what their reasons contain.
fn file(url: &str) -> (String, [(usize, &'static str); 5]) {
    let mut csv = "bmc,username,password,system,location,zone,labels,label:row\n".to_owned();
    for n in 0..RIGHT {
        writeln!(csv, "{url},{USER},{PASSWORD},node{n},lab,a,rack=r{},7", n / 20).unwrap();
    }
    let wrong = [
        (
            format!("{url},{USER},not the password,node{RIGHT},,,,"),
            "refuses the user name or the password",
        ),
        (format!("https://127.0.0.1:1,{USER},{PASSWORD},,,,,"), "the BMC cannot be reached"),
        (format!("{url},{USER},{PASSWORD},node99,,,,"), "the BMC has no system \"node99\""),
        (format!("10.0.0.1,{USER},{PASSWORD},,,,,"), "is not the address of a BMC"),
        (format!("{url},{USER},{PASSWORD},node{},attic,,,", RIGHT + 1), "location: "),
    ];
    let mut reasons = [(0, ""); 5];
    for (n, (line, reason)) in wrong.into_iter().enumerate() {
        writeln!(csv, "{line}").unwrap();
        reasons[n] = (RIGHT + n + 2, reason);
    }
    (csv, reasons)
}

/// Returns all machines.
async fn machines(channel: &Channel) -> Vec<hw::Hardware> {
    let list = hw::ListHardwareRequest { page_size: 1000, ..Default::default() };
    let mut client = HardwareServiceClient::new(channel.clone());
    client.list_hardware(list).await.unwrap().into_inner().hardware
}

#[tokio::test(flavor = "multi_thread")]
async fn of_25_bmcs_with_five_wrong_lines_all_others_are_enrolled() {
    let systems: Vec<_> = (0..=RIGHT + 1).map(|n| format!("node{n}")).collect();
    let emulator = tokio::task::spawn_blocking(move || Emulator::guarded_rack(&systems));
    let emulator = emulator.await.unwrap();
    let site = Place::new().start(&[]).await;
    let channel = site.channel().await;
    let location = hw::Location {
        name: "lab".into(),
        zones: vec![hw::Zone { name: "a".into(), ..Default::default() }],
        ..Default::default()
    };
    let request = hw::CreateLocationRequest { location: Some(location), ..Default::default() };
    LocationServiceClient::new(channel.clone()).create_location(request).await.unwrap();
    let (csv, wrong) = file(&emulator.url);
    let path = site.place.path("bmcs.csv");
    std::fs::write(&path, csv).unwrap();

    let output = enrol(&site, &path).await;
    assert!(!output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), RIGHT + wrong.len(), "{text}");
    let others: Vec<_> = lines.iter().filter(|line| !line.contains(": enrolled ")).collect();
    assert_eq!(others.len(), wrong.len(), "{others:#?}");
    for (number, reason) in wrong {
        let begin = format!("line {number}: ");
        let named = lines.iter().find(|line| line.starts_with(&begin)).unwrap();
        assert!(named.contains(" FAILED: ") && named.contains(reason), "{named}");
    }
    let error = String::from_utf8(output.stderr).unwrap();
    let summary = "5 of 25 machines were not enrolled: see lines 22, 23, 24, 25, 26";
    assert!(error.contains(summary), "{error}");

    let enrolled = machines(&channel).await;
    assert_eq!(enrolled.len(), RIGHT);
    let macs: BTreeSet<_> = enrolled.iter().map(|it| it.interfaces[0].mac.clone()).collect();
    assert_eq!(macs, (0..RIGHT).map(mac).collect());
    for machine in &enrolled {
        assert_eq!(machine.state(), hw::State::Enrolled);
        assert!(machine.bmc_inventory.is_some() && machine.zone == "a");
        assert!(machine.labels.contains_key("rack") && machine.labels["row"] == "7");
    }
    each_boots_once(&channel).await;

    let again = enrol(&site, &path).await;
    let text = String::from_utf8(again.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains(": exists ")).count(), RIGHT, "{text}");
    assert_eq!(machines(&channel).await.len(), RIGHT);
    each_boots_once(&channel).await;
}

/// Waits until each machine was booted for discovery. There is no other job.
async fn each_boots_once(channel: &Channel) {
    let mut client = PowerServiceClient::new(channel.clone());
    loop {
        let list = pw::ListPowerJobsRequest { page_size: 1000, ..Default::default() };
        let jobs = client.list_power_jobs(list).await.unwrap().into_inner().power_jobs;
        assert_eq!(jobs.len(), RIGHT);
        if jobs.iter().all(|job| job.end_time.is_some()) {
            let failed = jobs.iter().find(|job| job.state() != State::Success);
            assert!(failed.is_none(), "{failed:?}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

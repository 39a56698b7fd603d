//! Power jobs on virtual machines, one with BIOS and one with UEFI, by their BMCs: sushy-emulator in front of libvirt. No system runs on the
//! machines. The effect of each job is read from libvirt.
#![allow(clippy::unwrap_used, missing_docs)]

use rack::machines::{Firmware, Machine};
use rack::provision::images;
use rack::server::osie;
use rack::site::Site;

/// Runs `tinwright power` with these words, and returns its output.
fn power(site: &Site, words: &[&str]) -> String {
    let output = site.server.cli().arg("power").args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Carries out every operation on `machine`, which is off.
fn passes(site: &Site, machine: &Machine) {
    let name = machine.name.as_str();
    let run = || site.hypervisor.run_of(machine).unwrap();
    let job = |operation: &str, words: &[&str]| {
        power(site, &[&[operation, name, "--wait"], words].concat());
    };
    job("boot", &["pxe"]);
    let status = power(site, &["status", name, "-o", "json"]);
    assert!(status.contains("DEVICE_PXE") && status.contains("POWER_STATE_OFF"), "{status}");

    job("on", &[]);
    let first = run().expect("switched on");
    job("on", &[]);
    assert_eq!(run(), Some(first), "a machine that is on is left on");
    // The emulator cuts the power for both.
    job("reset", &[]);
    let second = run().expect("on after a reset");
    assert_ne!(second, first, "reset");
    job("cycle", &[]);
    let third = run().expect("on after a power cycle");
    assert_ne!(third, second, "switched off and on");
    job("boot", &["disk", "--persistent"]);
    let status = power(site, &["status", name, "-o", "json"]);
    assert!(status.contains("DEVICE_DISK") && status.contains("POWER_STATE_ON"), "{status}");

    // Nothing on the machine reacts to the power button.
    job("soft-off", &["--limit", "5s"]);
    assert_eq!(run(), None, "switched off");
    job("off", &[]);
    assert_eq!(run(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_switched_by_their_bmcs() {
    let site = Site::start(&osie().unwrap(), &images().unwrap()).await.unwrap();
    let mut machines = Vec::new();
    for (number, firmware) in [(1, Firmware::Bios), (2, Firmware::Uefi)] {
        let machine = Machine::new(&site.lab, number, firmware).unwrap();
        site.add_machine(&machine).await.unwrap();
        tokio::task::block_in_place(|| passes(&site, &machine));
        machines.push(machine);
    }
    tokio::task::block_in_place(|| swapped_bmcs_switch_nothing_off(&site, &machines));
}

/// Swaps the BMCs of two machines that are on, as if their cables were: no job switches anything.
fn swapped_bmcs_switch_nothing_off(site: &Site, machines: &[Machine]) {
    let [first, second] = machines else { panic!("two machines") };
    for machine in machines {
        power(site, &["on", &machine.name, "--wait"]);
    }
    let control = |machine: &Machine, system: &str| {
        power(site, &["bmc", "update", &machine.name, "--system", system, "--skip-login"]);
    };
    // The records never have the same BMC.
    let taken = refused(site, &["bmc", "update", &first.name, "--system", &second.uuid]);
    assert!(taken.contains(&format!("is the BMC of {} already", second.name)), "{taken}");
    control(first, "none");
    control(second, &first.uuid);
    control(first, &second.uuid);
    let runs = || [first, second].map(|machine| site.hypervisor.run_of(machine).unwrap());
    let before = runs();
    assert!(before.iter().all(Option::is_some), "both are on");
    for machine in machines {
        let reason = refused(site, &["off", &machine.name, "--wait"]);
        assert!(reason.contains("the BMC lists UUID"), "{reason}");
    }
    assert_eq!(runs(), before, "nothing is switched off");
    for machine in machines {
        let bmc = power(site, &["bmc", "get", &machine.name, "-o", "json"]);
        assert!(bmc.contains("\"warning\""), "{bmc}");
    }
}

/// Runs `tinwright power` with these words, which has to fail. Returns its error.
fn refused(site: &Site, words: &[&str]) -> String {
    let output = site.server.cli().arg("power").args(words).output().unwrap();
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

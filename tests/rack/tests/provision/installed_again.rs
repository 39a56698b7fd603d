//! An active instance whose machine is installed again twice with another template, and then restarted. It boots its disk first.

use std::time::Duration;

use rack::lab::wait;
use rack::machines::Machine;
use rack::provision::{System, image_of};
use rack::site::Site;
use tinwright::instance::v1::{Instance, State};
use tokio::task::block_in_place;

use super::{ACTIVE_TIMEOUT, check_cloud_init, check_disk};

/// The beginning of the first line that the kernel prints.
const KERNEL_START: &str = "Linux version ";
/// Interval between two requests for a state.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time until a restarted machine runs its system again.
const RESTART_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Installs `instance` on `machine` twice with another template, which writes `system`, and restarts it.
/// The instance keeps its ids and addresses. The hardware id is `id`.
pub(crate) async fn install_again(
    site: &Site,
    id: &str,
    machine: &Machine,
    instance: &Instance,
    system: System,
) {
    let before = site.operator.instance(&instance.id).await.unwrap().unwrap();
    let image = image_of(system, &site.server.files, machine.firmware).unwrap();
    let template = site.operator.create_template_of("again", &image).await.unwrap();
    for installations in [2, 3] {
        site.operator.reinstall(&instance.id, &template).await.unwrap();
        let workflows = await_workflows(site, id, installations).await;
        assert_eq!(workflows.last(), Some(&template));
        check_disk(site, machine, id, &image).await;
        boot_disk_first(site, id, machine).await;
        let active =
            site.operator.wait_for_state(&instance.id, State::Active, ACTIVE_TIMEOUT, |_| {});
        active.await.unwrap();
        block_in_place(|| check_cloud_init(site, machine, instance, installations));
        println!("{} is installed again", machine.name);
    }

    let after = site.operator.instance(&instance.id).await.unwrap().unwrap();
    let kept = |it: &Instance| (it.id.clone(), it.hardware_id.clone(), it.hostname.clone());
    assert_eq!(kept(&after), kept(&before));
    assert_eq!((after.ips, after.addresses), (before.ips, before.addresses));
    assert_eq!((after.template_id, after.workflow_ids.len()), (template, 3));
    assert_eq!(after.state_reason, "", "its system has called");
    restart(site, id, machine, instance, system).await;
}

/// Waits until `count` workflows exist for the hardware `id`. Returns their templates, oldest first.
pub(crate) async fn await_workflows(site: &Site, id: &str, count: usize) -> Vec<String> {
    let polling = async {
        loop {
            let workflows = site.operator.workflows(id).await.unwrap();
            if workflows.len() == count {
                return workflows.into_iter().map(|work| work.template_id).collect();
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(ACTIVE_TIMEOUT, polling).await.expect("another workflow")
}

/// Boots the disk of `machine` without a network boot before it, as firmware does that tries its disk first: while the last action restarts
/// the machine, its cable is pulled out.
async fn boot_disk_first(site: &Site, id: &str, machine: &Machine) {
    let restarting = async {
        loop {
            let workflows = site.operator.workflows(id).await.unwrap();
            let action = workflows.last().and_then(|workflow| workflow.actions.last());
            if action.is_some_and(|action| action.terminal_time.is_some()) {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(ACTIVE_TIMEOUT, restarting).await.expect("the restart");
    let boots = || machine.console(&site.lab).matches(KERNEL_START).count();
    let before = boots();
    site.hypervisor.plug_cable_now(machine, false).unwrap();
    block_in_place(|| {
        let has_booted = || (boots() > before).then_some(());
        wait("the boot of the disk", RESTART_TIMEOUT, has_booted).unwrap();
    });
    site.hypervisor.plug_cable_now(machine, true).unwrap();
}

/// Restarts the machine. Its `system` runs again, the same one, and nothing is installed.
async fn restart(site: &Site, id: &str, machine: &Machine, instance: &Instance, system: System) {
    let boots = || machine.console(&site.lab).matches(KERNEL_START).count();
    let before = boots();
    site.operator.restart(&instance.id).await.unwrap();
    block_in_place(|| {
        let has_booted = || {
            let console = machine.console(&site.lab);
            let (_, last) = console.rsplit_once(KERNEL_START)?;
            (boots() > before && last.contains("login:")).then_some(())
        };
        wait("the restarted system", RESTART_TIMEOUT, has_booted).unwrap();
    });
    let console = machine.console(&site.lab);
    let lines: Vec<_> = console.lines().filter(|line| line.contains("RACK ")).skip(2).collect();
    match (system, lines.as_slice()) {
        // cloud-init prints the line once for each instance.
        (System::Debian, [_]) => {}
        (System::Light, [_, last]) => {
            assert!(last.contains(&format!("id={} ", instance.id)), "{last}");
            assert!(last.trim_end().ends_with(" boots=2"), "{last}");
        }
        _ => panic!("not the same system as before: {console}"),
    }
    let found = site.operator.instance(&instance.id).await.unwrap().unwrap();
    assert_eq!((found.state(), found.workflow_ids.len()), (State::Active, 3));
    assert_eq!(site.operator.workflows(id).await.unwrap().len(), 3);
    println!("{} is restarted", machine.name);
}

//! An active instance whose machine is installed again with another template, and then restarted.

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
/// Maximum time until a restarted machine runs its system again.
const RESTART_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Installs `instance` on `machine` with another template, which writes `system`, and restarts it.
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
    site.operator.reinstall(&instance.id, &template).await.unwrap();
    let workflows = await_second_workflow(site, id).await;
    assert_eq!(workflows, [before.template_id.clone(), template.clone()]);
    check_disk(site, machine, id, &image).await;
    let active = site.operator.wait_for_state(&instance.id, State::Active, ACTIVE_TIMEOUT, |_| {});
    active.await.unwrap();
    block_in_place(|| check_cloud_init(site, machine, instance, 2));

    let after = site.operator.instance(&instance.id).await.unwrap().unwrap();
    let kept = |it: &Instance| (it.id.clone(), it.hardware_id.clone(), it.hostname.clone());
    assert_eq!(kept(&after), kept(&before));
    assert_eq!((after.ips, after.addresses), (before.ips, before.addresses));
    assert_eq!((after.template_id, after.workflow_ids.len()), (template, 2));
    println!("{} is installed again", machine.name);
    restart(site, id, machine, instance, system).await;
}

/// Waits until a second workflow exists for the hardware `id`. Returns the templates of both, oldest first.
async fn await_second_workflow(site: &Site, id: &str) -> Vec<String> {
    let polling = async {
        loop {
            let workflows = site.operator.workflows(id).await.unwrap();
            if workflows.len() == 2 {
                return workflows.into_iter().map(|work| work.template_id).collect();
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(ACTIVE_TIMEOUT, polling).await.expect("a second workflow")
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
    let lines: Vec<_> = console.lines().filter(|line| line.contains("RACK ")).skip(1).collect();
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
    assert_eq!((found.state(), found.workflow_ids.len()), (State::Active, 2));
    assert_eq!(site.operator.workflows(id).await.unwrap().len(), 2);
    println!("{} is restarted", machine.name);
}

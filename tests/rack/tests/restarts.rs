//! Provisions machines with BIOS or UEFI, and takes them back, while the server is killed at random moments.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::{Duration, SystemTime};

use rack::machines::{Firmware, Machine, reads_as_zeroes};
use rack::provision::{Operator, System, images_of};
use rack::server::osie;
use rack::site::Site;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use tinwright::hardware::v1::State as HardwareState;
use tinwright::instance::v1::{Instance, State};
use tokio::task::JoinSet;

/// The variable with the seed of a run that is to be repeated.
const SEED_VARIABLE: &str = "RACK_SEED";
/// The shortest time between two kills.
const MIN_GAP: Duration = Duration::from_secs(2);
/// The longest time between two kills at first: three times the longest single fetch, that of the initramfs. It is doubled
/// with each preparation that is repeated: where fetches take longer, the server has to live longer.
const MAX_GAP: Duration = Duration::from_secs(45);
/// The longest time of an installation or a clean-up. A boot that was cut off is repeated after three or four minutes.
const STEP_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The interval between two requests for a state.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Kills the server at random moments, and starts it again each time. Never ends.
async fn restart_at_random(site: &mut Site, hardware: &[&str], seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for kills in 1.. {
        let max_gap = MAX_GAP * 2_u32.pow(repeated_preparations(&site.operator, hardware).await);
        let gap = random.random_range(MIN_GAP.as_millis()..=max_gap.as_millis());
        tokio::time::sleep(Duration::from_millis(gap.try_into().unwrap())).await;
        tokio::task::block_in_place(|| site.restart_server()).unwrap();
        println!("server killed and started, {kills} times, {gap} of {} ms", max_gap.as_millis());
    }
}

/// Returns how often the preparation of one of the machines was repeated, because its worker did not come.
async fn repeated_preparations(operator: &Operator, hardware: &[&str]) -> u32 {
    let mut repeated = 0;
    for id in hardware {
        let workflows =
            until("the workflows", async || Ok(Some(operator.workflows(id).await?))).await;
        let more = workflows.iter().map(|workflow| (workflow.preparations - 1).max(0));
        repeated = repeated.max(more.sum::<i32>());
    }
    repeated.unsigned_abs()
}

/// Calls `request` until it returns a value. Calls fail while the server is down.
async fn until<T, F>(what: &str, mut request: impl FnMut() -> F) -> T
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let polling = async {
        loop {
            if let Ok(Some(found)) = request().await {
                return found;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let found = tokio::time::timeout(STEP_TIMEOUT, polling).await;
    found.unwrap_or_else(|_| panic!("{what} within {STEP_TIMEOUT:?}"))
}

/// Provisions `machine`, whose hardware id is `id`, then deletes the instance and waits until the machine is free.
async fn provision_and_free(operator: &Operator, id: &str, instance: &Instance) {
    let name = &instance.hostname;
    until(&format!("{name} is active"), async || {
        let current = operator.instance(&instance.id).await?.unwrap();
        assert_ne!(current.state(), State::Failed, "{}", current.state_reason);
        Ok((current.state() == State::Active).then_some(()))
    })
    .await;
    println!("{name} is active");
    let workflows = until("the workflows", async || Ok(Some(operator.workflows(id).await?))).await;
    assert_eq!(workflows.len(), 1, "one installation: {workflows:?}");

    until("the deletion", async || Ok(Some(operator.delete_instance(&instance.id).await?))).await;
    until(&format!("{name} is gone"), async || {
        let Some(current) = operator.instance(&instance.id).await? else { return Ok(Some(())) };
        assert_ne!(current.state(), State::DeprovisionFailed, "{}", current.state_reason);
        Ok(None)
    })
    .await;
    println!("{name} is free");
}

/// Returns the seed of this run.
fn seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = std::env::var(SEED_VARIABLE).map_or(since.as_secs(), |text| text.parse().unwrap());
    println!("{SEED_VARIABLE}={seed}");
    seed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_provisioned_and_freed_while_the_server_is_killed_at_random() {
    let seed = seed();
    let firmware = if seed.is_multiple_of(2) { Firmware::Bios } else { Firmware::Uefi };
    provision_and_free_all(&[firmware], System::Light, seed).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes five minutes or more"]
async fn two_machines_are_provisioned_and_freed_while_the_server_is_killed_at_random() {
    provision_and_free_all(&[Firmware::Bios, Firmware::Uefi], System::Debian, seed()).await;
}

/// Provisions a machine of each `firmware` with `system`, and frees it, while the server is killed.
/// The machines are provisioned at the same time.
async fn provision_and_free_all(firmware: &[Firmware], system: System, seed: u64) {
    let (osie, images) = (osie().unwrap(), images_of(system).unwrap());
    let flags = ["--boot-silent-minutes=4", "--boot-step-minutes=3"].map(str::to_owned);
    let mut site = Site::start_with(&osie, &images, &flags).await.unwrap();
    let template = site.operator.create_template().await.unwrap();
    let mut machines = Vec::new();
    let mut provisioned = JoinSet::new();
    for (number, firmware) in (1..).zip(firmware) {
        let machine = Machine::new(&site.lab, number, *firmware).unwrap();
        let id = site.add_machine(&machine).await.unwrap();
        let instance = site.install_system(&id, &machine, &template, system).await.unwrap();
        let operator = site.operator.clone();
        machines.push((machine, id.clone()));
        provisioned.spawn(async move { provision_and_free(&operator, &id, &instance).await });
    }
    let hardware: Vec<_> = machines.iter().map(|(_, id)| id.as_str()).collect();
    tokio::select! {
        () = restart_at_random(&mut site, &hardware, seed) => {}
        _ = provisioned.join_all() => {}
    }
    for (machine, id) in &machines {
        assert!(!site.hypervisor.is_on(machine).unwrap(), "{} is off", machine.name);
        let hardware = site.operator.hardware(id).await.unwrap();
        assert_eq!(hardware.state(), HardwareState::Provisionable, "{}", hardware.state_reason);
        assert!(reads_as_zeroes(&machine.disk, machine.disk_bytes).unwrap(), "{}", machine.name);
    }
}

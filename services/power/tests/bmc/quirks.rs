//! BMCs with quirks of real ones, alone and in random combinations. None hangs, is sent a refused
//! request again, or keeps a session.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, future};
use power::{Jobs, Login, Timing};
use runtime::retry::Backoff;
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::boot::{Device, Mode};
use tinwright::power::v1::operation::{Boot, Drive, InsertMedia, Power, What};
use tinwright::power::v1::power_job::State;

use crate::quirky::{Outcome, Quirk, QuirkyBmc, repeated_refusals};
use crate::site::{self, TIMING, power, work};

/// The number of BMCs with random quirks.
const NUMBER: u64 = 100;
/// Their number in the long tests.
const LONG_NUMBER: u64 = 1000;
/// The variable with the seed of their quirks.
const SEED_VARIABLE: &str = "QUIRKY_BMC_SEED";
const SEED: u64 = 35;
/// Maximum number of quirks of one BMC.
const MAX_QUIRKS: u64 = 6;
/// BMCs that are tried at the same time.
const AT_ONCE: usize = 8;

/// Short pauses: these BMCs do everything at once, or never.
const QUICK: Timing = Timing {
    poll: Duration::from_millis(10),
    effect_timeout: Duration::from_secs(2),
    backoff: Backoff::new(Duration::from_millis(5), Duration::from_millis(20)),
    ..TIMING
};

/// One machine and its BMC.
struct Rig {
    bmc: QuirkyBmc,
    jobs: Jobs,
    hardware: HardwareId,
}

impl Rig {
    /// Creates the BMC's record after a login.
    async fn new(quirks: BTreeSet<Quirk>) -> Self {
        let bmc = QuirkyBmc::start(quirks).await;
        let (jobs, hardware) = (site::jobs(Arc::new(MemoryStore::default())), HardwareId::new());
        let record = site::bmc(hardware, &bmc.url, bmc.system());
        jobs.bmcs.create(record, Login::Try, None).await.unwrap();
        let rig = Self { bmc, jobs, hardware };
        rig.check();
        rig
    }

    /// Carries out a job, and checks what no BMC may see.
    async fn job(&self, operations: Vec<pb::Operation>) -> pb::PowerJob {
        self.bmc.next_job();
        let made = self.jobs.create(site::job(self.hardware, operations), None).await.unwrap();
        work(&self.jobs, self.hardware, QUICK).await.unwrap();
        self.check();
        self.jobs.get(made.id.parse().unwrap()).await.unwrap()
    }

    async fn success(&self, operations: Vec<pb::Operation>) -> pb::PowerJob {
        let job = self.job(operations).await;
        assert_eq!(
            job.state(),
            State::Success,
            "{}\n{:#?}",
            job.state_reason,
            self.bmc.exchanges()
        );
        job
    }

    fn check(&self) {
        let exchanges = self.bmc.exchanges();
        let repeated = repeated_refusals(&exchanges);
        assert!(repeated.is_empty(), "{repeated:#?}\n{exchanges:#?}");
        assert_eq!(self.bmc.open_sessions(), 0, "{exchanges:#?}");
    }

    /// The changes of the latest job that were refused.
    fn refused_changes(&self) -> Vec<String> {
        let exchanges = self.bmc.exchanges();
        let last = exchanges.last().map_or(0, |one| one.job);
        let refused = exchanges.into_iter().filter(|one| one.job == last && one.status >= 400);
        let is_change = |request: &String| {
            request.starts_with("PATCH ") || request.contains("/Actions/VirtualMedia.InsertMedia")
        };
        refused.map(|one| one.request).filter(is_change).collect()
    }
}

fn boot(device: Device, mode: Mode) -> pb::Operation {
    let boot = Boot { device: device.into(), mode: mode.into(), ..Boot::default() };
    pb::Operation { what: Some(What::Boot(boot)), ..Default::default() }
}

fn insert() -> pb::Operation {
    let image_url = "http://127.0.0.1:9/token/osie.iso".to_owned();
    let media = InsertMedia { image_url, drive: Drive::Cd.into() };
    pb::Operation { what: Some(What::InsertMedia(media)), ..Default::default() }
}

fn eject() -> pb::Operation {
    pb::Operation { what: Some(What::EjectMedia(Drive::Cd.into())), ..Default::default() }
}

/// Provisions the machine of a BMC: boots it from the network, clears the override, shows it an
/// image, and switches it off. Twice: the second time the BMC is sent the forms that it accepted.
async fn provision(quirks: BTreeSet<Quirk>, mode: Mode) {
    let rig = Rig::new(quirks.clone()).await;
    let [_, _, former_mode] = rig.bmc.boot();
    let has = |quirk| quirks.contains(&quirk);
    // The first request does not guess a mode.
    let guesses_mode = has(Quirk::ModeRequired) && has(Quirk::ModeUnreported);
    // Else the override is for the disk.
    let cleared = if has(Quirk::ClearIgnored) { "Continuous" } else { "Disabled" };
    for turn in 1..=2 {
        rig.success(vec![boot(Device::Pxe, mode), power(Power::On)]).await;
        let [enabled, target, mode] = rig.bmc.boot();
        assert_eq!((target.as_str(), &mode), ("Pxe", &former_mode), "{enabled}");
        assert!(rig.bmc.is_on());
        let is_accepted = rig.refused_changes().is_empty();
        assert!(turn == 1 || guesses_mode || is_accepted, "{:#?}", rig.bmc.exchanges());

        rig.success(vec![boot(Device::None, Mode::Unspecified)]).await;
        let [enabled, _, mode] = rig.bmc.boot();
        assert_eq!((enabled.as_str(), &mode), (cleared, &former_mode));

        rig.success(vec![insert()]).await;
        assert!(rig.bmc.image().is_some());
        assert!(turn == 1 || rig.refused_changes().is_empty(), "{:#?}", rig.bmc.exchanges());
        rig.success(vec![eject(), power(Power::Off)]).await;
        assert!(rig.bmc.image().is_none() && !rig.bmc.is_on());
    }
}

/// Provisions the machine of a BMC with these quirks, or has a job fail for the reason that the
/// table says.
async fn try_out(quirks: BTreeSet<Quirk>, mode: Mode) {
    let table = Quirk::TABLE.iter().filter(|(quirk, _)| quirks.contains(quirk));
    let reasons: Vec<_> = table
        .filter_map(|(_, outcome)| match outcome {
            Outcome::Success => None,
            Outcome::Refusal(text) => Some(*text),
        })
        .collect();
    if reasons.is_empty() {
        return provision(quirks, mode).await;
    }
    let rig = Rig::new(quirks).await;
    let job = rig.job(vec![boot(Device::Pxe, mode), power(Power::On)]).await;
    assert_eq!(job.state(), State::Failed);
    let is_named = reasons.iter().any(|text| job.state_reason.contains(text));
    assert!(is_named && !job.state_reason.contains("password"), "{}", job.state_reason);
}

/// Random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ number >> 31) % end
    }

    /// Returns quirks that do not contradict each other.
    fn quirks(&mut self) -> BTreeSet<Quirk> {
        let mut quirks = BTreeSet::new();
        for _ in 0..=self.below(MAX_QUIRKS) {
            let (quirk, _) = Quirk::TABLE[self.below(Quirk::TABLE.len() as u64) as usize];
            quirks.insert(quirk);
            let contradicts = |all: &&[Quirk]| all.iter().all(|one| quirks.contains(one));
            if Quirk::CONTRADICTIONS.iter().any(contradicts) {
                quirks.remove(&quirk);
            }
        }
        quirks
    }

    fn mode(&mut self) -> Mode {
        [Mode::Unspecified, Mode::Uefi][self.below(2) as usize]
    }
}

/// Tries BMCs with these quirks, several at the same time. Returns the quirks of those that failed.
async fn failures(runs: Vec<(BTreeSet<Quirk>, Mode)>) -> Vec<(BTreeSet<Quirk>, Mode)> {
    let runs = futures_util::stream::iter(runs).map(async |(quirks, mode)| {
        let run = tokio::spawn(try_out(quirks.clone(), mode));
        run.await.is_err().then_some((quirks, mode))
    });
    runs.buffer_unordered(AT_ONCE).filter_map(future::ready).collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_quirk_alone_has_the_outcome_of_the_table() {
    let all = Quirk::TABLE.iter().map(|(quirk, _)| BTreeSet::from([*quirk]));
    let runs =
        all.flat_map(|alone| [Mode::Unspecified, Mode::Uefi].map(|mode| (alone.clone(), mode)));
    assert_eq!(failures(runs.collect()).await, []);
}

/// Tries `number` BMCs with random quirks.
async fn try_random(number: u64) {
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |text| text.parse().expect("a number"));
    let mut random = Random(seed);
    let runs = (0..number).map(|_| (random.quirks(), random.mode())).collect();
    assert_eq!(failures(runs).await, [], "{SEED_VARIABLE}={seed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn random_quirks_have_the_outcomes_of_the_table() {
    try_random(NUMBER).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: `cargo rack test --long bmcs`"]
async fn a_thousand_bmcs_have_the_outcomes_of_the_table() {
    try_random(LONG_NUMBER).await;
}

/// Of two in a thousand: an accepted mode that does not read back and may not be left out, and a
/// redirect to a login that is tried by itself, too.
#[tokio::test(flavor = "multi_thread")]
async fn combinations_that_the_generator_found_have_success() {
    let runs = [
        (vec![Quirk::ModeRequired, Quirk::ModesListed, Quirk::ModeUnreported], Mode::Uefi),
        (vec![Quirk::LoginMoved302, Quirk::NoSessions, Quirk::RootNeedsLogin], Mode::Unspecified),
    ];
    let runs = runs.map(|(quirks, mode)| (BTreeSet::from_iter(quirks), mode));
    assert_eq!(failures(runs.into()).await, []);
}

#[test]
fn the_generator_uses_every_quirk() {
    let mut random = Random(SEED);
    let used: BTreeSet<_> = (0..NUMBER).flat_map(|_| random.quirks()).collect();
    let missing = Quirk::TABLE.iter().filter(|(quirk, _)| !used.contains(quirk));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "{missing:?}");
}

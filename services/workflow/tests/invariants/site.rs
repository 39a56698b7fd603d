//! Machines, workflows that compete for them, and workers that say anything at any time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use proptest::prelude::*;
use workflow::{
    ids::{HardwareId, LeaseId},
    lifecycle::{AfterLoss, End, Event, Holder, Plan, State, Step, Workflow},
    queue::{Standing, Summary, Turn, turn},
};

/// One workflow and what was seen of it.
#[derive(Debug)]
pub(crate) struct Run {
    /// As it stands.
    pub(crate) workflow: Workflow,
    /// How often Post began.
    pub(crate) posts: usize,
    /// Whether it was ever being prepared, or an action was leased.
    pub(crate) touched: bool,
    summary: Summary,
}

/// All of it.
pub(crate) struct Site {
    /// The workflows, oldest first.
    pub(crate) runs: Vec<Run>,
    now: SystemTime,
    leases: Vec<LeaseId>,
}

/// What somebody may do next. Numbers are reduced to what there is.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    /// A workflow is looked at by its reconciler.
    Reconcile { run: usize, fails: bool },
    /// A worker asks.
    Ask { machine: usize, boot: usize, process: usize, way: Way },
    /// A worker says something under a lease, old or new; a later number is likelier the current one.
    Say { lease: usize, word: Word },
    /// Somebody cancels.
    Cancel(usize),
    /// A machine's firmware is heard.
    Boot(usize),
    /// Time passes.
    Wait(u64),
}

/// How a worker asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// As a call that comes in, with nothing in its journal.
    New,
    /// As a call that comes in, still running what is current.
    Running,
    /// As a call that was held.
    Held,
}

/// What a worker says.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    Renew,
    Start { terminal: bool },
    Report(End),
}

pub(crate) fn any_move() -> impl Strategy<Value = Move> {
    let end = prop_oneof![
        3 => Just(End::Success),
        1 => Just(End::Failed { reason: "x".into() }),
        1 => Just(End::Timeout),
        1 => Just(End::Skipped),
    ];
    let word = prop_oneof![
        1 => Just(Word::Renew),
        4 => any::<bool>().prop_map(|terminal| Word::Start { terminal }),
        4 => end.prop_map(Word::Report),
    ];
    prop_oneof![
        6 => (0..4_usize, prop::bool::weighted(0.2)).prop_map(|(run, fails)| Move::Reconcile { run, fails }),
        8 => (0..2_usize, 0..3_usize, 0..2_usize, prop::sample::select(WAYS.as_slice()))
            .prop_map(|(machine, boot, process, way)| Move::Ask { machine, boot, process, way }),
        10 => (prop_oneof![3 => Just(0_usize), 1 => 0..6_usize], word)
            .prop_map(|(lease, word)| Move::Say { lease, word }),
        1 => (0..4_usize).prop_map(Move::Cancel),
        1 => (0..2_usize).prop_map(Move::Boot),
        3 => prop::sample::select(vec![1, 30, 61, 700, 2000]).prop_map(Move::Wait),
    ]
}

const MACHINES: [&str; 2] = ["a", "b"];
const WAYS: [Way; 3] = [Way::New, Way::Running, Way::Held];

impl Site {
    /// Four workflows on two machines, one of them on both.
    pub(crate) fn new() -> Self {
        let specs: [(bool, &[&str]); 4] =
            [(true, &["a", "a", "a"]), (false, &["a", "b"]), (true, &["b", "b"]), (true, &[])];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let runs = specs
            .iter()
            .enumerate()
            .map(|(number, (prepares, on))| run(number, *prepares, on, now));
        Self { runs: runs.collect(), now, leases: Vec::new() }
    }

    /// Does one move, if it can be done.
    pub(crate) fn play(&mut self, one: &Move) {
        match one {
            Move::Reconcile { run, fails } => self.reconcile(*run, *fails),
            Move::Ask { machine, boot, process, way } => self.ask(*machine, *boot, *process, *way),
            Move::Say { lease, word } => self.say(*lease, word),
            Move::Cancel(run) => self.apply(*run, Event::Cancel),
            Move::Boot(machine) => self.everywhere(Event::Booted(MACHINES[*machine].into())),
            Move::Wait(seconds) => {
                self.now += Duration::from_secs(*seconds);
                self.everywhere(Event::Tick);
            }
        }
    }

    /// Everybody does what they should, once.
    pub(crate) fn work(&mut self) {
        for run in 0..self.runs.len() {
            self.reconcile(run, false);
        }
        for machine in 0..MACHINES.len() {
            self.ask(machine, 9, 9, Way::New);
            self.say(0, &Word::Start { terminal: false });
            self.say(0, &Word::Report(End::Success));
        }
        self.play(&Move::Wait(61));
    }

    fn reconcile(&mut self, number: usize, fails: bool) {
        let summaries: Vec<Summary> = self.runs.iter().map(|run| run.summary.clone()).collect();
        let event = match (&self.runs[number].workflow.state, fails) {
            (State::Pending { .. }, _) if turn(&summaries[number], &summaries) == Turn::Now => {
                Event::Turn
            }
            (State::Preparing { .. }, false) => Event::Prepared,
            (State::Preparing { .. }, true) => Event::PrepareFailed("x".into()),
            (State::Post { .. }, false) => Event::PostDone,
            (State::Post { .. }, true) => Event::PostFailed("x".into()),
            _ => return,
        };
        self.apply(number, event);
    }

    /// The question goes to the workflow that has the machine, or may begin on it.
    fn ask(&mut self, machine: usize, boot: usize, process: usize, way: Way) {
        let machine = HardwareId::from(MACHINES[machine]);
        let summaries: Vec<Summary> = self.runs.iter().map(|run| run.summary.clone()).collect();
        let has = |one: &Summary| {
            one.machines.contains(&machine)
                && matches!(turn(one, &summaries), Turn::Now | Turn::Holding)
        };
        let Some(number) = summaries.iter().position(has) else { return };
        let lease = self.runs[number].workflow.lease().map(|lease| lease.id.clone());
        let holder = Holder {
            boot: format!("{machine}{boot}").as_str().into(),
            process: format!("{process}").as_str().into(),
        };
        let offer = LeaseId(format!("l{}", self.leases.len()));
        self.leases.push(offer.clone());
        let event = match way {
            Way::New => Event::Ask { machine, holder, running: None, offer },
            Way::Running => Event::Ask { machine, holder, running: lease, offer },
            Way::Held => Event::Waiting { machine, holder, offer },
        };
        self.apply(number, event);
    }

    /// Under the lease that is current on some machine, or one given earlier, or never.
    fn say(&mut self, back: usize, word: &Word) {
        let current =
            self.runs.iter().find_map(|run| run.workflow.lease()).map(|lease| lease.id.clone());
        let earlier = self.leases.iter().rev().nth(back).cloned();
        let Some(lease) = current.filter(|_| back == 0).or(earlier) else { return };
        for number in 0..self.runs.len() {
            let before = self.runs[number].workflow.clone();
            let lease = lease.clone();
            let stale = before.lease().is_none_or(|held| held.id != lease);
            let event = match word {
                Word::Renew => Event::Renew(lease),
                Word::Start { terminal } => Event::Start { lease, terminal: *terminal },
                Word::Report(end) => Event::Report { lease, end: end.clone() },
            };
            self.apply(number, event);
            assert!(
                !stale || self.runs[number].workflow == before,
                "a stale lease changed {before:?}"
            );
        }
    }

    fn everywhere(&mut self, event: Event) {
        for number in 0..self.runs.len() {
            self.apply(number, event.clone());
        }
    }

    /// Applies an event, twice, and watches what it does.
    fn apply(&mut self, number: usize, event: Event) {
        let run = &mut self.runs[number];
        let before = run.workflow.clone();
        let Ok(after) = before.clone().after(event.clone(), self.now) else { return };
        if let Ok(again) = after.clone().after(event.clone(), self.now) {
            assert_eq!(again, after, "{event:?} again after {before:?}");
        }
        assert!(
            !matches!(before.state, State::Ended { .. }) || after == before,
            "{event:?} changed {before:?}"
        );
        for (old, new) in before.actions.iter().zip(&after.actions) {
            assert!(!old.has_ended() || old == new, "{event:?} changed {old:?}");
        }
        let post = |workflow: &Workflow| matches!(workflow.state, State::Post { .. });
        run.posts += usize::from(post(&after) && !post(&before));
        run.touched |= matches!(after.state, State::Preparing { .. }) || after.lease().is_some();
        run.summary.standing = after.standing();
        run.workflow = after;
    }

    /// What must hold at any time.
    pub(crate) fn check(&self) {
        let mut holders = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.workflow.standing() == Standing::Active) {
            for machine in &run.summary.machines {
                let other = holders.insert(machine, &run.summary.id);
                assert!(other.is_none(), "{machine} has {other:?} and {}", run.summary.id);
            }
        }
        let mut leases = BTreeSet::new();
        for run in &self.runs {
            let held: Vec<_> =
                run.workflow.actions.iter().filter_map(|action| action.lease()).collect();
            let running = matches!(run.workflow.state, State::Running { .. });
            assert!(held.len() <= usize::from(running), "{held:?} in {:?}", run.workflow.state);
            assert!(held.iter().all(|lease| leases.insert(&lease.id)), "{held:?} is held twice");
            assert!(run.posts <= 1, "{run:?}");
        }
    }
}

fn run(number: usize, prepares: bool, on: &[&str], now: SystemTime) -> Run {
    let losses = [AfterLoss::Retry, AfterLoss::Fail, AfterLoss::ExpectBoot];
    let steps = on.iter().zip(losses).enumerate().map(|(place, (machine, after_loss))| Step {
        task: "t".into(),
        name: format!("a{place}"),
        machine: (*machine).into(),
        timeout: Duration::from_secs(600),
        retries: 1,
        background: false,
        skipped: false,
        after_loss,
    });
    let plan = Plan { prepares, time_limit: Some(Duration::from_secs(4000)) };
    let mut machines: BTreeSet<HardwareId> =
        on.iter().map(|machine| HardwareId::from(*machine)).collect();
    if machines.is_empty() {
        machines.insert("a".into());
    }
    let summary = Summary {
        id: format!("w{number}").as_str().into(),
        created: now + Duration::from_secs(number as u64),
        machines,
        disabled: false,
        standing: Standing::Waiting,
    };
    Run { workflow: Workflow::new(plan, steps.collect(), now), posts: 0, touched: false, summary }
}

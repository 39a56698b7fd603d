//! Machines, workflows that compete for them, and workers that send anything at any time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use proptest::prelude::*;
use tinwright::workflow::v1 as pb;
use tinwright::{LeaseId, WorkflowId};
use workflow::{
    lifecycle::{
        ActionEnd, AfterLoss, AttemptReport, BootStep, Event, Holder, Plan, State, Step, Workflow,
    },
    record,
    turn::{QueueEntry, QueueState, Turn, turn},
};

/// One workflow and its history.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its current state.
    pub(crate) workflow: Workflow,
    /// The number of times that it entered post.
    pub(crate) posts: usize,
    /// True if it was ever in the state preparing, or any of its actions was leased.
    pub(crate) has_begun: bool,
    /// Its machine.
    machine: usize,
    entry: QueueEntry,
}

/// All workflows.
pub(crate) struct Site {
    /// The workflows, oldest first.
    pub(crate) runs: Vec<Run>,
    now: SystemTime,
    leases: Vec<LeaseId>,
}

/// One event from outside.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    /// A workflow is reconciled.
    Reconcile { run: usize, fails: bool },
    /// A worker requests an action.
    Request { machine: usize, boot: usize, process: usize, kind: RequestKind },
    /// A worker sends a message with the id of a lease: 0 is the current lease, greater numbers are earlier ones.
    Send { lease: usize, message: Message },
    /// A workflow is cancelled.
    Cancel(usize),
    /// A workflow is reconciled while its machine is in maintenance.
    Suspend(usize),
    /// An operator confirms that a workflow's machine was restarted.
    ConfirmRestart(usize),
    /// A machine boots.
    Boot(usize),
    /// A boot server sees a step of a boot.
    BootStep(usize),
    /// Time passes.
    Wait(u64),
}

/// The machines to which workers come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Presence {
    /// All.
    Everywhere,
    /// Those that a person boots: none comes to a machine that the workflow has prepared.
    BootedByHand,
}

/// The kind of a worker's request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestKind {
    /// New, with an empty journal.
    New,
    /// New, from a worker that still runs the current action.
    Running,
    /// A held request, retried by the server.
    Held,
    /// New, while the machine is in maintenance.
    WhileSuspended,
}

/// A worker's message.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Renew,
    Start { terminal: bool },
    Report(ActionEnd),
}

pub(crate) fn any_move() -> impl Strategy<Value = Move> {
    let end = prop_oneof![
        3 => Just(ActionEnd::Success),
        1 => Just(ActionEnd::Failed),
        1 => Just(ActionEnd::Timeout),
        1 => Just(ActionEnd::Skipped),
    ];
    let message = prop_oneof![
        1 => Just(Message::Renew),
        4 => any::<bool>().prop_map(|terminal| Message::Start { terminal }),
        4 => end.prop_map(Message::Report),
    ];
    prop_oneof![
        6 => (0..5_usize, prop::bool::weighted(0.2)).prop_map(|(run, fails)| Move::Reconcile { run, fails }),
        8 => (0..2_usize, 0..3_usize, 0..2_usize, prop::sample::select(KINDS.as_slice()))
            .prop_map(|(machine, boot, process, kind)| Move::Request { machine, boot, process, kind }),
        10 => (prop_oneof![3 => Just(0_usize), 1 => 0..6_usize], message)
            .prop_map(|(lease, message)| Move::Send { lease, message }),
        1 => (0..5_usize).prop_map(Move::Cancel),
        1 => (0..5_usize).prop_map(Move::Suspend),
        1 => (0..5_usize).prop_map(Move::ConfirmRestart),
        1 => (0..2_usize).prop_map(Move::Boot),
        1 => (0..2_usize).prop_map(Move::BootStep),
        3 => prop::sample::select(vec![1, 30, 61, 700, 2000]).prop_map(Move::Wait),
    ]
}

const MACHINES: usize = 2;
const KINDS: [RequestKind; 4] =
    [RequestKind::New, RequestKind::Running, RequestKind::Held, RequestKind::WhileSuspended];

impl Site {
    /// Five workflows on two machines. Some have a time limit.
    pub(crate) fn new() -> Self {
        let plan = |prepares, powers_off| Plan { prepares, powers_off, ..Plan::default() };
        let limited = |plan| Plan { time_limit: Some(Duration::from_secs(4000)), ..plan };
        let specs = [
            (plan(true, false), 0, 3),
            (limited(plan(false, false)), 0, 2),
            (limited(plan(true, true)), 1, 2),
            (plan(true, false), 0, 0),
            (plan(false, true), 1, 1),
        ];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let runs = (0..).zip(specs);
        let runs = runs.map(|(id, (plan, machine, actions))| run(id, plan, machine, actions, now));
        Self { runs: runs.collect(), now, leases: Vec::new() }
    }

    /// Applies one event, if it is possible in the current state.
    pub(crate) fn perform(&mut self, one: &Move) {
        match one {
            Move::Reconcile { run, fails } => self.reconcile(*run, *fails),
            Move::Request { machine, boot, process, kind } => {
                self.request(*machine, *boot, *process, *kind);
            }
            Move::Send { lease, message } => self.send(*lease, message),
            Move::Cancel(run) => self.apply(*run, Event::Cancel),
            Move::Suspend(run) => self.apply(*run, Event::Suspend),
            Move::ConfirmRestart(run) => self.apply(*run, Event::RestartConfirmed { epoch: 0 }),
            Move::Boot(machine) => self.apply_on(*machine, &Event::Booted),
            Move::BootStep(machine) => {
                let step = BootStep { at: self.now, text: "kernel".into() };
                self.apply_on(*machine, &Event::BootStep(step));
            }
            Move::Wait(seconds) => {
                self.now += Duration::from_secs(*seconds);
                for number in 0..self.runs.len() {
                    self.apply(number, Event::Tick);
                }
            }
        }
    }

    fn apply_on(&mut self, machine: usize, event: &Event) {
        for number in 0..self.runs.len() {
            if self.runs[number].machine == machine {
                self.apply(number, event.clone());
            }
        }
    }

    /// Reconciles each workflow, lets `workers` run an action, and advances the time.
    pub(crate) fn work(&mut self, workers: Presence) {
        for run in 0..self.runs.len() {
            self.reconcile(run, false);
            if self.runs[run].workflow.boots.conflict.is_some() {
                self.apply(run, Event::RestartConfirmed { epoch: 0 });
            }
        }
        for machine in 0..MACHINES {
            let prepares = |run: usize| self.runs[run].workflow.plan.prepares;
            match workers {
                Presence::BootedByHand if self.first(machine).is_some_and(prepares) => {}
                Presence::Everywhere | Presence::BootedByHand => {
                    self.request(machine, 9, 9, RequestKind::New);
                    self.run_action(machine);
                }
            }
        }
        self.perform(&Move::Wait(700));
    }

    /// Starts the action that is leased on the machine, and reports its success.
    fn run_action(&mut self, machine: usize) {
        let first = self.first(machine).map(|number| &self.runs[number].workflow);
        let Some(lease) = first.and_then(Workflow::lease).map(|lease| lease.id.clone()) else {
            return;
        };
        self.send_under(&lease, &Message::Start { terminal: false });
        self.send_under(&lease, &Message::Report(ActionEnd::Success));
    }

    /// The workflow that holds the machine or whose turn it is.
    fn first(&self, machine: usize) -> Option<usize> {
        let may_run = |number: &usize| {
            let turn = self.turn(*number);
            self.runs[*number].machine == machine && matches!(turn, Some(Turn::Now | Turn::Holding))
        };
        (0..self.runs.len()).find(may_run)
    }

    fn turn(&self, number: usize) -> Option<Turn> {
        let run = &self.runs[number];
        let in_queue =
            |other: &&Run| other.machine == run.machine && other.entry.state != QueueState::Ended;
        let queue = self.runs.iter().filter(in_queue).map(|other| &other.entry);
        (run.entry.state != QueueState::Ended).then(|| turn(&run.entry, queue))
    }

    fn reconcile(&mut self, number: usize, fails: bool) {
        let event = match (&self.runs[number].workflow.state, fails) {
            (State::Pending { .. }, _) if self.turn(number) == Some(Turn::Now) => Event::BeginTurn,
            (State::Preparing { .. }, false) => Event::Prepared,
            (State::Preparing { .. }, true) => Event::PrepareFailed("x".into()),
            (State::Post { .. }, false) => Event::PostDone,
            (State::Post { .. }, true) => Event::PostFailed("x".into()),
            _ => return,
        };
        self.apply(number, event);
    }

    /// Sends a worker's request to the first workflow of the machine.
    fn request(&mut self, machine: usize, boot: usize, process: usize, kind: RequestKind) {
        let Some(number) = self.first(machine) else { return };
        let running = self.runs[number].workflow.lease().map(|lease| lease.id.clone());
        let holder = Holder {
            boot: format!("{machine}-{boot}").as_str().into(),
            process: format!("{process}").as_str().into(),
            epoch: 0,
        };
        let new_lease = LeaseId(format!("l{}", self.leases.len()));
        self.leases.push(new_lease.clone());
        let event = match kind {
            RequestKind::New => Event::RequestAction { holder, running: None, new_lease },
            RequestKind::Running => Event::RequestAction { holder, running, new_lease },
            RequestKind::Held => Event::RetryRequest { holder, new_lease },
            RequestKind::WhileSuspended => Event::RequestWhileSuspended { holder, running },
        };
        self.apply(number, event);
    }

    /// Sends a message with the id of a current lease, or of an earlier or unused one.
    fn send(&mut self, back: usize, message: &Message) {
        let current =
            self.runs.iter().find_map(|run| run.workflow.lease()).map(|lease| lease.id.clone());
        let earlier = self.leases.iter().rev().nth(back).cloned();
        if let Some(lease) = current.filter(|_| back == 0).or(earlier) {
            self.send_under(&lease, message);
        }
    }

    fn send_under(&mut self, lease: &LeaseId, message: &Message) {
        for number in 0..self.runs.len() {
            let before = self.runs[number].workflow.clone();
            let lease = lease.clone();
            let stale = before.lease().is_none_or(|held| held.id != lease);
            let event = match message {
                Message::Renew => Event::Renew(lease),
                Message::Start { terminal } => Event::Start { lease, terminal: *terminal },
                Message::Report(end) => {
                    let report = AttemptReport { end: *end, reason: "x".into() };
                    Event::Report { lease, report }
                }
            };
            self.apply(number, event);
            assert!(
                !stale || self.runs[number].workflow == before,
                "a stale lease changed {before:?}"
            );
        }
    }

    /// Applies an event, twice, and checks its effect.
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
        run.has_begun |= matches!(after.state, State::Preparing { .. }) || after.lease().is_some();
        run.entry.state = record::queue_state(&record::write(&pb::Workflow::default(), &after));
        run.workflow = after;
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) {
        let mut holders = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.entry.state == QueueState::Active) {
            let other = holders.insert(run.machine, run.entry.id);
            assert!(other.is_none(), "{} has {other:?} and {}", run.machine, run.entry.id);
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

fn run(number: u8, plan: Plan, machine: usize, actions: usize, now: SystemTime) -> Run {
    let losses = [AfterLoss::Retry, AfterLoss::Fail, AfterLoss::ExpectBoot];
    let steps = losses.into_iter().take(actions).enumerate().map(|(place, after_loss)| Step {
        task: "t".into(),
        name: format!("a{place}"),
        timeout: Duration::from_secs(600),
        retries: 1,
        background: false,
        skipped: false,
        after_loss,
    });
    let entry = QueueEntry {
        id: WorkflowId::from_bytes([number + 1; 16]),
        created: now + Duration::from_secs(number.into()),
        state: QueueState::Waiting,
    };
    Run {
        workflow: Workflow::new(plan, steps.collect(), now),
        posts: 0,
        has_begun: false,
        machine,
        entry,
    }
}

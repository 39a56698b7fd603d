//! Ends of the program at each journal write and each kernel step (contract, section 14, check 9).
//!
//! In a life of the program, a stack is created, its container stopped, started again and deleted. There is a life for each step of it,
//! which the program is killed at. After the kill, the next process has what was answered, and the kernel has nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::agent::Agent;
use crate::agent_steps::{AgentSteps, launch_stopped};
use crate::bodies::{bind, overlay, running, squashfs_stack};
use crate::client::Client;
use crate::host::{Host, on_host, own_mounts, until};
use crate::tracer::{Step, Trace, Tracer};

const POLL_PERIOD: Duration = Duration::from_millis(2);
const FLAGS: [&str; 2] = ["--scheme", "unix"];
/// The objects of the survivor, a container that runs in all lives, and those of the stack: attachments, mounts and containers.
const SURVIVOR_OBJECTS: usize = 3;
const STACK_OBJECTS: usize = 5;
/// The last id of the survivor's objects.
const SURVIVOR_ID: i64 = 3;
/// The requests of a life.
const REQUESTS: [(&str, &str); 4] = [
    ("POST", "/container"),
    ("PATCH", "/container?name=stack&state=exited"),
    ("PATCH", "/container?name=stack&state=running"),
    ("DELETE", "/container?name=stack&force=true"),
];
/// The states that the container of the stack may have after a crash, by the number of requests that were answered. The next request may
/// have been begun: a start that had no process yet has failed, and a deletion by force ends the processes first.
const STATES: [&[&str]; 5] = [
    &["absent", "running"],
    &["running", "exited"],
    &["exited", "running", "dead"],
    &["running", "exited", "absent"],
    &["absent"],
];

/// What the client saw of a life.
#[derive(Debug, Default)]
struct Seen {
    answers: usize,
    /// The container of the stack, as its creation was answered.
    created: Option<Value>,
}

/// A run, with the process id of its first program: 0 before that and after it.
type RunProcess = (String, i64);

/// What the kernel has of the program and its containers.
#[derive(Debug, PartialEq, Eq)]
struct KernelTables {
    mounts: Vec<String>,
    loop_devices: BTreeSet<String>,
    control_groups: BTreeSet<String>,
    supervisors: Vec<i32>,
    runs: BTreeSet<RunProcess>,
    directories: Vec<String>,
}

/// All lives of the program in one place.
struct CrashTest<'a> {
    host: &'a Host,
    /// The request for the stack.
    stack: Value,
    /// The survivor, as its creation was answered.
    survivor: Value,
    /// The name of the journal, with which the names of runs begin.
    name: String,
    /// What the kernel has of the survivor.
    tables: KernelTables,
    /// The last id that is known to be used.
    last_id: i64,
}

impl<'a> CrashTest<'a> {
    /// Makes the images, and starts the survivor.
    fn new(host: &'a Host) -> Self {
        for directory in ["image/proc", "image/dev", "image/sys", "files"] {
            fs::create_dir(host.path(directory)).unwrap();
        }
        let script = "#!/bin/sh\ntrap 'exit 0' 15\necho ready\nbusybox sleep 100000 & wait $!\n";
        host.script("image", "init", script);
        host.squashfs("image", "files/image.sqsh");
        let agent = Agent::start(host);
        let mount = overlay(vec![bind(&host.text("image"))]);
        let survivor = agent.client.post("/container", &running("survivor", "/init", mount));
        agent.kill();
        let name = host.entries("state/runs")[0].split('-').next().unwrap().to_owned();
        let tables = kernel_tables(host, &name);
        let stack = running("stack", "/init", squashfs_stack(&host.text("files"), "/image.sqsh"));
        Self { host, stack, survivor, name, tables, last_id: SURVIVOR_ID }
    }

    /// Starts the program, and has it do all requests, unless it is killed before at the step `kill_at`.
    fn live(&mut self, kill_at: Option<Step>) -> (Trace, Seen) {
        let mut seen = Seen::default();
        let trace = self.traced(kill_at, |test, client| test.request_all(client, &mut seen));
        (trace, seen)
    }

    /// Starts the program and waits until it has done what a crash left, unless it is killed before at the step `kill_at`.
    fn begin_recovery(&mut self, kill_at: Option<Step>) -> Trace {
        self.traced(kill_at, |_, client| {
            while !is_whole(&try_objects(client)?) {
                thread::sleep(POLL_PERIOD);
            }
            Some(())
        })
    }

    /// Starts the program, and lets `client` work until it returns nothing, because the program has ended, or it is done.
    fn traced(
        &mut self,
        kill_at: Option<Step>,
        work: impl FnOnce(&Self, &Client) -> Option<()>,
    ) -> Trace {
        let has_ended = AtomicBool::new(false);
        let (trace, log) = thread::scope(|threads| {
            let agent = launch_stopped(self.host, &FLAGS);
            let (pid, has_ended) = (agent.pid(), &has_ended);
            let tracer = threads.spawn(move || {
                let trace = Tracer::attach(pid, AgentSteps::of(pid), kill_at).run();
                has_ended.store(true, Ordering::SeqCst);
                trace
            });
            let client = &agent.client;
            while client.try_call("GET", "/mount", None).is_none()
                && !has_ended.load(Ordering::SeqCst)
            {
                thread::sleep(POLL_PERIOD);
            }
            let is_done = work(self, client).is_some();
            let log = agent.own_log();
            agent.kill();
            let trace = tracer.join().unwrap();
            assert!(is_done || trace.is_killed, "the program ended by itself: {log}");
            (trace, log)
        });
        self.last_id = self.last_id.max(last_logged_id(&log));
        trace
    }

    /// Sends all requests, and waits until the stack is gone. Returns nothing if the program ends before that.
    fn request_all(&self, client: &Client, seen: &mut Seen) -> Option<()> {
        for (method, path) in REQUESTS {
            self.wait_for_container(client, seen)?;
            let body = Some(&self.stack).filter(|_| method == "POST");
            let answer = client.try_call(method, path, body)?;
            assert!([200, 201].contains(&answer.status), "{method} {path}: {}", answer.json());
            seen.answers += 1;
            if method == "POST" {
                seen.created = Some(answer.json());
            }
        }
        while try_objects(client)?.len() > SURVIVOR_OBJECTS {
            thread::sleep(POLL_PERIOD);
        }
        Some(())
    }

    /// Waits until the container of the stack, if there is one, treats signals and is not being stopped.
    fn wait_for_container(&self, client: &Client, seen: &Seen) -> Option<()> {
        let Some(created) = &seen.created else { return Some(()) };
        let log = || fs::read_to_string(text(&created["logfile"])).unwrap_or_default();
        let is_stopping = || Some(stack(&try_objects(client)?)?["state"] == "stopping");
        while is_stopping()? || !log().contains("\nready\n") {
            thread::sleep(POLL_PERIOD);
        }
        Some(())
    }

    /// Starts the program after a crash, checks what it has, and deletes the stack.
    fn recover(&mut self, seen: &Seen) {
        let runs_before = runs(self.host);
        let run_ids = runs_before.iter().map(|(run, _)| container_id(run));
        self.last_id = run_ids.fold(self.last_id, i64::max);
        let agent = Agent::start(self.host);
        let client = &agent.client;
        until("what is half-built is gone", || is_whole(&objects(client)));
        let found = objects(client);
        let stack = stack(&found);
        let state = stack.as_ref().map_or("absent".to_owned(), |it| text(&it["state"]));
        let known = STATES[seen.answers];
        assert!(known.contains(&state.as_str()), "{state} after {} answers", seen.answers);
        if let (Some(stack), Some(created)) = (&stack, &seen.created) {
            assert_eq!(without_state(stack), without_state(created));
        }
        self.check_kernel(&found, &runs_before);
        let ids = found.iter().chain(&seen.created).filter_map(|it| it["id"].as_i64());
        self.last_id = ids.fold(self.last_id.max(last_logged_id(&agent.own_log())), i64::max);
        self.check_next_id(client);
        if stack.is_some() {
            client.send("DELETE", "/container?name=stack&force=true");
        }
        until("only the survivor is left", || objects(client).len() == SURVIVOR_OBJECTS);
        assert_eq!(client.list("/container"), std::slice::from_ref(&self.survivor));
        agent.kill();
        let tables = || kernel_tables(self.host, &self.name);
        let is_clean = || tables() == self.tables;
        until(&format!("clean: {:?} and not {:?}", self.tables, tables()), is_clean);
    }

    /// Asserts that the kernel has what `found` says, and that containers which run have the processes of before.
    fn check_kernel(&self, found: &[Value], runs_before: &BTreeSet<RunProcess>) {
        let values = |key| found.iter().filter_map(move |it| it[key].as_str());
        let mounts: BTreeSet<_> = values("mountpoint").map(str::to_owned).collect();
        let devices: BTreeSet<_> =
            values("device_file").map(|file| file.replace("/dev/", "")).collect();
        let overlays = values("kind").filter(|kind| *kind == "overlay").count();
        let containers = values("state").filter(|state| *state == "running").count();
        let host = self.host;
        until("the kernel has what is listed", || {
            host.mounts().into_iter().collect::<BTreeSet<_>>() == mounts
                && host.loop_devices() == devices
                && host.entries("mounts").len() == mounts.len() + 2 * overlays
                && host.entries("state/runs").len() == containers
                && control_groups(&self.name).into_iter().eq(host.entries("state/runs"))
                // The program is one, too.
                && host.processes().len() == 1 + containers
                && runs(host).iter().all(|(_, pid)| *pid != 0)
        });
        let runs = runs(host);
        assert!(self.tables.runs.is_subset(&runs), "the survivor has another process: {runs:?}");
        for (name, pid) in runs {
            // A supervisor goes on with a start that the program has begun.
            let is_same = runs_before.contains(&(name.clone(), pid))
                || runs_before.contains(&(name.clone(), 0));
            assert!(is_same, "{name} has another process than before: {runs_before:?}");
            assert!(fs::read_link(format!("/proc/{pid}/exe")).is_ok(), "{name} does not run");
        }
    }

    /// Asserts that the next id was not used before.
    fn check_next_id(&mut self, client: &Client) {
        let id = client.post("/mount", &bind("/"))["id"].as_i64().unwrap();
        assert!(id > self.last_id, "the id {id} was used again");
        self.last_id = id;
        client.send("DELETE", &format!("/mount?id={id}&force=true"));
    }

    /// Deletes the survivor.
    fn end(self) {
        let agent = Agent::start(self.host);
        agent.client.send("DELETE", "/container?name=survivor&force=true");
        agent.client.until_empty();
        until("no control group is left", || control_groups(&self.name).is_empty());
    }
}

/// Returns all objects, unless the program has ended.
fn try_objects(client: &Client) -> Option<Vec<Value>> {
    let mut objects = Vec::new();
    for path in ["/attach", "/mount", "/container"] {
        let listed = client.try_call("GET", path, None)?.json();
        objects.extend(listed.as_array().unwrap().iter().cloned());
    }
    Some(objects)
}

fn objects(client: &Client) -> Vec<Value> {
    try_objects(client).expect("the program runs")
}

/// Returns the container of the stack.
fn stack(objects: &[Value]) -> Option<Value> {
    objects.iter().find(|it| it["name"] == "stack").cloned()
}

/// True if the stack is there with all its objects or not at all, and nothing is under way.
fn is_whole(objects: &[Value]) -> bool {
    [SURVIVOR_OBJECTS, SURVIVOR_OBJECTS + STACK_OBJECTS].contains(&objects.len())
        && objects.iter().all(|it| it["refs"] == 1 && it["state"] != "stopping")
}

fn without_state(container: &Value) -> Value {
    let mut container = container.clone();
    container["state"] = Value::Null;
    container
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Returns the highest id of the objects that a log names: also of those that no answer has.
fn last_logged_id(log: &str) -> i64 {
    let ids = log.split("object.id=").skip(1).filter_map(|rest| {
        let end = rest.find(|character: char| !character.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().ok()
    });
    ids.max().unwrap_or_default()
}

/// Returns the id of the container that a run is named after: `[removed-]<name of the journal>-<id>.<number>`.
fn container_id(run: &str) -> i64 {
    let (_, rest) = run.rsplit_once('-').unwrap();
    rest.split_once('.').unwrap().0.parse().unwrap()
}

fn kernel_tables(host: &Host, name: &str) -> KernelTables {
    let mounts = own_mounts();
    let own = mounts.lines().filter(|line| line.contains(host.root.to_str().unwrap()));
    KernelTables {
        mounts: own.map(str::to_owned).collect(),
        loop_devices: host.loop_devices(),
        control_groups: control_groups(name),
        supervisors: host.processes(),
        runs: runs(host),
        directories: host.entries("mounts"),
    }
}

fn runs(host: &Host) -> BTreeSet<RunProcess> {
    let with_process = |name: String| {
        let record = host.read(&format!("state/runs/{name}/state.json"));
        let record: Value = serde_json::from_str(&record).unwrap_or_default();
        let pid = record["phase"]["running"]["process"]["pid"].as_i64();
        (name, pid.unwrap_or_default())
    };
    host.entries("state/runs").into_iter().map(with_process).collect()
}

/// Returns the control groups of the runs whose names begin with `name`, of all hierarchies.
fn control_groups(name: &str) -> BTreeSet<String> {
    let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path());
    let roots = hierarchies.chain(["/sys/fs/cgroup".into()]);
    let groups = roots.filter_map(|root| fs::read_dir(root.join("tinwright-node")).ok()).flatten();
    let groups = groups.map(|group| group.unwrap().file_name().to_string_lossy().into_owned());
    groups.filter(|group| group.starts_with(name)).collect()
}

#[test]
fn a_kill_at_each_step_leaks_nothing_loses_nothing_and_ends_no_container() {
    on_host(|host| {
        let mut test = CrashTest::new(host);
        let (whole, seen) = test.live(None);
        assert_eq!(seen.answers, REQUESTS.len());
        test.recover(&seen);
        let mut kills = 0;
        for &step in &whole.steps {
            println!("killed at {step:?}");
            let (trace, seen) = test.live(Some(step));
            kills += usize::from(trace.is_killed);
            test.recover(&seen);
        }
        println!("{kills} kills at {} steps", whole.steps.len());
        assert!(whole.steps.len() > 90, "only {} steps", whole.steps.len());
        // Journal writes are joined and supervisors looked at more or less often, so a life may not come to all of them.
        assert!(kills * 10 >= whole.steps.len() * 9, "only {kills} kills");
        test.end();
    });
}

/// Kills the program at one of `stride` steps of a life, and the next process at each step of its recovery.
fn kill_twice(stride: usize) {
    on_host(move |host| {
        let mut test = CrashTest::new(host);
        let (whole, seen) = test.live(None);
        test.recover(&seen);
        let offset = std::process::id() as usize % stride;
        let mut kills = 0;
        for &first in whole.steps.iter().skip(offset).step_by(stride) {
            println!("first killed at {first:?}");
            let (_, seen) = test.live(Some(first));
            let recovery = test.begin_recovery(None);
            test.recover(&seen);
            for &second in &recovery.steps {
                println!("then killed at {second:?}");
                let (_, seen) = test.live(Some(first));
                kills += usize::from(test.begin_recovery(Some(second)).is_killed);
                test.recover(&seen);
            }
        }
        println!("{kills} second kills");
        assert!(kills > 15, "only {kills} kills");
        test.end();
    });
}

#[test]
fn a_second_kill_at_each_step_of_a_recovery_changes_nothing() {
    kill_twice(50);
}

#[test]
#[ignore = "takes twenty minutes"]
fn a_second_kill_at_each_step_of_each_recovery_changes_nothing() {
    kill_twice(1);
}

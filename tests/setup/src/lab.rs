//! The lab of compose.yaml, where no image registry is reachable.
//!
//! - `dockerfile`: the packages of the base images. `images`: builds the images. `engine`: a Docker engine in a namespace of its own.

mod dockerfile;
mod engine;
mod images;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use setup::pages::typed;
use setup::{root, run};

use self::engine::Engine;

/// The name of the compose project.
const PROJECT: &str = "lab";
/// Time until the machine's instance has to be active.
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Time until the machine has to be erased, off and free.
const FREE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Time between looks at an instance.
const POLL: Duration = Duration::from_secs(5);
/// The services through which clients use the control plane.
const CONTROL: [&str; 3] = ["replica-1", "replica-2", "gateway"];

/// A running lab. Drop removes it.
struct Lab {
    engine: Engine,
    compose: PathBuf,
    is_interrupted: Arc<AtomicBool>,
}

/// Starts the whole lab, waits until its instance is active, and removes it at the next line of input or at an interrupt.
pub(crate) fn up(down: bool) -> anyhow::Result<()> {
    let lab = Lab::start(true)?;
    lab.compose(&["up", "--no-build", "--detach"])?;
    lab.wait_until_active()?;
    if down {
        return Ok(());
    }
    println!("{}", lab.instructions());
    while lab.check_interrupt().is_ok() {
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// A test of the lab.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Test {
    /// Nothing changes for clients while a replica or a member of etcd is stopped
    ControlPlane,
    /// The machine is installed, and is erased, off and free again, the latter without a replica and a member of etcd
    Machine,
}

/// Runs `test`. Prints the output of the containers if it fails.
pub(crate) fn test(test: Test) -> anyhow::Result<()> {
    let lab = Lab::start(matches!(test, Test::Machine))?;
    let done = match test {
        Test::ControlPlane => lab.survive_stops(),
        Test::Machine => lab.use_machine(),
    };
    if done.is_err() {
        drop(run(&mut lab.compose_command(&["ps", "--all"])));
        drop(run(&mut lab.compose_command(&["logs", "--tail", "50"])));
    }
    done
}

impl Lab {
    /// Starts the engine, and builds the images: those of machines too, if `has_machines`.
    fn start(has_machines: bool) -> anyhow::Result<Self> {
        anyhow::ensure!(
            rustix::process::geteuid().is_root(),
            "run this as root: it creates network namespaces"
        );
        let cache = root().join("target/peers/lab");
        std::fs::create_dir_all(&cache)?;
        run(Command::new("sh").arg(root().join("tests/setup/assets/compose.sh")).arg(&cache))?;
        let is_interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, is_interrupted.clone())?;
        }
        let engine = Engine::start(&cache)?;
        let lab = Self { engine, compose: cache.join("docker-compose"), is_interrupted };
        images::build(&lab.engine, &cache, has_machines)?;
        Ok(lab)
    }

    /// Stops and starts a replica and a member of etcd, and compares what clients see.
    fn survive_stops(&self) -> anyhow::Result<()> {
        let up = ["up", "--no-build", "--detach", "--wait"];
        self.compose(&[&up[..], &CONTROL[..]].concat())?;
        self.create("replica-1", "before")?;
        for (stopped, name) in [("replica-1", "one-replica"), ("etcd-2", "two-members")] {
            let before = self.seen()?;
            self.compose(&["stop", stopped])?;
            anyhow::ensure!(self.seen()? == before, "{stopped} is missed: {before:?}");
            self.create("replica-2", name)?;
            self.compose(&[&up[..], &[stopped]].concat())?;
        }
        let after = self.seen()?;
        let names = ["before", "one-replica", "two-members"];
        anyhow::ensure!(names.iter().all(|name| after.0.contains(name)), "missing: {after:?}");
        let first = self.on("replica-1", &["tinwright", "tenant", "list", "-o", "json"])?;
        anyhow::ensure!(first == after.0, "replica-1 differs: {first}");
        Ok(())
    }

    /// Types the commands of the document: the machine is installed, and freed while a replica and a member of etcd are stopped. Waits after each
    /// as long as a reader has to.
    fn use_machine(&self) -> anyhow::Result<()> {
        for block in typed("docs/lab.md", "The lab") {
            for command in block.commands() {
                let command = command.split(" #").next().unwrap_or_default();
                println!("{command}");
                let words: Vec<_> = command.split_whitespace().collect();
                let arguments = words.strip_prefix(&["docker", "compose"]);
                let arguments = arguments.with_context(|| format!("not of compose: {command}"))?;
                self.type_command(arguments)?;
            }
        }
        Ok(())
    }

    /// Runs compose as a reader does, without a terminal, and with images that are built already.
    fn type_command(&self, arguments: &[&str]) -> anyhow::Result<()> {
        match arguments {
            ["up", "--build", rest @ ..] => {
                self.compose(&[&["up", "--no-build"], rest].concat())?;
                self.wait_until_active()
            }
            ["logs", "--follow", rest @ ..] => self.compose(&[&["logs"], rest].concat()),
            ["exec", service, command @ ..] => {
                let printed = self.on(service, command)?;
                match command {
                    ["tinwright", "instance", "list"] => {
                        anyhow::ensure!(printed.contains(" active "), "not active: {printed}");
                    }
                    ["tinwright", "boot", "list", ..] => {
                        anyhow::ensure!(printed.lines().count() > 1, "no boots: {printed}");
                    }
                    ["tinwright", "instance", "delete", machine, "--yes"] => {
                        self.wait_until_free(service, machine)?;
                    }
                    _ => anyhow::bail!("the test does not know the result of {command:?}"),
                }
                Ok(())
            }
            _ => self.compose(arguments),
        }
    }

    /// Waits until `machine` has no instance, and checks that it is free and off. Calls the server of `service`.
    fn wait_until_free(&self, service: &str, machine: &str) -> anyhow::Result<()> {
        let json = |command: &[&str]| self.on(service, &[command, &["-o", "json"]].concat());
        self.wait("the instance is gone", FREE_TIMEOUT, || {
            let listed = json(&["tinwright", "instance", "list"])?;
            let has_failed = listed.contains("DEPROVISION_FAILED");
            anyhow::ensure!(!has_failed, "the clean-up failed: {listed}");
            Ok(listed.trim() == "[]")
        })?;
        let record = json(&["tinwright", "hardware", "get", machine])?;
        anyhow::ensure!(record.contains("\"STATE_PROVISIONABLE\""), "not free: {record}");
        let status = json(&["tinwright", "power", "status", machine])?;
        anyhow::ensure!(status.contains("\"POWER_STATE_OFF\""), "not off: {status}");
        Ok(())
    }

    /// Creates a tenant through the server of `service`.
    fn create(&self, service: &str, name: &str) -> anyhow::Result<()> {
        self.on(service, &["tinwright", "tenant", "create", name]).map(drop)
    }

    /// Returns the tenants as the second replica and the gateway list them.
    fn seen(&self) -> anyhow::Result<(String, String)> {
        let second = self.on("replica-2", &["tinwright", "tenant", "list", "-o", "json"])?;
        let secrets = "/var/lib/tinwright/secrets";
        let (ca, own) = (format!("{secrets}/ca.pem"), format!("{secrets}/admin.pem"));
        let key = format!("{secrets}/admin-key.pem");
        let curl = ["curl", "--silent", "--show-error", "--fail", "--cacert", &ca, "--cert", &own];
        let url = ["--key", &key, "https://gateway:8080/api/v1/tenants"];
        let gateway = self.on("replica-2", &[&curl[..], &url[..]].concat())?;
        anyhow::ensure!(gateway.contains("before"), "the gateway lists {gateway}");
        Ok((second, gateway))
    }

    /// Waits until the instance on the machine is active; prints its state when that changes.
    fn wait_until_active(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        let mut last = String::new();
        self.wait("the instance is active", ACTIVE_TIMEOUT, || {
            // Until the machine has its record there is no instance.
            let instance = self.on("replica-1", &["tinwright", "instance", "get", "lab-1"]);
            let instance = instance.unwrap_or_default();
            let state = instance.lines().find_map(|line| line.strip_prefix("state: "));
            let state = state.unwrap_or("no instance yet").to_owned();
            if state != last {
                println!("{:4} s  {state}", begin.elapsed().as_secs());
            }
            anyhow::ensure!(state != "failed", "the instance failed: {instance}");
            last = state;
            Ok(last == "active")
        })
    }

    /// Calls `ready` until it is true.
    fn wait(
        &self,
        name: &str,
        timeout: Duration,
        mut ready: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let until = Instant::now() + timeout;
        while !ready()? {
            self.check_interrupt()?;
            anyhow::ensure!(Instant::now() < until, "timeout after {timeout:?}: {name}");
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn check_interrupt(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.is_interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }

    /// Runs a command in the container of `service`. Returns its output.
    fn on(&self, service: &str, command: &[&str]) -> anyhow::Result<String> {
        let mut exec = self.compose_command(&["exec", "--no-TTY", service]);
        let output = exec.args(command).stdin(Stdio::null()).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{command:?} on {service}: {stderr}");
        String::from_utf8(output.stdout).context("the output is not a text")
    }

    /// Runs compose. Its output is shown if it fails.
    fn compose(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.check_interrupt()?;
        let output = self.compose_command(arguments).stdin(Stdio::null()).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "docker compose {arguments:?} failed:\n{stderr}");
        Ok(())
    }

    fn compose_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.engine.client(&self.compose);
        command.args(["--project-name", PROJECT, "--file"]).arg(root().join("compose.yaml"));
        command.args(arguments);
        command
    }

    /// Returns what to type next.
    fn instructions(&self) -> String {
        let (host, name) = (self.engine.host(), self.engine.name());
        let compose = format!("{} --project-name {PROJECT}", self.compose.display());
        format!(
            "The instance is active. In another terminal, in this directory:

  export DOCKER_HOST={host}
  {compose} ps
  {compose} exec replica-1 tinwright instance list
  {compose} logs machine                      the machine's console
  {compose} stop replica-1 etcd-2             nothing is missed
  {compose} exec replica-2 tinwright instance delete lab-1 --yes
  nsenter --net=/run/netns/{name} curl --insecure https://127.0.0.1:8080/openapi.json

Ctrl-C removes the lab."
        )
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let down = ["down", "--volumes", "--timeout", "5"];
        let mut command = self.compose_command(&down);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The engine stops what is left.
        drop(command.status());
    }
}

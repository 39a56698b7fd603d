//! The program of the tests, started as root or as an ordinary user.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sandbox::{Job, Layers, Limits};
use tempfile::TempDir;

/// An ordinary user without an account.
pub(crate) const ORDINARY: Caller = Caller(Some(12345));
/// Root. Its jobs run as the user `nobody`.
pub(crate) const ROOT: Caller = Caller(None);
pub(crate) const CALLERS: [Caller; 2] = [ROOT, ORDINARY];
/// Environment variable that is set if these tests run in a group that is delegated to [`ORDINARY`].
const DELEGATED: &str = "SANDBOX_DELEGATED";
/// Timeout of a test that waits for a condition.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// User that starts the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller(Option<u32>);

impl Caller {
    /// Returns the user of the host that jobs run as.
    pub(crate) fn job_user(self) -> u32 {
        self.0.unwrap_or(65534)
    }

    /// True if the caller may create a cgroup with limits: root, or the ordinary user where a group
    /// is delegated to it.
    pub(crate) fn has_cgroup(self) -> bool {
        self == ROOT || std::env::var_os(DELEGATED).is_some()
    }

    fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some(id) = self.0 {
            command.uid(id).gid(id);
        }
        command
    }
}

/// A scratch directory, a copy of the program that each user can start, and a job.
pub(crate) struct Scene {
    caller: Caller,
    directory: TempDir,
    pub(crate) job: Job,
    pub(crate) layers: Layers,
}

impl Scene {
    /// Returns the job `name` with `input`, for `caller`.
    pub(crate) fn new(caller: Caller, name: &str, input: impl ToString) -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests start programs as other users");
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join("program");
        // Not by this process: a child that another test starts meanwhile would inherit the open
        // copy for a moment, and the kernel starts no program that is open for writing.
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_sandbox-helper")).arg(&program);
        assert!(copy.status().unwrap().success());
        let scratch = directory.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        chown(&scratch, caller.0, caller.0).unwrap();
        let mut job = Job::new(name, input.to_string().into_bytes(), scratch);
        // Not before a test has given up.
        let wall_clock = 4 * WAIT_TIMEOUT;
        job.limits = Limits { free_bytes: 0, wall_clock, ..Limits::default() };
        Self { caller, directory, job, layers: Layers::default() }
    }

    pub(crate) fn with_programs(mut self) -> Self {
        self.job.programs_allowed = true;
        self
    }

    pub(crate) fn with_layers(mut self, layers: Layers) -> Self {
        self.layers = layers;
        self
    }

    pub(crate) fn with_limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.job.limits);
        self
    }

    /// Creates a file of the host that each user can read.
    pub(crate) fn plant(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, "planted").unwrap();
        path
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.directory.path().join("program")
    }

    /// Starts the program.
    pub(crate) fn start(&self) -> Running {
        let job = serde_json::to_string(&self.job).unwrap();
        let layers = serde_json::to_string(&self.layers).unwrap();
        self.start_with(&["run", &job, &layers])
    }

    /// Starts the program, which drops the run at the first progress of its job.
    pub(crate) fn start_cancelled(&self) -> Running {
        self.start_with(&["cancel", &serde_json::to_string(&self.job).unwrap()])
    }

    fn start_with(&self, arguments: &[&str]) -> Running {
        let mut command = self.caller.command(self.program());
        command.args(arguments).env("SECRET", "secret").stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self) -> Ended {
        self.start().finish()
    }

    /// Runs the check of the host.
    pub(crate) fn check(&self) -> (String, String) {
        let output = self.caller.command(self.program()).arg("check").output().unwrap();
        (text(&output.stdout), text(&output.stderr))
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The program, while its job runs. It is killed on drop.
pub(crate) struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

/// Lines of progress and result of the program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) progress: Vec<String>,
    pub(crate) result: Result<String, String>,
    pub(crate) log: String,
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reads the next line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Kills the program without warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn finish(mut self) -> Ended {
        let mut progress = Vec::new();
        let last = loop {
            let line = self.line();
            match line.strip_prefix("progress ") {
                Some(number) => progress.push(number.to_owned()),
                None => break line,
            }
        };
        assert!(self.child.wait().unwrap().success());
        let ((kind, text), log): ((String, String), String) = serde_json::from_str(&last).unwrap();
        Ended { progress, result: if kind == "ok" { Ok(text) } else { Err(text) }, log }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // InvalidInput: it was waited for.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// A process of the host that jobs look for. It is killed on drop.
pub(crate) struct Victim(pub(crate) Child);

impl Victim {
    /// Starts a process of the user that the caller's jobs run as.
    pub(crate) fn start(caller: Caller) -> Self {
        let id = caller.job_user();
        Self(Command::new("sleep").arg("600").uid(id).gid(id).spawn().unwrap())
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// Waits for a condition.
pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Identity of a process: its id, and its start time, which a later process with the id lacks.
pub(crate) type Identity = (u32, String);

/// Returns the processes below `ancestor`.
pub(crate) fn descendants(ancestor: u32) -> Vec<Identity> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(status) = status(id).filter(|status| status[1] == ancestor.to_string()) {
            found.push((id, status[19].clone()));
            found.extend(descendants(id));
        }
    }
    found
}

/// True if the process runs. One that only waits for its parent does not.
pub(crate) fn is_alive((id, start): &Identity) -> bool {
    status(*id).is_some_and(|status| status[19] == *start && status[0] != "Z")
}

/// Returns the fields of `/proc/PID/stat` behind the name.
fn status(id: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Returns the cgroups of sandboxes that `keeper` created.
pub(crate) fn cgroups(keeper: u32) -> Vec<PathBuf> {
    let parents = mounts_of_cgroups().into_iter().chain(delegated());
    let groups = parents.flat_map(|parent| fs::read_dir(parent.join("tinwright-sandbox")));
    let paths = groups.flatten().filter_map(Result::ok).map(|entry| entry.path());
    let prefix = format!("{keeper}-");
    paths
        .filter(|path| {
            path.file_name().is_some_and(|name| text(name.as_encoded_bytes()).starts_with(&prefix))
        })
        .collect()
}

fn mounts_of_cgroups() -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_cgroup = |line: &&str| line.contains(" - cgroup");
    let mounts = table.lines().filter(is_cgroup).filter_map(|line| line.split(' ').nth(4));
    mounts.map(PathBuf::from).collect()
}

/// Returns the group that is delegated to the ordinary user. These tests run in one below it.
fn delegated() -> Option<PathBuf> {
    std::env::var_os(DELEGATED)?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = Path::new("/sys/fs/cgroup").join(own.trim().strip_prefix("0::/").unwrap());
    own.parent().map(Path::to_owned)
}

/// Creates a file of `megabytes` MiB in which each byte has a value that is not zero.
pub(crate) fn create_data(path: &Path, megabytes: usize) {
    use std::io::Write;
    let block: Vec<u8> = (0..1024 * 1024_u32).map(|index| (index % 251) as u8 + 1).collect();
    let mut file = File::create(path).unwrap();
    (0..megabytes).for_each(|_| file.write_all(&block).unwrap());
}

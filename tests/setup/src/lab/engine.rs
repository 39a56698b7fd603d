//! A Docker engine in a network namespace of its own, which has no route to anywhere.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use setup::run;

/// The longest time until the engine answers, on a busy host.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time until the engine has stopped its containers.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// The beginning of the names of namespaces and control groups; the number of the process follows.
const NAME: &str = "tinwright-lab-";
/// The engine's client of Debian. One by another vendor, perhaps earlier in PATH, needs plugins to build.
const CLIENT: &str = "/usr/bin/docker";

/// Starts the engine. Other hosts have a /dev/net/tun that everybody may open, by a rule of udev; here it is made so for the containers
/// only. Mounts and processes are the engine's own, so they end with it, and it ends with this program.
const START: &str = r#"
mknod -m 666 "$1/tun" c 10 200
mount --bind "$1/tun" /dev/net/tun
exec dockerd --config-file "$1/daemon.json" --data-root "$1/data" --exec-root "$1/run" --pidfile "$1/pid" --host "unix://$1/socket"
"#;

/// A running engine. Drop stops it with all containers, and removes its files, namespace and control groups.
#[derive(Debug)]
pub(super) struct Engine {
    name: String,
    folder: PathBuf,
    process: Option<Child>,
}

impl Engine {
    /// Starts an engine with its files in a folder below `cache`.
    pub(super) fn start(cache: &Path) -> anyhow::Result<Self> {
        remove_remains(cache);
        let name = format!("{NAME}{}", std::process::id());
        let folder = cache.join(&name);
        std::fs::create_dir_all(&folder)?;
        // From here on, drop removes what was made.
        let mut engine = Self { name, folder, process: None };
        run(Command::new("ip").args(["netns", "add", &engine.name]))?;
        run(Command::new("ip").args(["-n", &engine.name, "link", "set", "lo", "up"]))?;
        std::fs::write(engine.folder.join("daemon.json"), engine.configuration())?;
        let log = std::fs::File::create(engine.folder.join("log"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter"]);
        command.arg(format!("--net=/run/netns/{}", engine.name));
        command.args(["unshare", "--mount", "--propagation", "private", "--pid", "--fork"]);
        command.args(["--kill-child", "--mount-proc", "sh", "-ec", START, "sh"]);
        command.arg(&engine.folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // An interrupt at the terminal must not reach it before the containers were stopped.
        engine.process = Some(command.process_group(0).spawn().context("starting dockerd")?);
        engine.wait()?;
        Ok(engine)
    }

    /// Returns the configuration. All addresses are for documentation (RFC 5737), outside of the lab's own subnet.
    fn configuration(&self) -> String {
        let name = &self.name;
        format!(
            r#"{{"bip": "192.0.2.1/26", "default-address-pools": [{{"base": "192.0.2.64/26", "size": 28}}, {{"base": "192.0.2.128/25", "size": 28}}],
"exec-opts": ["native.cgroupdriver=cgroupfs"], "cgroup-parent": "/{name}"}}"#
        )
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            let mut info = self.docker();
            if info.arg("info").stdout(Stdio::null()).stderr(Stdio::null()).status()?.success() {
                return Ok(());
            }
            let ended = self.process.as_mut().map_or(Ok(None), Child::try_wait)?.is_some();
            if ended || Instant::now() > until {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                anyhow::bail!("the Docker engine does not start:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Returns the folder of its files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the name of its network namespace.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address of its API.
    pub(super) fn host(&self) -> String {
        format!("unix://{}", self.folder.join("socket").display())
    }

    /// Returns its client.
    pub(super) fn docker(&self) -> Command {
        self.client(Path::new(CLIENT))
    }

    /// Returns `program` as a client of this engine, without the settings of the user.
    pub(super) fn client(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("DOCKER_HOST", self.host()).env("DOCKER_CONFIG", self.folder.join("client"));
        command
    }

    /// Imports the root file system in `archive` as `image`.
    pub(super) fn import(&self, image: &str, archive: &Path) -> anyhow::Result<()> {
        run(self.docker().arg("import").arg(archive).arg(image).stdout(Stdio::null()))
    }

    /// Imports the files in `folder` as `image`.
    pub(super) fn import_folder(&self, image: &str, folder: &Path) -> anyhow::Result<()> {
        let archive = folder.with_extension("tar");
        let mut tar = Command::new("tar");
        tar.args(["--owner=0", "--group=0", "-cf"]).arg(&archive).arg("-C").arg(folder).arg(".");
        run(&mut tar)?;
        self.import(image, &archive)
    }

    /// Stops the engine: it stops its containers.
    fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // The engine is the first process of its namespace, and the only child of the one that was started here.
        for signal in [Signal::TERM, Signal::KILL] {
            let children = format!("/proc/{0}/task/{0}/children", process.id());
            let children = std::fs::read_to_string(children).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
                let _result = Pid::from_raw(child).map(|pid| kill_process(pid, signal));
            }
            let until = Instant::now() + STOP_TIMEOUT;
            while Instant::now() < until {
                if matches!(process.try_wait(), Ok(Some(_))) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        drop(process.kill());
        drop(process.wait());
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
        remove(&self.name, &self.folder);
    }
}

/// Removes what engines left behind whose program was killed.
fn remove_remains(cache: &Path) {
    let folders = std::fs::read_dir(cache).into_iter().flatten().flatten();
    for entry in folders {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(NAME).filter(|it| it.bytes().all(|b| b.is_ascii_digit()));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(&name, &entry.path());
        }
    }
}

/// Removes namespace, control groups and files of the engine `name`, which has ended.
fn remove(name: &str, folder: &Path) {
    let namespace = Path::new("/run/netns").join(name);
    if namespace.exists()
        && let Err(error) = run(Command::new("ip").args(["netns", "del", name]))
    {
        eprintln!("cargo rack: {error:#}");
    }
    // Version 1 has a hierarchy for each controller, version 2 one for all.
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root).into_iter().flatten().flatten();
    let hierarchies = hierarchies.map(|entry| entry.path()).filter(|path| path.is_dir());
    for path in hierarchies.chain([root.to_owned()]).map(|path| path.join(name)) {
        remove_control_groups(&path);
    }
    if let Err(error) = std::fs::remove_dir_all(folder) {
        eprintln!("cargo rack: removing {}: {error}", folder.display());
    }
}

/// Removes the control group at `path`, if it exists, and those below it. Their files go with them.
fn remove_control_groups(path: &Path) {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|it| it.path()).filter(|it| it.is_dir()).for_each(|it| remove_control_groups(&it));
    if path.exists()
        && let Err(error) = std::fs::remove_dir(path)
    {
        eprintln!("cargo rack: removing {}: {error}", path.display());
    }
}

//! Program of the tests: runs one job in a sandbox, and contains the jobs, which try to leave it.
//!
//! `run JOB LAYERS` prints lines: `progress N`, then the result as JSON. `cancel JOB` drops the run
//! at the first progress and waits for the end of its input. `check` prints the confinement.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::{Context, Job, JobFunction, Layers, Sandbox, User, run_if_sandboxed};

const JOBS: &[(&str, JobFunction)] = &[
    ("echo", |job| Ok(job.input.clone())),
    ("fail", |job| Err(text(job))),
    ("panic", |job| panic!("{}", text(job))),
    ("log", |job| {
        eprint!("{}", "x".repeat(number(job)));
        Ok(Vec::new())
    }),
    ("progress", report_progress),
    ("long", |job| Ok(vec![1; number(job)])),
    ("sleep", |job| stay(job)),
    ("identity", |_| identity()),
    ("surroundings", |_| surroundings()),
    ("read", |job| fs::read(text(job)).map_err(|error| kind(&error))),
    ("write", |job| fs::write(text(job), "x").map(|()| Vec::new()).map_err(|error| kind(&error))),
    ("connect", |job| done(TcpStream::connect(text(job)))),
    ("unix", |job| done(std::os::unix::net::UnixStream::connect(text(job)))),
    ("kill", |job| done(kill(process(job), Signal::SIGTERM))),
    ("mount", |_| {
        done(rustix::mount::mount(
            "t",
            "/scratch",
            "tmpfs",
            rustix::mount::MountFlags::empty(),
            c"",
        ))
    }),
    ("unshare", |_| done(nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER))),
    ("ptrace", |_| done(nix::sys::ptrace::traceme())),
    ("undying", |_| done(rustix::process::set_parent_process_death_signal(None))),
    ("memory", allocate),
    ("processes", start_processes),
    ("descriptors", open_files),
    ("bytes", write_bytes),
    ("files", create_files),
    ("hoard", |job| write_bytes(job).and_then(|_| stay(job))),
    ("flood", |job| create_files(job).and_then(|_| stay(job))),
    ("deleted", write_deleted),
    ("hidden", |job| hide_file(job.scratch())),
    ("size", |job| done(fs::File::create("a").and_then(|file| file.set_len(number(job) as u64)))),
    ("threads", |_| compute_in_threads()),
    ("program", run_program),
    ("orphan", leave_orphan),
];

fn main() -> ExitCode {
    run_if_sandboxed(JOBS);
    match act() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn act() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "check"] => println!("{}", runtime.block_on(Sandbox::new(User::default()).check())?),
        [_, "run", job, layers] => {
            let job: Job = serde_json::from_str(job)?;
            let layers: Layers = serde_json::from_str(layers)?;
            let sandbox = Sandbox::new(User::default()).with_layers(layers);
            let ended = runtime.block_on(sandbox.run(&job, |number| println!("progress {number}")));
            let result = match &ended.result {
                Ok(bytes) => ("ok", String::from_utf8_lossy(bytes).into_owned()),
                Err(error) => ("error", format!("{error:?}")),
            };
            println!("{}", serde_json::to_string(&(result, ended.log))?);
        }
        [_, "cancel", job] => {
            runtime.block_on(cancel(&serde_json::from_str(job)?));
            println!("cancelled");
            io::stdin().read_line(&mut String::new())?;
        }
        _ => return Err("usage: run JOB LAYERS | cancel JOB | check".into()),
    }
    Ok(())
}

/// Drops the run once its job has started.
async fn cancel(job: &Job) {
    let started = std::cell::Cell::new(false);
    let sandbox = Sandbox::default();
    let mut run = std::pin::pin!(sandbox.run(job, |_| {
        started.set(true);
        println!("progress 1");
    }));
    std::future::poll_fn(|context| {
        let poll = run.as_mut().poll(context);
        if started.get() || poll.is_ready() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn text(job: &Context) -> String {
    String::from_utf8_lossy(&job.input).into_owned()
}

fn number(job: &Context) -> usize {
    text(job).parse().unwrap_or_default()
}

fn process(job: &Context) -> Pid {
    Pid::from_raw(text(job).parse().unwrap_or(i32::MAX))
}

fn kind(error: &io::Error) -> String {
    error.to_string()
}

/// A job's result: nothing, or the error's text.
fn done<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<Vec<u8>, String> {
    result.map(|_| b"done".to_vec()).map_err(|error| error.to_string())
}

fn report_progress(job: &mut Context) -> Result<Vec<u8>, String> {
    (1..=3).for_each(|number| job.progress(number));
    Ok(Vec::new())
}

fn identity() -> Result<Vec<u8>, String> {
    let ids = (nix::unistd::getuid(), nix::unistd::getgid());
    let groups = rustix::process::getgroups().map_err(|error| error.to_string())?;
    let sets = rustix::thread::capabilities(None).map_err(|error| error.to_string())?;
    let privileges = rustix::thread::no_new_privs().map_err(|error| error.to_string());
    let groups: Vec<u32> = groups.iter().map(|group| group.as_raw()).collect();
    Ok(format!("{} {} {groups:?} {:?} {privileges:?}", ids.0, ids.1, sets.permitted.bits()).into())
}

/// The environment, the root directory, this process's id and host name.
fn surroundings() -> Result<Vec<u8>, String> {
    let environment: HashMap<String, String> = std::env::vars().collect();
    let keys: Vec<_> = environment.keys().collect();
    let is_there = |path: &&str| Path::new(path).exists();
    let others: Vec<_> =
        ["/etc", "/proc", "/sys", "/root", "/var", "/oldroot", "/dev/tty", "/dev/vda", "/tmp"]
            .into_iter()
            .filter(is_there)
            .collect();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let directory = std::env::current_dir().map_err(|error| error.to_string())?;
    let process = std::process::id();
    Ok(format!("{keys:?} {others:?} {host} {} {process}", directory.display()).into())
}

/// Uses as many MiB as the input says.
fn allocate(job: &mut Context) -> Result<Vec<u8>, String> {
    let mut blocks = Vec::new();
    for _ in 0..number(job) {
        blocks.push(vec![1_u8; 1024 * 1024]);
    }
    Ok(blocks.len().to_string().into())
}

/// Starts as many processes as the input says, and returns the number that ran.
fn start_processes(job: &mut Context) -> Result<Vec<u8>, String> {
    let start = |_| Command::new("/bin/sleep").arg("600").stdin(Stdio::null()).spawn();
    let mut children: Vec<Child> = (0..number(job)).map_while(|index| start(index).ok()).collect();
    for child in &mut children {
        let _killed = child.kill().and_then(|()| child.wait());
    }
    Ok(children.len().to_string().into())
}

fn open_files(job: &mut Context) -> Result<Vec<u8>, String> {
    let files: Vec<fs::File> =
        (0..number(job)).map_while(|_| fs::File::open("/dev/null").ok()).collect();
    Ok(files.len().to_string().into())
}

/// Writes as many MiB as the input says, in files of one MiB.
fn write_bytes(job: &mut Context) -> Result<Vec<u8>, String> {
    for index in 0..number(job) {
        let path = job.scratch().join(index.to_string());
        fs::write(path, vec![1; 1024 * 1024]).map_err(|error| kind(&error))?;
    }
    Ok(b"done".to_vec())
}

fn create_files(job: &mut Context) -> Result<Vec<u8>, String> {
    for index in 0..number(job) {
        let path = job.scratch().join(index.to_string());
        fs::write(path, "").map_err(|error| kind(&error))?;
    }
    Ok(b"done".to_vec())
}

/// Writes as many MiB as the input says into a file without a name.
fn write_deleted(job: &mut Context) -> Result<Vec<u8>, String> {
    let path = job.scratch().join("a");
    let file = fs::File::create(&path).and_then(|file| fs::remove_file(&path).map(|()| file));
    let mut file = file.map_err(|error| kind(&error))?;
    for _ in 0..number(job) {
        file.write_all(&vec![1; 1024 * 1024]).map_err(|error| kind(&error))?;
    }
    stay(job)
}

/// Waits to be killed.
fn stay(job: &Context) -> Result<Vec<u8>, String> {
    job.progress(1);
    thread::sleep(Duration::from_secs(60));
    Ok(Vec::new())
}

/// Puts a file where the keeper of an ordinary user cannot count it.
fn hide_file(scratch: &Path) -> Result<Vec<u8>, String> {
    use std::os::unix::fs::PermissionsExt;
    let directory = scratch.join("d");
    let hidden = fs::create_dir(&directory)
        .and_then(|()| fs::write(directory.join("f"), vec![1; 1024 * 1024]))
        .and_then(|()| fs::set_permissions(&directory, fs::Permissions::from_mode(0o000)));
    done(hidden)
}

fn compute_in_threads() -> Result<Vec<u8>, String> {
    let threads: Vec<_> = (0..4_u64)
        .map(|index| thread::spawn(move || (0..1000).map(|n| n * index).sum::<u64>()))
        .collect();
    let sums: Result<Vec<u64>, _> = threads.into_iter().map(thread::JoinHandle::join).collect();
    sums.map(|sums| sums.iter().sum::<u64>().to_string().into()).map_err(|_| "panic".to_owned())
}

/// Runs the command line in the input, and returns its standard output.
fn run_program(job: &mut Context) -> Result<Vec<u8>, String> {
    let line = text(job);
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| kind(&error))?;
    io::stderr().write_all(&output.stderr).map_err(|error| kind(&error))?;
    if output.status.success() { Ok(output.stdout) } else { Err(output.status.to_string()) }
}

/// Starts a process that outlives its parent and sleeps as many seconds as the input says.
fn leave_orphan(job: &mut Context) -> Result<Vec<u8>, String> {
    let mut command = Command::new("/bin/sh");
    let script = "setsid sleep $0 >/dev/null 2>&1 & exit 0";
    command.args(["-c", script, &text(job)]).stdin(Stdio::null()).stdout(Stdio::null());
    done(command.status())
}

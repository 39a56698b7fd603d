//! The program's side: starts a sandbox, feeds it, and collects its result.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::Stdio;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};

use crate::error::{Ended, Error};
use crate::frame::{self, Frame, Problem};
use crate::groups;
use crate::job::{Confinement, Job, Layers, User};
use crate::link::{self, End, Message, Order, Outcome, Stop};
use crate::process;
use crate::reason::explain;

/// Name of the keeper's process.
pub(crate) const KEEPER: &str = "keeper";
/// Maximum size of a job's log.
const MAX_LOG_BYTES: usize = 64 * 1024;
/// Text of Rust's handler of failed allocations, on standard error.
const ALLOCATION_FAILED: &str = "memory allocation of ";

/// Runs jobs, each in a sandbox of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sandbox {
    user: User,
    layers: Layers,
}

/// Output and messages of a sandbox that has ended.
struct Remains {
    frames: Result<Option<Frame>, Problem>,
    log: String,
    confinement: Option<Confinement>,
    end: Result<Outcome, Error>,
}

impl Sandbox {
    /// Returns a sandbox for jobs that run as `user` if this program is root, and with this
    /// program's ids otherwise.
    pub fn new(user: User) -> Self {
        Self { user, layers: Layers::default() }
    }

    /// Switches layers off, for tests of a single layer.
    #[doc(hidden)]
    pub fn with_layers(self, layers: Layers) -> Self {
        Self { layers, ..self }
    }

    /// Starts an empty sandbox, and returns the protection that this host allows.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the failed step and the settings of the host that explain it.
    pub async fn check(&self) -> Result<Confinement, Error> {
        let remains = self.start(None, |_| {}).await?;
        remains.end?;
        remains.confinement.ok_or(Error::Unavailable(remains.log))
    }

    /// Runs `job` and calls `progress` with each number that it reports. When the future is
    /// dropped, the job is killed.
    ///
    /// Nothing of the job is left when this returns, except the scratch directory's contents.
    pub async fn run(&self, job: &Job, progress: impl FnMut(u64)) -> Ended {
        let prepared = prepare(job).map_err(Error::InvalidJob);
        let remains = match prepared {
            Ok(job) => self.start(Some(job), progress).await,
            Err(error) => Err(error),
        };
        match remains {
            Ok(remains) => remains.into_ended(job.limits.output_bytes),
            Err(error) => Ended { result: Err(error), log: String::new() },
        }
    }

    async fn start(&self, job: Option<Job>, progress: impl FnMut(u64)) -> Result<Remains, Error> {
        let unavailable = |error: io::Error| Error::Unavailable(format!("keeper: {error}"));
        let max_output = job.as_ref().map_or(0, |job| job.limits.output_bytes);
        let (mut keeper, stream) = spawn().map_err(unavailable)?;
        let group = groups::name(keeper.id().unwrap_or_default());
        let order = Order { group: group.clone(), ..Order::new(job, self.user, self.layers) };
        let (reader, mut writer) = stream.into_split();
        let order = link::encode(&order).map_err(unavailable)?;
        // A keeper that ended early is reported by its output.
        let _written = writer.write_all(&order).await;
        let (frames, log, (confinement, end)) = tokio::join!(
            read_frames(keeper.stdout.take(), max_output, progress, writer),
            read_log(keeper.stderr.take()),
            read_messages(reader)
        );
        ended(keeper, group).await.map_err(unavailable)?;
        let frames = frames.map(|(frame, _link)| frame);
        Ok(Remains { frames, log, confinement, end })
    }
}

/// Checks the job, and resolves its paths, as the sandbox binds them from elsewhere.
fn prepare(job: &Job) -> Result<Job, String> {
    if let Some(problem) = job.problem() {
        return Err(problem);
    }
    let resolve = |path: &std::path::Path| {
        path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut job = job.clone();
    job.scratch = resolve(&job.scratch)?;
    if !job.scratch.is_dir() {
        return Err(format!("scratch: {}: not a directory", job.scratch.display()));
    }
    for (source, _) in &mut job.read_only {
        *source = resolve(source)?;
    }
    Ok(job)
}

/// Starts the keeper.
///
/// It has no `PR_SET_PDEATHSIG`: the kernel sends that signal when the thread that started it ends,
/// and an idle thread of tokio ends while the program goes on. The end of the socket is enough.
fn spawn() -> io::Result<(Child, UnixStream)> {
    let (stream, keeper_stream) = StdStream::pair()?;
    stream.set_nonblocking(true)?;
    let mut command = Command::from(process::command(OsStr::new("/proc/self/exe"), KEEPER));
    command.stdin(OwnedFd::from(keeper_stream)).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok((command.spawn()?, UnixStream::from_std(stream)?))
}

/// Waits for the end of the keeper. Does its last work if it was killed.
async fn ended(mut keeper: Child, group: String) -> io::Result<()> {
    match keeper.wait().await?.success() {
        true => Ok(()),
        false => {
            let destroyed = tokio::task::spawn_blocking(move || groups::destroy(&group));
            destroyed.await.map_err(io::Error::other)
        }
    }
}

/// Reads frames to the end of the output, and returns the result or the failure. The link stays
/// open, unless a frame is refused: that stops the job at once.
async fn read_frames(
    stdout: Option<impl AsyncRead + Unpin>,
    max_output: u32,
    mut progress: impl FnMut(u64),
    link: OwnedWriteHalf,
) -> Result<(Option<Frame>, OwnedWriteHalf), Problem> {
    let Some(mut stdout) = stdout else { return Ok((None, link)) };
    let mut result = None;
    while let Some(frame) = frame::read(&mut stdout, max_output).await? {
        match frame {
            Frame::Progress(number) => progress(number),
            Frame::Output(_) | Frame::Failure(_) if result.is_some() => {
                return Err(Problem::Malformed);
            }
            Frame::Output(_) | Frame::Failure(_) => result = Some(frame),
        }
    }
    Ok((result, link))
}

/// Reads standard error to its end, and returns its beginning.
async fn read_log(stderr: Option<impl AsyncRead + Unpin>) -> String {
    let mut log = Vec::new();
    let mut buffer = [0; 4096];
    if let Some(mut stderr) = stderr {
        while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
            let space = MAX_LOG_BYTES - log.len();
            log.extend(buffer.iter().take(length.min(space)));
        }
    }
    String::from_utf8_lossy(&log).into_owned()
}

/// Reads the keeper's messages to the last one.
async fn read_messages(mut link: OwnedReadHalf) -> (Option<Confinement>, Result<Outcome, Error>) {
    let mut confinement = None;
    let end = loop {
        match read_message(&mut link).await {
            Ok(Message::Ready(ready)) => confinement = Some(ready),
            Ok(Message::Finished(outcome)) => break Ok(outcome),
            Ok(Message::Unavailable(fault)) => break Err(Error::Unavailable(explain(&fault))),
            Ok(Message::UnknownJob(name)) => {
                break Err(Error::InvalidJob(format!("{name:?}: no such job")));
            }
            Ok(Message::Ended(_)) => {}
            Err(error) => break Err(Error::Unavailable(format!("keeper: {error}"))),
        }
    };
    (confinement, end)
}

async fn read_message(link: &mut OwnedReadHalf) -> io::Result<Message> {
    let mut header = [0; 4];
    link.read_exact(&mut header).await?;
    let mut json = vec![0; link::length(header)?];
    link.read_exact(&mut json).await?;
    link::decode(&json)
}

impl Remains {
    fn into_ended(self, max_output: u32) -> Ended {
        let result = match self.end {
            Err(error) => Err(error),
            Ok(outcome) => result(&outcome, self.frames, &self.log, max_output),
        };
        Ended { result, log: self.log }
    }
}

/// Decides on the result. A reason of the keeper is stronger than anything that the job wrote.
fn result(
    outcome: &Outcome,
    frames: Result<Option<Frame>, Problem>,
    log: &str,
    max_output: u32,
) -> Result<Vec<u8>, Error> {
    match &outcome.stop {
        Some(Stop::Timeout) => return Err(Error::TimedOut),
        Some(Stop::Bytes(bytes)) => return Err(Error::TooManyBytes(*bytes)),
        Some(Stop::Files(files)) => return Err(Error::TooManyFiles(*files)),
        Some(Stop::DiskFull(free)) => return Err(Error::DiskFull(*free)),
        Some(Stop::Uncountable(cause)) => return Err(Error::UncountableScratch(cause.clone())),
        // The output is at fault, or the job ended just before its output did.
        Some(Stop::Caller) | None => {}
    }
    match (frames, outcome.end) {
        (Err(Problem::OutputTooLong), _) => Err(Error::OutputTooLong(max_output)),
        (Err(Problem::Malformed), _) => Err(Error::Failed("malformed output".to_owned())),
        (Ok(Some(Frame::Output(bytes))), Some(End::Exited(0))) => Ok(bytes),
        _ if outcome.out_of_memory => Err(Error::OutOfMemory),
        (Ok(Some(Frame::Failure(text))), Some(End::Exited(0))) => Err(Error::Failed(text)),
        (_, end) => Err(explain_end(end, log)),
    }
}

/// Explains the end of a job that left no result.
fn explain_end(end: Option<End>, log: &str) -> Error {
    match end {
        Some(End::Signalled(signal)) if signal == Signal::SYS.as_raw() => Error::SyscallRefused,
        // Without a cgroup, an allocation fails instead, and the program aborts itself.
        Some(End::Signalled(_)) if log.contains(ALLOCATION_FAILED) => Error::OutOfMemory,
        Some(End::Signalled(signal)) => Error::Killed(signal),
        Some(End::Exited(status)) => Error::Failed(format!("exit status {status} and no result")),
        // The builder was killed, and the job with it.
        None => Error::Killed(Signal::KILL.as_raw()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Option<End> = Some(End::Exited(0));

    fn output() -> Result<Option<Frame>, Problem> {
        Ok(Some(Frame::Output(vec![1])))
    }

    #[test]
    fn a_run_can_move_between_threads() {
        fn assert_send<T: Send>(_: &T) {}
        let job = Job::new("a", Vec::new(), "/scratch");
        let sandbox = Sandbox::default();
        assert_send(&sandbox.run(&job, |_| {}));
        assert_send(&sandbox.check());
    }

    #[test]
    fn a_result_needs_an_end_without_error() {
        let outcome = |end| Outcome { end, ..Outcome::default() };
        assert_eq!(result(&outcome(DONE), output(), "", 9), Ok(vec![1]));
        let end = Some(End::Exited(1));
        assert!(matches!(result(&outcome(end), output(), "", 9), Err(Error::Failed(_))));
        let end = Some(End::Signalled(11));
        assert_eq!(result(&outcome(end), output(), "", 9), Err(Error::Killed(11)));
        assert_eq!(result(&outcome(None), output(), "", 9), Err(Error::Killed(9)));
    }

    #[test]
    fn the_keepers_reason_is_stronger_than_a_result() {
        let stopped = |stop| Outcome { end: DONE, stop: Some(stop), out_of_memory: false };
        let result = |stop| result(&stopped(stop), output(), "", 9);
        assert_eq!(result(Stop::Timeout), Err(Error::TimedOut));
        assert_eq!(result(Stop::Bytes(7)), Err(Error::TooManyBytes(7)));
    }

    #[test]
    fn a_job_may_survive_the_death_of_its_child() {
        let outcome = Outcome { end: DONE, stop: None, out_of_memory: true };
        assert_eq!(result(&outcome, output(), "", 9), Ok(vec![1]));
        let failure = Ok(Some(Frame::Failure("signal: 9".into())));
        assert_eq!(result(&outcome, failure, "", 9), Err(Error::OutOfMemory));
    }

    #[tokio::test]
    async fn two_results_are_malformed() {
        let (link, _other) = UnixStream::pair().unwrap();
        let bytes = &b"o\0\0\0\0o\0\0\0\0"[..];
        let frames = read_frames(Some(bytes), 9, |_| {}, link.into_split().1).await;
        assert_eq!(frames.err(), Some(Problem::Malformed));
    }
}

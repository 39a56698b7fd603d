//! Messages between the processes of a sandbox, on the socket that each has as standard input.
//!
//! A message is a length of four bytes, then JSON. The order is followed by the input of the job.
//! The end of the socket means that the other process is gone, or that the job is to be stopped.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::job::{Confinement, Job, LandlockState, Layers, Limits, User};

/// Maximum length of a message. The input of a job is its largest part: JSON takes four bytes of
/// text for each byte.
const MAX_MESSAGE_BYTES: usize = 4 * Job::MAX_INPUT_BYTES + 1024 * 1024;

/// Order to the next process, completed on its way inwards.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Job to run. The check of the host has none.
    pub(crate) job: Option<Job>,
    /// Ids to run as if the caller is root.
    pub(crate) user: User,
    /// Enabled layers.
    pub(crate) layers: Layers,
    /// Name of the job's cgroup.
    pub(crate) group: String,
    /// Directories of the job's cgroup; none without a cgroup.
    pub(crate) cgroup: Vec<PathBuf>,
    /// Confinement, as far as it is set up.
    pub(crate) confinement: Confinement,
}

/// Report to the process that sent the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The job is about to run.
    Ready(Confinement),
    /// A step of the setup failed; nothing was run.
    Unavailable(Fault),
    /// The program has no job of this name.
    UnknownJob(String),
    /// The job's first process ended, and with it the job.
    Ended(End),
    /// Last message of the keeper: nothing of the job is left.
    Finished(Outcome),
}

/// Step of the setup that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// Step that failed.
    pub(crate) step: String,
    /// Error of the kernel.
    pub(crate) cause: String,
}

/// End of the job's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// The process exited with this status.
    Exited(i32),
    /// A signal killed the process.
    Signalled(i32),
}

/// End of the job, as the keeper saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// End of the first process. None if the builder did not report it.
    pub(crate) end: Option<End>,
    /// Reason why the keeper stopped the job.
    pub(crate) stop: Option<Stop>,
    /// True if the kernel killed a process of the cgroup for its memory.
    pub(crate) out_of_memory: bool,
}

/// Reason why the keeper stopped a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stop {
    /// The caller is gone, or asked for it.
    Caller,
    /// The wall clock limit is over.
    Timeout,
    /// The scratch directory holds this many bytes.
    Bytes(u64),
    /// The scratch directory holds this many files.
    Files(u64),
    /// The scratch directory's file system has only this many bytes left.
    DiskFull(u64),
    /// The scratch directory cannot be counted.
    Uncountable(String),
}

impl Order {
    /// Returns the order for `job` before any setup.
    pub(crate) fn new(job: Option<Job>, user: User, layers: Layers) -> Self {
        let landlock = LandlockState::None;
        let confinement = Confinement { cgroup: false, landlock, dropped_root: false };
        Self { job, user, layers, group: String::new(), cgroup: Vec::new(), confinement }
    }

    /// Returns the limits of the job; the default ones for the check of the host.
    pub(crate) fn limits(&self) -> Limits {
        self.job.as_ref().map_or_else(Limits::default, |job| job.limits.clone())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.step, self.cause)
    }
}

/// Names the step of the setup that an error belongs to.
pub(crate) trait InStep<T> {
    /// Turns an error into the fault of `step`.
    fn in_step(self, step: &str) -> Result<T, Fault>;
}

impl<T, E: fmt::Display> InStep<T> for Result<T, E> {
    fn in_step(self, step: &str) -> Result<T, Fault> {
        self.map_err(|error| Fault { step: step.to_owned(), cause: error.to_string() })
    }
}

/// Encodes a message with its length.
pub(crate) fn encode(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(value)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    Ok([&length.to_le_bytes()[..], &json].concat())
}

/// Decodes the JSON of a message.
pub(crate) fn decode<T: DeserializeOwned>(json: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(json)?)
}

/// Returns the length of the message that follows these four bytes.
pub(crate) fn length(bytes: [u8; 4]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(bytes)).map_err(io::Error::other)?;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    Ok(length)
}

/// Writes a message.
pub(crate) fn send(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    stream.write_all(&encode(value)?)
}

/// Reads a message. `UnexpectedEof` means that the other process is gone.
pub(crate) fn receive<T: DeserializeOwned>(mut stream: &UnixStream) -> io::Result<T> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut json = vec![0; length(header)?];
    stream.read_exact(&mut json)?;
    decode(&json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_job_passes_a_link() {
        let (left, right) = UnixStream::pair().unwrap();
        let job = Job::new("a", vec![255; Job::MAX_INPUT_BYTES], "/scratch");
        let order = Order::new(Some(job.clone()), User::default(), Layers::default());
        let sender = std::thread::spawn(move || send(&left, &order));
        assert_eq!(receive::<Order>(&right).unwrap().job, Some(job));
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn an_announced_length_beyond_the_maximum_allocates_nothing() {
        assert!(length(u32::MAX.to_le_bytes()).is_err());
    }
}

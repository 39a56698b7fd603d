//! Conversion of a source in the sandbox. Nothing of a source is parsed outside.
//!
//! The sandbox sees two places: the source, which it reads, and a directory, which it writes to.
//! What it returns may be a lie of a hostile image: the result's name, kind and size are checked,
//! texts are cut, and the content is only read as bytes.

use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use disk_images::{Format, Job, Kind, Limits, Properties, Refusal, Report, Wrapping};
use rustix::fs::OFlags;
use sandbox::{Context, Error, Sandbox};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::progress::{Progress, Step};
use crate::scratch::BuildScratch;
use crate::settings::SandboxLimits;
use crate::store::Raw;

/// Name of the sandbox's job.
const CONVERT: &str = "convert";
/// The source, as the sandbox sees it.
const SOURCE: &str = "/source";
/// Room for a conversion, as a multiple of the content's maximum size: temporary files are as large
/// as the content.
const SCRATCH_FACTOR: u64 = 3;
/// Maximum excess of a file over the content's maximum size, in bytes. The job itself refuses such
/// a file before the kernel does, and says why.
const FILE_SLACK_BYTES: u64 = 16 << 20;

/// Number of characters of a job's log that are logged.
const MAX_LOG_CHARACTERS: usize = 1000;

/// A source to convert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub(crate) source: PathBuf,
    /// Name of the file at its source, or empty.
    pub(crate) name: String,
    pub(crate) declared: Option<Format>,
    pub(crate) kind: Kind,
    /// True for the layer of a container or of an artifact, which may have the disk in a tar.
    pub(crate) is_layer: bool,
    /// Maximum size of the content in bytes.
    pub(crate) max_bytes: u64,
}

/// Input of the sandbox's job.
#[derive(Debug, Serialize, Deserialize)]
struct Input {
    job: Job,
    is_layer: bool,
}

/// Content of a source.
#[derive(Debug)]
pub(crate) struct Converted {
    pub(crate) content: Raw,
    pub(crate) format: Format,
    /// Wrappings around it, from the outside to the inside.
    pub(crate) wrappings: Vec<Wrapping>,
    pub(crate) properties: Properties,
}

/// Runs the job of a sandbox if this process was started as a part of one. Returns at once
/// otherwise.
///
/// Call this first in `main`, before a thread is started.
pub fn run_if_sandboxed() {
    sandbox::run_if_sandboxed(&[(CONVERT, convert)]);
}

/// Returns the protection that the sandbox has on this host, or the reason why there is none: then
/// every build fails with that reason.
pub async fn readiness() -> Result<String, String> {
    let checked = Sandbox::default().check().await;
    checked.map(|confinement| confinement.to_string()).map_err(|error| error.to_string())
}

/// Returns a failure with the reason if the host has no sandbox.
pub(crate) async fn require() -> Result<(), Failure> {
    let unavailable = |reason| Failure::temporary(format_args!("builder: {reason}"));
    readiness().await.map(drop).map_err(unavailable)
}

/// Converts a source. The result is in a directory of its own in `scratch`.
pub(crate) async fn run(
    conversion: &Conversion,
    limits: &SandboxLimits,
    scratch: &BuildScratch,
    progress: &Progress,
) -> Result<Converted, Failure> {
    progress.begin(Step::Converting, 0);
    let work = scratch.path().join("work");
    let made = DirBuilder::new().mode(0o700).create(&work);
    made.map_err(|error| Failure::host("scratch", error))?;
    // The sandbox's user, which is not ours, reads it.
    let readable = std::fs::set_permissions(&conversion.source, Permissions::from_mode(0o444));
    readable.map_err(|error| Failure::host("scratch", error))?;
    let mut job = job(conversion, limits, &work)?;
    job.limits.free_bytes = scratch.reserve()?;
    let ended = Sandbox::default().run(&job, |bytes| progress.set(bytes)).await;
    let answer = ended.result.map_err(|error| {
        // The log is hostile text, too: it is escaped.
        let log: String = ended.log.chars().take(MAX_LOG_CHARACTERS).collect();
        tracing::warn!(%error, ?log, "conversion failed");
        explain(&error, limits)
    })?;
    let report: Result<Report, Refusal> =
        serde_json::from_slice(&answer).map_err(|_| Failure::permanent(FAILED))?;
    accept(report?, &work, conversion)
}

/// Failure of a job. Its own words are not repeated: a hostile image may have chosen them.
const FAILED: &str = "source: conversion: the converter failed";

/// Returns the job of the sandbox, which writes into `work`.
fn job(
    conversion: &Conversion,
    limits: &SandboxLimits,
    work: &Path,
) -> Result<sandbox::Job, Failure> {
    let max_bytes = conversion.max_bytes;
    let job = Job {
        source: SOURCE.into(),
        work: PathBuf::new(),
        name: conversion.name.clone(),
        declared: conversion.declared,
        kind: conversion.kind,
        limits: Limits { raw_bytes: max_bytes, ..Limits::default() },
    };
    let input = Input { job, is_layer: conversion.is_layer };
    let input = serde_json::to_vec(&input).map_err(|error| Failure::host("sandbox", error))?;
    let mut job = sandbox::Job::new(CONVERT, input, work);
    job.read_only = vec![(conversion.source.clone(), SOURCE.into())];
    job.programs_allowed = true;
    job.limits.wall_clock = limits.timeout;
    job.limits.memory_bytes = limits.memory_bytes;
    job.limits.processes = limits.processes.into();
    job.limits.scratch_bytes = max_bytes.saturating_mul(SCRATCH_FACTOR);
    job.limits.file_bytes = max_bytes.saturating_add(FILE_SLACK_BYTES);
    Ok(job)
}

/// The job: runs in the sandbox.
fn convert(context: &mut Context) -> Result<Vec<u8>, String> {
    let input: Result<Input, _> = serde_json::from_slice(&context.input);
    let Input { job, is_layer } = input.map_err(|error| error.to_string())?;
    let job = Job { work: context.scratch().to_owned(), ..job };
    let progress = &mut |bytes| context.progress(bytes);
    let result = match is_layer {
        true => disk_images::convert_layer(&job, progress),
        false => disk_images::convert(&job, progress),
    };
    serde_json::to_vec(&result).map_err(|error| error.to_string())
}

/// Returns the failure of a build after `error` of its job.
fn explain(error: &Error, limits: &SandboxLimits) -> Failure {
    const WHERE: &str = "source: conversion";
    match error {
        Error::Unavailable(_) | Error::InvalidJob(_) => {
            Failure::temporary(format_args!("builder: {error}"))
        }
        Error::Killed(signal) => {
            Failure::temporary(format_args!("{WHERE}: killed by signal {signal}"))
        }
        Error::DiskFull(free) => {
            Failure::temporary(format_args!("builder: scratch: {free} bytes free: too few"))
        }
        Error::TooManyBytes(bytes) => {
            Failure::permanent(format_args!("{WHERE}: needs more than {bytes} bytes of scratch"))
        }
        Error::TimedOut => {
            Failure::permanent(format_args!("{WHERE}: not complete after {:?}", limits.timeout))
        }
        Error::OutOfMemory => Failure::permanent(format_args!(
            "{WHERE}: needs more memory than {} bytes",
            limits.memory_bytes
        )),
        Error::TooManyFiles(_)
        | Error::UncountableScratch(_)
        | Error::SyscallRefused
        | Error::Failed(_)
        | Error::OutputTooLong(_) => Failure::permanent(FAILED),
    }
}

/// Opens the content that `report` names.
fn accept(report: Report, work: &Path, conversion: &Conversion) -> Result<Converted, Failure> {
    let invalid = |problem: &str| {
        tracing::warn!(problem, "result of the sandbox refused");
        Failure::permanent(FAILED)
    };
    let Report { format, wrappings, size_bytes, content, properties } = report;
    let path = work.join(content.file_name().ok_or_else(|| invalid("no name"))?);
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(&path);
    let file = file.map_err(|error| invalid(&error.to_string()))?;
    let metadata = file.metadata().map_err(|error| invalid(&error.to_string()))?;
    match metadata.is_file() && metadata.len() == size_bytes {
        true if size_bytes > conversion.max_bytes => Err(invalid("too large")),
        true => {
            let content = Raw { path, file, size_bytes };
            Ok(Converted { content, format, wrappings, properties })
        }
        false => Err(invalid("not a file of the reported size")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    fn conversion(max_bytes: u64) -> Conversion {
        let source = PathBuf::from("/nowhere");
        let (name, kind) = (String::new(), Kind::Disk);
        Conversion { source, name, declared: None, kind, is_layer: false, max_bytes }
    }

    fn report(content: &str, size_bytes: u64) -> Report {
        let (format, properties) = (Format::Raw, Properties::default());
        Report { format, wrappings: Vec::new(), size_bytes, content: content.into(), properties }
    }

    #[test]
    fn a_result_that_is_not_a_file_of_its_size_is_refused() {
        let work = tempfile::tempdir().unwrap();
        std::fs::write(work.path().join("disk.raw"), [1; 512]).unwrap();
        symlink("/etc/passwd", work.path().join("link")).unwrap();
        std::fs::create_dir(work.path().join("directory")).unwrap();
        let accept = |content: &str, size, max| {
            accept(report(content, size), work.path(), &conversion(max)).map(|it| it.content.path)
        };
        let path = Ok(work.path().join("disk.raw"));
        assert_eq!(accept("/scratch/disk.raw", 512, 512), path);
        // The directory in the name is the sandbox's own.
        assert_eq!(accept("/etc/disk.raw", 512, 512), path);
        let length = std::fs::metadata("/etc/passwd").unwrap().len();
        for (content, size, max) in [
            ("/scratch/disk.raw", 511, 512),
            ("/scratch/disk.raw", 512, 511),
            ("/scratch/link", length, 1 << 20),
            ("/scratch/directory", 512, 512),
            ("/scratch/none", 512, 512),
            ("/scratch/..", 512, 512),
        ] {
            assert_eq!(accept(content, size, max), Err(Failure::permanent(FAILED)), "{content}");
        }
    }

    #[test]
    fn a_killed_job_may_be_retried_and_a_hostile_one_may_not() {
        let limits = SandboxLimits { timeout: Duration::from_secs(9), ..SandboxLimits::default() };
        let explain = |error: Error| explain(&error, &limits);
        assert!(explain(Error::Killed(9)).may_retry);
        assert!(explain(Error::Unavailable("no namespaces".into())).may_retry);
        assert!(explain(Error::DiskFull(100)).may_retry);
        assert!(!explain(Error::TooManyBytes(99)).may_retry);
        let late = explain(Error::TimedOut);
        assert_eq!(late.reason, "source: conversion: not complete after 9s");
        assert!(!late.may_retry);
        // The words of the job are not repeated.
        assert_eq!(explain(Error::Failed("<script>".into())), Failure::permanent(FAILED));
    }

    #[test]
    fn the_limits_of_a_job_follow_from_the_size_of_the_content() {
        let limits = job(&conversion(1000), &SandboxLimits::default(), Path::new("/work"));
        let limits = limits.unwrap().limits;
        assert_eq!((limits.scratch_bytes, limits.memory_bytes), (3000, 4 << 30));
        assert_eq!(limits.file_bytes, 1000 + FILE_SLACK_BYTES);
    }
}

//! Errors of a job, and its end.

/// End of a job: its result, and its log.
#[derive(Debug)]
pub struct Ended {
    /// Result of the job's function, or the reason why there is none.
    pub result: Result<Vec<u8>, Error>,
    /// First 64 KiB of the job's standard error, for the operator. The text is hostile.
    pub log: String,
}

/// Reason why a job has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The job ran longer than its wall clock limit.
    #[error("job timed out")]
    TimedOut,
    /// The job needed more memory than its limit.
    #[error("job exceeded its memory limit")]
    OutOfMemory,
    /// The scratch directory exceeded its quota in bytes.
    #[error("scratch: {0} bytes: over quota")]
    TooManyBytes(u64),
    /// The scratch directory exceeded its quota in files.
    #[error("scratch: {0} files: over quota")]
    TooManyFiles(u64),
    /// The scratch directory's file system is almost full, which may not be the job's fault.
    #[error("scratch: {0} bytes free on its file system: too few")]
    DiskFull(u64),
    /// The scratch directory could not be counted, such as a directory that denies reading.
    #[error("scratch: cannot be counted: {0}")]
    UncountableScratch(String),
    /// A signal killed the job.
    #[error("job killed by signal {0}")]
    Killed(i32),
    /// The job made a system call that kills it.
    #[error("job made a forbidden system call")]
    SyscallRefused,
    /// The job failed with this text, which is hostile.
    #[error("job failed: {0}")]
    Failed(String),
    /// The result is longer than its limit.
    #[error("job result exceeds {0} bytes")]
    OutputTooLong(u32),
    /// The job cannot be started: a value of it is invalid.
    #[error("invalid job: {0}")]
    InvalidJob(String),
    /// The host cannot run the sandbox. Nothing was run.
    #[error("sandbox unavailable: {0}")]
    Unavailable(String),
}

//! The error of each function: four kinds, because the callers of an API treat them differently.

/// Cause of a refusal or failure, on one line and without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request cannot succeed as it is: a wrong file type, a missing file, an unknown host, a bad option.
    #[error("{0}")]
    Invalid(String),
    /// The object is in use; the same call may succeed later.
    #[error("{0}")]
    Busy(String),
    /// The host lacks an interface that the step needs: a kernel module, a sysfs file, a program or its daemon.
    #[error("{0}")]
    Missing(String),
    /// The kernel, a device or a server refused, or the time limit was reached.
    #[error("{step}: {cause}")]
    Failed {
        /// The step, such as `mount /dev/loop0`.
        step: String,
        /// The reason given by the kernel or the program.
        cause: String,
        /// The system's error number, if there is one.
        errno: Option<i32>,
    },
}

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the failure of `step` with the system's error.
    pub(crate) fn failed(step: impl Into<String>, error: impl Into<std::io::Error>) -> Self {
        let error = error.into();
        Self::Failed { step: step.into(), cause: error.to_string(), errno: error.raw_os_error() }
    }

    /// Returns the failure of `step` by a program or protocol, without an error number.
    pub(crate) fn failed_because(step: impl Into<String>, cause: impl Into<String>) -> Self {
        Self::Failed { step: step.into(), cause: cause.into(), errno: None }
    }

    /// Returns the failure of `step` by reaching its time limit.
    pub(crate) fn expired(step: impl Into<String>) -> Self {
        let errno = rustix::io::Errno::TIMEDOUT.raw_os_error();
        Self::Failed { step: step.into(), cause: "time limit reached".into(), errno: Some(errno) }
    }
}

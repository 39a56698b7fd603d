//! The job's view of its input, its directories and its progress.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::frame::{self, Frame};

/// Argument of a job's function.
#[derive(Debug)]
pub struct Context {
    /// Input of the job.
    pub input: Vec<u8>,
    scratch: PathBuf,
    output: File,
}

impl Context {
    pub(crate) fn new(input: Vec<u8>, scratch: PathBuf, output: File) -> Self {
        Self { input, scratch, output }
    }

    /// Returns the scratch directory, which is the working directory too.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Reports progress to the caller of [`Sandbox::run`](crate::Sandbox::run).
    pub fn progress(&self, number: u64) {
        // A caller that is gone has the job killed.
        let _written = frame::write(&self.output, &Frame::Progress(number));
    }

    /// Writes the result of the job's function.
    pub(crate) fn finish(self, result: Result<Vec<u8>, String>) -> std::io::Result<()> {
        let frame = match result {
            Ok(bytes) => Frame::Output(bytes),
            Err(text) => Frame::Failure(text),
        };
        frame::write(&self.output, &frame)
    }
}

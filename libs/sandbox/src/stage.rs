//! Entry of the processes of a sandbox.

use std::ffi::{CString, OsStr};
use std::io;
use std::process::exit;

use crate::builder::{self, JOB};
use crate::inside;
pub use crate::inside::JobFunction;
use crate::keeper::{self, BUILDER};
use crate::process::MARKER;
use crate::run::KEEPER;

/// Takes over if this process was started as part of a sandbox; otherwise returns at once.
///
/// Call this first in `main`, before any thread is started, with all jobs of the program.
pub fn run_if_sandboxed(jobs: &[(&str, JobFunction)]) {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|argument| argument != MARKER) {
        return;
    }
    let name = arguments.next().unwrap_or_default();
    name_process(&name);
    let result = match name.to_str() {
        Some(KEEPER) => keeper::main(),
        Some(BUILDER) => builder::main(),
        Some(JOB) => inside::main(jobs),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    if let Err(error) = result {
        eprintln!("sandbox: {}: {error}", name.display());
        exit(1);
    }
    exit(0);
}

/// Shows the process as `sandbox-keeper` and the like in process lists.
fn name_process(name: &OsStr) {
    let name = [b"sandbox-", name.as_encoded_bytes()].concat();
    if let Ok(name) = CString::new(name) {
        // The name is for people only.
        let _named = rustix::thread::set_name(&name);
    }
}

//! The built-in actions with real block devices, and a web server with configurable errors. Needs root.
#![allow(clippy::unwrap_used)]

mod archive2disk;
mod contents;
mod disk;
mod file_server;
mod former_system;
mod grub2disk;
mod image2disk;
mod image_server;
mod installed;
mod kexec;
mod mapped;
mod mapped_faults;
mod random_images;
mod refusals;
mod resuming;
mod rootio;
mod signed;
mod site;
mod tables;
mod trailing;
mod trust;
mod wipe;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use runtime::retry::Backoff;
use tokio_util::sync::CancellationToken;
use worker::progress::Report;
use worker::{ActionOutcome, Builtin, Context, Environment, Progress, RetryPolicy};

/// Records all reports and output.
#[derive(Debug, Default)]
struct Recorder {
    reports: Mutex<Vec<Report>>,
    output: Mutex<Vec<u8>>,
}

impl Progress for Recorder {
    fn report(&self, report: Report) {
        self.reports.lock().unwrap().push(report);
    }

    fn output(&self, bytes: &[u8]) {
        self.output.lock().unwrap().extend_from_slice(bytes);
    }
}

/// Returns short delays for tests.
fn retry_policy() -> RetryPolicy {
    RetryPolicy {
        stall_timeout: Duration::from_secs(2),
        backoff: Backoff::new(Duration::from_millis(1), Duration::from_millis(20)),
        give_up_after: Duration::from_secs(20),
    }
}

fn context() -> (Context, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let context = Context {
        progress: recorder.clone(),
        stop: CancellationToken::new(),
        roots: Vec::new(),
        boot_server: None,
        image_keys: None,
        retry_policy: retry_policy(),
    };
    (context, recorder)
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn run(action: Builtin, variables: &[(&str, &str)]) -> ActionOutcome {
    worker::run(action, &environment(variables), &context().0).await
}

/// Returns the reason of a failure, which must be one line.
fn reason(outcome: ActionOutcome) -> String {
    let ActionOutcome::Failure(reason) = outcome else { panic!("{outcome:?} is not a failure") };
    assert!(!reason.contains('\n'));
    reason
}

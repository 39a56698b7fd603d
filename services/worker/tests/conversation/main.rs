//! The worker program with a control plane and a web server, which the tests stop and start.
#![allow(clippy::unwrap_used)]

mod certificates;
#[path = "../actions/disk.rs"]
#[allow(dead_code)]
mod disk;
mod faults;
mod files;
mod going_on;
mod machine;
mod neighbours;
mod plane;
mod work;

use std::time::Duration;

/// Timeout of each wait; long enough for a slow machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(90);

//! The program on a machine, with a control plane and a web server that the tests stop and start.
#![allow(clippy::unwrap_used)]

mod certificates;
#[path = "../actions/disk.rs"]
#[allow(dead_code)]
mod disk;
mod faults;
mod files;
mod machine;
mod plane;
mod work;

use std::time::Duration;

/// Longer than any step takes, on a slow machine as well.
const BOUND: Duration = Duration::from_secs(90);

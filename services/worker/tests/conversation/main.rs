//! The program on a machine, against a control plane and a web server that come and go as they are told.
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

/// Longer than anything here takes, on a slow machine too.
const BOUND: Duration = Duration::from_secs(90);

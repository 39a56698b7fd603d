//! The arguments of all processes, as any user of the host may read them.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Reads the arguments of all processes again and again.
pub(super) struct ArgumentWatch {
    has_ended: Arc<AtomicBool>,
    reader: JoinHandle<BTreeSet<String>>,
}

impl ArgumentWatch {
    pub(super) fn start() -> Self {
        let has_ended = Arc::<AtomicBool>::default();
        let until = has_ended.clone();
        let reader = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !until.load(Ordering::SeqCst) {
                read_all(&mut seen);
                std::thread::sleep(Duration::from_millis(2));
            }
            seen
        });
        Self { has_ended, reader }
    }

    /// Returns the lines of arguments that were seen, with spaces between these.
    pub(super) fn end(self) -> BTreeSet<String> {
        self.has_ended.store(true, Ordering::SeqCst);
        self.reader.join().unwrap()
    }
}

fn read_all(seen: &mut BTreeSet<String>) {
    for entry in fs::read_dir("/proc").unwrap().map(Result::unwrap) {
        // Entries that are no process, and processes that have ended, have none.
        if let Ok(line) = fs::read(entry.path().join("cmdline")) {
            seen.insert(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
}

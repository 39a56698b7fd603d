//! The log of this program, searched for the values of credentials.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};

use tracing_subscriber::filter::LevelFilter;

/// The values of the credentials. They stand nowhere else in the tests.
pub const VALUES: [&str; 9] = [
    "metal-7f3c91",
    "mk_live_3f9d2c7a51-7f3c91",
    "w0Jt-RkQ2mZ8-7f3c91",
    "eyJzaXRlIjoibm9ydGgtN2YzYzkxIn0=",
    "other-7f3c92",
    "w0Jt-RkQ2mZ8-7f3c92",
    "guess-7f3c93",
    "mk_bearer_51c7a2-7f3c94",
    "w0Jt-RkQ2mZ8-7f3c95",
];

static LINES: AtomicUsize = AtomicUsize::new(0);
static LEAKS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static BEGIN: Once = Once::new();

/// Each write is one line of the log.
struct Search;

impl io::Write for Search {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        if text.contains("door=\"ial\"") {
            LINES.fetch_add(1, Ordering::Relaxed);
        }
        if VALUES.iter().any(|value| text.contains(value)) {
            LEAKS.lock().unwrap().push(text.into_owned());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to search the log of all servers of this program.
pub fn begin() {
    BEGIN.call_once(|| {
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Search);
        log.with_max_level(LevelFilter::DEBUG).init();
    });
}

/// Asserts that requests of the platform were logged, and no value of a credential was.
pub fn assert_none() {
    assert!(LINES.load(Ordering::Relaxed) > 0, "no request was logged");
    assert_eq!(*LEAKS.lock().unwrap(), [""; 0]);
}

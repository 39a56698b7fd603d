//! The present step of a build, and its progress.

use tinwright::image::v1::ImageProgress;
use tokio::sync::watch;

/// A step of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The source is fetched.
    Downloading,
    /// The image is converted in the sandbox.
    Converting,
    /// The stored form is made.
    Compressing,
    /// The content is sent to the store.
    Storing,
}

/// The present step, which a build changes. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Progress(watch::Sender<Report>);

/// The present step, as it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) step: Step,
    pub(crate) bytes: ImageProgress,
}

impl Step {
    /// Returns the name, as in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Downloading => "downloading",
            Self::Converting => "converting",
            Self::Compressing => "compressing",
            Self::Storing => "storing",
        }
    }
}

impl Progress {
    /// The progress of a build that begins.
    pub(crate) fn new() -> Self {
        let bytes = ImageProgress::default();
        Self(watch::Sender::new(Report { step: Step::Downloading, bytes }))
    }

    /// Begins a step of `total_bytes` bytes, or 0 if that is not known.
    pub(crate) fn begin(&self, step: Step, total_bytes: u64) {
        self.0
            .send_replace(Report { step, bytes: ImageProgress { current_bytes: 0, total_bytes } });
    }

    /// Sets the number of bytes that are done. It waits for the next report.
    pub(crate) fn set(&self, current_bytes: u64) {
        self.change(|bytes| bytes.current_bytes = current_bytes);
    }

    /// Sets the number of bytes in all.
    pub(crate) fn set_total(&self, total_bytes: u64) {
        self.change(|bytes| bytes.total_bytes = total_bytes);
    }

    fn change(&self, change: impl FnOnce(&mut ImageProgress)) {
        self.0.send_if_modified(|report| {
            change(&mut report.bytes);
            false
        });
    }

    /// Returns the present step.
    pub(crate) fn present(&self) -> Report {
        *self.0.borrow()
    }

    /// Returns a receiver, which a new step wakes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Report> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_step_wakes_the_reporter() {
        let progress = Progress::new();
        let mut reports = progress.subscribe();
        reports.borrow_and_update();
        progress.set(7);
        progress.set_total(9);
        assert!(!reports.has_changed().unwrap());
        assert_eq!(reports.borrow().bytes, ImageProgress { current_bytes: 7, total_bytes: 9 });
        progress.begin(Step::Storing, 5);
        assert!(reports.has_changed().unwrap());
        assert_eq!(reports.borrow().bytes, ImageProgress { current_bytes: 0, total_bytes: 5 });
    }
}

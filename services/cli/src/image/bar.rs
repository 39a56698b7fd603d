//! Progress bars of steps.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Interval between two redraws of a progress bar.
const TICK: Duration = Duration::from_millis(200);

/// Returns a bar for a step, which is only shown at a terminal. Elsewhere a line says that the step
/// begins.
pub(crate) fn bar(name: &str, step: &str, detail: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if bar.is_hidden() {
        eprintln!("{}", format!("{name}: {step} {detail}").trim_end());
        return bar;
    }
    const TEMPLATE: &str = "{prefix} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
    // The template is constant: the default is never used.
    let style = ProgressStyle::with_template(TEMPLATE);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_prefix(format!("{name}: {step}"));
    bar.enable_steady_tick(TICK);
    bar
}

//! Draws the view on a terminal.
//!
//! It is drawn on the terminal's second screen (xterm's control sequences, "Private Modes" 25 and 1049), so that resizing leaves no remains and the
//! text that was there before is there again afterwards.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use console::Term;

use super::screen::{Line, Span, Style, lines};
use super::state::RackState;

/// Saves the screen, begins an empty one, and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// Ends colours, shows the cursor, and shows the saved screen.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";
/// Moves the cursor to the first column of the first line.
const HOME: &str = "\x1b[H";
/// Erases the rest of the line.
const ERASE_LINE: &str = "\x1b[K";
/// Erases the rest of the screen.
const ERASE_BELOW: &str = "\x1b[J";

/// The terminal of standard error, with the view on it. Drop shows what was there before, as does a panic on any thread.
#[derive(Debug)]
pub struct Terminal {
    term: Term,
    is_open: Arc<AtomicBool>,
}

impl Terminal {
    /// Begins to draw. Returns `None` if standard error is not a terminal that can move its cursor.
    pub fn open() -> Option<Self> {
        let term = Term::stderr();
        let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        if !term.is_term() || is_dumb {
            return None;
        }
        let is_open = Arc::new(AtomicBool::new(true));
        leave_at_panic(is_open.clone());
        write(&term, ENTER);
        Some(Self { term, is_open })
    }

    /// Draws `state` in the size that the terminal has now.
    pub fn draw(&self, state: &RackState) {
        if !self.is_open.load(Ordering::Relaxed) {
            return;
        }
        let (height, width) = self.term.size();
        let lines = lines(state, width.into(), height.into());
        write(&self.term, &format!("{HOME}{}{ERASE_BELOW}", text(&lines)));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave(&self.term, &self.is_open);
    }
}

/// Makes a panic show the saved screen first, so that its message is not lost with the view.
fn leave_at_panic(is_open: Arc<AtomicBool>) {
    let next = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        leave(&Term::stderr(), &is_open);
        next(panic);
    }));
}

fn leave(term: &Term, is_open: &AtomicBool) {
    if is_open.swap(false, Ordering::Relaxed) {
        write(term, LEAVE);
    }
}

/// Writes `text` at once. A terminal that is gone is no reason to stop: whatever runs in the rack has to be removed.
fn write(mut term: &Term, text: &str) {
    let _result = term.write_all(text.as_bytes()).and_then(|()| term.flush());
}

/// Returns `lines` with colours, unless the environment says that there are none (`NO_COLOR`).
pub fn text(lines: &[Line]) -> String {
    let lines = lines.iter().map(|line| {
        let spans: String = line.iter().map(styled).collect();
        format!("{spans}{ERASE_LINE}")
    });
    lines.collect::<Vec<_>>().join("\r\n")
}

fn styled(span: &Span) -> String {
    let style = console::Style::new().for_stderr();
    let style = match span.style {
        Style::Plain => return span.text.clone(),
        Style::Bold => style.bold(),
        Style::Dim => style.dim(),
        Style::Active => style.cyan(),
        Style::Good => style.green(),
        Style::Bad => style.red(),
    };
    style.apply_to(&span.text).to_string()
}

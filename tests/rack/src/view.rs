//! The live view of `cargo rack`: its content, its lines, and where they are drawn.
//!
//! - `console`: the last lines of a machine's serial port.
//! - `state`: the content. `screen`: its lines for a terminal of some size.
//! - `terminal`: draws them on a terminal. `recording`: collects them, and writes a picture.

pub mod console;
pub mod recording;
pub mod screen;
pub mod state;
pub mod terminal;

//! The last lines of a serial port, without control sequences.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use console::AnsiCodeIterator;

/// Number of bytes that are read at the end of the port's file.
const TAIL_BYTES: u64 = 16 * 1024;

/// Returns the last `count` lines of the file at `path`, which has the output of a serial port. Empty if the file does not exist yet.
pub fn last_lines(path: &Path, count: usize) -> Vec<String> {
    // A machine that was not yet on has no file.
    lines(&tail(path).unwrap_or_default(), count)
}

/// Returns the end of a file. If that is not the whole file, it begins after a line break.
fn tail(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let line_break = bytes.iter().position(|byte| *byte == b'\n');
    if let Some(end) = line_break.filter(|_| start > 0) {
        bytes.drain(..=end);
    }
    Ok(bytes)
}

/// Returns the last `count` lines of `bytes` that are not blank. Escape sequences are removed; one that moves the cursor ends the line, as firmware
/// places its lines with them. A carriage return begins the line anew.
pub fn lines(bytes: &[u8], count: usize) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut plain = String::with_capacity(text.len());
    for (part, is_sequence) in AnsiCodeIterator::new(&text) {
        match is_sequence {
            true if part.ends_with(['H', 'f', 'A', 'B', 'E', 'F']) => plain.push('\n'),
            true => {}
            false => plain.push_str(part),
        }
    }
    let shown = |line: &str| {
        let line = line.trim_end_matches('\r');
        let line = line.rsplit('\r').next().unwrap_or(line);
        let characters = line.chars().map(|it| if it == '\t' { ' ' } else { it });
        let line: String = characters.filter(|it| !it.is_control()).collect();
        line.trim_end().to_owned()
    };
    let mut lines: Vec<_> =
        plain.split('\n').map(shown).filter(|line| !line.trim().is_empty()).collect();
    lines.drain(..lines.len().saturating_sub(count));
    lines
}

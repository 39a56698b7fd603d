//! A recording of the view, as an animated picture (SVG 1.1, with the animation of SMIL 3.0).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::screen::{Line, Style, lines};
use super::state::RackState;

/// Columns of the picture.
const WIDTH: usize = 96;
/// Lines of the picture.
const HEIGHT: usize = 30;
/// Width of a column, in pixels, for the font's size.
const COLUMN_PIXELS: f64 = 7.8;
/// Height of a line, in pixels.
const LINE_PIXELS: usize = 17;
/// Margin at each edge, in pixels.
const MARGIN_PIXELS: usize = 14;
/// The time for which each frame is visible.
const FRAME_TIME: Duration = Duration::from_millis(500);
/// The time for which the last frame is visible.
const LAST_FRAME_TIME: Duration = Duration::from_secs(6);
/// The highest number of frames.
const MAX_FRAMES: usize = 48;
/// The highest size of the picture, in bytes. With less frames it becomes smaller.
const MAX_BYTES: usize = 96 * 1024;
/// The start of the picture, after its size.
const STYLES: &str = "<style>text{fill:#d8dee9;white-space:pre}.b{font-weight:bold;fill:#fff}.d{fill:#8b95a5}\
.a{fill:#5cc8e8}.g{fill:#7fd88f}.r{fill:#f07a7a}</style>";

/// The frames of a run, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    frames: Vec<Vec<Line>>,
}

impl Recording {
    /// Adds `state`, unless it looks like the frame before.
    pub fn add(&mut self, state: &RackState) {
        let frame = lines(state, WIDTH, HEIGHT);
        if self.frames.last() != Some(&frame) {
            self.frames.push(frame);
        }
    }

    /// Returns the picture: an animation of frames from the whole run, which without animation shows the last one.
    pub fn svg(&self) -> String {
        let mut count = MAX_FRAMES;
        loop {
            let svg = picture(&self.selection(count));
            if svg.len() <= MAX_BYTES || count <= 2 {
                return svg;
            }
            count = count * 3 / 4;
        }
    }

    /// Returns at most `count` frames, with the same number of frames left out between each two, the first and the last one included.
    fn selection(&self, count: usize) -> Vec<&Vec<Line>> {
        let last = self.frames.len().saturating_sub(1);
        let steps = count.saturating_sub(1).clamp(1, last.max(1));
        let mut places: Vec<_> = (0..=steps).map(|step| step * last / steps).collect();
        places.dedup();
        places.into_iter().filter_map(|place| self.frames.get(place)).collect()
    }
}

/// A line of the picture.
struct Run<'a> {
    row: usize,
    line: &'a Line,
}

/// Returns the picture with `frames`.
fn picture(frames: &[&Vec<Line>]) -> String {
    let width = (WIDTH as f64).mul_add(COLUMN_PIXELS, 2.0 * MARGIN_PIXELS as f64).ceil();
    let height = HEIGHT * LINE_PIXELS + 2 * MARGIN_PIXELS;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"13\" xml:space=\"preserve\">\
         <title>cargo rack: two machines are installed over the network</title>{STYLES}\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1d222b\"/>\n"
    );
    let _ = writeln!(svg, "<g transform=\"translate({MARGIN_PIXELS} {MARGIN_PIXELS})\">");
    for ((first, end), runs) in groups(frames) {
        let hidden = if end < frames.len() { " visibility=\"hidden\"" } else { "" };
        let _ = writeln!(svg, "<g{hidden}>{}", animation(first, end, frames.len()));
        for Run { row, line } in runs {
            let _ = write!(svg, "<text y=\"{}\">", row * LINE_PIXELS + LINE_PIXELS * 3 / 4);
            line.iter().for_each(|span| svg.push_str(&tspan(span.style, &span.text)));
            svg.push_str("</text>\n");
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</g>\n");
    svg.push_str("</svg>\n");
    svg
}

/// Returns the lines that are not empty, each once for all consecutive frames in which it stays the same: by its first frame and the frame after its
/// last one.
fn groups<'a>(frames: &[&'a Vec<Line>]) -> BTreeMap<(usize, usize), Vec<Run<'a>>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in 0..HEIGHT {
        let line = |frame: usize| frames.get(frame).and_then(|lines| lines.get(row));
        let mut first = 0;
        for end in 1..=frames.len() {
            // There is no line after the last frame.
            if line(end) == line(first) {
                continue;
            }
            if let Some(line) = line(first).filter(|line| !line.is_empty()) {
                groups.entry((first, end)).or_default().push(Run { row, line });
            }
            first = end;
        }
    }
    groups
}

/// Returns the element that makes a group visible from the frame `first` to the frame before `end` only, in an endless loop of `frames` frames. Empty if
/// it always is.
fn animation(first: usize, end: usize, frames: usize) -> String {
    let last = u32::try_from(frames.saturating_sub(1)).unwrap_or(u32::MAX);
    let duration = FRAME_TIME.saturating_mul(last) + LAST_FRAME_TIME;
    let part = |frame: usize| {
        let frame = u32::try_from(frame).unwrap_or(u32::MAX);
        format!("{:.4}", FRAME_TIME.saturating_mul(frame).div_duration_f64(duration))
    };
    let (values, times) = match (first == 0, end == frames) {
        (true, true) => return String::new(),
        (true, false) => ("visible;hidden", format!("0;{}", part(end))),
        (false, true) => ("hidden;visible", format!("0;{}", part(first))),
        (false, false) => ("hidden;visible;hidden", format!("0;{};{}", part(first), part(end))),
    };
    let seconds = duration.as_secs_f64();
    format!(
        "<animate attributeName=\"visibility\" calcMode=\"discrete\" repeatCount=\"indefinite\" dur=\"{seconds}s\" values=\"{values}\" keyTimes=\"{times}\"/>"
    )
}

/// Returns `text` in `style`.
fn tspan(style: Style, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let class = match style {
        Style::Plain => return text,
        Style::Bold => "b",
        Style::Dim => "d",
        Style::Active => "a",
        Style::Good => "g",
        Style::Bad => "r",
    };
    format!("<tspan class=\"{class}\">{text}</tspan>")
}

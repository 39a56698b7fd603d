//! Tables of times, the longest first.

use std::fmt::Write as _;

/// Minimum width of the column of seconds.
const SECONDS_WIDTH: usize = 8;

/// A row: a time, and the texts of the other columns.
pub(super) struct Row {
    pub(super) seconds: f64,
    pub(super) cells: Vec<String>,
}

/// Returns the `title`, and at most `max` of the `rows` below the names of their `columns`.
pub(super) fn table(title: &str, columns: &[&str], mut rows: Vec<Row>, max: usize) -> String {
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.cells.cmp(&b.cells)));
    rows.truncate(max);
    let widths: Vec<_> = (0..columns.len()).map(|column| width(columns, &rows, column)).collect();
    let mut text = format!("{title}\n");
    line(&mut text, "seconds", columns, &widths);
    for row in &rows {
        let cells: Vec<_> = row.cells.iter().map(String::as_str).collect();
        line(&mut text, &format!("{:.1}", row.seconds), &cells, &widths);
    }
    text
}

/// Returns the width of a column, which is 0 for the last one: it is not padded.
fn width(columns: &[&str], rows: &[Row], column: usize) -> usize {
    if column + 1 == columns.len() {
        return 0;
    }
    let cells = rows.iter().map(|row| row.cells[column].len());
    cells.chain([columns[column].len()]).max().unwrap_or(0)
}

fn line(text: &mut String, seconds: &str, cells: &[&str], widths: &[usize]) {
    let _infallible = write!(text, "{seconds:>SECONDS_WIDTH$}");
    for (cell, width) in cells.iter().zip(widths) {
        let _infallible = write!(text, "  {cell:width$}");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seconds: f64, cells: [&str; 2]) -> Row {
        Row { seconds, cells: cells.map(str::to_owned).to_vec() }
    }

    #[test]
    fn the_slowest_rows_are_first_and_columns_are_aligned() {
        let rows = vec![
            row(0.04, ["store", "fast"]),
            row(1234.56, ["rack/restarts", "slow"]),
            row(2.0, ["store", "b"]),
            row(2.0, ["store", "a"]),
        ];
        let expected = "\
slowest of 4 tests
 seconds  binary         test
  1234.6  rack/restarts  slow
     2.0  store          a
     2.0  store          b
";
        assert_eq!(table("slowest of 4 tests", &["binary", "test"], rows, 3), expected);
    }
}

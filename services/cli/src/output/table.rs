//! Tables with names in place of ids, and short ids.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use comfy_table::{ContentArrangement, presets};
use tinwright::HardwareId;

use super::{Row, columns};

/// Minimum length of a shortened id, in characters: the creation time in milliseconds.
const MIN_ID: usize = 13;

/// Length of a shortened id in a growing table, in characters: even the ids of one millisecond hardly
/// ever begin with the same ones.
const ROW_ID: usize = 18;

/// A table for people.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Names of other objects by their ids.
    names: HashMap<String, String>,
}

impl Table {
    /// Returns a table with the names of its `columns`.
    pub fn new(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Self {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Self { columns, rows: rows.collect(), names: HashMap::new() }
    }

    /// Returns the table of `objects`.
    pub fn of<R: Row>(objects: &[R], now: SystemTime) -> Self {
        let headers: Vec<_> = columns::headers(R::COLUMNS).collect();
        Self::new(&headers, objects.iter().map(|object| object.row(now)))
    }

    /// Sets the `names` that replace ids outside of the first column.
    pub fn with_names(self, names: HashMap<String, String>) -> Self {
        Self { names, ..self }
    }

    /// Adds `columns`, with the `cells` of each row.
    pub fn with_columns(
        mut self,
        columns: &[&str],
        cells: impl Iterator<Item = Vec<String>>,
    ) -> Self {
        self.columns.extend(columns.iter().map(|column| (*column).to_owned()));
        for (row, cells) in self.rows.iter_mut().zip(cells) {
            row.extend(cells);
        }
        self
    }

    /// Replaces the values in the column `header` by `cells`.
    pub fn with_cells(mut self, header: &str, cells: impl Iterator<Item = String>) -> Self {
        let place = self.columns.iter().position(|column| column == header);
        for (row, cell) in self.rows.iter_mut().zip(cells) {
            if let Some(old) = place.and_then(|place| row.get_mut(place)) {
                *old = cell;
            }
        }
        self
    }

    /// Renders the table. In a `wide` table the id follows the name, and ids are whole; else they are as short as they can be without
    /// becoming the same.
    pub fn render(mut self, wide: bool, headers: bool) -> String {
        self.replace_ids(wide);
        if !wide {
            self.shorten_ids();
        }
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if headers {
            table.set_header(&self.columns);
        }
        table.add_rows(self.rows);
        table.column_iter_mut().for_each(|column| {
            column.set_padding((0, 2));
        });
        table.trim_fmt()
    }

    fn replace_ids(&mut self, wide: bool) {
        for cell in self.rows.iter_mut().flat_map(|row| row.iter_mut().skip(1)) {
            if let Some(name) = self.names.get(cell.as_str()).filter(|name| !name.is_empty()) {
                *cell = if wide { format!("{name} ({cell})") } else { name.clone() };
            }
        }
    }

    fn shorten_ids(&mut self) {
        for cell in self.rows.iter_mut().flatten() {
            if let Some(second) = second_id(cell) {
                *cell = second.to_owned();
            }
        }
        let length = self.id_length();
        for cell in self.rows.iter_mut().flatten().filter(|cell| is_id(cell)) {
            cell.truncate(length);
        }
    }

    /// Returns the length at which the ids in the table differ.
    fn id_length(&self) -> usize {
        let ids: HashSet<_> = self.rows.iter().flatten().filter(|cell| is_id(cell)).collect();
        let differ = |length: &usize| {
            let short: HashSet<_> = ids.iter().filter_map(|id| id.get(..*length)).collect();
            short.len() == ids.len()
        };
        (MIN_ID..36).find(differ).unwrap_or(36)
    }
}

/// A table that is printed row by row, while it grows. A column becomes as wide as its widest value so far.
#[derive(Debug)]
pub struct GrowingTable {
    widths: Vec<usize>,
    wide: bool,
}

impl GrowingTable {
    /// Returns a table without rows, whose columns have at least these `widths` in characters; in a `wide` one ids are whole.
    pub fn new(widths: &[usize], wide: bool) -> Self {
        Self { widths: widths.to_vec(), wide }
    }

    /// Returns the line of the next row. It has as many `cells` as the others.
    pub fn line<'a>(&mut self, cells: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::new();
        for (column, cell) in cells.enumerate() {
            let is_short = !self.wide && is_id(cell);
            let cell = cell.get(..ROW_ID).filter(|_| is_short).unwrap_or(cell);
            let cell = cell.split_whitespace().collect::<Vec<_>>().join(" ");
            if self.widths.len() == column {
                self.widths.push(0);
            }
            let width = &mut self.widths[column];
            *width = cell.chars().count().max(*width);
            line += &format!("{cell:width$}  ", width = *width);
        }
        line.trim_end().to_owned()
    }
}

/// Returns the second part of the id of a boot, which has that of its machine before it; none for other cells.
fn second_id(cell: &str) -> Option<&str> {
    let (owner, second) = cell.split_once('.')?;
    let is_owner = is_id(owner) || owner.starts_with("unknown-");
    (is_owner && is_id(second)).then_some(second)
}

fn is_id(cell: &str) -> bool {
    cell.len() == 36 && cell.parse::<HardwareId>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&str; 3] = [
        "01a21617-1061-751f-9a33-e1dbcec0bb84",
        "01a21617-1061-751f-9b44-e1dbcec0bb84",
        "01a21617-1062-751f-9a33-e1dbcec0bb84",
    ];

    fn lines(places: &[usize], wide: bool, headers: bool) -> Vec<String> {
        let row = |place: &usize| vec![IDS[*place].to_owned(), IDS[2].to_owned(), "x".to_owned()];
        let table = Table::new(&["ID", "HARDWARE", "REASON"], places.iter().map(row));
        let names = HashMap::from([(IDS[2].to_owned(), "node-1".to_owned())]);
        let text = table.with_names(names).render(wide, headers);
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn ids_are_short_but_differ_and_machines_have_names() {
        assert_eq!(
            lines(&[0], false, true),
            ["ID             HARDWARE  REASON", "01a21617-1061  node-1    x"]
        );
        let two = ["01a21617-1061-751f-9a  node-1  x", "01a21617-1061-751f-9b  node-1  x"];
        assert_eq!(lines(&[0, 1], false, false), two);
    }

    #[test]
    fn the_id_of_a_boot_is_shown_without_that_of_its_machine() {
        let boot = |owner: &str, id: &str| vec![format!("{owner}.{id}"), "x".to_owned()];
        let rows = || [boot(IDS[2], IDS[0]), boot("unknown-02-00-00-00-00-01", IDS[2])].into_iter();
        let narrow = Table::new(&["BOOT", "WHY"], rows()).render(false, false);
        let narrow: Vec<_> = narrow.lines().map(str::trim_end).collect();
        assert_eq!(narrow, ["01a21617-1061  x", "01a21617-1062  x"]);
        let wide = Table::new(&["BOOT", "WHY"], rows()).render(true, false);
        assert!(wide.starts_with(&format!("{}.{}  x", IDS[2], IDS[0])), "{wide}");
    }

    #[test]
    fn a_wide_table_has_whole_ids() {
        let wide = format!("{}  node-1 ({})  x", IDS[0], IDS[2]);
        assert_eq!(lines(&[0], true, false), [wide]);
    }

    #[test]
    fn the_columns_of_a_growing_table_become_wider() {
        let mut table = GrowingTable::new(&[5], false);
        let mut line = |cells: [&str; 3]| table.line(cells.into_iter());
        assert_eq!(line(["ID", "STATE", "TEXT"]), "ID     STATE  TEXT");
        assert_eq!(line([IDS[0], "on", ""]), "01a21617-1061-751f  on");
        assert_eq!(line(["x", "", "y\nz"]), "x                          y z");
        let wide = GrowingTable::new(&[], true).line([IDS[0], "x"].into_iter());
        assert_eq!(wide, format!("{}  x", IDS[0]));
    }

    #[test]
    fn columns_are_added_with_their_cells() {
        let rows = || [vec!["a".to_owned()], vec!["b".to_owned()]].into_iter();
        let table = Table::new(&["NAME"], rows()).with_columns(&["SAME"], rows());
        let text = table.render(true, true);
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["NAME  SAME", "a     a", "b     b"]);
    }
}

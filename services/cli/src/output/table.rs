//! Tables with names in place of ids, and short ids.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use comfy_table::{ContentArrangement, presets};
use tinwright::HardwareId;

use super::Row;

/// The shortest id in characters: up to the milliseconds in which its object was made.
const MIN_ID: usize = 13;

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
        Self::new(R::COLUMNS, objects.iter().map(|object| object.row(now)))
    }

    /// Sets the `names` that replace ids outside of the first column.
    pub fn with_names(self, names: HashMap<String, String>) -> Self {
        Self { names, ..self }
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
}

//! Lists: tables for people, ids and references for scripts, objects for programs.

use std::io::Write;
use std::time::SystemTime;

use prost::{Message, Name};
use runtime::Clock;

use super::{Format, Row, Table, print_line, print_values, reference, value};

/// Options of the output of a list.
#[derive(Clone, Debug, clap::Args)]
pub struct ListOutput {
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    pub output: Format,
    /// Print tables without the line of headers
    #[arg(long)]
    pub no_headers: bool,
    /// Print only ids, one per line
    #[arg(short, long, conflicts_with = "output")]
    pub quiet: bool,
}

impl From<Format> for ListOutput {
    /// Returns the options of a command that has no other option for its output.
    fn from(output: Format) -> Self {
        Self { output, no_headers: false, quiet: false }
    }
}

/// Objects to be printed as a list.
#[derive(Debug)]
pub struct List<'a, M> {
    objects: &'a [M],
    id: fn(&M) -> &str,
    /// Returns the name of an object in references; without it references have ids.
    reference_name: Option<fn(&M) -> String>,
    empty: &'a str,
}

impl<'a, M: Message + Name> List<'a, M> {
    /// Returns the list of `objects`. Each is found by its `id`. `empty` is printed in place of an empty table.
    pub fn new(objects: &'a [M], id: fn(&M) -> &str, empty: &'a str) -> Self {
        Self { objects, id, reference_name: None, empty }
    }

    /// Sets the names of the objects in references.
    pub fn with_reference_names(self, name: fn(&M) -> String) -> Self {
        Self { reference_name: Some(name), ..self }
    }

    /// Prints the list. `table` returns its table at a time; it is called only if the table is printed.
    pub async fn print(
        &self,
        ListOutput { output, no_headers, quiet }: &ListOutput,
        table: impl AsyncFnOnce(SystemTime) -> Table,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        match output {
            _ if self.objects.is_empty() && (*quiet || *no_headers || *output == Format::Name) => {
                Ok(())
            }
            _ if *quiet => print_line(out, &self.lines(|object| (self.id)(object).to_owned())),
            Format::Name => print_line(out, &self.lines(|object| self.reference(object))),
            Format::Table | Format::Wide if self.objects.is_empty() => print_line(out, self.empty),
            Format::Table | Format::Wide => {
                let table = table(Clock::system().wall()).await;
                print_line(out, &table.render(*output == Format::Wide, !no_headers))
            }
            Format::Json | Format::Yaml | Format::JsonPath(_) => {
                let values = self.objects.iter().map(|object| value(object, output));
                print_values(out, values.collect::<anyhow::Result<_>>()?, output)
            }
        }
    }

    /// Prints the list, with the rows of its objects as its table.
    pub async fn print_rows(&self, output: &ListOutput, out: &mut dyn Write) -> anyhow::Result<()>
    where
        M: Row,
    {
        self.print(output, async |now| Table::of(self.objects, now), out).await
    }

    /// Returns one line for each object.
    fn lines(&self, line: impl Fn(&M) -> String) -> String {
        self.objects.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn reference(&self, object: &M) -> String {
        let name = self.reference_name.map(|name| name(object));
        reference::<M>(name.as_deref().unwrap_or_else(|| (self.id)(object)))
    }
}

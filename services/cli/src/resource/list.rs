//! `list`: tables for people, and objects for programs.

use std::collections::HashMap;
use std::io::Write;

use prost::{Message, Name};
use runtime::Clock;
use serde_json::Value;
use tonic::transport::Channel;

use super::{Resource, pages};
use crate::connect::View;
use crate::output::{self, Format, Row, Table, print_line};
use crate::selector::{self, Labels, Requirement};

/// Options of a list.
#[derive(Debug, clap::Args)]
pub struct ListQuery<F: clap::Args> {
    /// List only objects whose labels match: key=value, key!=value, key, !key, 'key in (a,b)' or 'key notin (a,b)', separated by commas;
    /// may be repeated
    #[arg(short = 'l', long = "selector", visible_alias = "label", value_name = "SELECTOR", value_parser = selector::parse)]
    pub selectors: Vec<selector::Selector>,
    /// Options of this resource.
    #[command(flatten)]
    pub filter: F,
    /// Print these parts of each
    #[arg(long, default_value = "basic")]
    pub view: View,
}

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

impl<F: clap::Args + Default> Default for ListQuery<F> {
    fn default() -> Self {
        Self { selectors: Vec::new(), filter: F::default(), view: View::Basic }
    }
}

impl<F: clap::Args> ListQuery<F> {
    fn requirements(&self) -> impl Iterator<Item = &Requirement> {
        self.selectors.iter().flat_map(|selector| &selector.0)
    }

    /// Returns the labels that objects have to have, which the server selects by.
    pub fn labels<L: FromIterator<(String, String)>>(&self) -> L {
        let equal = self.requirements().filter_map(Requirement::equality);
        equal.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// True if all requirements are met, also those that the server does not know.
    fn selects(&self, labels: &Labels) -> bool {
        self.requirements().all(|requirement| requirement.is_met(labels))
    }
}

/// Prints the objects that `query` selects.
pub(super) async fn list<R: Resource>(
    query: &ListQuery<R::Filter>,
    options: ListOutput,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut objects = pages(async |token| R::page(channel, query, token).await).await?;
    objects.retain(|object| object.matches(&query.filter));
    if query.requirements().any(|it| it.equality().is_none()) {
        objects.retain(|object| query.selects(&labels(object)));
    }
    print(&objects, options, channel, out).await
}

/// Returns the labels of `object`.
fn labels<R: Resource>(object: &R) -> Labels {
    let json = tinwright::json::write(object).unwrap_or_default();
    let labels = json.get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
    labels.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))).collect()
}

/// Prints `objects`.
pub(super) async fn print<R: Resource>(
    objects: &[R],
    ListOutput { output, no_headers, quiet }: ListOutput,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let lines = |line: fn(&R) -> String| objects.iter().map(line).collect::<Vec<_>>().join("\n");
    match output {
        _ if objects.is_empty() && (quiet || no_headers || output == Format::Name) => Ok(()),
        _ if quiet => print_line(out, &lines(|object| object.id().to_owned())),
        Format::Name => print_line(out, &lines(reference)),
        Format::Table | Format::Wide if objects.is_empty() => print_line(out, &nothing::<R>()),
        Format::Table | Format::Wide => {
            let (mut table, names) = R::table(channel, objects, Clock::system().wall()).await;
            table.name(&names, output == Format::Wide);
            print_line(out, &table.render(output == Format::Wide, !no_headers))
        }
        Format::Json | Format::Yaml | Format::JsonPath(_) => {
            output::print_objects(out, objects, &output)
        }
    }
}

/// Objects that have a list and are not a [`Resource`].
pub(crate) struct Rows<'a, M> {
    /// The objects.
    pub objects: &'a [M],
    /// Returns what an object is found by, which `-q` prints.
    pub id: fn(&M) -> &str,
    /// Names for the ids of other objects in the table.
    pub names: HashMap<String, String>,
    /// What is printed in place of an empty table.
    pub nothing: &'a str,
}

impl<M: Message + Name + Row> Rows<'_, M> {
    /// Prints the objects as the list of a resource does.
    pub(crate) fn print(&self, options: &ListOutput, out: &mut dyn Write) -> anyhow::Result<()> {
        let ListOutput { output, no_headers, quiet } = options;
        let is_wide = *output == Format::Wide;
        let lines = |prefix: &str| {
            let line = |object: &M| format!("{prefix}{}", (self.id)(object));
            self.objects.iter().map(line).collect::<Vec<_>>().join("\n")
        };
        match output {
            _ if self.objects.is_empty() && (*quiet || *no_headers || *output == Format::Name) => {
                Ok(())
            }
            _ if *quiet => print_line(out, &lines("")),
            Format::Name => print_line(out, &lines(&format!("{}/", M::NAME.to_lowercase()))),
            Format::Table | Format::Wide if self.objects.is_empty() => {
                print_line(out, self.nothing)
            }
            Format::Table | Format::Wide => {
                let mut table = Table::of(self.objects, Clock::system().wall());
                table.name(&self.names, is_wide);
                print_line(out, &table.render(is_wide, !no_headers))
            }
            Format::Json | Format::Yaml | Format::JsonPath(_) => {
                output::print_objects(out, self.objects, output)
            }
        }
    }
}

/// Returns the reference to `object` that scripts use: `hardware/node-1`.
pub(super) fn reference<R: Resource>(object: &R) -> String {
    format!("{}/{}", R::NAME.to_lowercase(), object.title())
}

fn nothing<R: Resource>() -> String {
    let first = if R::FIRST.is_empty() { String::new() } else { format!(": {}", R::FIRST) };
    format!("no {}{first}", R::RESOURCE)
}

//! `list`: the objects of a resource that a query selects.

use serde_json::Value;

use super::Resource;
use crate::connect::{Io, View};
use crate::output::{Format, List, ListOutput};
use crate::selector::{self, Labels, Requirement};

/// Options of a list.
#[derive(Debug, Default, clap::Args)]
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

impl<F: clap::Args> ListQuery<F> {
    fn requirements(&self) -> impl Iterator<Item = &Requirement> {
        self.selectors.iter().flat_map(|selector| &selector.0)
    }

    /// Returns the labels that objects have to have, which the server selects by.
    pub fn labels<L: FromIterator<(String, String)>>(&self) -> L {
        let equal = self.requirements().filter_map(Requirement::equality);
        equal.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// True if it selects all objects.
    fn is_all(&self) -> bool
    where
        F: Default + PartialEq,
    {
        self.selectors.is_empty() && self.filter == F::default()
    }

    /// True if all requirements are met, also those that the server does not know.
    fn selects(&self, labels: &Labels) -> bool {
        self.requirements().all(|requirement| requirement.is_met(labels))
    }
}

/// Prints the objects that `query` selects.
pub async fn list<R: Resource>(
    query: &ListQuery<R::Filter>,
    options: ListOutput,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let mut objects = R::all(io.channel, query).await?;
    if query.requirements().any(|it| it.equality().is_none()) {
        objects.retain(|object| query.selects(&labels(object)));
    }
    let empty = match query.is_all() {
        true => empty::<R>(),
        false => format!("no {} matches", R::SINGULAR),
    };
    print(&objects, &empty, &options, io).await
}

/// Returns the text for a site without such objects.
pub(super) fn empty<R: Resource>() -> String {
    let first = if R::FIRST.is_empty() { String::new() } else { format!(": {}", R::FIRST) };
    format!("no {}{first}", R::SINGULAR)
}

/// Returns the labels of `object`.
fn labels<R: Resource>(object: &R) -> Labels {
    let json = tinwright::json::write(object).unwrap_or_default();
    let labels = json.get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
    labels.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))).collect()
}

/// Prints `objects`, or `empty` if there are none.
pub(super) async fn print<R: Resource>(
    objects: &[R],
    empty: &str,
    options: &ListOutput,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let list = List::new(objects, R::id, empty).with_reference_names(R::reference_name);
    let (channel, wide) = (io.channel, options.output == Format::Wide);
    list.print(options, async |now| R::table(channel, objects, now, wide).await, io.out).await
}

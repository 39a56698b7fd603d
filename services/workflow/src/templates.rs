//! The templates in the store.
//!
//! ```text
//! workflow/template/<id>             the record
//! workflow/template-name/<name>      ─▶ id; of a tenant's template: <tenant>/<name>
//! ```
//!
//! A template is checked when it is created, not only when a machine waits for it. A text that becomes YAML only by rendering
//! is checked then, as far as it is not readable before.

use std::error::Error as _;

use nouns::{Delete, Edit, Noun, Served, Viewer};
use runtime::clock::Clock;
use store::ScopedStore;
use store::records::{Error, Index, Kind, Records};
use tinwright::common::v1::View;
use tinwright::status::Violations;
use tinwright::workflow::v1 as pb;
use tinwright::{TemplateId, TenantName, check};

use crate::template::{self, Template};

const MAX_NAME_BYTES: usize = 200;

/// The kind of these records.
#[derive(Debug)]
pub enum TemplateKind {}

impl Kind for TemplateKind {
    type Record = pb::Template;
    type Id = TemplateId;
    const KIND: &'static str = "template";
    const INDEXES: &'static [&'static str] = &["template-name"];

    fn indexes(template: &pb::Template) -> Vec<Index> {
        vec![Index::unique("template-name", name_key(template))]
    }
}

impl Served for TemplateKind {
    /// Shows the data in the full view only.
    fn show(viewer: &Viewer, template: pb::Template) -> pb::Template {
        match viewer.view {
            View::Full => template,
            View::Unspecified | View::Basic => pb::Template { data: String::new(), ..template },
        }
    }
}

/// Returns the name under which `template` is found: each tenant has names of its own. No name of a template has a slash.
fn name_key(template: &pb::Template) -> String {
    let pb::Template { name, tenant, .. } = template;
    if tenant.is_empty() { name.clone() } else { format!("{tenant}/{name}") }
}

/// The templates.
#[derive(Clone, Debug)]
pub struct Templates {
    records: Records<TemplateKind>,
    clock: Clock,
}

impl Templates {
    /// The templates in `store`.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        Self { records: Records::new(store), clock }
    }
}

impl Noun for Templates {
    type Kind = TemplateKind;
    type Error = Error;

    fn records(&self) -> &Records<TemplateKind> {
        &self.records
    }
}

impl Edit for Templates {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn checked(
        &self,
        template: pb::Template,
        old: Option<&pb::Template>,
    ) -> Result<pb::Template, Violations> {
        let is_new = old.is_none_or(|old| old.data != template.data);
        checked(template, is_new)
    }
}

/// Workflows that were made from a deleted template do not change.
impl Delete for Templates {}

/// Checks `template` as far as possible without values, and returns it with its name. The actions of a template that is stored already are not
/// checked again: an older program accepted others.
fn checked(mut template: pb::Template, with_actions: bool) -> Result<pb::Template, Violations> {
    let shown = match template.name.as_str() {
        "" => template::top_level_name(&template.data).unwrap_or_default(),
        name => name,
    };
    let shown = if shown.is_empty() { "template" } else { shown };
    let parsed = Template::parse(shown, &template.data).map_err(template::Error::from);
    let read = parsed.and_then(|it| Ok((it.check_readable()?, it.with_open_values())));
    let (definition, with_open_values) =
        read.map_err(|error| Violations::single("template.data", of_data(&error)))?;
    let mut wrong = Violations::default();
    if template.name.is_empty() {
        let lenient = || template::top_level_name(&template.data).unwrap_or_default();
        template.name = definition.as_ref().map_or_else(lenient, |it| &it.name).to_owned();
    }
    if let Some(definition) = definition.as_ref().or(with_open_values.as_ref()) {
        let errors = definition.action_errors(template::Stage::Unrendered);
        for error in errors.into_iter().filter(|_| with_actions) {
            wrong.add("template.data", error);
        }
    }
    let name = &template.name;
    wrong.take("template.name", check::length(name, MAX_NAME_BYTES));
    if name.is_empty() {
        let text = "is missing: the data has no line \"name: …\" that can be read before it is rendered; add one, or give a name (--name)";
        wrong.add("template.name", text);
    } else if !name.chars().all(is_name) {
        wrong.add(
            "template.name",
            format!("{name:?} is not letters, digits, hyphens and underscores"),
        );
    }
    wrong.normalize_optional("template.tenant", &mut template.tenant, str::parse::<TenantName>);
    wrong.take("template.labels", check::labels(&template.labels));
    wrong.into_result(template)
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')
}

/// Describes an error with its causes, in one line.
pub(crate) fn one_line(error: &template::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    with_suggestion(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Describes an error in the text of a template. A line in it is not one of the file that an operator has.
fn of_data(error: &template::Error) -> String {
    let text = one_line(error);
    let is_place = matches!(error, template::Error::Yaml(_)) && text.contains(" at line ");
    if is_place { format!("{text} of the data") } else { text }
}

/// Replaces the names that an unknown field could have, which the parser lists, by the one that is meant.
fn with_suggestion(text: &str) -> String {
    let unknown = text.split_once("unknown field `").and_then(|(before, rest)| {
        let (field, after) = rest.split_once("`, expected ")?;
        let (names, place) = after.split_at(after.rfind(" at line ").unwrap_or(after.len()));
        let meant = actions::suggest(field, names.split('`').skip(1).step_by(2))?;
        Some(format!("{before}unknown field `{field}`: did you mean `{meant}`?{place}"))
    });
    unknown.unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests;

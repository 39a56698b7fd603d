//! The templates, as the store keeps them.
//!
//! ```text
//! workflow/template/<id>             the record
//! workflow/template-name/<name>      ─▶ id
//! ```
//!
//! Most mistakes are refused here, when a template is created, and not when a machine waits for it. What only rendering
//! can make YAML of is refused then.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::time::SystemTime;

use prost_types::Timestamp;
use store::ScopedStore;
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Index, Kind, Listing, Records};
use tinwright::field_mask;
use tinwright::status::Violations;
use tinwright::workflow::v1 as pb;
use tinwright::{TemplateId, check};

use crate::template::{self, Template};

/// The longest name, in bytes.
const NAME: usize = 200;

/// Why a request about templates failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// There is no such record, it is not as the caller saw it, or it cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

/// The kind of these records.
#[derive(Debug)]
pub enum TemplateKind {}

impl Kind for TemplateKind {
    type Record = pb::Template;
    const NOUN: &'static str = "template";
    const KIND: &'static str = "template";
    const INDEXES: &'static [&'static str] = &["template-name"];

    fn id(template: &pb::Template) -> &str {
        &template.id
    }

    fn revision_mut(template: &mut pb::Template) -> &mut i64 {
        &mut template.revision
    }

    fn indexes(template: &pb::Template) -> Vec<Index> {
        vec![Index::unique("template-name", &template.name)]
    }
}

/// Which template is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The one with this id.
    Id(TemplateId),
    /// The one with this name.
    Name(String),
}

/// The templates.
#[derive(Clone, Debug)]
pub struct Templates {
    records: Records<TemplateKind>,
}

impl Templates {
    /// Those kept in `store`.
    pub fn new(store: ScopedStore) -> Self {
        Self { records: Records::new(store) }
    }

    /// The records underneath.
    pub fn records(&self) -> &Records<TemplateKind> {
        &self.records
    }

    /// Adds a template. Repeating the same `request` answers as the first time.
    pub async fn create(
        &self,
        template: pb::Template,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Template, Error> {
        let template = newborn(checked(template)?)?;
        Ok(self.records.create(&template, Change::default(), request.as_ref()).await?)
    }

    /// The template that is meant.
    pub async fn get(&self, by: &By) -> Result<pb::Template, Error> {
        Ok(match by {
            By::Id(id) => self.records.require(&id.to_string()).await?,
            By::Name(name) => self.records.require_by("template-name", name).await?,
        })
    }

    /// At most `limit` templates after the id `after` that have all of `labels`.
    pub async fn list(
        &self,
        after: &str,
        limit: usize,
        labels: &BTreeMap<String, String>,
    ) -> Result<Listing<pb::Template>, Error> {
        let has = |template: &pb::Template| {
            labels.iter().all(|(key, value)| template.labels.get(key) == Some(value))
        };
        Ok(self.records.list(after, limit, has).await?)
    }

    /// Replaces the fields of a template that `paths` names.
    pub async fn update(
        &self,
        update: pb::Template,
        paths: &[String],
    ) -> Result<pb::Template, Error> {
        let old = self.records.at(&update.id, update.revision).await?;
        let merged = checked(field_mask::merge(&old, &update, paths)?)?;
        let update_time = Some(Timestamp::from(SystemTime::now()));
        Ok(self.records.replace(&old, pb::Template { update_time, ..merged }).await?)
    }

    /// Removes a template. Workflows made from it keep what they were made of.
    pub async fn delete(&self, id: TemplateId, revision: i64) -> Result<(), Error> {
        let old = self.records.at(&id.to_string(), revision).await?;
        self.records.commit(self.records.to_delete(&old)).await?;
        Ok(())
    }
}

/// `template` with its name, if nothing is wrong with it that can be seen before there are values.
fn checked(mut template: pb::Template) -> Result<pb::Template, Violations> {
    let called = if template.name.is_empty() { "template" } else { &template.name };
    let read = Template::parse(called, &template.data).map_err(template::Error::from);
    let definition = match read.and_then(|parsed| parsed.check()) {
        Ok(definition) => Some(definition),
        // Actions outside of quotes: this may be YAML once they are gone.
        Err(template::Error::Yaml(error)) if may_become_yaml(&template.data, &error) => None,
        Err(error) => return Err(Violations::single("template.data", told(&error))),
    };
    let mut wrong = Violations::default();
    if let (true, Some(definition)) = (template.name.is_empty(), &definition) {
        template.name.clone_from(&definition.name);
    }
    let name = &template.name;
    wrong.take("template.name", check::length(name, NAME));
    if name.is_empty() && definition.is_none() {
        wrong.add(
            "template.name",
            "is empty, and cannot be read from the data before it is rendered",
        );
    } else if name.is_empty() || !name.chars().all(is_name) {
        wrong.add(
            "template.name",
            format!("{name:?} is not letters, digits, hyphens and underscores"),
        );
    }
    wrong.take("template.labels", check::labels(&template.labels));
    wrong.into_result(template)
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')
}

/// A key that nobody knows stays unknown whatever the actions around it become.
fn may_become_yaml(text: &str, error: &impl std::fmt::Display) -> bool {
    text.contains("{{") && !error.to_string().contains("unknown field")
}

/// What is wrong with a template, causes included, in one line.
pub(crate) fn told(error: &template::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A record as it is first stored.
fn newborn(mut template: pb::Template) -> Result<pb::Template, Violations> {
    let id = match template.id.as_str() {
        "" => TemplateId::new(),
        given => given.parse().map_err(|reason| Violations::single("template.id", reason))?,
    };
    (template.id, template.revision) = (id.to_string(), 0);
    template.create_time = Some(Timestamp::from(SystemTime::now()));
    template.update_time = template.create_time;
    Ok(template)
}

#[cfg(test)]
mod tests;

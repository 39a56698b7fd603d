//! Hidden values in texts that every viewer sees: the names of a workflow and its actions, and errors.
//!
//! A template may use a value anywhere. Commands and environments are only in full views, names are in all of them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use tinwright::Mac;
use tinwright::hardware::v1 as hw;
use tinwright::secret::Secrets as _;
use tinwright::workflow::v1 as pb;

use crate::template;

/// The text in the place of a hidden value.
const MASK: &str = "***";
/// Shorter words are not hidden: they are in many texts by chance.
const MIN_WORD_BYTES: usize = 6;

/// The words of a workflow's hidden values: those of its caller, and the secrets of its machine.
pub(super) struct HiddenValues {
    /// Longest first: one may be a part of another.
    words: Vec<String>,
}

impl HiddenValues {
    /// Returns the hidden values of a workflow. What every viewer can read is not hidden: the text of `template`, the machine without
    /// its secrets, and addresses.
    pub(super) fn new(
        request: &pb::CreateWorkflowRequest,
        template: &pb::Template,
        machine: &hw::Hardware,
    ) -> Self {
        let mut words = BTreeSet::new();
        add_words(&json(machine), &mut words);
        let mut shown = BTreeSet::new();
        add_words(&json(&machine.clone().without_secrets()), &mut shown);
        words.extend(request.values.values().flat_map(|value| words_of(value)));
        let is_hidden = |word: &String| {
            let is_address = word.parse::<Mac>().is_ok() || word.parse::<IpAddr>().is_ok();
            !is_address && !shown.contains(word) && !template.data.contains(word)
        };
        let mut words: Vec<_> = words.into_iter().filter(is_hidden).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        Self { words }
    }

    /// Returns `text` without hidden values.
    pub(super) fn mask(&self, text: &str) -> String {
        let found = self.words.iter().filter(|word| text.contains(*word));
        found.fold(text.to_owned(), |text, word| text.replace(word, MASK))
    }

    /// Removes hidden values from what every view of `workflow` shows.
    pub(super) fn mask_names(&self, workflow: &mut pb::Workflow) {
        workflow.template_name = self.mask(&workflow.template_name);
        for action in &mut workflow.actions {
            action.name = self.mask(&action.name);
            action.task_name = self.mask(&action.task_name);
            if self.mask(&action.image) != action.image {
                // The last part selects the built-in action.
                action.image = template::short_name(&action.image).to_owned();
            }
        }
    }
}

fn json(machine: &hw::Hardware) -> Value {
    // Writing fails only for a message that is not in the contract.
    tinwright::json::write(machine).unwrap_or_default()
}

/// Adds the words of all texts in `value`.
fn add_words(value: &Value, words: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => words.extend(words_of(text)),
        Value::Array(items) => items.iter().for_each(|item| add_words(item, words)),
        Value::Object(fields) => fields.values().for_each(|field| add_words(field, words)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the words of `text`. YAML and quoted errors write line breaks, quotes and backslashes in other ways.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'));
    words.filter(|word| word.len() >= MIN_WORD_BYTES).map(str::to_owned)
}

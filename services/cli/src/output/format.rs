//! The formats of output.

use clap::builder::{PossibleValue, TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use serde_json::Value;
use serde_json_path::JsonPath;

/// Output formats.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// Table or text, for people
    Table,
    /// Table with whole ids
    Wide,
    /// References such as hardware/node-1, which commands take
    Name,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// Values that an expression of JSONPath selects, one per line
    JsonPath(Box<JsonPath>),
}

/// The words for formats, and what they are.
static WORDS: [(&str, &str, Format); 5] = [
    ("table", "Table or text, for people", Format::Table),
    ("wide", "Table with whole ids and more columns", Format::Wide),
    ("name", "References such as hardware/node-1, which commands take", Format::Name),
    ("json", "One JSON document", Format::Json),
    ("yaml", "One YAML document, which apply takes", Format::Yaml),
];
const JSON_PATH: &str = "jsonpath=";

impl Format {
    /// True for tables.
    pub fn is_for_people(&self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// Renders `value`; as a table, it is YAML.
    pub(super) fn render(&self, value: &Value) -> anyhow::Result<String> {
        Ok(match self {
            Self::Json => serde_json::to_string_pretty(value)?,
            Self::Table | Self::Wide | Self::Name | Self::Yaml => yaml::document(value),
            Self::JsonPath(path) => {
                let text = |value: &Value| value.as_str().map(str::to_owned);
                let selected = path.query(value).all().into_iter();
                let selected = selected.map(|it| text(it).unwrap_or_else(|| it.to_string()));
                selected.collect::<Vec<_>>().join("\n")
            }
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, _, format)) = WORDS.iter().find(|(word, ..)| *word == text) {
            return Ok(format.clone());
        }
        let Some(expression) = text.strip_prefix(JSON_PATH) else {
            let words: Vec<_> = WORDS.iter().map(|(word, ..)| *word).collect();
            let hint = crate::files::form::did_you_mean(text, words.iter().copied());
            return Err(format!("none of {}, {JSON_PATH}EXPRESSION{hint}", words.join(", ")));
        };
        // As kubectl has it: in braces, and without the dollar sign.
        let inner = expression.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        let inner = inner.unwrap_or(expression).trim();
        // Lists of kubectl are objects with items; ours are arrays, and no object has such a field.
        let inner =
            inner.strip_prefix(".items").filter(|rest| rest.starts_with('[')).unwrap_or(inner);
        let dollar = if inner.starts_with('$') { "" } else { "$" };
        let dot = if inner.is_empty() || inner.starts_with(['$', '.', '[']) { "" } else { "." };
        let path = JsonPath::parse(&format!("{dollar}{dot}{inner}"));
        path.map(|path| Self::JsonPath(Box::new(path))).map_err(|error| error.to_string())
    }
}

/// Parses formats, and lists them in help texts and completions.
#[derive(Clone, Debug)]
pub struct FormatParser;

impl ValueParserFactory for Format {
    type Parser = FormatParser;

    fn value_parser() -> FormatParser {
        FormatParser
    }
}

impl TypedValueParser for FormatParser {
    type Value = Format;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Format, clap::Error> {
        let text = value.to_string_lossy();
        Format::parse(&text).map_err(|error| {
            let option = argument.map_or_else(String::new, ToString::to_string);
            let message = format!("invalid value '{text}' for '{option}': {error}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = WORDS.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
        let path = PossibleValue::new("jsonpath=EXPRESSION")
            .help("The values that a JSONPath selects, one per line");
        Some(Box::new(words.chain([path])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_is_written_as_in_kubectl_or_as_in_the_standard() {
        let value = json!([{"name": "a", "ports": [1, 2]}, {"name": "b"}]);
        let selected = |text: &str| Format::parse(text).unwrap().render(&value).unwrap();
        for text in [
            "jsonpath=$[*].name",
            "jsonpath=[*].name",
            "jsonpath={[*].name}",
            "jsonpath={..name}",
            "jsonpath={.items[*].name}",
        ] {
            assert_eq!(selected(text), "a\nb", "{text}");
        }
        assert_eq!(selected("jsonpath={[0].ports[*]}"), "1\n2");
        assert_eq!(selected("jsonpath={[0].ports}"), "[1,2]");
        assert_eq!(selected("jsonpath={[?@.name == 'b'].name}"), "b");
    }

    #[test]
    fn a_wrong_format_is_named_with_the_nearest_one() {
        let wrong = Format::parse("jsn").unwrap_err();
        assert_eq!(
            wrong,
            "none of table, wide, name, json, yaml, jsonpath=EXPRESSION: did you mean json?"
        );
        assert!(Format::parse("jsonpath={.a[}").is_err());
        assert_eq!(Format::parse("wide"), Ok(Format::Wide));
    }
}

//! Objects from YAML and JSON files: several documents in a file, lists, and folders of files.
//!
//! - `split`: the documents of a text.
//! - `positions`: the lines of keys.
//! - `form`: from what people write to the JSON of a message.
//! - `human`: the other way.

pub(crate) mod form;
pub(crate) mod human;
mod positions;
mod split;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde_json::Value;
use tinwright::json;

use crate::input;
use crate::tinkerbell::{self, Conversion, Converted};
use positions::Positions;

/// Extensions of the files that are read in a folder.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// One object of a file.
#[derive(Clone, Debug)]
pub struct Object {
    /// The file, and the line in which the object begins, for errors.
    pub position: String,
    /// Its value; null for a template that is not YAML before it is rendered.
    pub value: Value,
    /// The document that has only this object.
    pub text: Option<String>,
    /// The fields that it replaces in a stored object; all if there are none.
    pub fields: Option<Vec<String>>,
    /// Notes for people, such as the fields that have no place here.
    pub notes: Vec<String>,
    file: String,
    positions: Positions,
}

impl Object {
    /// Returns the kind that it says it is of.
    pub fn kind(&self) -> Option<&str> {
        self.value.get("kind")?.as_str()
    }

    /// Returns a key of the object that is a text.
    pub fn key(&self, name: &str) -> Option<&str> {
        self.value.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    /// Returns the name of the object of `kind` for people: `hardware/node-1`, or only its kind if it has no name.
    pub fn label(&self, kind: &str) -> String {
        const NAMES: [&str; 6] =
            ["name", "hardware_id", "hardware", "hostname", "location_id", "location"];
        let name = NAMES.into_iter().chain(["id"]).find_map(|name| self.key(name));
        let mac = || self.value.pointer("/interfaces/0/mac").and_then(Value::as_str);
        // A template need not be YAML before it is rendered.
        let of_template = || template_name(self.text.as_deref()?);
        match name.or_else(mac).map(str::to_owned).or_else(of_template) {
            Some(name) => format!("{}/{}", kind.to_lowercase(), input::short(&name)),
            None => kind.to_lowercase(),
        }
    }

    /// Returns the object with the value `converted`, which replaces only its own fields in a stored object.
    fn replaced(&self, converted: Converted) -> Self {
        let Converted { value, leftovers, former_name } = converted;
        let keys = value.as_object().into_iter().flat_map(|fields| fields.keys());
        let fields = Some(keys.filter(|key| *key != "kind").cloned().collect());
        let renamed = |name| format!("renamed from {name}: names have no dots here");
        let mut notes: Vec<_> = former_name.map(renamed).into_iter().collect();
        if !leftovers.is_empty() {
            notes.push(format!("no place here for {}", leftovers.join(", ")));
        }
        let (position, file) = (self.position.clone(), self.file.clone());
        Self { position, value, text: None, fields, notes, file, positions: Positions::default() }
    }

    /// Returns the object without these keys.
    pub fn without(&self, keys: &[&str]) -> Self {
        let mut object = self.clone();
        if let Value::Object(fields) = &mut object.value {
            keys.iter().for_each(|key| drop(fields.shift_remove(*key)));
        }
        object
    }

    /// Converts the object into a message. The error names each wrong field with its line.
    pub fn message<M: Message + Name + Default>(&self) -> anyhow::Result<M> {
        let descriptor = descriptor::<M>()?;
        let mut value = self.value.clone();
        if let Value::Object(fields) = &mut value {
            fields.shift_remove("kind");
        }
        let canonical = form::canonical(&descriptor, value);
        let canonical = canonical.map_err(|problems| self.error(&problems))?;
        json::read(canonical).with_context(|| self.position.clone())
    }

    fn error(&self, problems: &[form::Problem]) -> anyhow::Error {
        const SHOWN: usize = 3;
        let text = |problem: &form::Problem| {
            let line = self.positions.line(&problem.path);
            let path = form::path_text(&problem.path);
            let position = line.map_or_else(|| self.position.clone(), |line| self.at(line));
            format!("{position}: {path}{}{}", if path.is_empty() { "" } else { ": " }, problem.text)
        };
        let mut texts: Vec<_> = problems.iter().take(SHOWN).map(text).collect();
        if problems.len() > SHOWN {
            texts.push(format!("{} more", problems.len() - SHOWN));
        }
        anyhow::anyhow!(texts.join("; "))
    }

    fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.file)
    }
}

/// Returns the descriptor of `M`.
pub(crate) fn descriptor<M: Name>() -> anyhow::Result<MessageDescriptor> {
    let name = M::full_name();
    let found = json::pool().and_then(|pool| pool.get_message_by_name(&name));
    found.with_context(|| format!("no message {name} in the contract"))
}

/// Returns `message` with its descriptor.
pub(crate) fn dynamic<M: Message + Name>(message: &M) -> anyhow::Result<DynamicMessage> {
    Ok(DynamicMessage::decode(descriptor::<M>()?, message.encode_to_vec().as_slice())?)
}

/// Returns the files at `path`: itself, or the YAML and JSON files of a folder in the order of their names.
pub fn expand(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in path.read_dir().with_context(|| format!("reading {}", path.display()))? {
        let file = entry.with_context(|| format!("reading {}", path.display()))?.path();
        let is_object =
            file.extension().is_some_and(|it| EXTENSIONS.iter().any(|name| it == *name));
        if is_object && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    anyhow::ensure!(!files.is_empty(), "{} has no files *.yaml, *.yml or *.json", path.display());
    Ok(files)
}

/// Reads all objects in `paths`, files and folders. Converts objects of Tinkerbell. An error stands
/// for each document that cannot be read.
pub fn read_all(paths: &[PathBuf]) -> Vec<anyhow::Result<Object>> {
    let mut read = Vec::new();
    for path in paths {
        match expand(path) {
            Ok(files) => files.iter().for_each(|file| match read_file(file) {
                Ok((name, text)) => read.extend(parse_each(&name, &text)),
                Err(error) => read.push(Err(error)),
            }),
            Err(error) => read.push(Err(error)),
        }
    }
    converted(read)
}

/// Replaces objects of Tinkerbell by ours.
fn converted(read: Vec<anyhow::Result<Object>>) -> Vec<anyhow::Result<Object>> {
    let values: Vec<_> = read.iter().flatten().map(|object| &object.value).collect();
    let mut conversions = tinkerbell::convert_all(&values).into_iter();
    let ours = |object: anyhow::Result<Object>| {
        let object = match object {
            Ok(object) => object,
            Err(error) => return vec![Err(error)],
        };
        match conversions.next() {
            Some(Err(error)) => vec![Err(error.context(object.position))],
            Some(Ok(Conversion::Converted(all))) => {
                all.into_iter().map(|it| Ok(object.replaced(it))).collect()
            }
            Some(Ok(Conversion::Own)) | None => vec![Ok(object)],
        }
    };
    read.into_iter().flat_map(ours).collect()
}

/// Reads all objects in the file at `path`; standard input for `-`.
pub fn objects(path: &Path) -> anyhow::Result<Vec<Object>> {
    let (name, text) = read_file(path)?;
    parse(&name, &text)
}

/// Returns the name of the file at `path` for errors, and its text.
fn read_file(path: &Path) -> anyhow::Result<(String, String)> {
    let name = if path == Path::new("-") { "stdin".into() } else { path.display().to_string() };
    Ok((name, input::text(path)?))
}

/// Parses all objects in `text` of the file `file`.
pub fn parse(file: &str, text: &str) -> anyhow::Result<Vec<Object>> {
    parse_each(file, text).into_iter().collect()
}

/// Parses the objects in `text` of the file `file`. An error stands for a document that cannot be read.
fn parse_each(file: &str, text: &str) -> Vec<anyhow::Result<Object>> {
    let mut objects = Vec::new();
    for document in split::documents(text) {
        match of_document(file, &document) {
            Ok(read) => objects.extend(read.into_iter().map(Ok)),
            Err(error) => objects.push(Err(error)),
        }
    }
    if objects.is_empty() {
        objects.push(Err(anyhow::anyhow!("{file}: no object in it")));
    }
    objects
}

/// True for a template itself, which need not be YAML before it is rendered.
fn is_template(value: &Value) -> bool {
    value.is_null() || (value.get("tasks").is_some() && value.get("kind").is_none())
}

fn of_document(file: &str, document: &split::Document) -> anyhow::Result<Vec<Object>> {
    let object = |value: Value, text, positions: Positions| {
        let line = positions.first_line().unwrap_or(document.first_line);
        let position = format!("{file}:{line}");
        // A template's own text says nothing of its labels.
        let fields = is_template(&value).then(|| vec!["data".to_owned()]);
        let notes = Vec::new();
        Object { position, value, text, fields, notes, file: file.to_owned(), positions }
    };
    let values = match split::values(&document.text) {
        Ok(values) => values,
        Err(_) if split::is_unrendered_template(&document.text) => {
            let text = Some(document.text.clone());
            return Ok(vec![object(Value::Null, text, Positions::default())]);
        }
        Err(error) => return Err(not_yaml(file, document, error)),
    };
    let positions = positions::of(&document.text, document.first_line);
    if let Some((line, key)) = positions.iter().find_map(Positions::duplicate) {
        anyhow::bail!("{file}:{line}: {} is given twice", input::short(key));
    }
    let text = (values.len() == 1).then(|| document.text.clone());
    let positions = positions.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    let objects = values.into_iter().zip(positions);
    let each = objects.map(|(value, it)| object(value, text.clone(), it.unwrap_or_default()));
    Ok(each.collect())
}

/// Returns the error of a document that is not YAML.
fn not_yaml(file: &str, document: &split::Document, error: yaml_serde::Error) -> anyhow::Error {
    // Read again after as many empty lines, all lines in the error are those of the file.
    let text = "\n".repeat(document.first_line.saturating_sub(1)) + &document.text;
    let error = split::values(&text).err().unwrap_or(error);
    let line = error.location().map_or(document.first_line, |location| location.line());
    // What is missing at the end is missing after the last line.
    let line = line.min(text.lines().count());
    let text = without_places(&error.to_string().replace('\n', " "));
    anyhow::anyhow!("{file}:{line}: not YAML: {text}")
}

/// Returns the text of an error of YAML without its places: ` at line 2 column 1`.
fn without_places(text: &str) -> String {
    let mut parts = text.split(" at line ");
    let mut without = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let rest = rest.strip_prefix(" column ").unwrap_or(rest);
        without.push_str(rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    without
}

/// Returns the name at the top level of a template, which need not be YAML before it is rendered; none if it has a placeholder.
pub(crate) fn template_name(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.strip_prefix("name:"))?;
    let name = name.split(" #").next()?.trim().trim_matches(|it| it == '"' || it == '\'');
    (!name.is_empty() && !name.contains("{{")).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tinwright::hardware::v1::Hardware;

    fn names(text: &str) -> Vec<(String, String)> {
        let object = |it: Object| (it.value["name"].as_str().unwrap_or("").to_owned(), it.position);
        parse("a.yaml", text).unwrap().into_iter().map(object).collect()
    }

    #[test]
    fn documents_and_lists_are_split_into_objects_with_their_lines() {
        let at = |name: &str, line: usize| (name.to_owned(), format!("a.yaml:{line}"));
        assert_eq!(names("name: a\n---\n\nname: b\n"), [at("a", 1), at("b", 4)]);
        assert_eq!(names("# x\n- name: a\n- name: b\n"), [at("a", 2), at("b", 3)]);
        assert_eq!(names(r#"[{"name": "a"}, {"name": "b"}]"#), [at("a", 1), at("b", 1)]);
        assert_eq!(names("kind: List\nitems:\n- name: a\n- name: b\n"), [at("a", 3), at("b", 4)]);
        assert_eq!(names("\u{feff}name: a\n"), [at("a", 1)], "a byte order mark");
        assert!(parse("a.yaml", "# nothing\n---\n").is_err());
    }

    #[test]
    fn a_wrong_field_is_named_with_its_line_and_the_nearest_name() {
        let text = "name: a\n---\nname: b\ninterfaces:\n  - mac: 02:00:00:00:00:01\n    dchp: {}\n";
        let objects = parse("a.yaml", text).unwrap();
        let error = objects[1].message::<Hardware>().unwrap_err().to_string();
        assert_eq!(error, "a.yaml:6: interfaces[0].dchp: unknown field: did you mean dhcp?");
    }

    #[test]
    fn text_that_is_not_yaml_is_an_error_with_its_line_unless_it_is_a_template() {
        let error = parse("a.yaml", "name: a\n---\nname: [\n").unwrap_err().to_string();
        assert!(error.starts_with("a.yaml:3: not YAML:"), "{error}");
        assert!(!error.contains(" line "), "{error}");
        let template = "name: x\ntasks:\n{{ range .all }}\n  - {{ . }}\n{{ end }}\n";
        let objects = parse("a.yaml", template).unwrap();
        assert_eq!(objects[0].text.as_deref(), Some(template));
    }

    #[test]
    fn a_folder_is_its_yaml_and_json_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.json", "user-data", "c.toml"] {
            std::fs::write(folder.path().join(name), "name: a").unwrap();
        }
        let names: Vec<_> = expand(folder.path()).unwrap();
        let names: Vec<_> = names.iter().map(|it| it.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["a.json", "b.yaml"]);
        std::fs::remove_file(folder.path().join("b.yaml")).unwrap();
        std::fs::remove_file(folder.path().join("a.json")).unwrap();
        assert!(expand(folder.path()).is_err(), "no files");
    }
}

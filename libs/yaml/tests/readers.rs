//! What other programs read in our documents: PyYAML here, Ruby's Psych, go-yaml and npm's yaml in
//! a recording.
//!
//! `readers/corpus.json` has texts that readers understand differently, and values that contain
//! them. `readers/record.sh` runs the readers that are not here, and stores what they read:
//!
//! - in `readers/<reader>.json` the values of our documents;
//! - in `readers/misread.json` what readers made of texts without quotes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// The variable with the folder of the readers, if they are to be recorded.
const VARIABLE: &str = "RECORD_READERS";

/// A reader in the recording: its name, and the words of its command. The first one is a program in
/// the folder of the readers, or in a folder of PATH.
type Reader = (&'static str, &'static [&'static str]);

const RECORDED: [Reader; 5] = [
    ("psych", &["ruby", "read.rb"]),
    ("go-yaml-v2", &["go-yaml-v2"]),
    ("go-yaml-v3", &["go-yaml-v3"]),
    ("npm-yaml-1.1", &["node", "read.mjs", "1.1"]),
    ("npm-yaml-1.2", &["node", "read.mjs", "1.2"]),
];

/// Number of random values that PyYAML reads.
const RANDOM_VALUES: usize = 2000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers")
}

fn stored(file: &str) -> Value {
    let text = fs::read_to_string(folder().join(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Stores JSON with each of `parts` on a line of its own.
fn store(file: &str, [open, close]: [&str; 2], parts: impl Iterator<Item = String>) {
    let parts: Vec<_> = parts.collect();
    let text = format!("{open}\n{}\n{close}\n", parts.join(",\n"));
    fs::write(folder().join(file), text).unwrap();
}

fn corpus() -> Vec<Value> {
    stored("corpus.json").as_array().unwrap().clone()
}

/// Returns a value that has `value` as that of a key, as an item of lists, and as a key if it is a
/// text.
fn surrounded(value: &Value) -> Value {
    let key = value.as_str().unwrap_or("key");
    json!({ "value": value, "list": [value, [value]], "keys": { key: value } })
}

/// Has a program read YAML: it gets a JSON array of `texts`, and prints one of their values.
fn read(mut command: Command, texts: &[String]) -> Vec<Value> {
    command.current_dir(folder()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(json!(texts).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}");
    let values: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(values.len(), texts.len(), "{command:?}");
    values
}

/// Returns the command of PyYAML with this loader, in the environment of cloud-init's tests.
fn pyyaml(loader: &str) -> Command {
    let peers = setup::peers("services/metadata/tests/peers.sh").unwrap();
    let mut command = Command::new(peers.join("metadata-venv/bin/python"));
    command.args(["read.py", loader]);
    command
}

/// True if the values are the same; `1.0` and `1` are the same number.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        // JSON's reader is wrong in the last digit at times, and JSON of JavaScript has no -0.0.
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= a.abs() * 1e-14
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let is_in_b = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| is_same(a, b));
            a.len() == b.len() && a.iter().all(is_in_b)
        }
        (a, b) => a == b,
    }
}

/// Requires that a reader has read `values` in the documents with these values.
fn check(reader: &str, values: &[Value], read: &[Value]) {
    let pairs = values.iter().zip(read);
    let wrong: Vec<_> = pairs.filter(|(value, read)| !is_same(value, read)).collect();
    assert!(wrong.is_empty(), "{reader} reads {} values otherwise: {wrong:?}", wrong.len());
    assert_eq!(values.len(), read.len(), "{reader}: record again by readers/record.sh");
}

/// Returns the digest of our documents of the corpus: a recording is of these.
fn digest(texts: &[String]) -> String {
    let digest = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut digest = digest.unwrap();
    digest.stdin.take().unwrap().write_all(texts.concat().as_bytes()).unwrap();
    let output = digest.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// Returns the corpus inside of other values, and our documents of it.
fn documents() -> (Vec<Value>, Vec<String>) {
    let values: Vec<_> = corpus().iter().map(surrounded).collect();
    let texts = values.iter().map(yaml::document).collect();
    (values, texts)
}

/// Runs the readers in `programs`, and stores what they read.
fn record(programs: &Path) {
    let (values, texts) = documents();
    for (name, words) in RECORDED {
        let found = read(command(programs, words), &texts);
        check(name, &values, &found);
        let answers = found.iter().map(|found| found["value"].to_string());
        store(&format!("{name}.json"), ["[", "]"], answers);
    }
    let misread = misread(programs).into_iter();
    let lines = misread.map(|(text, answers)| format!("{}: {}", json!(text), json!(answers)));
    store("misread.json", ["{", "}"], lines);
    fs::write(folder().join("documents.sha256"), digest(&texts) + "\n").unwrap();
}

/// Returns the texts that some reader takes for something else if they have no quotes, with what
/// each of these readers makes of them.
fn misread(programs: &Path) -> BTreeMap<String, BTreeMap<&'static str, Value>> {
    let corpus = corpus();
    let texts = corpus.iter().filter_map(Value::as_str);
    let texts: Vec<_> = texts.filter(|text| !text.contains(['\n', '\r'])).collect();
    let documents: Vec<_> = texts.iter().map(|text| format!("k: {text}\n")).collect();
    let recorded = RECORDED.map(|(name, words)| (name, command(programs, words)));
    let readers = recorded.into_iter().chain([("pyyaml", pyyaml("SafeLoader"))]);
    let mut misread: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
    for (name, command) in readers {
        for (text, found) in texts.iter().zip(read(command, &documents)) {
            if found != json!({ "k": text }) {
                let found = found.get("k").cloned().unwrap_or(found);
                misread.entry((*text).to_owned()).or_default().insert(name, found);
            }
        }
    }
    misread
}

fn command(programs: &Path, words: &[&str]) -> Command {
    let own = programs.join(words[0]);
    let mut command = Command::new(if own.exists() { own } else { words[0].into() });
    command.args(&words[1..]);
    command
}

#[test]
fn recorded_readers_read_the_corpus_unchanged() {
    if let Some(programs) = std::env::var_os(VARIABLE) {
        record(Path::new(&programs));
    }
    let recorded = fs::read_to_string(folder().join("documents.sha256")).unwrap();
    let is_recorded = recorded.trim() == digest(&documents().1);
    assert!(is_recorded, "documents have changed: record again by readers/record.sh");
    for (reader, _) in RECORDED {
        let answers = stored(&format!("{reader}.json"));
        check(reader, &corpus(), answers.as_array().unwrap());
    }
}

#[test]
fn a_text_that_a_recorded_reader_misreads_has_quotes() {
    let misread = stored("misread.json");
    let misread = misread.as_object().unwrap();
    assert!(misread.len() > 100, "the recording is not empty");
    for text in misread.keys() {
        let document = yaml::document(&json!({ "k": text }));
        let has_quotes = ["k: \"", "k: '", "k: |"].iter().any(|start| document.starts_with(start));
        assert!(has_quotes, "{document}");
    }
}

#[test]
fn pyyaml_reads_the_corpus_unchanged() {
    let (values, texts) = documents();
    for loader in ["SafeLoader", "CSafeLoader"] {
        check(loader, &values, &read(pyyaml(loader), &texts));
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let number_like = "[+-]?(0[xob])?[0-9a-f_,.:]{0,8}([eE][+-]?[0-9])?|[0-9:.T -]{0,12}";
    let word = "[a-zA-Z~=<.]{0,5}|[yYnNoOfFtTrRuUeEsSlLaA]{1,5}";
    let structure = "[-?:,#&*!|>'\"%@`{}\\[\\] \t\na]{0,6}";
    let text = prop_oneof![number_like, word, structure, any::<String>()];
    let integer = -9_007_199_254_740_991_i64..=9_007_199_254_740_991;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        integer.prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

#[test]
fn pyyaml_reads_random_values_unchanged() {
    let mut runner = TestRunner::default();
    let strategy = any_value();
    let values: Vec<_> =
        (0..RANDOM_VALUES).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    let texts: Vec<_> = values.iter().map(yaml::document).collect();
    for loader in ["SafeLoader", "CSafeLoader"] {
        check(loader, &values, &read(pyyaml(loader), &texts));
    }
}

//! The files of a recording: what a program sent, received and stored, and what that means.
//!
//! ```text
//! calls.jsonl       one call of each path in a line: its path, caller, requests and responses
//! reads.jsonl       further calls, which return the objects that the store has, without `json`
//! contract.txt      every message, enumeration and service
//! store.backup.gz   the store, as `tinwright store backup` writes it, compressed
//! secrets/          the keys of the site that the store belongs to
//! records.jsonl     values of the store by key: of each kind one in each state
//! ```
//!
//! A message is an object with its `bytes` in base64 and their meaning, `json`.

use std::collections::BTreeSet;
use std::path::Path;

use prost_reflect::prost::bytes::Bytes;
use prost_reflect::{DescriptorPool, MessageDescriptor};
use serde_json::{Value, json};
use tinwright::workflow::v1::AppendLogRequest;

use super::client::{decoded, method};

pub(crate) const CALLS: &str = "calls.jsonl";
pub(crate) const READS: &str = "reads.jsonl";
pub(crate) const CONTRACT: &str = "contract.txt";
pub(crate) const RECORDS: &str = "records.jsonl";
pub(crate) const BACKUP: &str = "store.backup.gz";
pub(crate) const SECRETS: &str = "secrets";

/// A call with its messages.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCall {
    /// Its service and name: `tinwright.power.v1.PowerService/GetBmc`.
    pub(crate) path: String,
    pub(crate) caller: String,
    pub(crate) requests: Vec<Bytes>,
    pub(crate) responses: Vec<Bytes>,
}

impl RecordedCall {
    /// Returns the line of the call, with the meaning that its messages have by `pool`.
    pub(crate) fn line(&self, pool: &DescriptorPool) -> Value {
        let method = method(pool, &self.path);
        let of = |message: MessageDescriptor, all: &[Bytes]| -> Vec<Value> {
            let line = |it: &Bytes| json!({"bytes": base64(it), "json": decoded(&message, it)});
            all.iter().map(line).collect()
        };
        json!({
            "call": self.path,
            "caller": self.caller,
            "requests": of(method.input(), &self.requests),
            "responses": of(method.output(), &self.responses),
        })
    }

    /// Returns the line of the call, without the meaning of its messages.
    pub(crate) fn bytes(&self) -> Value {
        let of = |all: &[Bytes]| -> Vec<Value> {
            all.iter().map(|it| json!({"bytes": base64(it)})).collect()
        };
        json!({
            "call": self.path,
            "caller": self.caller,
            "requests": of(&self.requests),
            "responses": of(&self.responses),
        })
    }

    /// Reads the call of `line`.
    pub(crate) fn read(line: &Value) -> Self {
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        let messages = |key: &str| -> Vec<Bytes> {
            line[key].as_array().unwrap().iter().map(|it| from_base64(&it["bytes"])).collect()
        };
        Self {
            path: text("call"),
            caller: text("caller"),
            requests: messages("requests"),
            responses: messages("responses"),
        }
    }
}

/// Returns the first call of each path.
pub(crate) fn first_of_each(calls: Vec<RecordedCall>) -> impl Iterator<Item = RecordedCall> {
    let mut paths = BTreeSet::new();
    calls.into_iter().filter(move |call| paths.insert(call.path.clone()))
}

/// Writes `lines` to the file `name` in `folder`.
pub(crate) fn write(folder: &Path, name: &str, lines: impl IntoIterator<Item = Value>) {
    let text: String = lines.into_iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(folder.join(name), text).unwrap();
}

/// Returns the lines of the file `name` in `folder`.
pub(crate) fn read(folder: &Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the calls in the file `name` in `folder`.
pub(crate) fn read_calls(folder: &Path, name: &str) -> Vec<RecordedCall> {
    read(folder, name).iter().map(RecordedCall::read).collect()
}

/// Returns `bytes` as JSON has them.
pub(crate) fn base64(bytes: &[u8]) -> Value {
    let message = AppendLogRequest { data: bytes.to_vec(), ..Default::default() };
    tinwright::json::write(&message).unwrap()["data"].clone()
}

fn from_base64(text: &Value) -> Bytes {
    let message: AppendLogRequest = tinwright::json::read(json!({"data": text})).unwrap();
    message.data.into()
}

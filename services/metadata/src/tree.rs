//! The EC2 tree: one table of path → value, and the listings derived from it.
//!
//! ```text
//! /                                versions
//! /V/                              dynamic  meta-data  user-data
//! /V/meta-data/…                   meta_data, placement and the like; interfaces; keys; tags
//! /V/dynamic/…                     identity, signed
//! ```
//!
//! A name is listed exactly when fetching it finds something, because a client that is sent to a 404 by a listing
//! (cloud-init) throws away the rest as well. That holds by construction: a listing asks the rows, as a fetch does.

mod identity;
mod interfaces;
mod keys;
mod meta_data;
mod row;
pub mod signed;
mod tags;
mod version;

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::machine::Machine;
pub(crate) use identity::seconds;
use row::Row;
use signed::{Form, Signer};
use version::Version;

/// Every row of the tree. Its paths begin below the version; a `*` is any one name the row knows.
const TABLE: [&[Row]; 6] =
    [meta_data::ROWS, interfaces::ROWS, keys::ROWS, tags::ROWS, identity::ROWS, USER_DATA];

const USER_DATA: &[Row] = &[Row::leaf("user-data", |m| m.user_data().map(Body::octets))];

/// What a path answers.
#[derive(Clone, PartialEq, Eq)]
pub struct Body {
    /// Exactly the bytes to send; a text has no final newline.
    pub bytes: Bytes,
    /// What they are.
    pub kind: Kind,
}

/// What a body's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// The owner's bytes, of no known kind.
    Octets,
    /// A JSON value.
    Json,
    /// YAML.
    Yaml,
    /// A text, to be signed in this way before it is told.
    ToSign(Form),
}

// Bodies hold secrets; see `UserData`.
impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of {:?}", self.bytes.len(), self.kind)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self { bytes: text.into(), kind: Kind::Text }
    }
}

/// What `machine` finds at `path`, or `None` if there is nothing. Without a signer there is nothing signed.
pub fn get(machine: &Machine, path: &[&str], signer: Option<&Signer>) -> Option<Body> {
    let Some((version, below)) = path.split_first() else {
        return Some(Version::listing().into());
    };
    let asked = Asked { version: Version::find(version)?, signed: signer.is_some() };
    let body = match below {
        [] => top(machine, asked).into(),
        _ => leaf(machine, asked, below).or_else(|| directory(machine, asked, below))?,
    };
    match body.kind {
        Kind::ToSign(form) => signer?.sign(&body.bytes, form).map(Body::from),
        Kind::Text | Kind::Octets | Kind::Json | Kind::Yaml => Some(body),
    }
}

/// Which tree is asked: of which version, and whether it has what is signed.
#[derive(Clone, Copy)]
struct Asked {
    version: Version,
    signed: bool,
}

/// Whether a version of the tree has this name.
pub fn is_version(name: &str) -> bool {
    Version::find(name).is_some()
}

/// Whether what stands at `path` must not be told to somebody who asks through the machine (specification, M2a).
pub fn is_secret(path: &[&str]) -> bool {
    matches!(path, [_, "user-data", ..] | [_, "meta-data", "public-keys", ..])
}

fn rows(asked: Asked) -> impl Iterator<Item = &'static Row> {
    TABLE.into_iter().flatten().filter(move |row| row.is_in(asked.version, asked.signed))
}

fn leaf(machine: &Machine, asked: Asked, path: &[&str]) -> Option<Body> {
    rows(asked).find_map(|row| row.get(machine, path))
}

fn directory(machine: &Machine, asked: Asked, path: &[&str]) -> Option<Body> {
    let names = names_in(machine, asked, path);
    (!names.is_empty()).then(|| lines(names).into())
}

/// Sorted bytewise, each once.
fn names_in(machine: &Machine, asked: Asked, path: &[&str]) -> BTreeSet<String> {
    rows(asked).flat_map(|row| row.names_in(machine, path)).collect()
}

/// As EC2 has it, directories have no slash at the top. Tinkerbell's version has `dynamic/`, but never listed it.
fn top(machine: &Machine, asked: Asked) -> String {
    let names = names_in(machine, asked, &[]);
    let names = names.iter().map(|name| name.trim_end_matches('/'));
    lines(names.filter(|name| !(asked.version.is_tinkerbell() && *name == "dynamic")))
}

/// One a line, no final newline.
fn lines<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let mut text = String::new();
    for name in names {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(name.as_ref());
    }
    text
}

#[cfg(test)]
mod tests;

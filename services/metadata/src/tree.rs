//! The EC2 tree: one table of path → value, and the listings derived from it.
//!
//! ```text
//! /                                versions
//! /V/                              dynamic  meta-data  user-data
//! /V/meta-data/…                   meta_data, placement and the like; interfaces; keys; tags
//! /V/dynamic/…                     identity
//! ```
//!
//! A name is listed exactly when fetching it finds something, because a client that is sent to a 404 by a listing
//! (cloud-init) throws away the rest as well. That holds by construction: a listing asks the rows, as a fetch does.

mod identity;
mod interfaces;
mod keys;
mod meta_data;
mod row;
mod tags;
mod version;

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::machine::Machine;
use crate::path::Path;
use row::Row;
use version::Version;

/// Every row of the tree. Its paths begin below the version; a `*` is any one name the row knows.
const TABLE: [&[Row]; 6] =
    [meta_data::ROWS, interfaces::ROWS, keys::ROWS, tags::ROWS, identity::ROWS, USER_DATA];

const USER_DATA: &[Row] = &[Row::leaf("user-data", |m| {
    let user_data = &m.instance.as_ref()?.user_data.0;
    (!user_data.is_empty()).then(|| Body { bytes: user_data.clone(), kind: Kind::Octets })
})];

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

/// What `machine` finds at `path`, or `None` if there is nothing.
pub fn get(machine: &Machine, path: &Path) -> Option<Body> {
    let segments = path.segments();
    let Some((version, below)) = segments.split_first() else {
        return Some(Version::listing().into());
    };
    let version = Version::find(version)?;
    match below {
        [] => Some(top(machine, version).into()),
        _ => leaf(machine, version, below).or_else(|| directory(machine, version, below)),
    }
}

/// Whether what stands at `path` must not be told to somebody who asks through the machine (specification, M2a).
pub fn is_secret(path: &Path) -> bool {
    matches!(path.segments()[..], [_, "user-data", ..] | [_, "meta-data", "public-keys", ..])
}

fn rows(version: Version) -> impl Iterator<Item = &'static Row> {
    TABLE.into_iter().flatten().filter(move |row| row.is_in(version))
}

fn leaf(machine: &Machine, version: Version, path: &[&str]) -> Option<Body> {
    rows(version).find_map(|row| row.get(machine, path))
}

fn directory(machine: &Machine, version: Version, path: &[&str]) -> Option<Body> {
    let names = names_in(machine, version, path);
    (!names.is_empty()).then(|| lines(names).into())
}

/// Sorted bytewise, each once.
fn names_in(machine: &Machine, version: Version, path: &[&str]) -> BTreeSet<String> {
    rows(version).flat_map(|row| row.names_in(machine, path)).collect()
}

/// As EC2 has it, directories have no slash at the top. Tinkerbell's version has `dynamic/`, but never listed it.
fn top(machine: &Machine, version: Version) -> String {
    let names = names_in(machine, version, &[]);
    let names = names.iter().map(|name| name.trim_end_matches('/'));
    lines(names.filter(|name| !(version.is_tinkerbell() && *name == "dynamic")))
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

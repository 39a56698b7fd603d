//! The EC2 tree: one table of path → value, and the listings derived from it.
//!
//! ```text
//! /                                versions
//! /V/                              dynamic  meta-data  user-data
//! /V/meta-data/…                   meta_data, placement and the like; interfaces; keys; tags
//! /V/dynamic/…                     identity, signed
//! ```
//!
//! `docs/reference/ec2-metadata.md` has the whole table. A name is listed exactly when fetching it finds something, because
//! cloud-init discards everything if a listed name answers 404. Listings and fetches use the same rows, so they agree.

mod identity;
mod interfaces;
mod keys;
mod meta_data;
mod row;
pub mod signed;
mod tags;
mod version;

use std::borrow::Borrow;
use std::collections::BTreeSet;

use bytes::Bytes;

use crate::machine::Machine;
pub(crate) use identity::seconds;
use row::Row;
use signed::{Form, Signer};
use version::Dialect;

/// Every row of the tree. Its paths begin below the version; a `*` is any name that the row lists.
const TABLE: [&[Row]; 6] =
    [meta_data::ROWS, interfaces::ROWS, keys::ROWS, tags::ROWS, identity::ROWS, USER_DATA];

const USER_DATA: &[Row] = &[Row::leaf("user-data", |m| m.user_data().map(Body::octets))];

/// The body of a response.
#[derive(Clone, PartialEq, Eq)]
pub struct Body {
    /// Exactly the bytes to send; a text has no final newline.
    pub bytes: Bytes,
    /// The type of the bytes.
    pub kind: Kind,
}

/// The type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// The owner's bytes, of unknown type.
    Octets,
    /// A JSON value.
    Json,
    /// YAML.
    Yaml,
    /// A text that is replaced by its signature of this form.
    ToSign(Form),
}

// Bodies contain secrets, see `UserData`.
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

/// Returns the value or listing at `path` for `machine`, if there is one. Without a signer there are no signatures.
pub fn get(machine: &Machine, path: &[&str], signer: Option<&Signer>) -> Option<Body> {
    let Some((version, below)) = path.split_first() else {
        return Some(version::LISTING.to_owned().into());
    };
    let view =
        TreeView { machine, dialect: Dialect::of_version(version)?, signed: signer.is_some() };
    let body = match below {
        [] => view.root().into(),
        _ => view.leaf(below).or_else(|| view.directory(below))?,
    };
    match body.kind {
        Kind::ToSign(form) => signer?.sign(&body.bytes, form).map(Body::from),
        Kind::Text | Kind::Octets | Kind::Json | Kind::Yaml => Some(body),
    }
}

/// True if the tree has a version of this name.
pub fn is_version(name: &str) -> bool {
    Dialect::of_version(name).is_some()
}

/// True if `path` is secret: see `docs/reference/ec2-metadata.md`.
pub fn is_secret(path: &[&str]) -> bool {
    matches!(path, [_, "user-data", ..] | [_, "meta-data", "public-keys", ..])
}

/// The tree of one machine in one dialect, with or without signatures.
#[derive(Clone, Copy)]
struct TreeView<'a> {
    machine: &'a Machine,
    dialect: Dialect,
    signed: bool,
}

impl TreeView<'_> {
    fn rows(self) -> impl Iterator<Item = &'static Row> {
        TABLE.into_iter().flatten().filter(move |row| row.is_in(self.dialect, self.signed))
    }

    fn leaf(self, path: &[&str]) -> Option<Body> {
        self.rows().find_map(|row| row.get(self.machine, path))
    }

    fn directory(self, path: &[&str]) -> Option<Body> {
        let names = self.names_in(path);
        (!names.is_empty()).then(|| lines(names).into())
    }

    /// Returns the names in the directory `path`, in bytewise order.
    fn names_in(self, path: &[&str]) -> BTreeSet<String> {
        self.rows().flat_map(|row| row.names_in(self.machine, path)).collect()
    }

    /// Lists a version. As in EC2, directories have no slash here. Tinkerbell's version has `dynamic/`, but does not list it.
    fn root(self) -> String {
        let names = self.names_in(&[]);
        let names = names.iter().map(|name| name.trim_end_matches('/'));
        lines(names.filter(|name| self.dialect == Dialect::Ec2 || *name != "dynamic"))
    }
}

/// Joins `names` with newlines.
fn lines<S: Borrow<str>>(names: impl IntoIterator<Item = S>) -> String {
    names.into_iter().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;

//! A row of the tree's table: a path pattern and the function that returns its value.

use super::Body;
use super::version::Dialect;
use crate::machine::{Machine, Nic};

/// The names in place of a pattern's `*`s, left to right.
pub(super) type Stars<'a> = &'a [&'a str];

/// A path pattern and its value.
#[derive(Debug)]
pub(super) struct Row {
    path: &'static str,
    value: Value,
    only: Option<Dialect>,
    signed: bool,
}

#[derive(Debug)]
enum Value {
    One(fn(&Machine) -> Option<Body>),
    Each { names: fn(&Machine, Stars) -> Vec<String>, get: fn(&Machine, Stars) -> Option<Body> },
    EachNic(fn(&Machine, &Nic) -> Option<Body>),
    Listing(fn(&Machine) -> Option<Body>),
}

/// Returns a text as a body; none if it is empty, which means unknown.
pub(super) fn text(text: impl ToString) -> Option<Body> {
    let text = text.to_string();
    (!text.is_empty()).then(|| text.into())
}

impl Row {
    const fn new(path: &'static str, value: Value) -> Self {
        Self { path, value, only: None, signed: false }
    }

    /// One value of the machine.
    pub(super) const fn leaf(path: &'static str, get: fn(&Machine) -> Option<Body>) -> Self {
        Self::new(path, Value::One(get))
    }

    /// One value for each name of a `*`. `names` gets the names in place of the stars before it.
    pub(super) const fn each(
        path: &'static str,
        names: fn(&Machine, Stars) -> Vec<String>,
        get: fn(&Machine, Stars) -> Option<Body>,
    ) -> Self {
        Self::new(path, Value::Each { names, get })
    }

    /// One value for each interface that is in use; the `*` is its MAC.
    pub(super) const fn nic(path: &'static str, get: fn(&Machine, &Nic) -> Option<Body>) -> Self {
        Self::new(path, Value::EachNic(get))
    }

    /// A directory with a listing of its own, instead of the names in it.
    pub(super) const fn listing(path: &'static str, get: fn(&Machine) -> Option<Body>) -> Self {
        Self::new(path, Value::Listing(get))
    }

    /// Limits the row to sites that sign documents.
    pub(super) const fn signed(mut self) -> Self {
        self.signed = true;
        self
    }

    /// Limits the row to one dialect.
    pub(super) const fn only(mut self, dialect: Dialect) -> Self {
        self.only = Some(dialect);
        self
    }

    /// Returns its path and the mark in the column "only in" of `docs/reference/ec2-metadata.md`.
    #[cfg(test)]
    pub(super) fn reference(&self) -> (String, String) {
        let only = match self.only {
            Some(Dialect::Tinkerbell) => "Tinkerbell",
            Some(Dialect::Ec2) => "EC2",
            None if self.signed => "signed",
            None => "",
        };
        (self.path.to_owned(), only.to_owned())
    }

    /// True if a tree in `dialect`, with signatures if `signed`, has this row.
    pub(super) fn is_in(&self, dialect: Dialect, signed: bool) -> bool {
        (signed || !self.signed) && self.only.is_none_or(|only| only == dialect)
    }

    /// Returns the value at `path`, if it is one of this row's.
    pub(super) fn get(&self, machine: &Machine, path: &[&str]) -> Option<Body> {
        let (stars, rest) = self.match_prefix(path)?;
        if !rest.is_empty() {
            return None;
        }
        match self.value {
            Value::One(get) | Value::Listing(get) => get(machine),
            Value::Each { get, .. } => get(machine, &stars),
            Value::EachNic(get) => get(machine, nic(machine, &stars)?),
        }
    }

    /// Returns the names that this row puts into the directory `dir`: of a leaf, or of a subdirectory with its slash.
    pub(super) fn names_in(&self, machine: &Machine, dir: &[&str]) -> Vec<String> {
        let Some((stars, rest)) = self.match_prefix(dir) else { return Vec::new() };
        let Some((next, rest)) = rest.split_first() else { return Vec::new() };
        let names = match self.value {
            Value::Listing(_) => return Vec::new(),
            Value::Each { names, .. } if *next == "*" => names(machine, &stars),
            Value::EachNic(_) if *next == "*" => macs(machine),
            Value::One(_) | Value::Each { .. } | Value::EachNic(_) => vec![(*next).to_owned()],
        };
        let exists = |name: &String| {
            let path = [dir, &[name.as_str()]].concat();
            match rest {
                [] => self.get(machine, &path).is_some(),
                _ => !self.names_in(machine, &path).is_empty(),
            }
        };
        let slash = if rest.is_empty() { "" } else { "/" };
        names.into_iter().filter(exists).map(|name| name + slash).collect()
    }

    /// If the pattern begins with `path`: the names in place of its stars there, and the rest of the pattern.
    fn match_prefix<'p>(&self, path: &[&'p str]) -> Option<(Vec<&'p str>, Vec<&'static str>)> {
        let mut pattern = self.path.split('/');
        let mut stars = Vec::new();
        for segment in path {
            match pattern.next()? {
                "*" => stars.push(*segment),
                literal if literal == *segment => {}
                _ => return None,
            }
        }
        Some((stars, pattern.collect()))
    }
}

/// Returns the MACs of the interfaces in use.
pub(super) fn macs(machine: &Machine) -> Vec<String> {
    machine.used_nics().iter().map(|nic| nic.mac.to_string()).collect()
}

/// Returns the interface in use whose MAC is the first star, in any notation.
pub(super) fn nic<'m>(machine: &'m Machine, stars: Stars) -> Option<&'m Nic> {
    let mac: tinwright::Mac = stars.first()?.parse().ok()?;
    machine.used_nics().into_iter().find(|nic| nic.mac == mac)
}

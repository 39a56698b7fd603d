//! A row of the tree's table: a path pattern and how its value is found.

use super::Body;
use super::version::{Dialect, Version};
use crate::machine::Machine;

/// What the `*`s of a pattern stand for, left to right.
pub(super) type Stars<'a> = &'a [&'a str];

/// A path pattern and its value. Build them with [`Row::leaf`], [`Row::each`] and [`Row::listing`].
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
    Listing(fn(&Machine) -> Option<Body>),
}

/// A text, unless it is empty: what is not known is not there.
pub(super) fn text(text: impl ToString) -> Option<Body> {
    let text = text.to_string();
    (!text.is_empty()).then(|| text.into())
}

impl Row {
    /// One value of the machine.
    pub(super) const fn leaf(path: &'static str, get: fn(&Machine) -> Option<Body>) -> Self {
        Self { path, value: Value::One(get), only: None, signed: false }
    }

    /// One value for each name a `*` may be; `names` is told what the stars before it are.
    pub(super) const fn each(
        path: &'static str,
        names: fn(&Machine, Stars) -> Vec<String>,
        get: fn(&Machine, Stars) -> Option<Body>,
    ) -> Self {
        Self { path, value: Value::Each { names, get }, only: None, signed: false }
    }

    /// A directory that lists something else than the names in it.
    pub(super) const fn listing(path: &'static str, get: fn(&Machine) -> Option<Body>) -> Self {
        Self { path, value: Value::Listing(get), only: None, signed: false }
    }

    /// The same only where documents are signed.
    pub(super) const fn signed(mut self) -> Self {
        self.signed = true;
        self
    }

    /// The same in only one of the two dialects.
    pub(super) const fn only(mut self, dialect: Dialect) -> Self {
        self.only = Some(dialect);
        self
    }

    /// Returns its path, and the mark of where it is, as `docs/reference/ec2-metadata.md` has them.
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

    /// Whether `version` has this row, where documents are `signed` or not.
    pub(super) fn is_in(&self, version: Version, signed: bool) -> bool {
        (signed || !self.signed) && self.only.is_none_or(|dialect| dialect == version.dialect())
    }

    /// The value at `path`, if it is one of this row's.
    pub(super) fn get(&self, machine: &Machine, path: &[&str]) -> Option<Body> {
        let (stars, rest) = self.under(path)?;
        match (&self.value, rest.is_empty()) {
            (_, false) => None,
            (Value::One(get) | Value::Listing(get), true) => get(machine),
            (Value::Each { get, .. }, true) => get(machine, &stars),
        }
    }

    /// What this row puts into the directory `dir`: a leaf's name, or a sub-directory's with its slash.
    pub(super) fn names_in(&self, machine: &Machine, dir: &[&str]) -> Vec<String> {
        let Some((stars, rest)) = self.under(dir) else { return Vec::new() };
        let Some((next, rest)) = rest.split_first() else { return Vec::new() };
        let names = match &self.value {
            Value::Listing(_) => return Vec::new(),
            Value::Each { names, .. } if *next == "*" => names(machine, &stars),
            Value::One(_) | Value::Each { .. } => vec![(*next).to_owned()],
        };
        let found = |name: &String| {
            let path = [dir, &[name.as_str()]].concat();
            match rest {
                [] => self.get(machine, &path).is_some(),
                _ => !self.names_in(machine, &path).is_empty(),
            }
        };
        let slash = if rest.is_empty() { "" } else { "/" };
        names.into_iter().filter(found).map(|name| name + slash).collect()
    }

    /// If the pattern begins as `path` does: what its stars are there, and what of the pattern is left.
    fn under<'p>(&self, path: &[&'p str]) -> Option<(Vec<&'p str>, Vec<&'static str>)> {
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

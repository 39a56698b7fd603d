//! A kernel's modules: which there are, and what must be loaded before each.
//!
//! `depmod` has found it out and written it down (modules.dep(5), and its siblings); here it is read, cut down to the
//! modules that are wanted, and written again. What a module only *prefers* to find loaded, a soft dependency, is
//! written like what it needs, because the image's modprobe knows no other kind.

mod index;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::choice::Group;
pub(super) use index::{Error as IndexError, Index};

/// Why modules cannot be chosen.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Error {
    #[error("module {module} needs {needs}, which the kernel does not have")]
    Missing { module: String, needs: String },
    #[error("module {0} needs itself")]
    Loop(String),
    #[error("none of the kernel's modules is known here")]
    Nothing,
}

/// Modules to load, each with what comes before it.
#[derive(Debug, Default)]
pub(super) struct Choice<'a> {
    /// In the order they are loaded, the module itself last; by name.
    orders: BTreeMap<&'a str, Vec<&'a str>>,
    /// Wanted, but neither a module nor built in.
    pub(super) absent: Vec<&'static str>,
}

impl<'a> Choice<'a> {
    /// The modules of `groups` and all they need, as far as the kernel has them.
    pub(super) fn new(index: &'a Index, groups: &[Group]) -> Result<Self, Error> {
        let mut choice = Self::default();
        for &module in groups.iter().flat_map(|group| group.modules) {
            match index.name(module) {
                Some(name) => choice.add(index, name)?,
                None if index.is_built_in(module) => {}
                None => choice.absent.push(module),
            }
        }
        if choice.orders.is_empty() { Err(Error::Nothing) } else { Ok(choice) }
    }

    fn add(&mut self, index: &'a Index, name: &'a str) -> Result<(), Error> {
        for part in load_order(index, name)? {
            if !self.orders.contains_key(part) {
                self.orders.insert(part, load_order(index, part)?);
            }
        }
        Ok(())
    }

    /// Whether `module`, however its dashes are written, is among them.
    pub(super) fn holds(&self, module: &str) -> bool {
        self.orders.contains_key(index::normal(module).as_str())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.orders.len()
    }

    /// Their files, below the directory of the index.
    pub(super) fn paths(&self, index: &'a Index) -> impl Iterator<Item = &'a str> {
        self.orders.keys().filter_map(|name| index.path(name))
    }

    /// Their `modules.dep`: what is loaded first stands last.
    pub(super) fn dep(&self, index: &Index) -> String {
        let mut text = String::new();
        for (name, order) in &self.orders {
            let before = order.iter().rev().filter(|part| *part != name);
            let paths: Vec<_> = before.filter_map(|part| index.path(part)).collect();
            let colon = if paths.is_empty() { ":" } else { ": " };
            let own = index.path(name).unwrap_or_default();
            let _always = writeln!(text, "{own}{colon}{}", paths.join(" "));
        }
        text
    }

    /// Their `modules.alias`: what devices and the kernel itself call them.
    pub(super) fn alias(&self, index: &Index) -> String {
        let known = index.aliases().filter(|(_, module)| self.orders.contains_key(module));
        let lines: BTreeSet<_> =
            known.map(|(pattern, module)| format!("alias {pattern} {module}\n")).collect();
        lines.into_iter().collect()
    }
}

/// What is loaded for `name`, in this order.
fn load_order<'a>(index: &'a Index, name: &'a str) -> Result<Vec<&'a str>, Error> {
    let mut order = Vec::new();
    visit(index, name, &mut order, &mut Vec::new())?;
    Ok(order)
}

/// Puts `name` in `order`, after all that comes before it. `open` are those on whose behalf this is done.
fn visit<'a>(
    index: &'a Index,
    name: &'a str,
    order: &mut Vec<&'a str>,
    open: &mut Vec<&'a str>,
) -> Result<(), Error> {
    if order.contains(&name) {
        return Ok(());
    }
    if open.contains(&name) {
        return Err(Error::Loop(name.into()));
    }
    open.push(name);
    for soft in index.prefers(name) {
        // A preference gives way where the two would wait for each other.
        if !requires(index, soft, open, &mut BTreeSet::new()) {
            visit(index, soft, order, open)?;
        }
    }
    for needed in index.needs(name) {
        let needed = index
            .name(needed)
            .ok_or_else(|| Error::Missing { module: name.into(), needs: needed.into() })?;
        visit(index, needed, order, open)?;
    }
    open.pop();
    order.push(name);
    Ok(())
}

/// Whether `name` is one of `these`, or cannot be loaded before one of them.
fn requires<'a>(
    index: &'a Index,
    name: &'a str,
    these: &[&str],
    seen: &mut BTreeSet<&'a str>,
) -> bool {
    if these.contains(&name) {
        return true;
    }
    seen.insert(name)
        && index
            .needs(name)
            .filter_map(|needed| index.name(needed))
            .any(|needed| requires(index, needed, these, seen))
}

#[cfg(test)]
mod tests;

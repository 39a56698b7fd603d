//! A set of kernel modules with all modules that they need, and the load order.
//!
//! `depmod` computed the indexes (modules.dep(5) and others); here they are read, reduced to the modules of the set, and
//! written again. Soft dependencies are written like hard ones, because the image's modprobe supports no others.

mod index;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use index::Index;

/// A set of modules cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Error {
    #[error("module {module} needs {needs}, which the kernel does not have")]
    Missing { module: String, needs: String },
    #[error("module {0} needs itself")]
    Loop(String),
    #[error("the kernel has none of the modules to include")]
    Nothing,
}

/// Modules, each with the modules to load before it.
#[derive(Debug, Default)]
pub(super) struct ModuleSet<'a> {
    /// The modules in load order, the module itself last; by name.
    orders: BTreeMap<&'a str, Vec<&'a str>>,
    /// Modules that the kernel does not have, built in or not.
    pub(super) missing: Vec<&'static str>,
}

impl<'a> ModuleSet<'a> {
    /// Returns the set of `modules` and all modules that they need, without those that the kernel does not have.
    pub(super) fn new(
        index: &'a Index,
        modules: impl Iterator<Item = &'static str>,
    ) -> Result<Self, Error> {
        let mut set = Self::default();
        for module in modules {
            match index.name(module) {
                Some(name) => set.add(index, name)?,
                None if index.built_in.contains(&index::normalized(module)) => {}
                None => set.missing.push(module),
            }
        }
        if set.orders.is_empty() { Err(Error::Nothing) } else { Ok(set) }
    }

    fn add(&mut self, index: &'a Index, name: &'a str) -> Result<(), Error> {
        for name in load_order(index, name)? {
            if !self.orders.contains_key(name) {
                self.orders.insert(name, load_order(index, name)?);
            }
        }
        Ok(())
    }

    /// True if the set has `module`, written with dashes or underscores.
    pub(super) fn contains(&self, module: &str) -> bool {
        self.orders.contains_key(index::normalized(module).as_str())
    }

    /// Returns the number of modules.
    pub(super) fn len(&self) -> usize {
        self.orders.len()
    }

    /// Returns the paths of the modules, below the directory of the index.
    pub(super) fn paths(&self, index: &'a Index) -> impl Iterator<Item = &'a str> {
        self.orders.keys().map(|name| index.path(name))
    }

    /// Renders `modules.dep`: the module that is loaded first comes last.
    pub(super) fn dep(&self, index: &Index) -> String {
        let line = |(name, order): (&&str, &Vec<&str>)| {
            let before = order.iter().rev().filter(|module| *module != name);
            let before: String = before.map(|module| format!(" {}", index.path(module))).collect();
            format!("{}:{before}\n", index.path(name))
        };
        self.orders.iter().map(line).collect()
    }

    /// Renders `modules.alias`.
    pub(super) fn alias(&self, index: &Index) -> String {
        let aliases = index.aliases.iter();
        let aliases = aliases.filter(|(_, module)| self.orders.contains_key(module.as_str()));
        let lines: BTreeSet<_> =
            aliases.map(|(pattern, module)| format!("alias {pattern} {module}\n")).collect();
        lines.into_iter().collect()
    }
}

/// Returns the modules to load for `name`, in order.
fn load_order<'a>(index: &'a Index, name: &'a str) -> Result<Vec<&'a str>, Error> {
    let mut order = Vec::new();
    visit(index, name, &mut order, &mut Vec::new())?;
    Ok(order)
}

/// Adds `name` to `order`, after all modules to load before it. `open` has the modules that are being visited.
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
    for soft in index.soft_dependencies(name) {
        // A soft dependency is dropped if it would close a loop.
        if !requires(index, soft, open, &mut BTreeSet::new()) {
            visit(index, soft, order, open)?;
        }
    }
    for needed in index.needs(name) {
        let missing = || Error::Missing { module: name.into(), needs: needed.into() };
        visit(index, index.name(needed).ok_or_else(missing)?, order, open)?;
    }
    open.pop();
    order.push(name);
    Ok(())
}

/// True if `name` is one of `modules`, or cannot be loaded before one of them.
fn requires<'a>(
    index: &'a Index,
    name: &'a str,
    modules: &[&str],
    visited: &mut BTreeSet<&'a str>,
) -> bool {
    let mut needed = index.needs(name).filter_map(|needed| index.name(needed));
    modules.contains(&name)
        || visited.insert(name) && needed.any(|needed| requires(index, needed, modules, visited))
}

#[cfg(test)]
mod tests;

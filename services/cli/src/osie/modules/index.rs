//! What `depmod` wrote down about a kernel's modules, read.
//!
//! Modules go by the name the kernel has for them: the file's, without `.ko`, dashes written as underscores.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Error {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} names `{line}`, which is no uncompressed module", path.display())]
    Line { path: PathBuf, line: String },
}

/// All modules of a kernel.
#[derive(Debug, Default)]
pub(in super::super) struct Index {
    modules: BTreeMap<String, Module>,
    /// Patterns, and which module answers to each.
    aliases: Vec<(String, String)>,
    built_in: BTreeSet<String>,
}

#[derive(Debug)]
struct Module {
    path: String,
    needs: Vec<String>,
    prefers: Vec<String>,
}

/// The kernel's own spelling of a module's name.
pub(super) fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// The name of the module whose file is at `path`.
fn named(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    file.strip_suffix(".ko").filter(|name| !name.is_empty()).map(normal)
}

impl Index {
    /// Reads `modules.dep`, `modules.softdep`, `modules.alias` and `modules.builtin` in `directory`.
    pub(in super::super) fn read(directory: &Path) -> Result<Self, Error> {
        let text = |name: &str| {
            let path = directory.join(name);
            std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })
        };
        let mut index = Self::default();
        index.take_dep(&text("modules.dep")?).map_err(|line| {
            let path = directory.join("modules.dep");
            Error::Line { path, line }
        })?;
        index.take_alias(&text("modules.alias")?);
        index.take_softdep(&text("modules.softdep")?);
        index.built_in = text("modules.builtin")?.lines().filter_map(named).collect();
        Ok(index)
    }

    /// Lines like `kernel/a.ko: kernel/b.ko kernel/c.ko`; the one that cannot be understood, if any.
    pub(super) fn take_dep(&mut self, text: &str) -> Result<(), String> {
        for line in text.lines() {
            let wrong = || line.to_owned();
            let (path, needs) = line.split_once(':').ok_or_else(wrong)?;
            let name = named(path).ok_or_else(wrong)?;
            let needs: Option<_> = needs.split_whitespace().map(named).collect();
            let needs = needs.ok_or_else(wrong)?;
            self.modules.insert(name, Module { path: path.into(), needs, prefers: Vec::new() });
        }
        Ok(())
    }

    /// Lines like `alias pci:v00001AF4d* virtio_pci`.
    pub(super) fn take_alias(&mut self, text: &str) {
        let lines = text.lines().filter_map(|line| line.strip_prefix("alias ")?.rsplit_once(' '));
        self.aliases.extend(lines.map(|(pattern, module)| (pattern.into(), normal(module))));
    }

    /// Lines like `softdep ext4 pre: crypto-crc32c post: other`, whose names may be aliases. Needs all else.
    pub(super) fn take_softdep(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some("softdep"), Some(module)) = (words.next(), words.next()) else { continue };
            let before = words.skip_while(|word| *word != "pre:").skip(1);
            let before = before.take_while(|word| *word != "post:");
            let found: Vec<_> = before.filter_map(|wanted| self.answering(wanted)).collect();
            if let Some(module) = self.modules.get_mut(&normal(module)) {
                module.prefers.extend(found);
            }
        }
    }

    /// The module of this name, or the one that answers to it on every machine: of several, that is the generic one,
    /// as the others are for processors with some feature and fail on those without.
    fn answering(&self, wanted: &str) -> Option<String> {
        if let Some(name) = self.name(wanted) {
            return Some(name.into());
        }
        let answers = self.aliases.iter().filter(|(pattern, _)| pattern == wanted);
        let answers: BTreeSet<_> = answers.map(|(_, module)| module).collect();
        let generic = answers.iter().find(|module| module.ends_with("_generic"));
        let only = answers.first().filter(|_| answers.len() == 1);
        generic.or(only).map(|module| (*module).clone())
    }

    /// `module` as the kernel spells it, if it is one of these.
    pub(super) fn name(&self, module: &str) -> Option<&str> {
        self.modules.get_key_value(&normal(module)).map(|(name, _)| name.as_str())
    }

    pub(super) fn is_built_in(&self, module: &str) -> bool {
        self.built_in.contains(&normal(module))
    }

    pub(super) fn path(&self, name: &str) -> Option<&str> {
        self.modules.get(name).map(|module| module.path.as_str())
    }

    /// What must be loaded before `name`, by name, there or not.
    pub(super) fn needs(&self, name: &str) -> impl Iterator<Item = &str> {
        self.modules.get(name).into_iter().flat_map(|module| &module.needs).map(String::as_str)
    }

    /// What had better be loaded before `name`.
    pub(super) fn prefers(&self, name: &str) -> impl Iterator<Item = &str> {
        let preferred = self.modules.get(name).into_iter().flat_map(|module| &module.prefers);
        preferred.filter_map(|soft| self.name(soft))
    }

    /// Patterns, and the module that answers to each.
    pub(super) fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.aliases.iter().map(|(pattern, module)| (pattern.as_str(), module.as_str()))
    }
}

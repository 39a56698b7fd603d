//! Reads the indexes that `depmod` wrote about a kernel's modules.
//!
//! Modules have the kernel's names for them: the file's name without `.ko`, with underscores instead of dashes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;

/// All modules of a kernel.
#[derive(Debug, Default)]
pub(in super::super) struct Index {
    modules: BTreeMap<String, Module>,
    /// Patterns of device names and other names, and the module for each.
    pub(super) aliases: Vec<(String, String)>,
    /// Modules that are built into the kernel.
    pub(super) built_in: BTreeSet<String>,
}

#[derive(Debug)]
struct Module {
    path: String,
    needs: Vec<String>,
    soft_dependencies: Vec<String>,
}

/// Returns the kernel's spelling of a module's name.
pub(super) fn normalized(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns the name of the module whose file is at `path`.
fn name_of(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    file.strip_suffix(".ko").filter(|name| !name.is_empty()).map(normalized)
}

impl Index {
    /// Reads `modules.dep`, `modules.softdep`, `modules.alias` and `modules.builtin` in `directory`.
    pub(in super::super) fn read(directory: &Path) -> anyhow::Result<Self> {
        let text = |name: &str| {
            let path = directory.join(name);
            let text = std::fs::read_to_string(&path);
            text.with_context(|| format!("cannot read {}", path.display()))
        };
        let mut index = Self::default();
        index.add_dep(&text("modules.dep")?).map_err(|line| {
            let path = directory.join("modules.dep");
            anyhow::anyhow!("{}: `{line}` is not an uncompressed module", path.display())
        })?;
        index.add_alias(&text("modules.alias")?);
        index.add_softdep(&text("modules.softdep")?);
        index.built_in = text("modules.builtin")?.lines().filter_map(name_of).collect();
        Ok(index)
    }

    /// Parses lines such as `kernel/a.ko: kernel/b.ko kernel/c.ko`. The error is the first line that is invalid.
    pub(super) fn add_dep(&mut self, text: &str) -> Result<(), String> {
        for line in text.lines() {
            let parsed = line.split_once(':').and_then(|(path, needs)| {
                let needs = needs.split_whitespace().map(name_of).collect::<Option<_>>()?;
                let module = Module { path: path.into(), needs, soft_dependencies: Vec::new() };
                Some((name_of(path)?, module))
            });
            let (name, module) = parsed.ok_or(line)?;
            self.modules.insert(name, module);
        }
        Ok(())
    }

    /// Parses lines such as `alias pci:v00001AF4d* virtio_pci`.
    pub(super) fn add_alias(&mut self, text: &str) {
        let lines = text.lines().filter_map(|line| line.strip_prefix("alias ")?.rsplit_once(' '));
        self.aliases.extend(lines.map(|(pattern, module)| (pattern.into(), normalized(module))));
    }

    /// Parses lines such as `softdep ext4 pre: crypto-crc32c post: other`, whose names may be aliases. Comes after the others.
    pub(super) fn add_softdep(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some("softdep"), Some(module)) = (words.next(), words.next()) else { continue };
            let before = words.skip_while(|word| *word != "pre:").skip(1);
            let before = before.take_while(|word| *word != "post:");
            let found: Vec<_> = before.filter_map(|name| self.resolve(name)).collect();
            if let Some(module) = self.modules.get_mut(&normalized(module)) {
                module.soft_dependencies.extend(found);
            }
        }
    }

    /// Returns the module with this name or alias. Of several with the alias it is the generic one: the others, below `arch`,
    /// are for processors with certain features, and fail on those without. A kernel without a generic one has it built in.
    fn resolve(&self, wanted: &str) -> Option<String> {
        if let Some(name) = self.name(wanted) {
            return Some(name.into());
        }
        let found = self.aliases.iter().filter(|(pattern, _)| pattern == wanted);
        let found: BTreeSet<_> = found.map(|(_, module)| module).collect();
        let generic = found.iter().find(|module| module.ends_with("_generic"));
        let only = found.first().filter(|it| found.len() == 1 && !self.path(it).contains("/arch/"));
        generic.or(only).map(|module| (*module).clone())
    }

    /// Returns the kernel's spelling of `module`, if there is such a module.
    pub(super) fn name(&self, module: &str) -> Option<&str> {
        self.modules.get_key_value(&normalized(module)).map(|(name, _)| name.as_str())
    }

    /// Returns the path of `name`, or an empty text.
    pub(super) fn path(&self, name: &str) -> &str {
        self.modules.get(name).map_or("", |module| &module.path)
    }

    /// Returns the names that `name` needs, including missing modules.
    pub(super) fn needs(&self, name: &str) -> impl Iterator<Item = &str> {
        self.modules.get(name).into_iter().flat_map(|module| &module.needs).map(String::as_str)
    }

    /// Returns the modules that should be loaded before `name`.
    pub(super) fn soft_dependencies(&self, name: &str) -> impl Iterator<Item = &str> {
        let module = self.modules.get(name).into_iter();
        module.flat_map(|module| &module.soft_dependencies).filter_map(|soft| self.name(soft))
    }
}

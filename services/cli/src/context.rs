//! Contexts: several sites, each with its server and the files of the caller.
//!
//! They are in `contexts.yaml` in the directory `tinwright` of `XDG_CONFIG_HOME`, else of `~/.config`. The file has the paths of
//! certificates and keys, and no secrets. Only its owner can read it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::bundle::Bundle;
use crate::output::{Table, fields, print_line};

/// The file of all contexts. Its directory also has a directory for each bundle.
const FILE_NAME: &str = "contexts.yaml";
/// The text in place of contexts.
const NO_CONTEXTS: &str = "there are no contexts: create one with `tinwright context add`";
/// The variable of the environment that names a context.
const CONTEXT_VARIABLE: &str = "TINWRIGHT_CONTEXT";
/// Variables of the environment that precede the context in use.
const PART_VARIABLES: [&str; 3] = ["TINWRIGHT_SERVER", "TINWRIGHT_SECRETS", "TINWRIGHT_DATA"];
/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 63;

/// Commands for contexts.
#[derive(Debug, clap::Subcommand)]
pub enum ContextCommand {
    /// Add a context
    Add(AddArguments),
    /// List all contexts; the one in use is marked
    List,
    /// Use a context for commands without --context, --server, --secrets and --data
    Use {
        /// The context
        name: String,
    },
    /// Remove a context; its files stay
    Remove {
        /// The context
        name: String,
    },
    /// Show a context
    Show {
        /// The context [default: the one in use]
        name: Option<String>,
    },
}

/// A new context.
#[derive(Debug, clap::Args)]
pub struct AddArguments {
    /// Name of the context: letters, digits and ._-
    name: String,
    /// Connect to the first of these URLs that answers
    #[arg(long = "server", value_name = "URL", value_delimiter = ',')]
    #[arg(required_unless_present = "bundle")]
    context_server: Vec<String>,
    /// Use ca.pem, client.pem and client-key.pem (else admin.pem and admin-key.pem) in this directory
    #[arg(long = "secrets", value_name = "DIR", required_unless_present_any = ["ca", "bundle"])]
    context_secrets: Option<PathBuf>,
    /// Take server and certificate from this bundle of `tinwright identity issue`, whose parts are stored beside the contexts; - for
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["context_secrets", "ca"])]
    bundle: Option<PathBuf>,
    /// Trust the certificate authority in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate", conflicts_with = "context_secrets")]
    ca: Option<PathBuf>,
    /// Present the certificate in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "key", requires = "ca")]
    certificate: Option<PathBuf>,
    /// Use the private key of the certificate in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Use the context from now on
    #[arg(long = "use")]
    select: bool,
}

/// A server, and the files that a caller needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The URLs of the server and its replicas.
    pub servers: Vec<String>,
    /// The certificate authority to trust.
    pub ca: PathBuf,
    /// The caller's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// All contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The name of the context in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Site>,
}

/// Runs `command`.
pub fn run(command: ContextCommand, out: &mut dyn Write) -> anyhow::Result<()> {
    run_in(&file()?, command, out)
}

/// Runs `command` with the contexts in `file`.
fn run_in(file: &Path, command: ContextCommand, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut contexts = Contexts::read(file)?;
    let done = match command {
        ContextCommand::List => return print_line(out, &contexts.table()),
        ContextCommand::Show { name } => {
            let name = name.or_else(|| contexts.current.clone());
            let name =
                name.context("no context is in use: give a name, or `tinwright context use NAME`")?;
            return print_line(out, &contexts.get(&name)?.text(&name));
        }
        ContextCommand::Add(arguments) => {
            let (name, select) = (arguments.name.clone(), arguments.select);
            contexts.check_new(&name)?;
            let folder = file.parent().context("the contexts have no folder")?.join(&name);
            contexts.add(&name, arguments.site(&folder)?)?;
            if select {
                contexts.select(&name)?;
                format!("{name} added{}", preceded(&name, variable))
            } else {
                format!("{name} added")
            }
        }
        ContextCommand::Use { name } => {
            contexts.select(&name)?;
            format!("{name} is in use{}", preceded(&name, variable))
        }
        ContextCommand::Remove { name } => {
            contexts.remove(&name)?;
            format!("{name} removed")
        }
    };
    contexts.write(file)?;
    print_line(out, &done)
}

/// Returns the value of a variable of the environment that is set.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns a note on a variable of the environment that precedes the context `name` in use; empty if none does. `variable` returns the
/// value of one that is set.
fn preceded(name: &str, variable: impl Fn(&str) -> Option<OsString>) -> String {
    let set = match variable(CONTEXT_VARIABLE) {
        Some(value) if value == name => None,
        Some(_) => Some(CONTEXT_VARIABLE),
        None => PART_VARIABLES.into_iter().find(|part| variable(part).is_some()),
    };
    let note = |set| format!("; {set} is set and precedes it: unset it, or give --context {name}");
    set.map_or_else(String::new, note)
}

impl AddArguments {
    /// Returns the new context, with absolute paths. Fails if a file cannot be used. Parts of a bundle are stored in `folder`.
    fn site(self, folder: &Path) -> anyhow::Result<Site> {
        if let Some(bundle) = &self.bundle {
            return unpack(Bundle::read(bundle)?, self.context_server, folder);
        }
        let named = self.ca.zip(self.certificate).zip(self.key);
        let mut site = match (named, self.context_secrets) {
            (Some(((ca, certificate), key)), _) => {
                Site { servers: self.context_server, ca, certificate, key }
            }
            (None, secrets) => {
                let secrets = secrets.context("neither --secrets nor --ca is given")?;
                Site { servers: self.context_server, ..Site::in_directory(&secrets) }
            }
        };
        for path in [&mut site.ca, &mut site.certificate, &mut site.key] {
            *path = std::path::absolute(&*path).with_context(|| path.display().to_string())?;
        }
        site.server()?;
        Ok(site)
    }
}

/// Stores the parts of `bundle` in `folder`, which only this user can read, and returns its context.
/// Its servers are `servers`, or the bundle's if there are none.
fn unpack(bundle: Bundle, servers: Vec<String>, folder: &Path) -> anyhow::Result<Site> {
    let servers = if servers.is_empty() { bundle.servers } else { servers };
    anyhow::ensure!(!servers.is_empty(), "the bundle names no server: give --server");
    create_folder(folder)?;
    let parts =
        [("ca.pem", bundle.ca), ("client.pem", bundle.certificate), ("client-key.pem", bundle.key)];
    for (name, text) in parts {
        replace(&folder.join(name), &text)?;
    }
    let site = Site { servers, ..Site::in_directory(&std::path::absolute(folder)?) };
    site.server()?;
    Ok(site)
}

/// Creates `folder` and those around it, for this user only.
fn create_folder(folder: &Path) -> anyhow::Result<()> {
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.with_context(|| format!("creating {}", folder.display()))
}

/// Replaces `file` by `text` in one step.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let writing = || format!("writing {}", file.display());
    let folder = file.parent().with_context(writing)?;
    // A temporary file has the mode 0600.
    let mut written = tempfile::NamedTempFile::new_in(folder).with_context(writing)?;
    written.write_all(text.as_bytes()).with_context(writing)?;
    written.as_file().sync_all().with_context(writing)?;
    written.persist(file).with_context(writing)?;
    Ok(())
}

impl Site {
    fn text(&self, name: &str) -> String {
        fields(&[
            ("name", name.to_owned()),
            ("servers", self.servers.join(", ")),
            ("ca", self.ca.display().to_string()),
            ("cert", self.certificate.display().to_string()),
            ("key", self.key.display().to_string()),
        ])
    }
}

impl Contexts {
    /// Reads the contexts of this user.
    pub(crate) fn open() -> anyhow::Result<Self> {
        Self::read(&file()?)
    }

    fn read(file: &Path) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            text => text.with_context(|| format!("reading {}", file.display()))?,
        };
        yaml_serde::from_str(&text).with_context(|| format!("parsing {}", file.display()))
    }

    /// Replaces the file in one step.
    fn write(&self, file: &Path) -> anyhow::Result<()> {
        create_folder(file.parent().context("the contexts have no folder")?)?;
        replace(file, &yaml::to_string(self)?)
    }

    /// Adds a context.
    pub(crate) fn add(&mut self, name: &str, site: Site) -> anyhow::Result<()> {
        self.check_new(name)?;
        self.contexts.insert(name.to_owned(), site);
        Ok(())
    }

    /// Passes for the name of a context that may be added.
    fn check_new(&self, name: &str) -> anyhow::Result<()> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        // A bundle is stored in a folder of this name.
        let is_valid = (1..=MAX_NAME_BYTES).contains(&name.len())
            && name.chars().all(allowed)
            && !name.starts_with('.')
            && name != FILE_NAME;
        anyhow::ensure!(
            is_valid,
            "{name:?} is not a name: letters, digits and ._-, at most {MAX_NAME_BYTES}"
        );
        let is_new = !self.contexts.contains_key(name);
        anyhow::ensure!(is_new, "there is a context {name}: remove it first");
        Ok(())
    }

    /// Returns the context `name`.
    pub(crate) fn get(&self, name: &str) -> anyhow::Result<&Site> {
        self.contexts.get(name).with_context(|| {
            let names: Vec<_> = self.contexts.keys().map(String::as_str).collect();
            match names.as_slice() {
                [] => format!("no context {name}: {NO_CONTEXTS}"),
                names => format!("no context {name}; there are: {}", names.join(", ")),
            }
        })
    }

    /// Returns the context in use.
    pub(crate) fn current(&self) -> anyhow::Result<Option<&Site>> {
        self.current.as_deref().map(|name| self.get(name)).transpose()
    }

    /// Uses the context `name` from now on.
    pub(crate) fn select(&mut self, name: &str) -> anyhow::Result<()> {
        self.get(name)?;
        self.current = Some(name.to_owned());
        Ok(())
    }

    fn remove(&mut self, name: &str) -> anyhow::Result<()> {
        self.get(name)?;
        self.contexts.remove(name);
        self.current = self.current.take().filter(|current| current != name);
        Ok(())
    }

    fn table(&self) -> String {
        if self.contexts.is_empty() {
            return NO_CONTEXTS.into();
        }
        let row = |(name, site): (&String, &Site)| {
            let mark = if self.current.as_ref() == Some(name) { "*" } else { "" };
            vec![mark.to_owned(), name.clone(), site.servers.join(",")]
        };
        Table::new(&["USED", "NAME", "SERVERS"], self.contexts.iter().map(row)).render(false, true)
    }
}

/// Returns the file of this user's contexts.
fn file() -> anyhow::Result<PathBuf> {
    let base = crate::user_directory("XDG_CONFIG_HOME", ".config");
    let base =
        base.context("neither XDG_CONFIG_HOME nor HOME is set: they name the place of contexts")?;
    Ok(base.join("tinwright").join(FILE_NAME))
}

#[cfg(test)]
mod tests;

//! Contexts: several sites, each with its server and the files of the caller.
//!
//! They are in `contexts.yaml` in the directory `tinwright` of `XDG_CONFIG_HOME`, else of `~/.config`. The file has the paths of
//! certificates and keys, and no secrets. Only its owner can read it.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::output::{Table, fields, print_line};

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
    #[arg(
        id = "context_server",
        long = "server",
        value_name = "URL",
        value_delimiter = ',',
        required = true
    )]
    servers: Vec<String>,
    /// Use ca.pem, admin.pem and admin-key.pem in this directory
    #[arg(
        id = "context_secrets",
        long = "secrets",
        value_name = "DIR",
        required_unless_present = "ca"
    )]
    secrets: Option<PathBuf>,
    /// Trust the certificate authority in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate", conflicts_with = "context_secrets")]
    ca: Option<PathBuf>,
    /// Present the certificate in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "key", requires = "ca")]
    certificate: Option<PathBuf>,
    /// The certificate's private key is in this file (PEM)
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
            let name = name.context("no context is in use: give a name, or see context use")?;
            return print_line(out, &contexts.get(&name)?.text(&name));
        }
        ContextCommand::Add(arguments) => {
            let (name, select) = (arguments.name.clone(), arguments.select);
            contexts.add(&name, arguments.site()?)?;
            if select {
                contexts.select(&name)?;
            }
            format!("{name} added")
        }
        ContextCommand::Use { name } => {
            contexts.select(&name)?;
            format!("{name} is in use")
        }
        ContextCommand::Remove { name } => {
            contexts.remove(&name)?;
            format!("{name} removed")
        }
    };
    contexts.write(file)?;
    print_line(out, &done)
}

impl AddArguments {
    /// Returns the new context, with absolute paths. Fails if a file cannot be used.
    fn site(self) -> anyhow::Result<Site> {
        let named = self.ca.zip(self.certificate).zip(self.key);
        let site = match (named, self.secrets) {
            (Some(((ca, certificate), key)), _) => {
                Site { servers: self.servers, ca, certificate, key }
            }
            (None, secrets) => {
                let secrets = secrets.context("neither --secrets nor --ca is given")?;
                Site { servers: self.servers, ..Site::in_directory(&secrets) }
            }
        };
        let absolute =
            |path: PathBuf| std::path::absolute(&path).with_context(|| path.display().to_string());
        let Site { servers, ca, certificate, key } = site;
        let (ca, certificate, key) = (absolute(ca)?, absolute(certificate)?, absolute(key)?);
        let site = Site { servers, ca, certificate, key };
        site.server()?;
        Ok(site)
    }
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
        let writing = || format!("writing {}", file.display());
        let folder = file.parent().with_context(writing)?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(writing)?;
        // A temporary file has the mode 0600.
        let mut written = tempfile::NamedTempFile::new_in(folder).with_context(writing)?;
        written.write_all(yaml_serde::to_string(self)?.as_bytes()).with_context(writing)?;
        written.as_file().sync_all().with_context(writing)?;
        written.persist(file).with_context(writing)?;
        Ok(())
    }

    /// Adds a context.
    pub(crate) fn add(&mut self, name: &str, site: Site) -> anyhow::Result<()> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_valid = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(allowed);
        anyhow::ensure!(
            is_valid,
            "{name:?} is not a name: letters, digits and ._-, at most {MAX_NAME_BYTES}"
        );
        let is_new = !self.contexts.contains_key(name);
        anyhow::ensure!(is_new, "there is a context {name}: remove it first");
        self.contexts.insert(name.to_owned(), site);
        Ok(())
    }

    /// Returns the context `name`.
    pub(crate) fn get(&self, name: &str) -> anyhow::Result<&Site> {
        let names = || self.contexts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let site = self.contexts.get(name);
        site.with_context(|| format!("no context {name}; there are: {}", names()))
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
            return "no contexts: begin with tinwright context add".into();
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
    let in_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
    let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(in_home);
    let base =
        base.context("neither XDG_CONFIG_HOME nor HOME is set: they name the place of contexts")?;
    Ok(base.join("tinwright/contexts.yaml"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use clap::Parser;
    use runtime::authority::SiteAuthority;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(subcommand)]
        command: ContextCommand,
    }

    /// A user's directory, with the secrets of a site.
    struct User {
        folder: tempfile::TempDir,
    }

    impl User {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let site = SiteAuthority::open(&folder.path().join("secrets")).unwrap();
            site.ensure_admin_certificate().unwrap();
            Self { folder }
        }

        fn file(&self) -> PathBuf {
            self.folder.path().join("config/tinwright/contexts.yaml")
        }

        fn path(&self, name: &str) -> String {
            self.folder.path().join(name).display().to_string()
        }

        /// Runs a command, in which `@` stands for the user's directory.
        fn run(&self, line: &str) -> Result<String, String> {
            let line = line.replace('@', self.folder.path().to_str().unwrap());
            let words = ["context"].into_iter().chain(line.split(' '));
            let command =
                Program::try_parse_from(words).map_err(|error| error.to_string())?.command;
            let mut out = Vec::new();
            run_in(&self.file(), command, &mut out).map_err(|error| format!("{error:#}"))?;
            Ok(String::from_utf8(out).unwrap())
        }
    }

    #[test]
    fn contexts_are_added_used_shown_and_removed() {
        let user = User::new();
        assert!(user.run("list").unwrap().starts_with("no contexts: begin with"));
        let lab = "add lab --server https://a:1,https://b:1 --secrets @/secrets --use";
        assert_eq!(user.run(lab).unwrap(), "lab added\n");
        let files =
            "--ca @/secrets/ca.pem --certificate @/secrets/admin.pem --key @/secrets/admin-key.pem";
        user.run(&format!("add prod --server https://c:1 {files}")).unwrap();
        let list = user.run("list").unwrap();
        let rows: Vec<Vec<&str>> =
            list.lines().map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(
            rows[1..],
            [vec!["*", "lab", "https://a:1,https://b:1"], vec!["prod", "https://c:1"]]
        );
        let shown = user.run("show").unwrap();
        assert!(shown.contains(&user.path("secrets/admin-key.pem")), "{shown}");
        user.run("use prod").unwrap();
        assert!(user.run("show").unwrap().contains("https://c:1"));
        user.run("remove prod").unwrap();
        assert!(user.run("show").unwrap_err().starts_with("no context is in use"));
        assert_eq!(user.run("use prod").unwrap_err(), "no context prod; there are: lab");
    }

    #[test]
    fn only_the_owner_reads_the_file_and_it_has_no_secrets() {
        let user = User::new();
        user.run("add lab --server https://a:1 --secrets @/secrets").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&user.file()), 0o600);
        assert_eq!(mode(user.file().parent().unwrap()), 0o700);
        assert!(!std::fs::read_to_string(user.file()).unwrap().contains("PRIVATE"));
    }

    #[test]
    fn a_context_that_cannot_work_is_refused_with_the_reason() {
        let user = User::new();
        std::fs::write(user.folder.path().join("empty"), "").unwrap();
        for (line, reason) in [
            ("add lab --server https://a:1 --secrets @/nowhere", "reading "),
            ("add a/b --server https://a:1 --secrets @/secrets", "\"a/b\" is not a name"),
            ("add lab --server ftp://a:1 --secrets @/secrets", "neither https:// nor http://"),
            ("add lab --server https://a:1", "--secrets <DIR>"),
            ("add lab --server https://a:1 --ca @/secrets/ca.pem", "--certificate <FILE>"),
            (
                "add lab --server https://a:1 --secrets @/secrets --ca @/empty",
                "cannot be used with",
            ),
            (
                "add lab --server https://a:1 --ca @/empty --certificate @/empty --key @/empty",
                "the authority has no certificate",
            ),
        ] {
            let error = user.run(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
        user.run("add lab --server https://a:1 --secrets @/secrets").unwrap();
        let again = user.run("add lab --server https://b:1 --secrets @/secrets").unwrap_err();
        assert_eq!(again, "there is a context lab: remove it first");
        std::fs::write(user.file(), "other: 1").unwrap();
        assert!(user.run("list").unwrap_err().starts_with("parsing "));
    }
}

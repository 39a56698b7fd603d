//! Contexts of a user, in files of a folder.

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
        let command = Program::try_parse_from(words).map_err(|error| error.to_string())?.command;
        let mut out = Vec::new();
        run_in(&self.file(), command, &mut out).map_err(|error| format!("{error:#}"))?;
        Ok(String::from_utf8(out).unwrap())
    }
}

#[test]
fn contexts_are_added_used_shown_and_removed() {
    let user = User::new();
    let none = "there are no contexts: create one with `tinwright context add`";
    assert_eq!(user.run("list").unwrap(), format!("{none}\n"));
    assert_eq!(user.run("use anna").unwrap_err(), format!("no context anna: {none}"));
    let lab = "add lab --server https://a:1,https://b:1 --secrets @/secrets --use";
    assert_eq!(user.run(lab).unwrap(), "lab added\n");
    let files =
        "--ca @/secrets/ca.pem --certificate @/secrets/admin.pem --key @/secrets/admin-key.pem";
    user.run(&format!("add prod --server https://c:1 {files}")).unwrap();
    let list = user.run("list").unwrap();
    let rows: Vec<Vec<&str>> = list.lines().map(|row| row.split_whitespace().collect()).collect();
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
fn a_bundle_is_all_that_a_colleague_needs() {
    let user = User::new();
    let read = |name: &str| std::fs::read_to_string(user.path(name)).unwrap();
    let indented =
        |name: &str| read(name).lines().map(|it| format!("  {it}\n")).collect::<String>();
    let bundle = |server: &str| {
        let [ca, certificate, key] =
            ["secrets/ca.pem", "secrets/admin.pem", "secrets/admin-key.pem"].map(indented);
        let text = format!("{server}ca: |\n{ca}certificate: |\n{certificate}key: |\n{key}");
        std::fs::write(user.path("anna.bundle"), text).unwrap();
    };
    bundle("servers: ['https://rack.lab:42113']\n");
    user.run("add lab --bundle @/anna.bundle --use").unwrap();
    let shown = user.run("show").unwrap();
    assert!(shown.contains("https://rack.lab:42113") && shown.contains("client.pem"), "{shown}");
    let key = user.folder.path().join("config/tinwright/lab/client-key.pem");
    assert_eq!(std::fs::read_to_string(&key).unwrap(), read("secrets/admin-key.pem"));
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    bundle("");
    let refused = user.run("add home --bundle @/anna.bundle").unwrap_err();
    assert_eq!(refused, "the bundle names no server: give --server");
    user.run("add home --bundle @/anna.bundle --server https://a:1").unwrap();
    assert!(user.run("show home").unwrap().contains("https://a:1"));
    assert!(user.run("add .. --bundle @/anna.bundle").unwrap_err().contains("is not a name"));
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
        ("add lab --server https://a:1 --secrets @/secrets --ca @/empty", "cannot be used with"),
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

#[test]
fn a_variable_that_precedes_the_context_in_use_is_named() {
    let note = |variables: &[(&str, &str)]| {
        preceded("lab", |name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into())
        })
    };
    let of = |set: &str| format!("; {set} is set and precedes it: unset it, or give --context lab");
    assert_eq!(note(&[]), "");
    assert_eq!(note(&[("TINWRIGHT_DATA", "/d")]), of("TINWRIGHT_DATA"));
    assert_eq!(note(&[("TINWRIGHT_CONTEXT", "prod")]), of("TINWRIGHT_CONTEXT"));
    assert_eq!(note(&[("TINWRIGHT_CONTEXT", "lab"), ("TINWRIGHT_DATA", "/d")]), "");
}

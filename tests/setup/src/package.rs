//! Packs the programs, with documents and examples: a tarball for any Linux, and a package for Debian.
//!
//! Both are reproducible: equal programs and an equal work tree give equal bytes, at any time and on any host with the same `tar`, `gzip`
//! and `dpkg-deb`. The files that only packages have are in `packaging`.
//!
//! ```text
//! tinwright-VERSION/bin        tinwright, tinwright-worker, tinwright-node     (in the Debian package: /usr/bin)
//! tinwright-VERSION/share      completions of shells, manual page              (/usr/share)
//! tinwright-VERSION/docs       documents and examples, with README.md beside   (/usr/share/doc/tinwright/docs)
//! ```

mod debian;
mod stage;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use self::stage::Stage;
use crate::{program, root, run};

/// The programs that are packed. `tinwright osie build` takes the other two from the folder that it is in itself.
const PROGRAMS: [&str; 3] = ["tinwright", "tinwright-worker", "tinwright-node"];
/// The documents beside the folder `docs`.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "ARCHITECTURE.md", "LICENSE"];
/// The version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The content of the packages.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The folder with the programs `tinwright`, `tinwright-worker` and `tinwright-node`.
    pub programs: PathBuf,
    /// The version in the names of the packages. A `~` in it sorts before anything: 1.0~rc1 is older than 1.0 (deb-version(7)).
    pub version: String,
    /// The time of all files, in seconds since 1970 (UTC).
    pub time: u64,
}

impl Contents {
    /// Returns the programs of the profile of the running program, with the version of the workspace.
    pub fn built() -> anyhow::Result<Self> {
        let program = program("tinwright");
        Self::of(program.parent().context("the programs are not built")?)
    }

    /// Returns the programs in the folder `programs`, with the version of the workspace, and the time of its commit.
    pub fn of(programs: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            programs: programs.to_owned(),
            version: VERSION.to_owned(),
            time: commit_time()?,
        })
    }

    /// Writes `tinwright-VERSION-linux-amd64.tar.gz` to the folder `output`, which has to exist. Returns its path.
    pub fn tarball(&self, output: &Path) -> anyhow::Result<PathBuf> {
        let folder = format!("tinwright-{}", self.version);
        let stage = Stage::new(output, "tarball")?;
        let top = stage.path().join(&folder);
        self.add_programs(&stage, &folder, "site-functions")?;
        self.add_documents(&stage, &folder)?;
        stage.set_modes()?;
        let file = output.join(format!("{folder}-linux-amd64.tar.gz"));
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.arg(format!("--mtime=@{}", self.time)).arg("--use-compress-program=gzip --no-name");
        tar.arg("--create").arg("--file").arg(&file);
        run(tar.arg("--directory").arg(stage.path()).arg(top.file_name().unwrap_or_default()))?;
        Ok(file)
    }

    /// Writes `tinwright_VERSION_amd64.deb` to the folder `output`, which has to exist. Returns its path.
    pub fn debian(&self, output: &Path) -> anyhow::Result<PathBuf> {
        debian::pack(self, output)
    }

    /// Adds the programs to `bin` below the folder `to`, without debug information, and what shells and `man` read to `share`.
    fn add_programs(&self, stage: &Stage, to: &str, zsh_folder: &str) -> anyhow::Result<()> {
        for name in PROGRAMS {
            stage.copy_program(&self.programs.join(name), &format!("{to}/bin/{name}"))?;
        }
        let tinwright = self.programs.join("tinwright");
        for (shell, file) in [
            ("bash", "bash-completion/completions/tinwright".to_owned()),
            ("fish", "fish/vendor_completions.d/tinwright.fish".to_owned()),
            ("zsh", format!("zsh/{zsh_folder}/_tinwright")),
        ] {
            let output = Command::new(&tinwright).args(["completions", shell]).output()?;
            anyhow::ensure!(output.status.success(), "tinwright completions {shell}: {output:?}");
            stage.write(&format!("{to}/share/{file}"), &output.stdout)?;
        }
        let page = std::fs::read_to_string(packaging("tinwright.1"))?;
        let page = page.replace("@VERSION@", &self.version);
        stage.write_compressed(&format!("{to}/share/man/man1/tinwright.1.gz"), page.as_bytes())
    }

    /// Adds the documents and examples to the folder `to`.
    fn add_documents(&self, stage: &Stage, to: &str) -> anyhow::Result<()> {
        for name in DOCUMENTS {
            stage.copy(&root().join(name), &format!("{to}/{name}"))?;
        }
        stage.copy_folder(&root().join("docs"), &format!("{to}/docs"))
    }
}

/// Returns the path of `name` in the folder of files for packages.
fn packaging(name: &str) -> PathBuf {
    root().join("packaging").join(name)
}

/// Returns the time of the commit of the work tree, in seconds since 1970. The variable SOURCE_DATE_EPOCH takes precedence, as for other programs
/// that make packages (reproducible-builds.org).
fn commit_time() -> anyhow::Result<u64> {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return time.parse().with_context(|| format!("SOURCE_DATE_EPOCH: {time:?}"));
    }
    let mut git = Command::new("git");
    git.arg("-C").arg(root()).args(["log", "-1", "--format=%ct"]);
    let output = git.output().context("starting git")?;
    let time = String::from_utf8_lossy(&output.stdout);
    let unknown = "the time of the commit is not known: set SOURCE_DATE_EPOCH";
    time.trim().parse().with_context(|| format!("{unknown}: {}", output.status))
}

//! The Debian package. Its scripts follow Debian policy, chapters 6 and 9, and what debhelper generates for units of systemd.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::stage::Stage;
use super::{Contents, packaging};
use crate::{root, run};

/// The files of the package's archive for dpkg and debconf.
const CONTROL_FILES: [&str; 5] = ["conffiles", "postinst", "postrm", "prerm", "templates"];
/// The folder of documents.
const DOCUMENTS: &str = "usr/share/doc/tinwright";

/// Packs `contents` into a package in the folder `output`. Returns its path.
pub(super) fn pack(contents: &Contents, output: &Path) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(
        contents.version.starts_with(|first: char| first.is_ascii_digit()),
        "a version of Debian begins with a digit: {}",
        contents.version
    );
    let stage = Stage::new(output, "debian")?;
    contents.add_programs(&stage, "usr", "vendor-completions")?;
    contents.add_documents(&stage, DOCUMENTS)?;
    add_debian_documents(&stage)?;
    stage.copy(&packaging("tinwright.toml"), "etc/tinwright/tinwright.toml")?;
    let unit = root().join("docs/examples/tinwright.service");
    stage.copy(&unit, "lib/systemd/system/tinwright.service")?;
    stage.copy(&packaging("debian/sysusers.conf"), "usr/lib/sysusers.d/tinwright.conf")?;
    add_control_files(contents, &stage)?;
    stage.set_modes()?;
    let file = output.join(format!("tinwright_{}_amd64.deb", contents.version));
    // Debian 12, Ubuntu 22.04 and newer read zstd, which is quicker than the default, xz.
    let mut build = Command::new("dpkg-deb");
    build.args(["--build", "--root-owner-group", "-Zzstd"]).arg(stage.path()).arg(&file);
    // All files were just written, so they are newer, and get this time in place of their own.
    build.env("SOURCE_DATE_EPOCH", contents.time.to_string()).stdout(Stdio::null());
    run(&mut build)?;
    Ok(file)
}

/// Replaces documents by those that Debian policy asks for: copyright (12.5) and a compressed changelog (12.7).
fn add_debian_documents(stage: &Stage) -> anyhow::Result<()> {
    let changelog = std::fs::read(root().join("CHANGELOG.md"))?;
    stage.write_compressed(&format!("{DOCUMENTS}/changelog.gz"), &changelog)?;
    stage.copy(&packaging("debian/copyright"), &format!("{DOCUMENTS}/copyright"))?;
    std::fs::remove_file(stage.path().join(DOCUMENTS).join("LICENSE"))?;
    Ok(())
}

/// Adds the description of the package and its scripts.
fn add_control_files(contents: &Contents, stage: &Stage) -> anyhow::Result<()> {
    let size = stage.kibibytes()?.to_string();
    let control = std::fs::read_to_string(packaging("debian/control"))?;
    let control = control.replace("@VERSION@", &contents.version).replace("@SIZE@", &size);
    stage.write("DEBIAN/control", control.as_bytes())?;
    for name in CONTROL_FILES {
        stage.copy(&packaging("debian").join(name), &format!("DEBIAN/{name}"))?;
    }
    Ok(())
}

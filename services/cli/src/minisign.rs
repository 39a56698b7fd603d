//! Signatures by the program `minisign`: it reads the secret key and asks for its password, so this
//! program never has either.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Signs `text` with `comment` as the trusted comment, and returns the signature. The password is
/// read from the file `password`; without one, minisign asks for it.
pub(crate) fn sign(
    text: &str,
    comment: &str,
    key: &Path,
    password: Option<&Path>,
) -> anyhow::Result<String> {
    let place = tempfile::tempdir().context("creating a temporary directory")?;
    let (file, signature) = (place.path().join("text"), place.path().join("signature"));
    std::fs::write(&file, text).context("writing the text to sign")?;
    let mut minisign = Command::new("minisign");
    minisign.arg("-S").arg("-s").arg(key).arg("-m").arg(&file).arg("-x").arg(&signature);
    // Standard output is for the results of the command.
    minisign.args(["-t", comment]).stdout(Stdio::null());
    if let Some(path) = password {
        let file = File::open(path).with_context(|| format!("reading {}", path.display()))?;
        minisign.stdin(file);
    }
    let status = minisign.status().context("running minisign: install the package minisign")?;
    anyhow::ensure!(status.success(), "minisign did not sign: {status}");
    std::fs::read_to_string(&signature).context("reading the signature of minisign")
}

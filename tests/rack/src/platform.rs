//! An outside platform: its system, and its client of the infrastructure abstraction layer.
//!
//! The system is our environment with another `/init`. The client is `ial_client.py`, which calls and decodes as the platform does.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;

use crate::lab::Lab;

/// The iPXE script of the system. Its files are beside it, whatever the path is.
const SCRIPT: &str = "#!ipxe
echo PLATFORM script for ${uuid}
kernel vmlinuz initrd=initramfs console=ttyS0
initrd initramfs
boot
";
/// The name of the script.
pub const SCRIPT_NAME: &str = "boot.ipxe";

/// Writes the files of the system to `folder`: its script, and kernel and initramfs from those of our environment in `osie`.
pub fn write_system(osie: &Path, folder: &Path) -> anyhow::Result<()> {
    std::fs::write(folder.join(SCRIPT_NAME), SCRIPT)?;
    std::fs::copy(osie.join("vmlinuz-x86_64"), folder.join("vmlinuz"))?;
    let mut initramfs = std::fs::read(osie.join("initramfs-x86_64")).context("the initramfs")?;
    // The kernel unpacks archives one after another, each at a multiple of four bytes: a later file replaces an earlier one.
    initramfs.resize(initramfs.len().next_multiple_of(4), 0);
    initramfs.extend(init_archive()?);
    Ok(std::fs::write(folder.join("initramfs"), initramfs)?)
}

/// Returns a cpio archive with `/init`.
fn init_archive() -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let init = folder.path().join("init");
    std::fs::copy(setup::root().join("tests/rack/assets/platform/init.sh"), &init)?;
    setup::run(Command::new("chmod").arg("755").arg(&init))?;
    let mut cpio = Command::new("cpio");
    cpio.args(["--create", "--format=newc", "--quiet", "--owner=0:0"]).current_dir(folder.path());
    let mut cpio = cpio.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cpio")?;
    cpio.stdin.take().context("no input of cpio")?.write_all(b"init\n")?;
    let done = cpio.wait_with_output()?;
    anyhow::ensure!(done.status.success(), "cpio: {}", done.status);
    Ok(done.stdout)
}

/// The platform's client, which waits before each step.
#[derive(Debug)]
pub struct Client {
    running: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Starts the client in `lab`, with the credentials in a file, for the door at `url` with a certificate of the authority `ca`.
    pub fn start(lab: &Lab, url: &str, ca: &Path, credentials: &Path) -> anyhow::Result<Self> {
        let mut command = lab.command("python3");
        command.arg(setup::root().join("tests/rack/ial_client.py")).args(["--url", url]);
        command.arg("--ca").arg(ca).arg("--credentials").arg(credentials).arg("--stepwise");
        let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = running.stdin.take().context("no input")?;
        let output = BufReader::new(running.stdout.take().context("no output")?);
        Ok(Self { running, input, output })
    }

    /// Lets the client take its next step, which has to be `name`. Returns the line that it prints, an object.
    pub fn step(&mut self, name: &str) -> anyhow::Result<String> {
        self.input.write_all(b"\n").with_context(|| format!("before {name}"))?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        println!("{}", line.trim_end());
        let begin = format!("{{\"step\": \"{name}\", ");
        let has_passed =
            line.starts_with(&begin) && !line.starts_with(&format!("{begin}\"error\""));
        anyhow::ensure!(has_passed, "in place of {name}: {line}");
        Ok(line)
    }

    /// Waits until the client has ended after its last step.
    pub fn finish(mut self) -> anyhow::Result<()> {
        drop(self.input);
        let status = self.running.wait()?;
        anyhow::ensure!(status.success(), "the platform's client: {status}");
        Ok(())
    }
}

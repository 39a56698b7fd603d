//! A terminal on a host of the lab: an interactive shell, to which lines are typed as an operator types them.
//!
//! The shell and everything that it starts have mounts and PIDs of their own: what it changes in mounted directories is gone with it, and no
//! process is left behind.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::client::Client;
use crate::lab::{Lab, wait};

/// The end of the prompt, which the shell prints when it waits for a line. The status of the line before it precedes this text.
const PROMPT_END: &str = "] operator# ";
/// The longest time until the shell waits for its first line.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The terminal. Drop ends the shell and its processes.
#[derive(Debug)]
pub struct Terminal {
    process: Child,
    keyboard: ChildStdin,
    /// The file with everything that was printed.
    screen: PathBuf,
    /// Number of bytes of it that were waited for.
    read: usize,
}

impl Terminal {
    /// Starts a shell of root on `host`, whose environment also has `variables`, separated by spaces. Before, in its mount namespace, `prepare` is run,
    /// lines for sh.
    pub fn start(lab: &Lab, host: &Client, variables: &str, prepare: &str) -> anyhow::Result<Self> {
        let (script, screen) = (lab.path("terminal.sh"), lab.path("terminal.log"));
        // The shell edits no lines, so that it prints them as they are typed.
        let shell =
            "script --quiet --flush --command 'bash --norc --noprofile --noediting' /dev/null";
        let common = "HOME=/root TERM=dumb LANG=C.UTF-8 \
             PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let prompt = format!("PS1='[$?{PROMPT_END}'");
        let text =
            format!("set -eu\n{prepare}\ncd\nexec env -i {common} {variables} {prompt} {shell}\n");
        std::fs::write(&script, text)?;
        let mut command = host.command("unshare");
        command.args(["--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child"]);
        command.args(["--mount-proc", "sh"]).arg(script);
        let file = std::fs::File::create(&screen)?;
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("starting a terminal")?;
        let keyboard = process.stdin.take().context("the terminal has no keyboard")?;
        let mut terminal = Self { process, keyboard, screen, read: 0 };
        terminal.wait_for(PROMPT_END, START_TIMEOUT)?;
        Ok(terminal)
    }

    /// Types `line` and Enter.
    pub fn type_line(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.keyboard, "{line}").with_context(|| format!("typing `{line}`"))
    }

    /// Waits for at most `timeout` until `text` is printed. Returns what was printed before it, since the text before that was waited for.
    pub fn wait_for(&mut self, text: &str, timeout: Duration) -> anyhow::Result<String> {
        let (screen, start) = (&self.screen, self.read);
        let (printed, length) = wait(&format!("{text:?} on the terminal"), timeout, || {
            let bytes = std::fs::read(screen).ok()?;
            let new = bytes.get(start..)?;
            let length = new.windows(text.len()).position(|part| part == text.as_bytes())?;
            let printed = String::from_utf8_lossy(new.get(..length)?).replace('\r', "");
            Some((printed, length))
        })?;
        self.read = start + length + text.len();
        Ok(printed)
    }

    /// Waits for at most `timeout` until the shell waits for the next line. Fails if the status of the line before it is not 0. Returns what was
    /// printed.
    pub fn wait_for_prompt(&mut self, timeout: Duration) -> anyhow::Result<String> {
        let printed = self.wait_for(PROMPT_END, timeout)?;
        let (printed, status) = printed.rsplit_once('[').context("a prompt without status")?;
        anyhow::ensure!(status == "0", "status {status}: {printed}");
        Ok(printed.to_owned())
    }

    /// Types `line`, and waits for at most `timeout` until it has succeeded. Returns what was printed.
    pub fn run(&mut self, line: &str, timeout: Duration) -> anyhow::Result<String> {
        self.type_line(line)?;
        self.wait_for_prompt(timeout).with_context(|| format!("`{line}`"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The kernel ends all processes of a PID namespace with its first one, which ends with this one.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

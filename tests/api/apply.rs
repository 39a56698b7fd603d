//! `tinwright apply`, and wrong inputs, against a server.
//!
//! - `unchanged`: the output of `get -o yaml` changes nothing. `many`: three hundred objects, ten of them wrong.
//! - `tinkerbell`: objects with all fields of Tinkerbell's CRDs.
//! - `reports`: what commands say of changes, and of what they did not find or send.
//! - `wrong_files`, `wrong_objects`, `wrong_templates`, `wrong_settings`: exit code and error of each, and the objects that are stored in spite of it.

mod life;
mod many;
mod rack;
mod reports;
mod tinkerbell;
mod unchanged;
mod wrong_files;
mod wrong_objects;
mod wrong_settings;
mod wrong_templates;

use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{RunningServer, start};

/// The longest time of a command. A server that starts in spite of a wrong setting would go on.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the program `tinwright` with these arguments.
fn tinwright<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(setup::program("tinwright"));
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// What an ended program leaves.
struct Ended {
    /// The exit code.
    code: i32,
    /// Standard output.
    printed: String,
    /// The lines of standard error, without the program's name.
    errors: Vec<String>,
}

impl Ended {
    /// Runs `command` to its end.
    async fn of(mut command: Command) -> Self {
        let output = tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await;
        let output = output.unwrap_or_else(|_| panic!("{command:?} runs on")).unwrap();
        let code = output.status.code().unwrap_or_else(|| panic!("{command:?}: {output:?}"));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let line = |line: &str| line.strip_prefix("tinwright: ").unwrap_or(line).to_owned();
        let errors = text(output.stderr).lines().map(line).collect();
        Self { code, printed: text(output.stdout), errors }
    }
}

/// An administrator's command line, and a folder for files.
pub struct Operator {
    pub server: RunningServer,
    folder: TempDir,
}

impl Operator {
    /// Starts a server.
    pub async fn start() -> Self {
        Self { server: start().await, folder: tempfile::tempdir().unwrap() }
    }

    /// Runs the program `tinwright` with the words of `line`. Returns its output, and the lines of its error, which ends it with exit code 1.
    pub async fn run(&self, line: &str) -> (String, Result<(), Vec<String>>) {
        let (url, secrets) = (format!("https://{}", self.server.grpc), self.server.secrets());
        let mut command = tinwright(line.split(' '));
        command.args(["--server", &url, "--secrets"]).arg(secrets);
        let Ended { code, printed, errors } = Ended::of(command).await;
        match code {
            0 => (printed, Ok(())),
            1 => (printed, Err(errors)),
            _ => panic!("exit code {code}: {line}\n{printed}{errors:#?}"),
        }
    }

    /// The same for a line without errors. Returns its output.
    pub async fn ok(&self, line: &str) -> String {
        let (printed, result) = self.run(line).await;
        assert_eq!(result, Ok(()), "{line}\n{printed}");
        printed
    }

    /// Writes `text` into a file. Returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Ends the server.
    pub async fn end(self) {
        self.server.end().await;
    }
}

//! `tinwright apply`, and wrong inputs, against a server.
//!
//! - `unchanged`: the output of `get -o yaml` changes nothing. `many`: three hundred objects, ten of them wrong.
//! - `tinkerbell`: objects with all fields of Tinkerbell's CRDs.
//! - `wrong_objects`, `wrong_templates`, `wrong_settings`: the error of each, and the objects that are stored in spite of it.

mod life;
mod many;
mod rack;
mod tinkerbell;
mod unchanged;
mod wrong_objects;
mod wrong_settings;
mod wrong_templates;

use clap::Parser as _;
use tempfile::TempDir;

use crate::support::{RunningServer, start};

#[derive(Debug, clap::Parser)]
struct Program {
    #[command(subcommand)]
    command: cli::Command,
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

    /// Runs `tinwright` with the words of `line`. Returns its output, and the lines of its error.
    pub async fn run(&self, line: &str) -> (String, Result<(), Vec<String>>) {
        let (url, secrets) = (format!("https://{}", self.server.grpc), self.server.secrets());
        let connection = ["--server", &url, "--secrets", secrets.to_str().unwrap()];
        let words = std::iter::once("tinwright").chain(line.split(' ')).chain(connection);
        let command = Program::try_parse_from(words).unwrap().command;
        let mut out = Vec::new();
        let result = Box::pin(cli::run_command(command, &mut out)).await;
        let result = result.map_err(|error| cli::failure::lines(&error));
        (String::from_utf8(out).unwrap(), result)
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

//! The smallest daemon: the hidden subcommand of the supervisor, and one container that is started and left alone.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use containers::{Launcher, Run, Spec, supervisor};

/// `supervise …`, or `start <run directory> <specification as JSON>`: starts it, says so, and waits until it is killed.
fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match &arguments[..] {
        [first, ..] if first == "supervise" => supervisor::main(arguments),
        [first, directory, spec] if first == "start" => {
            start(Path::new(directory), &spec.to_string_lossy())
        }
        _ => ExitCode::FAILURE,
    }
}

fn start(directory: &Path, spec: &str) -> ExitCode {
    let spec: Spec = serde_json::from_str(spec).expect("a specification");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match Run::start(&Launcher::own_program("supervise"), directory, &spec).await {
            Ok(_run) => println!("started"),
            Err(error) => println!("{error}"),
        }
        std::future::pending::<ExitCode>().await
    })
}

//! Command lines, against fake servers on ports of their own.
#![allow(clippy::unwrap_used)]

mod addresses;
mod apply;
mod confirmations;
mod hardware;
mod identities;
mod images;
mod nodes;
mod places;
mod templates;
mod workflows;
mod wrong_inputs;

use clap::{CommandFactory as _, Parser};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::server::Router;

use crate::{Command, run_command};

#[derive(Debug, Parser)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

/// Implements a service; the calls in `refuses` return `UNIMPLEMENTED`.
macro_rules! fake {
    (
        impl $service:ident for $fake:ident { $($calls:tt)* }
        refuses { $($call:ident: $request:ident => $response:ident,)* }
    ) => {
        impl $service for $fake {
            $($calls)*
            $(
                async fn $call(
                    &self,
                    _: tonic::Request<pb::$request>,
                ) -> Result<tonic::Response<pb::$response>, tonic::Status> {
                    Err(tonic::Status::unimplemented(stringify!($call)))
                }
            )*
        }
    };
}
use fake;

/// Runs `client` with the URL of `server`.
async fn with_server<T>(server: Router, client: impl AsyncFnOnce(String) -> T) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::select! {
        ended = server.serve_with_incoming(TcpListenerStream::new(listener)) => panic!("{ended:?}"),
        result = client(url) => result,
    }
}

/// Runs `tinwright` with `arguments` against `server`. Returns its output and its result.
async fn tinwright(arguments: &str, server: Router) -> (String, Result<(), String>) {
    with_server(server, async |url| {
        let words = ["tinwright"].into_iter().chain(arguments.split(' '));
        let words = words.chain(["--server", &url]);
        let command = Program::try_parse_from(words).unwrap().command;
        let mut out = Vec::new();
        let result = run_command(command, &mut out).await;
        (
            String::from_utf8(out).unwrap(),
            result.map_err(|error| crate::failure::lines(&error).join("\n")),
        )
    })
    .await
}

#[test]
fn the_definition_of_the_commands_is_valid() {
    Program::command().debug_assert();
}

#[test]
fn instances_are_created_from_files_or_from_options_but_not_from_both() {
    let parsed = |text: &str| Program::try_parse_from(text.split(' ')).map(|_| ());
    assert!(parsed("tinwright instance create -f a.yaml").is_ok());
    assert!(parsed("tinwright instance create --hardware a --value k=v --wait").is_ok());
    assert!(
        parsed("tinwright instance create --hardware a --vendor-data v --network-config n").is_ok()
    );
    assert!(parsed("tinwright instance update -f a.yaml --field userdata --field extra").is_ok());
    assert!(parsed("tinwright instance create --hardware a -f a.yaml").is_err());
    assert!(parsed("tinwright instance create --hostname a").is_err());
}

#[test]
fn machines_are_updated_from_files_or_by_options_but_not_by_both() {
    let parsed = |text: &str| Program::try_parse_from(text.split(' ')).map(|_| ());
    assert!(parsed("tinwright hardware update -f a.yaml --field disks").is_ok());
    assert!(parsed("tinwright hardware update a b --root-disk medium=ssd,choose=largest").is_ok());
    assert!(parsed("tinwright instance create --hardware a --root-disk serial=A1").is_ok());
    for wrong in [
        "hardware update",
        "hardware update a",
        "hardware update a -f a.yaml --root-disk none",
        "hardware update -f a.yaml --root-disk none",
        "hardware update --root-disk none",
        "hardware update a --root-disk ssd",
        "instance create --hardware a --root-disk none",
    ] {
        assert!(parsed(&format!("tinwright {wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn the_machine_comes_before_its_boot_device() {
    let parsed = |text: &str| Program::try_parse_from(text.split(' ')).map(|_| ());
    assert!(parsed("tinwright power boot 192.0.2.10 pxe --uefi --wait").is_ok());
    assert!(parsed("tinwright power boot 192.0.2.10 pxe --uefi --legacy").is_err());
}

#[test]
fn a_password_is_not_an_argument() {
    let line = "tinwright power bmc create --hardware a --url b --username c --password d";
    assert!(Program::try_parse_from(line.split(' ')).is_err());
}

#[tokio::test]
async fn an_unreachable_server_is_one_line_with_a_hint() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    let words = ["tinwright", "hardware", "list", "--server", &url];
    let command = Program::try_parse_from(words).unwrap().command;
    let error = run_command(command, &mut Vec::new()).await.unwrap_err();
    let line = crate::failure::line(&error);
    let cause = "nothing listens there: is it running, and is --server right?";
    assert_eq!(line, format!("no server at {url}: {cause}"));
}

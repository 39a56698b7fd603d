//! Commands as they are typed, against small servers on a port of their own.
#![allow(clippy::unwrap_used)]

mod hardware;
mod templates;
mod workflows;

use clap::{CommandFactory as _, Parser};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::server::Router;

use crate::{Command, carry_out};

#[derive(Debug, Parser)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

/// Writes a service whose other calls are refused.
macro_rules! fake {
    (
        impl $service:ident for $fake:ident { $($calls:tt)* }
        refuses { $($call:ident: $request:ident => $response:ident,)* }
    ) => {
        #[tonic::async_trait]
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

/// What `client` answers, given the URL where `server` answers.
async fn beside<T>(server: Router, client: impl AsyncFnOnce(String) -> T) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::select! {
        ended = server.serve_with_incoming(TcpListenerStream::new(listener)) => panic!("{ended:?}"),
        answer = client(url) => answer,
    }
}

/// What `tinwright` with `arguments` prints, and how it ends, where `server` answers.
async fn told(arguments: &str, server: Router) -> (String, Result<(), String>) {
    beside(server, async |url| {
        let words = ["tinwright"].into_iter().chain(arguments.split(' '));
        let words = words.chain(["--server", &url]);
        let command = Program::try_parse_from(words).unwrap().command;
        let mut out = Vec::new();
        let ended = carry_out(command, &mut out).await;
        (String::from_utf8(out).unwrap(), ended.map_err(|error| crate::failure::line(&error)))
    })
    .await
}

#[test]
fn the_commands_fit_together() {
    Program::command().debug_assert();
}

#[test]
fn a_new_instance_is_described_by_files_or_by_options_but_not_by_both() {
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
fn the_machine_is_named_before_what_it_boots() {
    let parsed = |text: &str| Program::try_parse_from(text.split(' ')).map(|_| ());
    assert!(parsed("tinwright power boot 192.0.2.10 pxe --uefi --wait").is_ok());
    assert!(parsed("tinwright power boot 192.0.2.10 pxe --uefi --legacy").is_err());
}

#[test]
fn a_password_is_no_argument() {
    let typed = "tinwright power bmc create --hardware a --url b --username c --password d";
    assert!(Program::try_parse_from(typed.split(' ')).is_err());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_in_one_line_with_what_to_do() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    let words = ["tinwright", "hardware", "list", "--server", &url];
    let command = Program::try_parse_from(words).unwrap().command;
    let error = carry_out(command, &mut Vec::new()).await.unwrap_err();
    let line = crate::failure::line(&error);
    let wanted = format!("no server at {url}: is it running, and is --server right?");
    assert!(line.starts_with(&wanted) && line.ends_with("(os error 111)"), "{line}");
}

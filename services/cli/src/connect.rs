//! Finding the server, and the identity of the caller.
//!
//! The directory of secrets is the server's own, or has three files: `ca.pem`, the certificate authority to trust, and `client.pem` with
//! `client-key.pem`, the caller's certificate; without these `admin.pem` with `admin-key.pem`, as the server names them. A context ([`crate::context`]) names a server with its
//! files; options replace parts of it.

mod diagnose;
mod first_start;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches};
use runtime::connect::{Servers, client_config};
use runtime::{Channel, Clock};
use rustls::ClientConfig;
use tinwright::client::{self, Call, Grpc};
use tinwright::common::v1 as common;
use tonic::transport::Uri;
use tonic::{Status, Streaming};

use crate::context::{Contexts, Site};
use crate::failure;
use crate::output::print_line;

/// The server without a context and without options.
const DEFAULT_SERVER: &str = "https://127.0.0.1:42113";
/// Its address.
const DEFAULT_ADDRESS: &str = "127.0.0.1:42113";

/// The largest response in bytes: a page of the largest objects in full view.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The parts of an object to return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    #[default]
    /// All but secrets and user data
    Basic = common::View::Basic as isize,
    /// Everything; for administrators
    Full = common::View::Full as isize,
}

impl From<View> for common::View {
    fn from(view: View) -> Self {
        Self::try_from(view as i32).unwrap_or_default()
    }
}

/// The server that a command calls, and the output that it prints to.
#[expect(missing_debug_implementations, reason = "outputs of all types have no text")]
pub struct Io<'a> {
    /// The server.
    pub channel: &'a Channel,
    /// The output.
    pub out: &'a mut dyn Write,
}

impl Io<'_> {
    /// Makes a call with one response.
    pub async fn call<R: Call>(&self, request: R) -> Result<R::Response, Status> {
        call(self.channel, request).await
    }

    /// Prints `text` with one line end.
    pub fn print(&mut self, text: &str) -> anyhow::Result<()> {
        print_line(self.out, text)
    }
}

/// Makes a call with one response.
pub async fn call<R: Call>(channel: &Channel, request: R) -> Result<R::Response, Status> {
    Ok(client::unary(&mut client(channel), request).await?.into_inner())
}

/// Makes a call whose responses are a stream. Returns once it begins.
pub async fn stream<R: Call>(
    channel: &Channel,
    request: R,
) -> Result<Streaming<R::Response>, Status> {
    Ok(client::server_streaming(&mut client(channel), request).await?.into_inner())
}

fn client(channel: &Channel) -> Grpc<Channel> {
    Grpc::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

/// The server, and the identity of the caller.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// The context with the server and its certificates.
    pub context: Option<String>,
    /// The URLs of the server and its replicas.
    pub server: Vec<String>,
    /// The directory of secrets.
    pub secrets: Option<PathBuf>,
    /// The data directory of the server.
    pub data: Option<PathBuf>,
}

impl clap::Args for Connection {
    fn augment_args(command: Command) -> Command {
        ConnectionOptions::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ConnectionOptions::augment_args_for_update(command)
    }
}

impl FromArgMatches for Connection {
    /// A context on the command line precedes variables of the environment, which would replace parts
    /// of it. A context in a variable precedes variables that name other certificates.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = ConnectionOptions::from_arg_matches(matches)?;
        let ConnectionOptions { context, server, connection_secrets, connection_data } = options;
        let is = |id: &str, source| matches.value_source(id) == Some(source);
        let is_named = is("context", ValueSource::CommandLine);
        for (id, option) in [("connection_secrets", "--secrets"), ("connection_data", "--data")] {
            if is_named && is(id, ValueSource::CommandLine) {
                let text =
                    format!("give --context or {option}, not both: each names a certificate");
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text));
            }
        }
        let has_context = context.is_some();
        let is_preceded = |id: &str| has_context && is(id, ValueSource::EnvVariable);
        Ok(Self {
            context,
            server: if is_named && is_preceded("server") { Vec::new() } else { server },
            secrets: connection_secrets.filter(|_| !is_preceded("connection_secrets")),
            data: connection_data.filter(|_| !is_preceded("connection_data")),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The options of a [`Connection`].
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
struct ConnectionOptions {
    /// Connect to the server of this context, with its certificates; neither with --secrets nor with --data [default: the one in
    /// use, unless --server, --secrets or --data is given]
    #[arg(long, global = true, env = "TINWRIGHT_CONTEXT", value_name = "NAME")]
    context: Option<String>,
    /// Connect to the first of these URLs that answers; http:// for a server without TLS [default: https://127.0.0.1:42113]
    #[arg(long, global = true, env = "TINWRIGHT_SERVER", value_name = "URL")]
    #[arg(value_delimiter = ',')]
    server: Vec<String>,
    /// Read ca.pem, client.pem and client-key.pem (else admin.pem and admin-key.pem) from this directory [default: secrets in the
    /// server's data directory]
    #[arg(long = "secrets", global = true, env = "TINWRIGHT_SECRETS", value_name = "DIR")]
    connection_secrets: Option<PathBuf>,
    /// Read the secrets of the server with this data directory
    // An id of its own: the values of global arguments are passed up to the program, whose own `--data` has another type.
    #[arg(long = "data", global = true, env = "TINWRIGHT_DATA", value_name = "DIR")]
    connection_data: Option<PathBuf>,
}

/// The options of [`Connection`], each of which has a value.
const OPTIONS: [&str; 4] = ["--context", "--server", "--secrets", "--data"];

/// Returns `arguments`, the first of which is the program, with options of the connection that stand before the command at the end: so
/// `tinwright --server URL boot list` is `tinwright boot list --server URL`.
pub fn move_options(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut rest = arguments.into_iter().peekable();
    let mut moved: Vec<_> = rest.next().into_iter().collect();
    let mut options = Vec::new();
    while let Some(word) = rest.next_if(|word| option(word).is_some()) {
        let has_value = option(&word) != Some(word.len());
        options.push(word);
        if !has_value {
            options.extend(rest.next());
        }
    }
    let is_end = |word: &OsString| word == "--";
    moved.extend(std::iter::from_fn(|| rest.next_if(|word| !is_end(word))));
    moved.into_iter().chain(options).chain(rest).collect()
}

/// Returns the length of the option in `word`, which may be followed by a value: `--server=URL`.
fn option(word: &OsStr) -> Option<usize> {
    let text = word.to_str()?;
    let is_it = |option: &&&str| {
        text.strip_prefix(**option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    OPTIONS.iter().find(is_it).map(|option| option.len())
}

impl Connection {
    /// Connects to the server.
    pub async fn open(&self) -> anyhow::Result<Channel> {
        let site = self.site(Contexts::open)?;
        let data = crate::data()?;
        if self.is_local() && site.key.starts_with(&data) && data.exists() {
            first_start::wait(&site.key, DEFAULT_ADDRESS).await;
        }
        let server = site.server()?;
        if let Some(warning) = diagnose::end_warning(&site, Clock::system().wall()) {
            eprintln!("tinwright: warning: {warning}");
        }
        let connected = server.connect().await;
        match connected {
            Ok(channel) => Ok(channel),
            Err(error) if site.servers.len() == 1 => Err(cause_of(&site, error).await),
            Err(error) => {
                let servers = site.servers.join(",");
                let hint = match self.is_context_used() {
                    true => "is it running, and is the context right?",
                    false => "is it running, and is --server right?",
                };
                Err(error.context(format!("no server at {servers}: {hint}")))
            }
        }
    }

    /// Returns the URLs of the server and its replicas.
    pub(crate) fn servers(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.site(Contexts::open)?.servers)
    }

    /// Returns `error`; if it is a broken connection, or a response that is not one of gRPC, its cause in place of it.
    pub async fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let is_broken = error.chain().any(|cause| cause.is::<tonic::transport::Error>());
        match self.site(Contexts::open) {
            Ok(site) if is_broken => cause_of(&site, error).await,
            Ok(site) if failure::is_without_grpc(&error) && site.servers.len() == 1 => {
                diagnose::other_server(&site).await.map_or(error, |cause| anyhow::anyhow!(cause))
            }
            Ok(_) | Err(_) => error,
        }
    }

    /// True if no option names a server: it is the one of a context, or of this host.
    fn is_local(&self) -> bool {
        self.context.is_none() && self.server.is_empty() && self.directory().is_none()
    }

    /// True if a context names the server and its files.
    fn is_context_used(&self) -> bool {
        self.context.is_some() || (self.server.is_empty() && self.directory().is_none())
    }

    /// Returns the directory of secrets that an option names.
    fn directory(&self) -> Option<PathBuf> {
        let in_data = || self.data.as_ref().map(|data| data.join("secrets"));
        self.secrets.clone().or_else(in_data)
    }

    /// Returns the server and its files. The `contexts` are only read where one may be used.
    fn site(&self, contexts: impl FnOnce() -> anyhow::Result<Contexts>) -> anyhow::Result<Site> {
        let context = match &self.context {
            Some(name) => Some(contexts()?.get(name)?.clone()),
            None if self.is_context_used() => contexts()?.current()?.cloned(),
            None => None,
        };
        let site = match (self.directory(), context) {
            (Some(directory), Some(context)) => {
                Site { servers: context.servers, ..Site::in_directory(&directory) }
            }
            (None, Some(context)) => context,
            (Some(directory), None) => Site::in_directory(&directory),
            (None, None) => Site::in_directory(&crate::data()?.join("secrets")),
        };
        let servers = if self.server.is_empty() { site.servers } else { self.server.clone() };
        Ok(Site { servers, ..site })
    }
}

/// Returns the cause of `error` of a connection to `site`, if it can be found.
async fn cause_of(site: &Site, error: anyhow::Error) -> anyhow::Error {
    match diagnose::cause(site, Clock::system().wall()).await {
        Some(cause) => anyhow::anyhow!(cause),
        None => error,
    }
}

impl Site {
    /// The server on this host, with the files of the caller in `directory`.
    pub(crate) fn in_directory(directory: &Path) -> Self {
        let names = match directory.join("client.pem").exists() {
            true => ["ca.pem", "client.pem", "client-key.pem"],
            false => ["ca.pem", "admin.pem", "admin-key.pem"],
        };
        let [ca, certificate, key] = names.map(|name| directory.join(name));
        Self { servers: vec![DEFAULT_SERVER.into()], ca, certificate, key }
    }

    /// Returns the server. The files are read if it is called with TLS.
    pub(crate) fn server(&self) -> anyhow::Result<Servers> {
        let parse = |url: &String| {
            url.parse::<Uri>().with_context(|| format!("the server {url:?} is not a URL"))
        };
        let urls = self.servers.iter().map(parse).collect::<anyhow::Result<Vec<_>>>()?;
        let is_secure = urls.iter().any(|url| url.scheme_str() == Some("https"));
        let tls = is_secure.then(|| self.tls());
        Servers::new(&urls, tls.transpose()?).context("the server")
    }

    /// Returns the settings of TLS that the files make.
    pub(crate) fn tls(&self) -> anyhow::Result<ClientConfig> {
        let read = |path: &Path| {
            let hint = "give --context, --data or --secrets, or copy the file from the server";
            let text = std::fs::read_to_string(path);
            text.with_context(|| format!("reading {}: {hint}", path.display()))
        };
        let (ca, certificate) = (read(&self.ca)?, read(&self.certificate)?);
        let files = [&self.ca, &self.certificate, &self.key].map(|path| path.display());
        client_config(&ca, &certificate, &read(&self.key)?)
            .with_context(|| format!("{}, {} or {}", files[0], files[1], files[2]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn stored() -> anyhow::Result<Contexts> {
        let mut contexts = Contexts::default();
        for name in ["lab", "prod"] {
            let servers = vec![format!("https://{name}:1"), format!("https://{name}:2")];
            let site = Site { servers, ..Site::in_directory(Path::new(name)) };
            contexts.add(name, site)?;
        }
        contexts.select("lab")?;
        Ok(contexts)
    }

    #[test]
    fn options_before_the_command_are_those_of_the_command() {
        for (given, moved) in [
            ("t --server a boot list", "t boot list --server a"),
            ("t --server=a --data d boot list x", "t boot list x --server=a --data d"),
            ("t --context lab node list -- x", "t node list --context lab -- x"),
            ("t boot list --server a", "t boot list --server a"),
            ("t --servers a", "t --servers a"),
            ("t --server", "t --server"),
            ("t", "t"),
        ] {
            let arguments = given.split(' ').map(OsString::from);
            let words: Vec<_> = move_options(arguments);
            assert_eq!(words.join(OsStr::new(" ")), OsString::from(moved), "{given}");
        }
    }

    #[derive(Debug, clap::Parser)]
    struct ConnectionLine {
        #[command(flatten)]
        connection: Connection,
    }

    #[test]
    fn a_context_and_another_place_of_certificates_are_not_given_together() {
        for (option, value) in [("--data", "site"), ("--secrets", "other")] {
            let words = ["t", "--context", "lab", option, value];
            let refused = ConnectionLine::try_parse_from(words).unwrap_err().to_string();
            let text = format!("give --context or {option}, not both");
            assert!(refused.contains(&text), "{refused}");
        }
        let words = ["t", "--context", "lab", "--server", "https://a:1"];
        let connection = ConnectionLine::try_parse_from(words).unwrap().connection;
        assert_eq!(connection.context.as_deref(), Some("lab"));
        assert_eq!(connection.server, ["https://a:1"]);
    }

    fn words(list: &str) -> Vec<String> {
        list.split(' ').filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
    }

    #[test]
    fn options_replace_parts_of_a_context_and_the_one_in_use_is_used_without_options_only() {
        let lab = "https://lab:1 https://lab:2";
        let prod = "https://prod:1 https://prod:2";
        let own = crate::data().unwrap().join("secrets/ca.pem").display().to_string();
        for (context, server, secrets, data, servers, ca) in [
            ("", "", "", "", lab, "lab/ca.pem"),
            ("prod", "", "", "", prod, "prod/ca.pem"),
            ("prod", "https://a:1", "", "", "https://a:1", "prod/ca.pem"),
            ("prod", "", "other", "", prod, "other/ca.pem"),
            ("prod", "", "", "site", prod, "site/secrets/ca.pem"),
            ("", "https://a:1 https://b:1", "", "", "https://a:1 https://b:1", own.as_str()),
            ("", "", "", "site", DEFAULT_SERVER, "site/secrets/ca.pem"),
            ("", "", "other", "site", DEFAULT_SERVER, "other/ca.pem"),
        ] {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let connection = Connection {
                context: some(context),
                server: words(server),
                secrets: some(secrets).map(Into::into),
                data: some(data).map(Into::into),
            };
            let site = connection.site(stored).unwrap();
            assert_eq!((site.servers, site.ca), (words(servers), ca.into()), "{connection:?}");
        }
        let unknown = Connection { context: Some("x".into()), ..Connection::default() };
        let error = unknown.site(stored).unwrap_err();
        assert!(error.to_string().starts_with("no context x"), "{error}");
        let none = Connection::default().site(|| Ok(Contexts::default())).unwrap();
        assert_eq!(none.servers, [DEFAULT_SERVER]);
    }
}

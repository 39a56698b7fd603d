//! Merges flags, environment variables, the file and the defaults into one table, which is parsed once.
//!
//! [`Options`] declares each option: its type, its help and its default. The name of the field is its key in the file; the
//! flag and the variable are derived from the key: `lease` in the section `[dhcp]` is `--dhcp-lease` and
//! `TINWRIGHT_DHCP_LEASE`.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use toml::{Table, Value};

use super::{Options, boot_http, dhcp, help, images};

/// The file that is read if none is named. It may be absent.
const DEFAULT_FILE: &str = "/etc/tinwright/tinwright.toml";

/// The most known fields that an error lists.
const MAX_LISTED_FIELDS: usize = 12;

/// The options of the command line and the environment, before the file is read.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    file: Option<PathBuf>,
    given: Table,
    defaults: Table,
    /// The flag or variable of each given option, by the option's path.
    sources: BTreeMap<String, String>,
}

/// One option as an argument of the command line.
struct OptionArgument {
    /// The section of the file; empty for a key outside of sections.
    section: &'static str,
    key: String,
    argument: Arg,
    kind: ValueKind,
}

#[derive(Clone, Copy)]
enum ValueKind {
    Text,
    Boolean,
    Number,
    List,
}

impl CommandLine {
    /// Reads the file and parses the options of all sources. A flag takes precedence over the environment, that over the file,
    /// and that over the default.
    pub(super) fn options(self) -> anyhow::Result<Options> {
        let path = self.file.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
        let optional = self.file.is_none() && !path.exists();
        let mut given = if optional { Table::new() } else { read(path)? };
        split_lists(&mut given);
        overlay(&mut given, self.given);
        check_store(&given)?;
        let mut merged = self.defaults;
        overlay(&mut merged, given);
        inherit(&mut merged);
        serde_path_to_error::deserialize(merged.clone()).map_err(|error| {
            let option = error.path().to_string();
            let message = error.inner().message();
            let reason = missing_port(&option, &merged)
                .or_else(|| no_address(&option, &merged, message))
                .unwrap_or_else(|| reason_of(message));
            match self.sources.get(option.split('[').next().unwrap_or_default()) {
                Some(source) => anyhow::anyhow!("{source}: {reason}"),
                None => anyhow::anyhow!("parsing {}: {option}: {reason}", path.display()),
            }
        })
    }

    /// Adds the value that `matches` has for `option`.
    fn add(&mut self, option: &OptionArgument, matches: &ArgMatches) -> Result<(), clap::Error> {
        let OptionArgument { section, key, argument, kind } = option;
        let id = argument.get_id().as_str();
        let texts = matches.get_many::<String>(id).unwrap_or_default();
        let source = match matches.value_source(id) {
            Some(ValueSource::EnvVariable) => variable(id),
            Some(ValueSource::CommandLine) => format!("--{}", flag(id)),
            Some(_) => String::new(),
            // A flag is off by default.
            None if matches!(kind, ValueKind::Boolean) => String::new(),
            None => return Ok(()),
        };
        let value = kind.value(texts).map_err(|reason| {
            clap::Error::raw(ErrorKind::InvalidValue, format!("{source}: {reason}\n"))
        })?;
        if key == "config" {
            self.file = value.as_str().map(PathBuf::from);
            return Ok(());
        }
        let mut table = &mut self.given;
        if source.is_empty() {
            table = &mut self.defaults;
        } else {
            self.sources.insert(path(section, key), source);
        }
        if !section.is_empty() {
            let entry = table.entry(*section).or_insert_with(|| Table::new().into());
            let Value::Table(inner) = entry else { return Ok(()) };
            table = inner;
        }
        table.insert(key.clone(), value);
        Ok(())
    }
}

impl ValueKind {
    fn of(argument: &Arg) -> Self {
        let value_type = argument.get_value_parser().type_id();
        let numbers = [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>()];
        if matches!(argument.get_action(), ArgAction::SetTrue) {
            Self::Boolean
        } else if matches!(argument.get_action(), ArgAction::Append) {
            Self::List
        } else if numbers.into_iter().any(|number| value_type == number) {
            Self::Number
        } else {
            Self::Text
        }
    }

    fn value<'a>(self, texts: impl Iterator<Item = &'a String>) -> Result<Value, String> {
        if let Self::List = self {
            return Ok(Value::Array(texts.cloned().map(Value::String).collect()));
        }
        let text = texts.last().cloned().unwrap_or_default();
        match self {
            Self::Text | Self::List => Ok(Value::String(text)),
            Self::Boolean => Ok(Value::Boolean(text == "true")),
            Self::Number => {
                let number = text.parse().map(Value::Integer);
                number.map_err(|_| format!("{text:?} is not a number"))
            }
        }
    }
}

/// Returns the arguments of all options, in the order of the help.
fn arguments() -> Vec<OptionArgument> {
    let section = |section: &'static str, declared: Command| {
        let declared: Vec<Arg> = declared.get_arguments().cloned().collect();
        declared.into_iter().map(move |argument| OptionArgument::new(section, argument))
    };
    let command = || Command::new("");
    section("", Options::augment_args(command()))
        .chain(section("boot", boot_http::BootSection::augment_args(command())))
        .chain(section("dhcp", dhcp::DhcpSection::augment_args(command())))
        .chain(section("images", images::ImagesSection::augment_args(command())))
        .collect()
}

impl OptionArgument {
    fn new(section: &'static str, declared: Arg) -> Self {
        let (key, kind) = (declared.get_id().to_string(), ValueKind::of(&declared));
        let id = path(section, &key).replace('.', "_");
        let argument = match kind {
            ValueKind::Boolean => declared
                .action(ArgAction::Set)
                .num_args(0..=1)
                .default_missing_value("true")
                .value_parser(PossibleValuesParser::new(["true", "false"])),
            ValueKind::Text | ValueKind::Number | ValueKind::List => {
                let values = declared.get_possible_values();
                let is_path = declared.get_value_parser().type_id() == TypeId::of::<PathBuf>();
                match (values.is_empty(), is_path) {
                    // An empty path would be the working directory.
                    (true, true) => declared
                        .value_parser(NonEmptyStringValueParser::new())
                        .value_hint(ValueHint::AnyPath),
                    (true, false) => declared.value_parser(clap::value_parser!(String)),
                    (false, _) => declared.value_parser(PossibleValuesParser::new(values)),
                }
            }
        };
        let argument = match kind {
            // Without a flag it was declared as positional, which takes all values that follow.
            ValueKind::List => argument.num_args(1),
            ValueKind::Text | ValueKind::Number | ValueKind::Boolean => argument,
        };
        let argument = argument.long(flag(&id)).env(variable(&id)).hide_env_values(true);
        let argument = argument.help_heading(help::heading(&id)).id(id);
        Self { section, key, argument, kind }
    }

    /// Returns the argument, hidden in the help unless `is_shown` holds for it.
    fn shown_if(self, is_shown: impl Fn(&Arg) -> bool) -> Arg {
        let is_hidden = self.argument.is_hide_set() || !is_shown(&self.argument);
        self.argument.hide(is_hidden)
    }
}

fn path(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

fn flag(id: &str) -> String {
    id.replace('_', "-")
}

fn variable(id: &str) -> String {
    format!("TINWRIGHT_{}", id.to_uppercase())
}

fn read(path: &Path) -> anyhow::Result<Table> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).map_err(|error| not_toml(path, &text, &error))
}

/// Returns what `message` of serde says. An unknown field has all known ones behind it: of these, it names the one that is meant.
fn reason_of(message: &str) -> String {
    let is_unknown = message.starts_with("unknown field ");
    let Some((unknown, known)) = message.split_once(", expected ").filter(|_| is_unknown) else {
        return message.to_owned();
    };
    let quoted = |text: &'_ str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let (name, known): (Vec<String>, Vec<String>) = (quoted(unknown), quoted(known));
    let name = name.first().map_or("", String::as_str);
    match actions::suggest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("{unknown}: did you mean `{meant}`?"),
        None if known.len() > MAX_LISTED_FIELDS => {
            format!("{unknown}: see `tinwright serve --help-all`")
        }
        None => message.to_owned(),
    }
}

/// Returns the error of a file that is not TOML: in one line, with the line in the file.
fn not_toml(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let end = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(end).filter(|byte| *byte == b'\n').count();
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    anyhow::anyhow!("{}:{line}: not TOML: {message}", path.display())
}

/// Gives options with several values in the file the form of flags: a text is a list, separated by commas.
fn split_lists(file: &mut Table) {
    for OptionArgument { section, key, kind, .. } in arguments() {
        let section = match section {
            "" => Some(&mut *file),
            section => file.get_mut(section).and_then(Value::as_table_mut),
        };
        let value = section.and_then(|section| section.get_mut(&key));
        if let (ValueKind::List, Some(value)) = (kind, value)
            && let Some(text) = value.as_str()
        {
            *value = Value::Array(text.split(',').map(Value::from).collect());
        }
    }
}

/// Returns what is missing in the value of `option`, such as `listen[0]`, if it is an address in place of one with a port. The
/// recommended port is that of the default.
fn missing_port(option: &str, merged: &Table) -> Option<String> {
    let key = option.split_once('[').map_or(option, |(key, _)| key);
    let address: IpAddr = text_of(option, merged)?.parse().ok()?;
    let usual = match key {
        "listen" => super::API_PORT,
        "metadata_listen" => 80,
        "metadata_grpc_listen" => 42115,
        _ => default_address(key)?.port(),
    };
    Some(format!("add a port: {}", SocketAddr::from((address, usual))))
}

/// Returns the text of `option`, such as `listen[0]`.
fn text_of<'a>(option: &str, merged: &'a Table) -> Option<&'a str> {
    let (key, index) = option.split_once('[').unwrap_or((option, "0]"));
    let (value, index) = (merged.get(key)?, index.strip_suffix(']')?.parse::<usize>().ok()?);
    value.as_array().map_or_else(|| Some(value), |list| list.get(index))?.as_str()
}

/// Returns the reason for the value of `option` that is not an address with a port, as the `message` of its parser says.
fn no_address(option: &str, merged: &Table, message: &str) -> Option<String> {
    let text = text_of(option, merged).filter(|_| message.starts_with("invalid socket address"))?;
    let hint = if text == "none" { ": only gateway_listen can be none" } else { "" };
    Some(format!("{text:?} is not ADDRESS:PORT{hint}"))
}

/// Returns the default of the option `key`, if it is an address with a port.
fn default_address(key: &str) -> Option<SocketAddr> {
    let option = arguments().into_iter().find(|it| it.section.is_empty() && it.key == key)?;
    option.argument.get_default_values().first()?.to_str()?.parse().ok()
}

/// Puts the values of `over` above those of `table`; sections are merged.
fn overlay(table: &mut Table, over: Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(section)), Value::Table(over)) => overlay(section, over),
            (_, value) => drop(table.insert(key, value)),
        }
    }
}

/// Fails if options of an etcd cluster are given and the store is another one.
fn check_store(given: &Table) -> anyhow::Result<()> {
    let store = given.get("store").and_then(Value::as_str).unwrap_or("sled");
    let unused = given.keys().find(|key| key.starts_with("etcd_") && store != "etcd");
    unused.map_or(Ok(()), |key| anyhow::bail!("{key} is for store etcd, but store is {store}"))
}

/// Gives each of `[[links]]` the values that it does not set and that apply to every link.
fn inherit(merged: &mut Table) {
    let Some(Value::Array(mut links)) = merged.get("links").cloned() else { return };
    let common = [("http_port", "netboot_http_port"), ("ra_assist", "ra_assist"), ("dhcp", "dhcp")];
    let common =
        common.into_iter().filter_map(|(key, of)| Some((key.into(), merged.get(of)?.clone())));
    let common: Table = common.collect();
    for link in links.iter_mut().filter_map(Value::as_table_mut) {
        let own = std::mem::replace(link, common.clone());
        overlay(link, own);
    }
    merged.insert("links".into(), links.into());
}

impl Args for CommandLine {
    fn augment_args(command: Command) -> Command {
        let is_common = |argument: &Arg| !help::is_rare(argument.get_id().as_str());
        let options = arguments().into_iter().map(|option| option.shown_if(is_common));
        let all = Arg::new(help::HELP_ALL).long("help-all").action(ArgAction::SetTrue);
        command
            .args(options)
            .arg(all.help("Print help with all options, also those that few sites need"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for CommandLine {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut line = Self::default();
        for option in arguments() {
            line.add(&option, matches)?;
        }
        Ok(line)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The options of a server whose store a command works on. Its help shows those of the store only.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions(pub CommandLine);

impl Args for StoreOptions {
    fn augment_args(command: Command) -> Command {
        let is_of_store = |argument: &Arg| {
            let id = argument.get_id().as_str();
            id == "config" || help::heading(id) == Some(help::STORE)
        };
        command.args(arguments().into_iter().map(|option| option.shown_if(is_of_store)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for StoreOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        CommandLine::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Returns the help of the command `serve` with all options, if its arguments ask for it.
pub fn full_help(command: &Command, matches: &ArgMatches) -> Option<String> {
    let is_wanted = matches.try_get_one::<bool>(help::HELP_ALL).ok().flatten()?;
    is_wanted.then(|| help::with_all_options(command.clone()).render_long_help().to_string())
}

#[cfg(test)]
mod tests;

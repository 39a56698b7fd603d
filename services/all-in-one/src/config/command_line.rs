//! Merges flags, environment variables, the file and the defaults into one table, which is parsed once.
//!
//! [`Options`] declares each option: its type, its help and its default. The name of the field is its key in the file; the
//! flag and the variable are derived from the key: `lease` in the section `[dhcp]` is `--dhcp-lease` and
//! `TINWRIGHT_DHCP_LEASE`.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use toml::{Table, Value};

use super::{Options, boot_http, dhcp};

/// The file that is read if none is named. It may be absent.
const DEFAULT_FILE: &str = "/etc/tinwright/tinwright.toml";

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
        overlay(&mut given, self.given);
        check_store(&given)?;
        let mut merged = self.defaults;
        overlay(&mut merged, given);
        inherit(&mut merged);
        serde_path_to_error::deserialize(merged).map_err(|error| {
            let option = error.path().to_string();
            let reason = error.inner().message();
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
        let argument = argument.long(flag(&id)).env(variable(&id)).id(id);
        Self { section, key, argument, kind }
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
    toml::from_str(&text).with_context(|| format!("parsing {}", path.display()))
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
        command.args(arguments().into_iter().map(|option| option.argument))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        CommandLine::augment_args(Command::new("tinwright"))
    }

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        let arguments = ["tinwright"].iter().chain(arguments).chain(&["--config", "/dev/null"]);
        let matches = command().get_matches_from(arguments);
        let line = CommandLine::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        line.options().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn flags_and_variables_are_derived_from_the_path_of_the_option() {
        command().debug_assert();
        let options = arguments();
        let lease = options.iter().find(|option| option.section == "dhcp" && option.key == "lease");
        let argument = &lease.expect("dhcp.lease is an option").argument;
        assert_eq!(argument.get_long(), Some("dhcp-lease"));
        assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some("TINWRIGHT_DHCP_LEASE"));
    }

    #[test]
    fn the_help_of_each_option_starts_with_a_verb_and_has_no_second_default() {
        for OptionArgument { argument, .. } in arguments() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let first = help.split(' ').next().unwrap_or_default();
            assert!(first.starts_with(char::is_uppercase), "{help}");
            let declared = !argument.get_default_values().is_empty();
            assert!(!(declared && help.contains("[default:")), "{help}");
        }
    }

    #[test]
    fn values_of_flags_are_typed_by_their_option() {
        let options = parse(&[
            "--dhcp-mode",
            "auto-proxy",
            "--dhcp-relays",
            "192.0.2.1,192.0.2.2",
            "--dhcp-port-4011=false",
            "--boot-https-port",
            "443",
            "--insecure",
        ])
        .unwrap();
        assert_eq!((options.dhcp.mode, options.dhcp.port_4011), (dhcp::Mode::AutoProxy, false));
        assert_eq!((options.dhcp.relays.len(), options.dhcp.lease), (2, 86_400));
        assert_eq!((options.boot.https_port, options.insecure), (Some(443), true));
    }

    #[test]
    fn a_wrong_value_is_refused_with_the_flag_and_the_reason() {
        for (flag, value, reason) in [
            ("--drain-seconds", "soon", "--drain-seconds: \"soon\" is not a number"),
            ("--netboot-http-port", "70000", "--netboot-http-port: "),
            ("--dhcp-relays", "192.0.2.1,x", "--dhcp-relays: invalid"),
            ("--listen", "somewhere", "--listen: invalid socket address"),
            ("--peers", "ftp://a", "--peers: ftp://a is neither https:// nor http://"),
        ] {
            let refused = parse(&[flag, value]).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn a_section_of_a_link_is_above_the_common_one() {
        let mut merged: Table = toml::from_str(
            "netboot_http_port = 8080\n[dhcp]\nlease = 1\nmode = 'a'\n[[links]]\n[links.dhcp]\nlease = 2",
        )
        .unwrap();
        inherit(&mut merged);
        let expected: Table =
            toml::from_str("http_port = 8080\n[dhcp]\nlease = 2\nmode = 'a'").unwrap();
        assert_eq!(merged["links"][0], Value::Table(expected));
    }
}

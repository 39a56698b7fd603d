//! Options of all sources: flags, variables, the file and the defaults; and their help.
#![allow(clippy::unwrap_used)]

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
fn each_number_names_its_unit_and_no_text_has_a_number_as_its_default() {
    let mut count = 0;
    for OptionArgument { argument, kind, .. } in arguments() {
        let (id, names) = (argument.get_id(), argument.get_value_names().unwrap_or_default());
        if matches!(kind, ValueKind::Number) {
            count += 1;
            let is_unit = |name: &str| ["GIB", "MINUTES", "PORT", "SECONDS"].contains(&name);
            assert!(names.iter().any(|name| is_unit(name)), "{id}: {names:?} names no unit");
        } else {
            let defaults = argument.get_default_values().iter();
            let mut numbers = defaults.filter_map(|it| it.to_str()?.parse::<f64>().ok());
            assert_eq!(numbers.next(), None, "{id} is not declared as a number");
        }
    }
    assert_eq!(count, 9);
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
        ("--listen", "somewhere", "--listen: \"somewhere\" is not ADDRESS:PORT"),
        (
            "--metrics-listen",
            "none",
            "--metrics-listen: \"none\" is not ADDRESS:PORT: only gateway_listen can be none",
        ),
        ("--listen", "127.0.0.1", "--listen: add a port: 127.0.0.1:42113"),
        ("--listen", "127.0.0.1:1,::1", "--listen: add a port: [::1]:42113"),
        ("--metrics-listen", "::1", "--metrics-listen: add a port: [::1]:9464"),
        ("--metadata-listen", "192.0.2.1", "--metadata-listen: add a port: 192.0.2.1:80"),
        ("--peers", "ftp://a", "--peers: ftp://a is neither https:// nor http://"),
    ] {
        let refused = parse(&[flag, value]).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn a_text_in_the_file_is_a_list_where_several_values_are_allowed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "gateway_listen = \"none\"\nlisten = \"127.0.0.1:1,127.0.0.1:2\"\n[dhcp]\nrelays = \"192.0.2.1\"\n";
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    let matches = command().get_matches_from(["tinwright", "--config", path]);
    let options = CommandLine::from_arg_matches(&matches).unwrap().options().unwrap();
    assert_eq!(options.gateway_listen, ["none"]);
    assert_eq!((options.listen.unwrap().len(), options.dhcp.relays.len()), (2, 1));
}

#[test]
fn rare_options_are_in_the_full_help_only_and_every_group_has_a_heading() {
    let command = command();
    let help = |command: &Command| command.clone().render_long_help().to_string();
    let parse = |words: &[&str]| command.clone().get_matches_from(words);
    assert!(full_help(&command, &parse(&["tinwright"])).is_none());
    let full = full_help(&command, &parse(&["tinwright", "--help-all"])).unwrap();
    let usual = help(&command);
    for rare in ["--dhcp-mac-in-path", "--etcd-prefix", "--boot-iso-placeholder"] {
        assert!(!usual.contains(rare) && full.contains(rare), "{rare}");
    }
    for group in ["API", "Network boot", "DHCP", "Metadata", "Store", "Security", "Logging"] {
        assert!(usual.contains(&format!("\n{group}:\n")), "{group}: {usual}");
    }
    assert!(!full.contains("--no-rate-limits") && usual.lines().count() < 260, "{usual}");
    let store = help(&StoreOptions::augment_args(Command::new("check")));
    assert!(store.contains("--etcd-prefix") && !store.contains("--listen"), "{store}");
}

#[test]
fn each_common_option_exists() {
    let ids: Vec<_> = arguments().iter().map(|it| it.argument.get_id().to_string()).collect();
    let common = ids.iter().filter(|id| !help::is_rare(id)).count();
    assert_eq!(common, help::COMMON.len());
}

/// Returns the example file with each setting that is commented out in force.
fn example() -> String {
    let is_key = |key: &str| key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_setting = |line: &&str| {
        line.starts_with('[') || line.split_once(" = ").is_some_and(|(key, _)| is_key(key))
    };
    let text = include_str!("../../../../../docs/examples/tinwright.toml");
    let in_force = |line| str::strip_prefix(line, "# ").filter(is_setting).unwrap_or(line);
    let lines: Vec<_> = text.lines().map(in_force).collect();
    lines.join("\n").replace("store = \"sled\"", "store = \"etcd\"")
}

#[test]
fn the_example_file_has_every_option_and_no_other() {
    let text = example();
    crate::config::tests::options(&text).unwrap();
    let file: Table = toml::from_str(&text).unwrap();
    let has = |option: &OptionArgument| {
        let section = file.get(option.section).and_then(Value::as_table).unwrap_or(&file);
        section.contains_key(&option.key)
    };
    let missing: Vec<_> = arguments()
        .into_iter()
        .filter(|option| option.key != "config" && !option.argument.is_hide_set())
        .filter(|option| !has(option))
        .map(|option| path(option.section, &option.key))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
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

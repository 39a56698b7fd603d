//! The options of all sources: their precedence, and the errors.

use clap::{Args as _, Command, FromArgMatches as _};

use super::*;

/// Passes the command line of `arguments` and the file `text` to `use_it`.
fn with_file<T>(text: &str, arguments: &[&str], use_it: impl FnOnce(CommandLine) -> T) -> T {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tinwright.toml");
    std::fs::write(&path, text).unwrap();
    let file = ["--data", "/nowhere", "--config", path.to_str().unwrap()];
    use_it(command_line(&[&file, arguments].concat()))
}

fn command_line(arguments: &[&str]) -> CommandLine {
    let command = CommandLine::augment_args(Command::new("tinwright")).no_binary_name(true);
    CommandLine::from_arg_matches(&command.get_matches_from(arguments)).unwrap()
}

fn load(text: &str, arguments: &[&str]) -> anyhow::Result<Config> {
    with_file(text, arguments, Config::load)
}

/// Parses the file `text` with the defaults beneath it.
pub(super) fn options(text: &str) -> anyhow::Result<Options> {
    with_file(text, &[], CommandLine::options)
}

#[test]
fn a_flag_takes_precedence_over_the_file_and_that_over_the_default() {
    let file = "listen = ['127.0.0.1:1']\nlog = 'debug'\ndrain_seconds = 5";
    let config = load(file, &["--log", "warn"]).unwrap();
    assert_eq!(config.listen[0].port(), 1);
    assert_eq!((config.log.as_str(), config.drain), ("warn", Duration::from_secs(5)));
    assert_eq!(config.metrics_listen.port(), 9464);
    let config = load("[dhcp]\nlease = 7200", &["--dhcp-mode", "proxy"]);
    assert!(config.is_ok(), "a section is merged with flags");
}

#[test]
fn an_unknown_key_a_wrong_type_and_a_missing_file_are_refused_by_name() {
    let error = error_of("lisen = ['127.0.0.1:1']");
    assert!(error.contains("lisen") && error.contains("tinwright.toml"), "{error}");
    let error = error_of("[dhcp]\nlease = 'long'");
    assert!(error.contains("tinwright.toml: dhcp.lease: invalid type"), "{error}");
    let error =
        format!("{:#}", Config::load(command_line(&["--config", "/nowhere/x.toml"])).unwrap_err());
    assert!(error.starts_with("reading /nowhere/x.toml"), "{error}");
}

#[test]
fn without_tls_only_loopback_is_allowed() {
    let error = load("insecure = true\nlisten = ['0.0.0.0:1']", &[]).unwrap_err().to_string();
    assert_eq!(error, "insecure is for loopback only, but listen is 0.0.0.0:1");
}

#[test]
fn the_certificate_names_the_addresses_and_advertised_names() {
    let names = load("listen = ['192.0.2.1:1']\nadvertise = ['rack.lab']", &[]).unwrap().names();
    assert_eq!(names, ["127.0.0.1", "192.0.2.1", "::1", "localhost", "rack.lab"]);
}

fn error_of(text: &str) -> String {
    format!("{:#}", load(text, &[]).unwrap_err())
}

#[test]
fn a_filter_of_the_log_that_selects_nothing_is_refused() {
    assert!(load("log = 'info,store=debug'", &[]).is_ok());
    for (filter, part) in [("verbose", "verbose"), ("inf=,o", "inf="), ("info,store", "store")] {
        let error = error_of(&format!("log = '{filter}'"));
        let start =
            format!("log: {part:?} is neither a level (error, warn, info, debug, trace, off)");
        assert!(error.starts_with(&start), "{error}");
    }
}

#[test]
fn options_of_etcd_are_refused_for_another_store() {
    assert_eq!(
        error_of("etcd_endpoints = ['http://127.0.0.1:2379']"),
        "etcd_endpoints is for store etcd, but store is sled"
    );
    assert_eq!(
        error_of("store = 'memory'\netcd_user = 'tinwright'"),
        "etcd_user is for store etcd, but store is memory"
    );
}

#[test]
fn incomplete_options_of_etcd_are_refused_by_name() {
    let wrong = |text: &str| error_of(&format!("store = 'etcd'\n{text}"));
    for (text, why) in [
        ("etcd_endpoints = []", "etcd_endpoints is empty"),
        (
            "etcd_endpoints = ['127.0.0.1:2379']",
            "etcd_endpoints: 127.0.0.1:2379 is neither https:// nor http://",
        ),
        (
            "etcd_endpoints = ['http://a:1', 'https://b:1']",
            "etcd_endpoints has both https:// and http://",
        ),
        ("etcd_endpoints = ['https://a:1']", "etcd_endpoints are https, but etcd_ca is not given"),
        ("etcd_ca = '/nowhere/ca.pem'", "etcd_ca is for https, but etcd_endpoints are http"),
        ("etcd_prefix = '/tinwright'", "etcd_prefix \"/tinwright\" does not end with /"),
        ("etcd_user = 'x'", "etcd_user is given, but etcd_password_file is not"),
    ] {
        assert_eq!(wrong(text), why);
    }
    let missing = wrong("etcd_endpoints = ['https://a:1']\netcd_ca = '/nowhere/ca.pem'");
    assert!(missing.starts_with("etcd_ca /nowhere/ca.pem: No such file"), "{missing}");
}

#[test]
fn certificates_key_and_password_are_read_and_not_in_debug_output() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };
    let [ca, certificate, key, password] = [
        file("ca.pem", "-----BEGIN CERTIFICATE-----\nca"),
        file("own.pem", "-----BEGIN CERTIFICATE-----\nown"),
        file("key.pem", "-----BEGIN EC PRIVATE KEY-----\nhidden"),
        file("password", "hidden\n"),
    ]
    .map(|path| path.display().to_string());
    let text = format!(
        "store = 'etcd'\netcd_endpoints = ['https://a:1']\netcd_ca = '{ca}'\netcd_certificate = '{certificate}'\n\
         etcd_user = 'tinwright'\netcd_password_file = '{password}'\n"
    );
    let config = load(&text, &["--etcd-key", &key]).unwrap();
    assert!(!format!("{config:?}").contains("hidden"));
    let Storage::Etcd(options) = config.store else { panic!("{:?}", config.store) };
    assert_eq!(options.login.unwrap().password, "hidden");
    assert!(options.tls.unwrap().identity.unwrap().key.ends_with("hidden"));

    let why = format!("{:#}", load(&text, &["--etcd-key", &certificate]).unwrap_err());
    assert!(why.ends_with("own.pem: no private key in it"), "{why}");
}

#[test]
fn a_password_is_sent_to_another_host_without_tls_only_with_etcd_insecure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    std::fs::write(&path, "hidden").unwrap();
    let load_with = |endpoint: &str, more: &str| {
        load(&format!(
            "store = 'etcd'\netcd_endpoints = ['{endpoint}']\netcd_user = 'u'\netcd_password_file = '{}'\n{more}",
            path.display()
        ), &[]).map(|_| ()).map_err(|error| error.to_string())
    };
    for local in ["http://127.0.0.1:2379", "http://[::1]:2379", "http://localhost:2379"] {
        assert_eq!(load_with(local, ""), Ok(()));
    }
    for remote in ["http://192.0.2.1:2379", "http://etcd:2379", "http://127.0.0.1.example:2379"] {
        let why = load_with(remote, "").unwrap_err();
        assert!(why.contains(&format!("would go to {remote} without TLS: use https")), "{why}");
        assert!(load_with(remote, "etcd_insecure = false").is_err());
        assert_eq!(load_with(remote, "etcd_insecure = true"), Ok(()));
    }
}

#[test]
fn without_only_every_service_is_here_and_with_it_the_others_are_at_peers() {
    let split = load("", &[]).unwrap().split;
    assert!(split.serves(Service::Power) && split.peers(Service::Power).is_empty());
    let split = load("only = ['instance', 'power']\npeers = ['hardware=https://a:1', 'instance=https://b:1', 'https://c:1']", &[]).unwrap().split;
    let at = |service| split.peers(service).first().map(ToString::to_string);
    assert_eq!(at(Service::Hardware).as_deref(), Some("https://a:1/"));
    assert_eq!(at(Service::Workflow).as_deref(), Some("https://c:1/"));
    assert_eq!((at(Service::Instance), at(Service::Power)), (None, None));
}

#[test]
fn a_service_may_have_several_addresses() {
    let text = "only = ['instance']\npeers = ['workflow=https://a:1', 'https://c:1', 'workflow=https://b:1', 'https://d:1']";
    let split = load(text, &[]).unwrap().split;
    let at = |service| split.peers(service).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(at(Service::Workflow), ["https://a:1/", "https://b:1/"]);
    assert_eq!(at(Service::Power), ["https://c:1/", "https://d:1/"]);
}

#[test]
fn an_incomplete_split_is_refused_with_what_is_missing() {
    for (text, why) in [
        ("only = []", "only is empty"),
        (
            "only = ['instance']\npeers = ['hardware=https://a:1']",
            "instance calls address, which is not served here: set its address in peers",
        ),
        (
            "only = ['workflow']\npeers = ['hardware=https://a:1', 'power=https://a:1']",
            "workflow calls identity, which is not served here: set its address in peers",
        ),
        (
            "only = ['node']\npeers = ['hardware=https://a:1', 'instance=https://a:1']",
            "node calls identity, which is not served here: set its address in peers",
        ),
        (
            "peers = ['https://a:1']",
            "peers is given, but only is not: every service is served here",
        ),
        (
            "only = ['power']\npeers = ['https://a:1', 'https://b:1', 'https://a:1']",
            "peers has the address https://a:1/ for all others twice",
        ),
        (
            "only = ['power']\npeers = ['metadata=https://a:1']",
            "power calls hardware, which is not served here: set its address in peers",
        ),
        (
            "only = ['power']\npeers = ['http://a:1']",
            "peers: http://a:1/ has no TLS: set insecure to allow this",
        ),
        (
            "only = ['metadata']\npeers = ['https://a:1']",
            "only names metadata, but metadata_listen is not given",
        ),
        (
            "only = ['netboot']\npeers = ['https://127.0.0.1:1']\nnetboot_interface = 'lo'",
            "peers: machines that netboot boots do not reach workflow at 127.0.0.1",
        ),
    ] {
        assert_eq!(error_of(text), why);
    }
    let path = error_of("only = ['power']\npeers = ['https://a:1/x']");
    assert!(path.contains("https://a:1/x has a path: only scheme, host and port"), "{path}");
}

#[test]
fn options_of_services_elsewhere_are_ignored() {
    let config = load(
        "only = ['metadata']\npeers = ['https://a:1']\n\
         netboot_interface = 'nowhere'\nmetadata_listen = ['127.0.0.1:0']",
        &[],
    )
    .unwrap();
    assert!(config.netboot.is_none() && !config.split.uses_store());
    assert_eq!((config.listen.len(), config.metadata_listen.len()), (1, 1));
}

#[test]
fn metadata_options_are_read_and_trusting_everybody_is_refused() {
    let metadata = load("", &[]).unwrap().metadata;
    assert!(metadata.refuse_forwarded && metadata.allowed_hosts.is_empty());
    let metadata = load(
        "metadata_trusted_proxies = ['192.0.2.0/24']\nmetadata_refuse_forwarded = false\n\
         metadata_allowed_hosts = ['169.254.169.254']",
        &[],
    )
    .unwrap()
    .metadata;
    assert!(metadata.trusted_proxies.contains([192, 0, 2, 7].into()) && !metadata.refuse_forwarded);
    assert_eq!(metadata.allowed_hosts, ["169.254.169.254"]);
    let why = error_of("metadata_trusted_proxies = ['0.0.0.0/0']");
    assert!(why.starts_with("metadata_trusted_proxies: 0.0.0.0/0 would trust everybody"), "{why}");
}

#[test]
fn machines_get_the_address_of_the_workflow_service() {
    let config = load(
        "only = ['netboot']\npeers = ['https://192.0.2.7:42113', 'https://192.0.2.8:42113']\n\
         netboot_interface = 'lo'\nnetboot_address = '127.0.0.1'",
        &[],
    )
    .unwrap();
    assert_eq!(config.machines_api(Ipv4Addr::LOCALHOST), "192.0.2.7:42113");
    assert_eq!(config.further_servers(Ipv4Addr::LOCALHOST), ["192.0.2.8:42113"]);
}

#[test]
fn the_api_is_served_by_default_where_machines_call_it() {
    let listen = |file: &str| load(file, &[]).unwrap().listen;
    let links = "netboot_interface = 'lo'\nnetboot_address = '192.0.2.7'";
    let on = |addresses: &[&str]| -> Vec<SocketAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    };
    assert_eq!(listen(""), on(&["127.0.0.1:42113"]));
    assert_eq!(listen(links), on(&["127.0.0.1:42113", "192.0.2.7:42113"]));
    assert_eq!(listen(&format!("listen = ['127.0.0.1:1']\n{links}")), on(&["127.0.0.1:1"]));
    assert_eq!(listen(&format!("insecure = true\n{links}")), on(&["127.0.0.1:42113"]));
    let elsewhere = "only = ['netboot']\npeers = ['https://192.0.2.8:42113']\n";
    assert_eq!(listen(&format!("{elsewhere}{links}")), on(&["127.0.0.1:42113"]));
    // One address on two links, and loopback.
    let same = "netboot_interface = 'lo'\nnetboot_address = '127.0.0.1'";
    assert_eq!(listen(same), on(&["127.0.0.1:42113"]));
}

#[test]
fn machines_get_further_servers_besides_the_one_of_this_process() {
    let servers = ["--machines-api", "192.0.2.1:42113,192.0.2.2:42113,rack.lab:443"];
    let config = load("listen = ['192.0.2.1:42113']", &servers).unwrap();
    let further = config.further_servers([192, 0, 2, 1].into());
    assert_eq!(further, ["192.0.2.2:42113", "rack.lab:443"]);
    for (servers, reason) in [
        ("['192.0.2.2']", "machines_api: \"192.0.2.2\" is not HOST:PORT"),
        ("['https://192.0.2.2:1']", "machines_api: \"https://192.0.2.2:1\" is not HOST:PORT"),
        ("['localhost:42113']", "machines_api: machines do not reach localhost:42113"),
        ("['a:1', 'b:1', 'c:1', 'd:1', 'e:1']", "machines_api has 5 servers, over 4"),
    ] {
        assert_eq!(error_of(&format!("machines_api = {servers}")), reason);
    }
}

#[test]
fn dhcp_is_a_section_of_the_file_and_can_be_disabled() {
    let netboot = "netboot_interface = 'lo'\nnetboot_address = '127.0.0.1'\n";
    let dhcp = load(&format!("{netboot}netboot_chain_ipxe = true\n[dhcp]\nmode = 'disabled'"), &[])
        .unwrap()
        .netboot
        .unwrap()
        .links
        .remove(0)
        .dhcp;
    assert!(dhcp.chain_ipxe && !dhcp.is_on());
    let dhcp = load(netboot, &[]).unwrap().netboot.unwrap().links.remove(0).dhcp;
    assert!(!dhcp.chain_ipxe && dhcp.is_on());
    assert!(error_of(&format!("{netboot}[dhcp]\nmod = 'proxy'")).contains("mod"));
}

#[test]
fn hegels_grpc_is_served_if_it_has_an_address_and_metadata_is_here() {
    let config = load("metadata_grpc_listen = ['192.0.2.1:42115']", &[]).unwrap();
    assert_eq!(config.metadata.grpc_listen, ["192.0.2.1:42115".parse().unwrap()]);
    assert!(load("metadata_grpc_listen = ['192.0.2.1:42115']\nonly = ['metadata']\npeers = ['https://a:1']", &[]).is_ok());
    assert!(load("metadata_grpc_listen = ['192.0.2.1:42115']\nonly = ['power']\npeers = ['https://a:1']\n\
         [metadata_custom_endpoints]\n'/a' = 'nonsense'", &[]).unwrap().metadata.grpc_listen.is_empty());
}

#[test]
fn custom_endpoints_are_a_section_or_json_and_a_bad_filter_is_refused_by_its_path() {
    assert!(
        load("[metadata_custom_endpoints]\n'/tags' = '.metadata.instance.tags[]'", &[]).is_ok()
    );
    let file = "[metadata_custom_endpoints]\n'/tags' = '.'";
    let with_flag = |json| {
        let config = load(file, &["--metadata-custom-endpoints", json]);
        format!("{:#}", config.map(|_| ()).unwrap_err())
    };
    let hegels = r#"{"/metadata": ".metadata.instance", "/a": "[range(9)]"}"#;
    assert_eq!(with_flag(hegels), "metadata_custom_endpoints: /a: filter: range is not allowed");
    assert!(with_flag("{").starts_with("--metadata-custom-endpoints: "));
    assert_eq!(
        error_of("[metadata_custom_endpoints]\n'/a' = '.b |'"),
        "metadata_custom_endpoints: /a: filter: term expected before its end"
    );
}

#[test]
fn an_empty_path_is_refused() {
    let command = CommandLine::augment_args(Command::new("tinwright")).no_binary_name(true);
    let error = command.try_get_matches_from(["--data", ""]).unwrap_err().to_string();
    assert!(error.contains("--data"), "{error}");
}

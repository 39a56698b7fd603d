//! What is taken, and what is refused by name.

use super::*;

fn written(text: &str) -> (tempfile::TempDir, Flags) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tinwright.toml");
    std::fs::write(&path, text).unwrap();
    (dir, Flags { config: Some(path), data: Some("/nowhere".into()), ..Flags::default() })
}

#[test]
fn a_flag_goes_before_the_file_and_that_before_the_default() {
    let (_dir, flags) = written("listen = ['127.0.0.1:1']\nlog = 'debug'\ndrain_seconds = 5");
    let config = Config::load(Flags { log: Some("warn".into()), ..flags }).unwrap();
    assert_eq!(config.listen[0].port(), 1);
    assert_eq!((config.log.as_str(), config.drain), ("warn", Duration::from_secs(5)));
    assert_eq!(config.metrics_listen.port(), 9464);
}

#[test]
fn an_unknown_key_and_a_missing_file_are_refused_by_name() {
    let (_dir, flags) = written("lisen = ['127.0.0.1:1']");
    let error = format!("{:#}", Config::load(flags).unwrap_err());
    assert!(error.contains("lisen") && error.contains("tinwright.toml"), "{error}");
    let flags = Flags { config: Some("/nowhere/x.toml".into()), ..Flags::default() };
    let error = format!("{:#}", Config::load(flags).unwrap_err());
    assert!(error.starts_with("reading /nowhere/x.toml"), "{error}");
}

#[test]
fn nothing_listens_in_clear_off_loopback() {
    let (_dir, flags) = written("insecure = true\nlisten = ['0.0.0.0:1']");
    let error = Config::load(flags).unwrap_err().to_string();
    assert_eq!(error, "insecure is for loopback only, but listen is 0.0.0.0:1");
}

#[test]
fn the_certificate_names_what_is_listened_on_and_advertised() {
    let (_dir, flags) = written("listen = ['192.0.2.1:1']\nadvertise = ['rack.lab']");
    let names = Config::load(flags).unwrap().names();
    assert_eq!(names, ["127.0.0.1", "192.0.2.1", "::1", "localhost", "rack.lab"]);
}

fn refusal(text: &str) -> String {
    let (_dir, flags) = written(text);
    format!("{:#}", Config::load(flags).unwrap_err())
}

#[test]
fn what_belongs_to_another_engine_is_refused_by_name() {
    assert_eq!(
        refusal("etcd_endpoints = ['http://127.0.0.1:2379']"),
        "etcd_endpoints is for store etcd, but store is sled"
    );
    assert_eq!(
        refusal("store = 'memory'\netcd_user = 'tinwright'"),
        "etcd_user is for store etcd, but store is memory"
    );
}

#[test]
fn half_of_what_a_cluster_takes_is_refused_by_name() {
    let wrong = |text: &str| refusal(&format!("store = 'etcd'\n{text}"));
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
fn certificates_key_and_password_are_read_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };
    let flags = || Flags {
        data: Some("/nowhere".into()),
        config: Some(file("empty.toml", "")),
        store: Some(Engine::Etcd),
        etcd_endpoints: Some(vec!["https://a:1".into()]),
        etcd_ca: Some(file("ca.pem", "-----BEGIN CERTIFICATE-----\nca")),
        etcd_certificate: Some(file("own.pem", "-----BEGIN CERTIFICATE-----\nown")),
        etcd_key: Some(file("key.pem", "-----BEGIN EC PRIVATE KEY-----\nhidden")),
        etcd_user: Some("tinwright".into()),
        etcd_password_file: Some(file("password", "hidden\n")),
        ..Flags::default()
    };
    let config = Config::load(flags()).unwrap();
    assert!(!format!("{config:?}").contains("hidden"));
    let Storage::Etcd(options) = config.store else { panic!("{:?}", config.store) };
    assert_eq!(options.login.unwrap().password, "hidden");
    assert!(options.tls.unwrap().identity.unwrap().key.ends_with("hidden"));

    let swapped = Flags { etcd_key: Some(dir.path().join("own.pem")), ..flags() };
    let why = format!("{:#}", Config::load(swapped).unwrap_err());
    assert!(why.ends_with("own.pem: no private key in it"), "{why}");
}

#[test]
fn a_password_goes_off_the_machine_in_clear_only_where_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    std::fs::write(&path, "hidden").unwrap();
    let told = |endpoint: &str, more: &str| {
        let (_dir, flags) = written(&format!(
            "store = 'etcd'\netcd_endpoints = ['{endpoint}']\netcd_user = 'u'\netcd_password_file = '{}'\n{more}",
            path.display()
        ));
        Config::load(flags).map(|_| ()).map_err(|error| error.to_string())
    };
    for local in ["http://127.0.0.1:2379", "http://[::1]:2379", "http://localhost:2379"] {
        assert_eq!(told(local, ""), Ok(()));
    }
    for remote in ["http://192.0.2.1:2379", "http://etcd:2379", "http://127.0.0.1.example:2379"] {
        let why = told(remote, "").unwrap_err();
        assert!(why.contains(&format!("would go to {remote} in clear: use https")), "{why}");
        assert!(told(remote, "etcd_insecure = false").is_err());
        assert_eq!(told(remote, "etcd_insecure = true"), Ok(()));
    }
}

#[test]
fn without_peers_everything_is_here_and_with_only_the_rest_is_asked_elsewhere() {
    let (_dir, flags) = written("");
    let split = Config::load(flags).unwrap().split;
    assert!(split.serves(Service::Power) && split.peer(Service::Power).is_none());
    let (_dir, flags) = written(
        "only = ['instance', 'power']\npeers = ['hardware=https://a:1', 'instance=https://b:1', 'https://c:1']",
    );
    let split = Config::load(flags).unwrap().split;
    let at = |service| split.peer(service).map(ToString::to_string);
    assert_eq!(at(Service::Hardware).as_deref(), Some("https://a:1/"));
    assert_eq!(at(Service::Workflow).as_deref(), Some("https://c:1/"));
    assert_eq!((at(Service::Instance), at(Service::Power)), (None, None));
}

#[test]
fn a_split_that_cannot_work_is_refused_with_what_is_missing() {
    for (text, why) in [
        ("only = []", "only is empty"),
        (
            "only = ['instance']\npeers = ['hardware=https://a:1']",
            "instance asks workflow, which is not served here: say where in peers",
        ),
        (
            "peers = ['https://a:1']",
            "peers is given, but only is not: every service is served here",
        ),
        (
            "only = ['power']\npeers = ['https://a:1', 'https://b:1']",
            "peers says twice where the others is",
        ),
        (
            "only = ['power']\npeers = ['metadata=https://a:1']",
            "peers names metadata, which nobody asks",
        ),
        (
            "only = ['power']\npeers = ['http://a:1']",
            "peers: http://a:1/ is in clear: say insecure if it shall",
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
        assert_eq!(refusal(text), why);
    }
    let path = refusal("only = ['power']\npeers = ['https://a:1/x']");
    assert!(path.contains("https://a:1/x has a path: only scheme, host and port"), "{path}");
}

#[test]
fn what_belongs_to_services_elsewhere_is_left_out() {
    let (_dir, flags) = written(
        "only = ['metadata']\npeers = ['https://a:1']\nlisten = ['192.0.2.1:1']\n\
         netboot_interface = 'nowhere'\nmetadata_listen = ['127.0.0.1:0']",
    );
    let config = Config::load(flags).unwrap();
    assert!(config.listen.is_empty() && config.netboot.is_none());
    assert_eq!(config.metadata_listen.len(), 1);
}

#[test]
fn machines_find_the_workers_service_where_it_is() {
    let (_dir, flags) = written(
        "only = ['netboot']\npeers = ['https://192.0.2.7:42113']\n\
         netboot_interface = 'lo'\nnetboot_address = '127.0.0.1'",
    );
    let config = Config::load(flags).unwrap();
    assert_eq!(config.machines_api(Ipv4Addr::LOCALHOST), "192.0.2.7:42113");
}

#[test]
fn dhcp_is_a_section_of_the_file_and_off_where_the_site_has_its_own() {
    let netboot = "netboot_interface = 'lo'\nnetboot_address = '127.0.0.1'\n";
    let (_dir, flags) =
        written(&format!("{netboot}netboot_chain_ipxe = true\n[dhcp]\nmode = 'disabled'"));
    let dhcp = Config::load(flags).unwrap().netboot.unwrap().links.remove(0).dhcp;
    assert!(dhcp.chain_ipxe && !dhcp.is_on());
    let (_dir, flags) = written(netboot);
    let dhcp = Config::load(flags).unwrap().netboot.unwrap().links.remove(0).dhcp;
    assert!(!dhcp.chain_ipxe && dhcp.is_on());
    assert!(refusal(&format!("{netboot}[dhcp]\nmod = 'proxy'")).contains("mod"));
}

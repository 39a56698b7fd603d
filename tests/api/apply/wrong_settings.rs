//! Wrong flags and files of `serve`: the option is named, and what is wrong with it, before anything is opened.

use super::{Ended, tinwright};

/// The exit code of a wrong configuration (sysexits.h).
const EX_CONFIG: i32 = 78;
/// The exit code of a wrong command line.
const USAGE: i32 = 2;

/// The file, and the error.
const FILES: &[(&str, &str)] = &[
    ("listen = [", "tinwright.toml:1: not TOML: unclosed array"),
    ("listen = '127.0.0.1:1'\nlisten = '127.0.0.1:2'", "tinwright.toml:2: not TOML: duplicate key"),
    ("lisen = ['127.0.0.1:1']", "unknown field `lisen`: did you mean `listen`?"),
    ("[dchp]\nlease = 600", "unknown field `dchp`: did you mean `dhcp`?"),
    ("[dhcp]\nleese = 600", "dhcp.leese: unknown field `leese`: did you mean `lease`?"),
    ("[dhcp]\nlease = 'long'", "dhcp.lease: invalid type"),
    ("[dhcp]\nlease = -1", "dhcp.lease: "),
    (
        "netboot_interface = 'lo'\n[dhcp]\nlease = 6",
        "dhcp.lease is 6, but no lease is under 60 seconds",
    ),
    ("netboot_interface = 'lo'\n[dhcp]\nmode = 'proxi'", "dhcp.mode: unknown variant `proxi`"),
    (
        "netboot_interface = 'lo'\n[dhcp]\nnetworks = ['192.0.2.0/33']",
        "dhcp.networks: \"192.0.2.0/33\"",
    ),
    (
        "netboot_interface = 'lo'\n[dhcp]\nignored_vendors = ['00:11']",
        "three octets in hex are expected, such as 00:11:22",
    ),
    (
        "netboot_interface = 'lo'\n[dhcp]\narchitectures = ['7']",
        "NUMBER=FILE is expected, such as 7=ipxe.efi",
    ),
    (
        "netboot_interface = 'lo'\n[dhcp]\narchitectures = ['999=a.efi']",
        "no such number is registered for option 93",
    ),
    ("netboot_interface = 'lo'\n[dhcp]\ndomain = 'a b'", "dhcp.domain: \"a b\""),
    (
        "netboot_interface = 'lo'\n[dhcp]\nport_67 = false\nport_4011 = false",
        "set dhcp.mode = \"disabled\"",
    ),
    ("netboot_interface = 'lo'\n[dhcp]\nport_67 = false", "addresses are given there"),
    ("netboot_interface = 'nope0'", "netboot_interface nope0"),
    ("netboot_interface = 'lo'\nlinks = []", "netboot_interface is given together with links"),
    ("links = []", "links is empty"),
    ("[[links]]\ninterface = 'lo'\nadress = '127.0.0.1'", "unknown field `adress`"),
    ("netboot_interface = 'lo'\n[boot]\nsilent_minutes = 0", "boot.silent_minutes is 0"),
    (
        "netboot_interface = 'lo'\n[boot]\nhttps_key = '/a'",
        "boot.https_key is given without boot.https_certificate",
    ),
    ("netboot_interface = 'lo'\n[boot]\ntrusted_proxies = ['0.0.0.0/0']", "boot.trusted_proxies"),
    ("[[subnets]]\nnetwork = '192.0.2.0'", "subnets: "),
    ("[[subnets]]\nnetwork = '192.0.2.0/24'\nranges = ['192.0.2.9-192.0.2.1']", "ranges"),
    (
        "[[subnets]]\nnetwork = '192.0.2.0/24'\n[[subnets]]\nnetwork = '192.0.2.128/25'",
        "overlaps another one",
    ),
    ("store = 'slet'", "unknown variant `slet`"),
    ("etcd_user = 'a'", "etcd_user is for store etcd, but store is sled"),
    ("store = 'etcd'\netcd_prefix = '/a'", "etcd_prefix \"/a\" does not end with /"),
    ("store = 'etcd'\netcd_endpoints = ['https://a:1']", "etcd_ca is not given"),
    ("store = 'etcd'\netcd_user = 'a'", "etcd_password_file is not"),
    ("only = []", "only is empty"),
    ("only = ['powr']", "unknown variant `powr`"),
    (
        "only = ['power']",
        "power calls hardware, which is not served here: set its address in peers",
    ),
    ("peers = ['https://a:1']", "peers is given, but only is not"),
    ("only = ['power']\npeers = ['http://a:1']", "has no TLS: set insecure to allow this"),
    ("gateway_listen = ['none', '127.0.0.1:1']", "gateway_listen has addresses besides none"),
    (
        "gateway_plaintext = true\ngateway_listen = ['0.0.0.0:1']",
        "gateway_plaintext is for loopback only",
    ),
    ("gateway_key = '/a'", "gateway_key is given, but gateway_certificate is not"),
    ("machines_api = ['localhost:1']", "machines do not reach localhost:1"),
    ("machines_api = ['a:1', 'b:1', 'c:1', 'd:1', 'e:1']", "machines_api has 5 servers, over 4"),
    ("metadata_trusted_proxies = ['0.0.0.0/0']", "would trust everybody"),
    ("[metadata_custom_endpoints]\n'/a' = '.b |'", "metadata_custom_endpoints: /a: filter: "),
    ("log = 'verbose'", "is neither a level (error, warn, info, debug, trace, off)"),
    ("log_format = 'xml'", "unknown variant `xml`"),
    ("drain_seconds = 601", "drain_seconds"),
    ("syslog = 'yes'", "syslog: invalid type"),
];

/// Flags whose values are wrong as settings, and the error.
const FLAGS: &[(&str, &str)] = &[
    ("--listen 127.0.0.1", "--listen: add a port: 127.0.0.1:42113"),
    ("--listen here:1", "--listen: "),
    ("--metrics-listen ::1", "--metrics-listen: add a port: [::1]:9464"),
    ("--gateway-listen 192.0.2.1", "gateway_listen: add a port: 192.0.2.1"),
    ("--insecure --listen 0.0.0.0:1", "insecure is for loopback only, but listen is 0.0.0.0:1"),
    ("--config /nowhere/x.toml", "reading /nowhere/x.toml"),
    ("--netboot-http-port 70000", "--netboot-http-port: "),
    ("--netboot-address 192.0.2", "--netboot-address: "),
    ("--dhcp-relays 192.0.2.1,x", "--dhcp-relays: invalid"),
    ("--peers ftp://a", "--peers: ftp://a is neither https:// nor http://"),
    ("--log inf=,o", "is neither a level"),
    ("--metadata-listen 192.0.2.1", "--metadata-listen: add a port: 192.0.2.1:80"),
    ("--metadata-custom-endpoints {", "--metadata-custom-endpoints: "),
];

/// Flags that are wrong on every command line, and the error. The usage is behind it.
const USAGE_FLAGS: &[(&str, &str)] = &[
    ("--lisen 127.0.0.1:1", "--listen"),
    ("--insecure=maybe", "--insecure"),
    ("--store slet", "--store"),
    ("--data=", "--data"),
    ("--drain-seconds soon", "--drain-seconds: \"soon\" is not a number"),
    ("--dhcp-mode proxi", "--dhcp-mode"),
    ("--metadata-source-check port-1", "--metadata-source-check"),
];

/// Starts the server with the words of a command line. Returns its output unless it ends with `code` and the `expected` error, in one line if it is one of the
/// configuration.
async fn find_problem(words: &[&str], code: i32, expected: &str) -> Option<String> {
    let serve = std::iter::once("serve").chain(words.iter().copied());
    let ended = Ended::of(tinwright(serve)).await;
    let text = ended.errors.join("\n");
    let is_short = code == USAGE || ended.errors.len() == 1;
    let is_right = ended.code == code && ended.printed.is_empty() && is_short;
    let is_named = text.contains(expected) && !text.contains("{ ");
    (!is_right || !is_named).then(|| {
        format!("expected {expected:?}, exit code {code}\n{}: {}{text}", ended.code, ended.printed)
    })
}

#[tokio::test]
async fn each_wrong_setting_is_named_with_what_is_wrong_and_nothing_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("tinwright.toml"));
    let (data, path) = (data.to_str().unwrap(), file.to_str().unwrap());
    let mut problems = Vec::new();
    for (text, expected) in FILES {
        std::fs::write(path, text).unwrap();
        let problem = find_problem(&["--data", data, "--config", path], EX_CONFIG, expected).await;
        problems.extend(problem.map(|problem| format!("{text}\n{problem}")));
    }
    std::fs::write(path, "").unwrap();
    let flags = FLAGS.iter().map(|row| (EX_CONFIG, row));
    for (code, (flags, expected)) in flags.chain(USAGE_FLAGS.iter().map(|row| (USAGE, row))) {
        let mut words: Vec<_> = flags.split(' ').collect();
        for (option, value) in [("--data", data), ("--config", path)] {
            if !flags.contains(option) {
                words.extend([option, value]);
            }
        }
        let problem = find_problem(&words, code, expected).await;
        problems.extend(problem.map(|problem| format!("{flags}\n{problem}")));
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n\n"));
    assert!(
        !std::path::Path::new(data).exists(),
        "settings are checked before the directory is made"
    );
}

//! A site without a network to others: what another site exported installs a machine there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::edge::{client, client_output};
use super::images::{disk, sha256};
use super::network::{Network, OURS};
use super::process::{Place, Process, arguments, soon};

const MAC: &str = "52:54:00:00:00:01";
const MACHINE: &str = "198.51.100.50";
const RECORD: &str = "name: node-1\nstate: provisionable\ndisks: [{device: /dev/sda}]\ninterfaces:\n\
                      - mac: 52:54:00:00:00:01\n  dhcp: {address: 198.51.100.50/24}\n  \
                      netboot: {allow_pxe: true}\nextra: {token: hunter2}\n";
const TEMPLATE: &str = "version: \"0.1\"\nname: debian\nglobal_timeout: 60\ntasks:\n- name: install\n  \
                        worker: \"{{.device_1}}\"\n  actions:\n  - {name: restart, image: reboot, timeout: 60}\n";
/// The files of the boot server, by their folders.
const BOOT_FILES: [(&str, &str); 4] = [
    ("osie", "vmlinuz-x86_64"),
    ("osie", "initramfs-x86_64"),
    ("loaders", "snponly.efi"),
    ("files", "notes/read me.txt"),
];

/// The files of an operator, who carries them.
struct Luggage(tempfile::TempDir);

impl Luggage {
    fn new() -> Self {
        let luggage = Self(tempfile::tempdir().unwrap());
        for (folder, name) in BOOT_FILES {
            let path = luggage.path(folder).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{folder}/{name}\n").repeat(100_000)).unwrap();
        }
        luggage.write("node.yaml", RECORD);
        luggage.write("debian.yaml", TEMPLATE);
        std::fs::write(luggage.path("disk.raw"), disk()).unwrap();
        for name in ["key", "other"] {
            let mut minisign = luggage.command("minisign");
            minisign.args(["-G", "-W", "-p", &format!("{name}.pub"), "-s", name]);
            assert!(minisign.output().unwrap().status.success());
        }
        luggage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path());
        command
    }

    /// Returns the options with the boot server's folders in `place`.
    fn folders(place: &Path) -> Vec<String> {
        let option = |name: &str| [format!("--{name}"), place.join(name).display().to_string()];
        ["osie", "loaders", "files"].into_iter().flat_map(option).collect()
    }

    /// Fills the site at `server`, and exports it to `site.tar`.
    fn export(&self, server: &Process) {
        let run = |words: &[&str]| client_output(server, words);
        let disk = self.text("disk.raw");
        run(&["image", "upload", &disk, "--name", "disk-1", "--family", "disk", "--label", "a=b"]);
        run(&["image", "sign", "disk-1", "--key", &self.text("key")]);
        run(&["hardware", "create", "-f", &self.text("node.yaml")]);
        run(&["template", "create", "-f", &self.text("debian.yaml")]);
        run(&["subnet", "create", "pool", "203.0.113.0/24"]);
        let addresses = "203.0.113.64-203.0.113.95";
        run(&["range", "create", "--subnet", "pool", "leased", addresses, "--dynamic"]);
        let (file, key) = (self.text("site.tar"), self.text("key"));
        let objects = "hardware,template,subnet,range";
        let words = ["site", "export", &file, "--image", "disk", "--objects", objects];
        let words = words.into_iter().chain(["--sign-key", &key]).map(str::to_owned);
        let words: Vec<_> = words.chain(Self::folders(self.0.path())).collect();
        run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Imports `file` at `server`, whose boot server has its folders there.
    fn import(&self, server: &Process, file: &str, trust: &[&str]) -> Output {
        let folders = Self::folders(&server.place.path("boot"));
        let file = self.text(file);
        let words = ["site", "import", &file].into_iter().chain(trust.iter().copied());
        let words: Vec<_> = words.chain(folders.iter().map(String::as_str)).collect();
        client(server, &words)
    }

    /// Imports `file`, and returns the only line of the refusal.
    fn refusal(&self, server: &Process, file: &str, trust: &[&str]) -> String {
        let done = self.import(server, file, trust);
        let error = String::from_utf8(done.stderr).unwrap();
        assert!(!done.status.success(), "{file}: {}", String::from_utf8_lossy(&done.stdout));
        let own: Vec<_> = error.lines().filter(|line| line.starts_with("tinwright: ")).collect();
        assert_eq!(own.len(), 1, "{error}");
        own[0].to_owned()
    }
}

/// Returns what an import has printed.
fn printed(done: Output) -> String {
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Returns the image as the API has it.
fn image(server: &Process, name: &str) -> serde_json::Value {
    let shown = client_output(server, &["image", "get", name, "-o", "json"]);
    serde_json::from_str(&shown).unwrap()
}

/// Starts a server in the namespace of the site, which boots machines.
async fn isolated() -> Process {
    let place = Place::new();
    let folders = Luggage::folders(&place.path("boot"));
    let words = ["--netboot-interface", "br0", "--metadata-listen", "198.51.100.1:80"];
    let words = arguments(&words).into_iter().chain(folders).collect::<Vec<_>>();
    for name in ["osie", "loaders", "files"] {
        std::fs::create_dir_all(place.path("boot").join(name)).unwrap();
    }
    place.start(&words).await
}

#[test]
fn an_export_installs_a_machine_in_a_namespace_without_routes() {
    let luggage = Luggage::new();
    let network = Network::new(&[MAC]);
    let mut exported = serde_json::Value::Null;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Place::new().start(&arguments(&[])).await;
        luggage.export(&server);
        exported = image(&server, "disk-1");
        drop(server.terminate());
    });
    check_archive(&luggage);
    network.on_site(async || {
        let routes = Command::new("ip").args(["route", "show", "default"]).output().unwrap();
        assert_eq!(String::from_utf8(routes.stdout).unwrap(), "", "no route to other networks");
        let server = isolated().await;
        let trust = ["--key", &luggage.text("key.pub")];
        let first = printed(luggage.import(&server, "site.tar", &trust));
        for name in ["image/disk-1", "hardware/node-1", "template/debian", "range/leased"] {
            let line = format!("{name} created");
            assert!(first.lines().any(|it| it == line), "{line}: {first}");
        }
        let imported = image(&server, "disk-1");
        for field in ["sha256", "stored_sha256", "map_sha256", "family", "labels", "properties"] {
            assert!(!exported[field].is_null(), "{field}: {exported}");
            assert_eq!(imported[field], exported[field], "{field}");
        }
        let [before, after] = [&exported, &imported].map(|it| &it["signatures"][0]["text"]);
        assert!(before.is_string());
        assert_eq!(before, after);
        check_boot_files(&luggage, &server);
        check_second_import(&luggage, &server, &first);
        check_installation(&network, &server, imported["stored_sha256"].as_str().unwrap()).await;
        drop(server.terminate());
    });
}

/// Other programs read the archive, and it has no secrets.
fn check_archive(luggage: &Luggage) {
    std::fs::create_dir(luggage.path("unpacked")).unwrap();
    for line in [
        "tar -xf site.tar -C unpacked",
        "minisign -V -p key.pub -m unpacked/SHA256SUMS",
        "env -C unpacked sha256sum --strict --quiet -c SHA256SUMS",
    ] {
        let mut words = line.split(' ');
        let done = luggage.command(words.next().unwrap()).args(words).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
    }
    let raw =
        luggage.command("zstd").args(["-dcq", "unpacked/images/disk-1/disk.raw.zst"]).output();
    assert!(raw.unwrap().stdout == disk());
    let record = std::fs::read_to_string(luggage.path("unpacked/objects/hardware.yaml")).unwrap();
    assert!(record.contains("node-1") && !record.contains("hunter2"), "{record}");
}

/// The folders of the boot server have the exported files, and nothing else.
fn check_boot_files(luggage: &Luggage, server: &Process) {
    for (folder, name) in BOOT_FILES {
        let [from, to] = [luggage.path(folder), server.place.path("boot").join(folder)];
        assert!(std::fs::read(from.join(name)).unwrap() == std::fs::read(to.join(name)).unwrap());
        let count = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
        assert_eq!(count(&from), count(&to), "{folder}");
    }
}

/// A second import changes nothing, and says so of each object and file.
fn check_second_import(luggage: &Luggage, server: &Process, first: &str) {
    let key = std::fs::read_to_string(luggage.path("key.pub")).unwrap();
    let line = key.lines().nth(1).unwrap();
    let before = client_output(server, &["events", "--kind", "call", "-o", "json"]);
    let again = printed(luggage.import(server, "site.tar", &["--key", line]));
    let unchanged = first.replace(" created", " unchanged").replace(" changed", " unchanged");
    let is_signature = |line: &&str| line.starts_with("image/") && line.ends_with(" added");
    let expected: Vec<_> = unchanged.lines().filter(|line| !is_signature(line)).collect();
    assert_eq!(again.lines().collect::<Vec<_>>(), expected);
    assert_eq!(
        client_output(server, &["events", "--kind", "call", "-o", "json"]),
        before,
        "no change"
    );
}

/// A machine of the site gets an instance with the image, its kernel and the image's file.
async fn check_installation(network: &Network, server: &Process, digest: &str) {
    network.set(0, &format!("addr add {MACHINE}/24 dev eth0"));
    let order = ["--hardware", "node-1", "--image", "disk", "--no-power-management"];
    let plan = client_output(server, &[&["instance", "plan"][..], &order].concat());
    assert!(plan.contains("node-1"), "{plan}");
    client_output(server, &[&["instance", "create"][..], &order].concat());
    let fetched = server.place.path("fetched");
    let get = |path: &str| {
        let line = format!(
            "curl --silent --output {} --write-out %{{http_code}} http://{OURS}:7080{path}",
            fetched.display()
        );
        (network.run(0, &line), std::fs::read(&fetched).unwrap_or_default())
    };
    let image = format!("/images/{digest}.raw.zst");
    soon(async {
        while get(&image).0 != "200" {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(sha256(&get(&image).1), digest);
    let (status, script) = get("/52-54-00-00-00-01/auto.ipxe");
    let script = String::from_utf8(script).unwrap();
    assert_eq!(status, "200", "{script}");
    let base = script.lines().find_map(|line| line.strip_prefix("set base ")).unwrap();
    let base = base.strip_prefix(&format!("http://{OURS}:7080")).unwrap();
    for name in ["vmlinuz-x86_64", "initramfs-x86_64"] {
        let own = std::fs::read(server.place.path("boot/osie").join(name)).unwrap();
        assert!(get(&format!("{base}/{name}")) == ("200".to_owned(), own), "{name}");
    }
    let own = std::fs::read(server.place.path("boot/loaders/snponly.efi")).unwrap();
    assert!(get("/ipxe/snponly.efi") == ("200".to_owned(), own));
    assert_eq!(get("/files/notes/read%20me.txt").0, "200");
}

/// Returns the names of the files below `folder`.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_is_not_as_it_was_signed_leaves_nothing_behind() {
    let luggage = Luggage::new();
    let server = Place::new().start(&arguments(&[])).await;
    luggage.export(&server);
    drop(server.terminate());
    let server = Place::new().start(&arguments(&[])).await;
    std::fs::create_dir(server.place.path("boot")).unwrap();
    let own = luggage.text("key.pub");
    let key = ["--key", own.as_str()];
    let whole = std::fs::read(luggage.path("site.tar")).unwrap();
    let changed_at = |part: &[u8]| {
        let at = whole.windows(part.len()).rposition(|it| it == part).unwrap();
        let mut changed = whole.clone();
        changed[at] ^= 1;
        changed
    };
    let other = luggage.text("other.pub");
    for (bytes, trust, reason) in [
        (changed_at(b"osie/vmlinuz-x86_64\n"), key, "osie/vmlinuz-x86_64: changed"),
        (whole[..whole.len() - 1024].to_vec(), key, "truncated"),
        (whole.clone(), ["--key", other.as_str()], "not among the accepted keys"),
    ] {
        std::fs::write(luggage.path("wrong.tar"), bytes).unwrap();
        let line = luggage.refusal(&server, "wrong.tar", &trust);
        assert!(line.contains(reason), "{reason}: {line}");
    }
    unsigned(&luggage);
    let line = luggage.refusal(&server, "unsigned.tar", &key);
    assert!(line.contains("not signed: "), "{line}");
    for kind in ["image", "hardware", "template", "subnet"] {
        let list = client_output(&server, &[kind, "list", "-o", "json"]);
        assert_eq!(list.trim(), "[]", "{kind}");
    }
    assert_eq!(files_below(&server.place.path("boot")), Vec::<PathBuf>::new());
    // Whoever allows it, gets it.
    printed(luggage.import(&server, "unsigned.tar", &["--allow-unsigned"]));
    other_content(&luggage, &server);
    drop(server.terminate());
}

/// Makes `unsigned.tar` from the files of `site.tar`.
fn unsigned(luggage: &Luggage) {
    std::fs::create_dir(luggage.path("files-of-site")).unwrap();
    let line = "tar -xf site.tar -C files-of-site && rm files-of-site/SHA256SUMS.minisig && \
                cd files-of-site && { echo SHA256SUMS; cut -c67- SHA256SUMS; } > ../names && \
                tar --format=gnu -cf ../unsigned.tar -T ../names";
    assert!(luggage.command("sh").args(["-ec", line]).status().unwrap().success());
}

/// An image of the same name with another content is refused, and both digests are named.
fn other_content(luggage: &Luggage, server: &Process) {
    let old = image(server, "disk-1")["sha256"].as_str().unwrap().to_owned();
    client_output(server, &["image", "delete", "disk-1", "--yes"]);
    let mut other = disk();
    other[5] ^= 1;
    std::fs::write(luggage.path("other.raw"), &other).unwrap();
    client_output(server, &["image", "upload", &luggage.text("other.raw"), "--name", "disk-1"]);
    let line = luggage.refusal(server, "site.tar", &["--key", &luggage.text("key.pub")]);
    for digest in [old, sha256(&other)] {
        assert!(line.contains(&digest), "{digest}: {line}");
    }
}

//! sushy-emulator with its fake driver, on a free port, killed when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The directory of the emulator.
pub(crate) static PEERS: LazyLock<PathBuf> = LazyLock::new(|| {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let peers = crate_root.join("../../target/peers");
    let script = crate_root.join("../power/tests/peers.sh");
    let done = Command::new(script).arg(&peers).status().unwrap();
    assert!(done.success(), "tests/peers.sh could not fetch the emulator: {done}");
    peers.canonicalize().unwrap()
});

/// The user of an emulator with a password.
pub(crate) const USER: &str = "operator";
/// The password of [`USER`].
pub(crate) const PASSWORD: &str = "correct horse";

/// A running emulator.
#[derive(Debug)]
pub(crate) struct Emulator {
    process: Child,
    /// Its origin.
    pub(crate) url: String,
    /// SHA-256 of its certificate, in hex; empty for http.
    pub(crate) fingerprint: String,
    directory: TempDir,
}

impl Emulator {
    /// An emulator over http without a password, with systems of these names, all off.
    pub(crate) fn open(systems: &[String]) -> Self {
        Self::start(systems, "http", String::new(), |_| String::new())
    }

    /// An emulator over http without a password, of the machine of libvirt's test driver, which has memory and processors.
    pub(crate) fn of_libvirt() -> Self {
        let drivers =
            "SUSHY_EMULATOR_FAKE_DRIVER = False\nSUSHY_EMULATOR_LIBVIRT_URI = 'test:///default'\n";
        Self::start(&[], "http", String::new(), |_| drivers.to_owned())
    }

    /// An emulator with TLS, a password and one system.
    pub(crate) fn guarded(system: &str) -> Self {
        Self::guarded_rack(&[system.to_owned()])
    }

    /// An emulator with TLS, a password and systems of these names, all off.
    pub(crate) fn guarded_rack(systems: &[String]) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["bmc.invalid".into()]).unwrap();
        let digest = sha256(made.cert.der());
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        Self::start(systems, "https", digest, |directory| {
            fs::write(directory.join("cert.pem"), &certificate).unwrap();
            fs::write(directory.join("key.pem"), &key).unwrap();
            fs::write(directory.join("htpasswd"), htpasswd()).unwrap();
            let at = |name: &str| directory.join(name).display().to_string();
            format!(
                "SUSHY_EMULATOR_SSL_CERT = {:?}\nSUSHY_EMULATOR_SSL_KEY = {:?}\nSUSHY_EMULATOR_AUTH_FILE = {:?}\n",
                at("cert.pem"),
                at("key.pem"),
                at("htpasswd"),
            )
        })
    }

    fn start(
        systems: &[String],
        scheme: &str,
        fingerprint: String,
        more: impl Fn(&Path) -> String,
    ) -> Self {
        let directory = in_memory();
        let fakes: Vec<_> = systems.iter().enumerate().map(|(n, name)| fake(n, name)).collect();
        // Its delays are random, from 1 to 11 seconds: always the shortest is used here.
        let config = format!(
            "import random\nrandom.randint = lambda least, most: least\n\
             SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\n\
             SUSHY_EMULATOR_LISTEN_PORT = 0\nSUSHY_EMULATOR_STATE_DIR = {:?}\n\
             SUSHY_EMULATOR_FAKE_SYSTEMS = [{}]\n{}",
            directory.path(),
            fakes.join(", "),
            more(directory.path()),
        );
        fs::write(directory.path().join("conf.py"), config).unwrap();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let process = Command::new(PEERS.join("power-venv/bin/sushy-emulator"))
            .arg("--config")
            .arg(directory.path().join("conf.py"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut emulator = Self { process, url: String::new(), fingerprint, directory };
        emulator.url = emulator.listening(scheme);
        emulator
    }

    /// Waits until it logs its address, and returns it.
    fn listening(&mut self, scheme: &str) -> String {
        let begin = format!("Running on {scheme}://127.0.0.1:");
        let deadline = Instant::now() + Duration::from_secs(300);
        loop {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            let port = log.split_once(&begin).map(|(_, rest)| rest.split_whitespace().next());
            if let Some(Some(port)) = port {
                return format!("{scheme}://127.0.0.1:{port}");
            }
            assert!(self.process.try_wait().unwrap().is_none(), "the emulator ended: {log}");
            assert!(Instant::now() < deadline, "the emulator does not listen: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Returns a new directory in memory, or else on disk: an emulator answers with an error if its database is locked for five seconds, which
/// may happen on a busy disk.
fn in_memory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// The id of system number `n`.
pub(crate) fn id(n: usize) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

/// The MAC of system number `n`, below 65,536.
pub(crate) fn mac(n: usize) -> String {
    format!("02:00:5e:00:{:02x}:{:02x}", n / 256, n % 256)
}

fn fake(n: usize, name: &str) -> String {
    let (id, mac) = (id(n), mac(n));
    format!(
        "{{'uuid': '{id}', 'name': '{name}', 'power_state': 'Off', 'nics': [{{'mac': '{mac}'}}]}}"
    )
}

/// The password file, hashed with bcrypt.
fn htpasswd() -> String {
    let code = format!(
        "import bcrypt; print('{USER}:' + bcrypt.hashpw(b'{PASSWORD}', bcrypt.gensalt(4)).decode())"
    );
    let python = PEERS.join("power-venv/bin/python");
    let made = Command::new(python).args(["-c", &code]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap()
}

/// SHA-256 in hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

//! Debian's docker-registry on a free port, and skopeo, which copies artifacts to it.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::images::sha256;

/// The user of a guarded registry, and the password.
pub(super) const USER: &str = "anna";
pub(super) const PASSWORD: &str = "PlantedX7Q2:registry";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A registry. It ends when it is dropped.
pub(super) struct Registry {
    process: Child,
    pub(super) address: SocketAddr,
    folder: TempDir,
}

/// A layer of an artifact: its media type, the name of its file, and its content.
pub(super) type Layer<'a> = (&'a str, &'a str, &'a [u8]);

impl Registry {
    /// Starts a registry without TLS, which everybody may read and write.
    pub(super) fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start(folder, &json!({"http": {"addr": "127.0.0.1:0"}}))
    }

    /// Starts a registry with TLS, for [`USER`] only.
    pub(super) fn guarded() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let names = vec!["127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        fs::write(path("certificate.pem"), cert.pem()).unwrap();
        fs::write(path("key.pem"), signing_key.serialize_pem()).unwrap();
        let tls = json!({"certificate": path("certificate.pem"), "key": path("key.pem")});
        let users = path("htpasswd");
        let mut command = Command::new("htpasswd");
        command.args(["-icB"]).arg(&users).arg(USER).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut running = command.spawn().unwrap();
        running.stdin.take().unwrap().write_all(PASSWORD.as_bytes()).unwrap();
        assert!(running.wait().unwrap().success());
        let http = json!({"addr": "127.0.0.1:0", "tls": tls});
        let settings = json!({"http": http, "auth": {"htpasswd": {"realm": "lab", "path": users}}});
        Self::start(folder, &settings)
    }

    fn start(folder: TempDir, settings: &Value) -> Self {
        let path = |name: &str| folder.path().join(name);
        let mut settings = settings.clone();
        settings["version"] = 0.1.into();
        settings["storage"] = json!({"filesystem": {"rootdirectory": path("content")}});
        // JSON is YAML.
        fs::write(path("settings.yaml"), settings.to_string()).unwrap();
        let log = fs::File::create(path("log")).unwrap();
        let mut command = Command::new("docker-registry");
        let command = command.arg("serve").arg(path("settings.yaml"));
        let process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut registry = Self { process, address: ([127, 0, 0, 1], 0).into(), folder };
        registry.address = registry.listening();
        registry
    }

    /// Waits until it logs its address, and returns it.
    fn listening(&mut self) -> SocketAddr {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let log = fs::read_to_string(self.path("log")).unwrap();
            let address = log.split_once("listening on ").map(|(_, rest)| rest);
            let address = address.and_then(|it| it.split_once(['"', ',', ' ']));
            if let Some(address) = address.and_then(|(address, _)| address.parse().ok()) {
                return address;
            }
            assert!(self.process.try_wait().unwrap().is_none(), "the registry ended: {log}");
            assert!(Instant::now() < deadline, "the registry does not listen: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of its certificate.
    pub(super) fn certificate(&self) -> PathBuf {
        self.path("certificate.pem")
    }

    /// Pushes an artifact with these layers as `name`, such as `lab/disk:12`. Returns the digest of its
    /// manifest.
    pub(super) fn push(&self, name: &str, layers: &[Layer<'_>]) -> String {
        let layout = Layout::new();
        let manifest = layout.manifest(layers);
        self.copy(&layout, &manifest, name)
    }

    /// Pushes an index with an artifact for each architecture. Returns the digest of the index.
    pub(super) fn push_index(&self, name: &str, artifacts: &[(&str, Layer<'_>)]) -> String {
        let layout = Layout::new();
        let manifests = artifacts.iter().map(|(architecture, layer)| {
            let mut manifest = layout.manifest(&[*layer]);
            manifest["platform"] = json!({"os": "linux", "architecture": architecture});
            manifest
        });
        let manifests: Vec<_> = manifests.collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        let index = layout.blob(INDEX, index.to_string().as_bytes());
        self.copy(&layout, &index, name)
    }

    fn copy(&self, layout: &Layout, artifact: &Value, name: &str) -> String {
        layout.finish(artifact);
        let login = self.path("login.json");
        let encoded = super::base64(format!("{USER}:{PASSWORD}").as_bytes());
        let logins = json!({"auths": {self.address.to_string(): {"auth": encoded}}});
        fs::write(&login, logins.to_string()).unwrap();
        let mut command = Command::new("skopeo");
        command.args(["copy", "--quiet", "--insecure-policy", "--all", "--preserve-digests"]);
        command.args(["--dest-tls-verify=false", "--authfile"]).arg(login);
        command.arg(format!("oci:{}:pushed", layout.0.path().display()));
        command.arg(format!("docker://{}/{name}", self.address));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        artifact["digest"].as_str().unwrap().to_owned()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// A directory with artifacts, by the image layout specification of OCI.
struct Layout(TempDir);

impl Layout {
    fn new() -> Self {
        let layout = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(layout.0.path().join("blobs/sha256")).unwrap();
        let version = json!({"imageLayoutVersion": "1.0.0"});
        fs::write(layout.0.path().join("oci-layout"), version.to_string()).unwrap();
        layout
    }

    /// Writes a blob, and returns its descriptor.
    fn blob(&self, media_type: &str, content: &[u8]) -> Value {
        let digest = sha256(content);
        fs::write(self.0.path().join("blobs/sha256").join(&digest), content).unwrap();
        let digest = format!("sha256:{digest}");
        json!({"mediaType": media_type, "digest": digest, "size": content.len()})
    }

    /// Writes a manifest, and returns its descriptor.
    fn manifest(&self, layers: &[Layer<'_>]) -> Value {
        let layers = layers.iter().map(|(media_type, title, content)| {
            let mut layer = self.blob(media_type, content);
            layer["annotations"] = json!({"org.opencontainers.image.title": title});
            layer
        });
        let layers: Vec<_> = layers.collect();
        let config = self.blob("application/vnd.oci.empty.v1+json", b"{}");
        let manifest =
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        self.blob(MANIFEST, manifest.to_string().as_bytes())
    }

    /// Writes the index of the directory, which has `artifact` as `pushed`.
    fn finish(&self, artifact: &Value) {
        let mut artifact = artifact.clone();
        artifact["annotations"] = json!({"org.opencontainers.image.ref.name": "pushed"});
        let index = json!({"schemaVersion": 2, "manifests": [artifact]});
        fs::write(self.0.path().join("index.json"), index.to_string()).unwrap();
    }
}

/// Returns a tar, packed by gzip, with these files.
pub(super) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("tar");
    command.arg("--create").arg("--gzip").arg("--directory").arg(folder.path());
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, content).unwrap();
        command.arg(name);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

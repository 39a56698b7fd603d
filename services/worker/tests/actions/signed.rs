//! Machines with keys: they install images that one of the keys signed, and refuse others before the first
//! write. The program `minisign` makes keys and signatures.

use std::path::Path;
use std::process::Command;

use image_signature::{PublicKeys, SignedImage};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use worker::{ActionOutcome, Builtin};

use crate::disk::{LoopDisk, sh};
use crate::file_server::FileServer;
use crate::image_server::ImageServer;
use crate::image2disk::hex;
use crate::site::Image;
use crate::{context, environment, reason};

/// A key pair of `minisign`.
struct Key(TempDir);

impl Key {
    fn new() -> Self {
        let key = Self(tempfile::tempdir().unwrap());
        key.run(&["-G", "-W", "-p", "key.pub", "-s", "key"]);
        key
    }

    fn run(&self, arguments: &[&str]) {
        let mut minisign = Command::new("minisign");
        let output = minisign.args(arguments).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.0.path()).join(name)
    }

    fn public(&self) -> PublicKeys {
        PublicKeys::parse(&std::fs::read_to_string(self.path("key.pub")).unwrap()).unwrap()
    }

    fn sign(&self, image: &SignedImage) -> String {
        std::fs::write(self.path("text"), image.text()).unwrap();
        self.run(&["-S", "-s", "key", "-m", "text", "-x", "sig", "-t", &image.comment()]);
        std::fs::read_to_string(self.path("sig")).unwrap()
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes))
}

/// Returns what a signature of `image` names.
fn signed(name: &str, image: &Image) -> SignedImage {
    SignedImage {
        name: name.into(),
        size_bytes: image.raw.len() as u64,
        sha256: sha256(&image.raw),
        stored_sha256: sha256(&image.stored),
        map_sha256: Some(sha256(&image.map.encode())),
    }
}

/// A machine with a key, a disk with old data, and a server with an image.
struct Machine {
    key: Key,
    image: Image,
    server: ImageServer,
    disk: LoopDisk,
}

impl Machine {
    async fn new() -> Self {
        let image = Image::sparse();
        let server = ImageServer::serve(image.served()).await;
        Self { key: Key::new(), image, server, disk: LoopDisk::new(4 << 20) }
    }

    /// Installs the image with its map and these variables.
    async fn install(&self, more: &[(&str, &str)]) -> ActionOutcome {
        let (map, sum) = (self.server.map_url(), sha256(&self.server.served.lock().unwrap().map));
        let map = [("IMG_MAP", &*map), ("IMG_MAP_SHA256", &sum)];
        self.install_with(&[&map[..], more].concat()).await
    }

    async fn install_with(&self, more: &[(&str, &str)]) -> ActionOutcome {
        let url = self.server.url();
        let place = [("IMG_URL", &*url), ("DEST_DISK", &self.disk.path)];
        let mut context = context().0;
        context.image_keys = Some(self.key.public());
        let variables = environment(&[&place[..], more].concat());
        worker::run(Builtin::Image2Disk, &variables, &context).await
    }

    fn signature(&self, name: &str) -> String {
        self.key.sign(&signed(name, &self.image))
    }

    fn key_id(&self) -> String {
        self.key.public().ids().next().unwrap().to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_image_is_installed() {
    let machine = Machine::new().await;
    let text = machine.signature("debian");
    let sum = sha256(&machine.image.stored);
    let variables = [("IMG_NAME", "debian"), ("IMG_SIGNATURE", &*text), ("IMG_SHA256", &*sum)];
    assert_eq!(machine.install(&variables).await, ActionOutcome::Success);
    assert!(machine.disk.content()[..machine.image.raw.len()] == machine.image.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_a_signature_is_refused() {
    let machine = Machine::new().await;
    let missing = "image2disk: IMG_SIGNATURE is missing: this machine installs signed images only";
    for variables in [&[][..], &[("IMG_NAME", "debian")], &[("IMG_SIGNATURE", "")]] {
        assert_eq!(reason(machine.install(variables).await), missing);
    }
    let text = machine.signature("debian");
    let outcome = machine.install(&[("IMG_SIGNATURE", &text)]).await;
    assert_eq!(reason(outcome), "image2disk: IMG_NAME is missing");
    assert!(machine.disk.is_untouched());
    assert_eq!(machine.server.take_requests(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_another_key_signed_is_refused() {
    let (machine, other) = (Machine::new().await, Key::new());
    let text = other.sign(&signed("debian", &machine.image));
    let variables = [("IMG_NAME", "debian"), ("IMG_SIGNATURE", &*text)];
    let (signer, id) = (other.public().ids().next().unwrap(), machine.key_id());
    let error =
        format!("image2disk: IMG_SIGNATURE: signed by {signer}: not among the accepted keys {id}");
    assert_eq!(reason(machine.install(&variables).await), error);
    assert!(machine.disk.is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_changed_byte_is_refused() {
    let machine = Machine::new().await;
    let text = machine.signature("debian");
    // In the signature: the last digit of the digest of the map.
    let at = text.find("\nRU").unwrap() + 20;
    for at in [at, text.rfind('\n').unwrap() - 30, text.find("sha256: ").unwrap() + 10] {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = if bytes[at] == b'a' { b'b' } else { b'a' };
        let changed = String::from_utf8(bytes).unwrap();
        let variables = [("IMG_NAME", "debian"), ("IMG_SIGNATURE", &*changed)];
        let error = format!(
            "image2disk: IMG_SIGNATURE: signature of key {}: broken: text, comment or signature was changed",
            machine.key_id()
        );
        assert_eq!(reason(machine.install(&variables).await), error, "{changed}");
    }
    // In the map: its own digest is another one, which the control plane may send, too.
    machine.server.served.lock().unwrap().map[40] ^= 1;
    let variables = [("IMG_NAME", "debian"), ("IMG_SIGNATURE", &*text)];
    let error = reason(machine.install(&variables).await);
    assert!(error.contains(": map_sha256: signed is "), "{error}");
    let sum = sha256(&machine.image.map.encode());
    let map = machine.server.map_url();
    let map = [("IMG_MAP", &*map), ("IMG_MAP_SHA256", &*sum)];
    let error = reason(machine.install_with(&[&map[..], &variables].concat()).await);
    assert!(error.contains("checksum mismatch"), "{error}");
    assert!(machine.disk.is_untouched());
    // In the stored file: the first block is checked before anything is written.
    let machine = Machine::new().await;
    let text = machine.signature("debian");
    machine.server.served.lock().unwrap().stored[100] ^= 1;
    let variables = [("IMG_NAME", "debian"), ("IMG_SIGNATURE", &*text)];
    reason(machine.install(&variables).await);
    assert!(machine.disk.is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_signature_of_another_image_is_refused() {
    let machine = Machine::new().await;
    let text = machine.signature("debian");
    let variables = [("IMG_NAME", "alpine"), ("IMG_SIGNATURE", &*text)];
    let error = format!(
        "image2disk: IMG_SIGNATURE: signature of key {}: name: signed is \"debian\", expected \"alpine\"",
        machine.key_id()
    );
    assert_eq!(reason(machine.install(&variables).await), error);
    // The same name, and other content: an older version.
    let older = Image::store(vec![7; 1 << 20], 64 << 10);
    let text = machine.key.sign(&signed("debian", &older));
    let variables = [("IMG_NAME", "debian"), ("IMG_SIGNATURE", &*text)];
    let error = reason(machine.install(&variables).await);
    assert!(error.contains(": map_sha256: signed is "), "{error}");
    // The map is signed, and the rest of the text is of another image.
    let mixed = SignedImage { sha256: "0".repeat(64), ..signed("debian", &machine.image) };
    let text = machine.key.sign(&mixed);
    let variables = [("IMG_NAME", "debian"), ("IMG_SIGNATURE", &*text)];
    let error = reason(machine.install(&variables).await);
    assert!(error.contains(": not as signed: sha256: signed is "), "{error}");
    assert!(machine.disk.is_untouched());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_image_without_its_map_is_refused() {
    let machine = Machine::new().await;
    let archive = SignedImage { map_sha256: None, ..signed("debian", &machine.image) };
    let text = machine.key.sign(&archive);
    let variables = [("IMG_NAME", "debian"), ("IMG_SIGNATURE", &*text)];
    let error = "image2disk: IMG_MAP is missing: this machine checks the blocks of signed images by their map";
    assert_eq!(reason(machine.install_with(&variables).await), error);
    let text = machine.signature("debian");
    let variables = [("IMG_NAME", "debian"), ("IMG_SIGNATURE", &*text)];
    let error = reason(machine.install_with(&variables).await);
    assert!(error.ends_with(", expected \"none\""), "{error}");
    assert!(machine.disk.is_untouched());
}

/// Extracts `tar` with the signature `text`.
async fn extract(key: &Key, tar: Vec<u8>, text: &str, disk: &LoopDisk) -> ActionOutcome {
    let server = FileServer::serve("root.tar", tar, []).await;
    let mut variables = vec![
        ("ARCHIVE_URL", server.url.as_str()),
        ("ARCHIVE_TYPE", "tar"),
        ("DEST_DISK", &disk.path),
        ("INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION", "true"),
        ("IMG_NAME", "rootfs"),
    ];
    variables.push(("IMG_SIGNATURE", text));
    let mut context = context().0;
    context.image_keys = Some(key.public());
    worker::run(Builtin::Archive2Disk, &environment(&variables), &context).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_archive_is_checked_before_it_is_extracted() {
    let (key, place) = (Key::new(), tempfile::tempdir().unwrap());
    let path = place.path().display();
    sh(&format!("cd {path}; mkdir root; seq 1000000 > root/file; tar -C root -cf a.tar ."));
    let tar = std::fs::read(place.path().join("a.tar")).unwrap();
    let archive = SignedImage {
        name: "rootfs".into(),
        size_bytes: tar.len() as u64,
        sha256: sha256(&tar),
        stored_sha256: sha256(&tar),
        map_sha256: None,
    };
    let (text, disk) = (key.sign(&archive), LoopDisk::ext4());
    let before = disk.content();
    let mut changed = tar.clone();
    // In the padding of the file, which is not extracted.
    *changed.last_mut().unwrap() = 1;
    let error = reason(extract(&key, changed, &text, &disk).await);
    assert!(error.contains(": not as signed: stored_sha256: signed is "), "{error}");
    let of_disk = SignedImage { map_sha256: Some("0".repeat(64)), ..archive.clone() };
    let error = reason(extract(&key, tar.clone(), &key.sign(&of_disk), &disk).await);
    assert!(error.ends_with(", expected \"none\""), "{error}");
    let error = reason(extract(&key, tar.clone(), "", &disk).await);
    assert!(error.starts_with("archive2disk: IMG_SIGNATURE is missing: "), "{error}");
    let error = reason(extract(&Key::new(), tar.clone(), &text, &disk).await);
    assert!(error.contains(": not among the accepted keys "), "{error}");
    assert!(disk.content() == before);
    assert_eq!(extract(&key, tar, &text, &disk).await, ActionOutcome::Success);
    let mounted = disk.mounted();
    let file = std::fs::read(mounted.path().join("file")).unwrap();
    assert!(file == std::fs::read(place.path().join("root/file")).unwrap());
}

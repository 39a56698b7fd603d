//! The program `minisign` as the peer: it accepts our texts, and we accept its keys and signatures.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image_signature::{Error, PublicKeys, Signature, SignedImage, parse_signatures};
use tempfile::TempDir;

fn image(name: &str) -> SignedImage {
    SignedImage {
        name: name.into(),
        size_bytes: 1 << 30,
        sha256: "0123456789abcdef".repeat(4),
        stored_sha256: "1".repeat(64),
        map_sha256: Some("2".repeat(64)),
    }
}

/// A key pair of `minisign`, and a directory for its files.
struct Key(TempDir);

impl Key {
    fn new() -> Self {
        let key = Self(tempfile::tempdir().unwrap());
        assert!(key.run(&["-G", "-W", "-p", "key.pub", "-s", "key"]));
        key
    }

    fn run(&self, arguments: &[&str]) -> bool {
        let mut minisign = Command::new("minisign");
        minisign.args(arguments).current_dir(self.0.path()).output().unwrap().status.success()
    }

    fn public(&self) -> String {
        std::fs::read_to_string(self.path("key.pub")).unwrap()
    }

    /// Returns the bytes of the public key, with its algorithm and id.
    fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(self.public().lines().nth(1).unwrap()).unwrap()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.0.path()).join(name)
    }

    /// Signs `text` with `comment`, and returns the signature.
    fn sign(&self, text: &str, comment: &str, more: &[&str]) -> String {
        std::fs::write(self.path("text"), text).unwrap();
        let sign = ["-S", "-s", "key", "-m", "text", "-x", "signature", "-t", comment];
        assert!(self.run(&[&sign, more].concat()));
        std::fs::read_to_string(self.path("signature")).unwrap()
    }

    fn signature(&self, image: &SignedImage) -> String {
        self.sign(&image.text(), &image.comment(), &[])
    }

    fn keys(&self) -> PublicKeys {
        PublicKeys::parse(&self.public()).unwrap()
    }
}

fn verify(keys: &PublicKeys, text: &str, image: &SignedImage) -> Result<(), Error> {
    let signatures = parse_signatures(text)?;
    keys.verify(&signatures, |signed| signed.require(image)).map(drop)
}

#[test]
fn a_signature_of_minisign_is_accepted_and_ours_by_minisign() {
    let (key, image) = (Key::new(), image("debian-12"));
    let text = key.signature(&image);
    assert_eq!(verify(&key.keys(), &text, &image), Ok(()));
    let signature = Signature::parse(&text).unwrap();
    assert_eq!(signature.text(), text);
    assert_eq!(signature.image(), &image);
    let id = key.public().lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(signature.key_id().to_string(), format!("{id:0>16}"));
    std::fs::write(key.path("ours"), signature.image().text()).unwrap();
    std::fs::write(key.path("ours.minisig"), signature.text()).unwrap();
    assert!(key.run(&["-V", "-H", "-p", "key.pub", "-m", "ours"]));
}

#[test]
fn one_changed_byte_breaks_a_signature() {
    let (key, image) = (Key::new(), image("debian-12"));
    let text = key.signature(&image);
    let keys = key.keys();
    let mut accepted = 0;
    for at in text.find('\n').unwrap()..text.len() - 1 {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1;
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        accepted += usize::from(verify(&keys, &changed, &image).is_ok());
    }
    assert_eq!(accepted, 0);
}

#[test]
fn the_reason_of_a_refusal_is_named() {
    let (key, other, image) = (Key::new(), Key::new(), image("debian-12"));
    let text = key.signature(&image);
    let keys = key.keys();
    let id = keys.ids().next().unwrap();
    assert_eq!(verify(&keys, "", &image), Err(Error::NotSigned));
    let error = verify(&other.keys(), &text, &image).unwrap_err().to_string();
    let accepted = other.keys().ids().next().unwrap();
    assert_eq!(error, format!("signed by {id}: not among the accepted keys {accepted}"));
    let error = verify(&keys, &text, &self::image("debian-13")).unwrap_err().to_string();
    let field = "name: signed is \"debian-12\", expected \"debian-13\"";
    assert_eq!(error, format!("signature of key {id}: {field}"));
    // The comment of one image, and the signature of another one's text.
    let mixed = key.sign(&self::image("debian-13").text(), &image.comment(), &[]);
    assert_eq!(verify(&keys, &mixed, &image), Err(Error::Broken(id)));
    // A key of another pair with the same id.
    let (own, stranger) = (key.bytes(), other.bytes());
    let forged = base64([&own[..10], &stranger[10..]].concat());
    let forged = PublicKeys::parse(&format!("untrusted comment: x\n{forged}\n")).unwrap();
    assert_eq!(verify(&forged, &text, &image), Err(Error::Broken(id)));
}

#[test]
fn the_legacy_format_is_refused() {
    let (key, image) = (Key::new(), image("debian-12"));
    let text = key.sign(&image.text(), &image.comment(), &["-l"]);
    let id = key.keys().ids().next().unwrap();
    assert_eq!(verify(&key.keys(), &text, &image), Err(Error::Legacy(id)));
    // A legacy signature that pretends to be one of the hash.
    let lines: Vec<_> = text.lines().collect();
    let renamed = format!("RU{}", &lines[1][2..]);
    let pretended = [lines[0], &renamed, lines[2], lines[3]].join("\n");
    assert_eq!(verify(&key.keys(), &pretended, &image), Err(Error::Broken(id)));
}

#[test]
fn one_of_several_keys_and_signatures_is_enough() {
    let (key, other, image) = (Key::new(), Key::new(), image("debian-12"));
    let both = PublicKeys::parse(&(other.public() + "\n" + &key.public())).unwrap();
    assert_eq!(both.ids().count(), 2);
    assert_eq!(verify(&both, &key.signature(&image), &image), Ok(()));
    let stale = key.signature(&self::image("old"));
    let texts = stale + "\n" + &other.signature(&image) + &key.signature(&image);
    assert_eq!(verify(&key.keys(), &texts, &image), Ok(()));
    let one_line = base64(&texts);
    assert_eq!(verify(&key.keys(), &one_line, &image), Ok(()));
    let many = key.signature(&image).repeat(9);
    assert_eq!(verify(&key.keys(), &many, &image), Err(Error::TooMany { max: 8 }));
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

#[test]
fn other_files_are_no_keys_and_no_signatures() {
    let key = Key::new();
    let secret = std::fs::read_to_string(key.path("key")).unwrap();
    for text in ["", "\n", "RWQ", "untrusted comment: x", "untrusted comment: x\nRWQ\n", &secret] {
        assert!(PublicKeys::parse(text).is_err(), "{text}");
    }
    let default = key.sign("text", "timestamp:1\tfile:x\thashed", &[]);
    for text in [default.as_str(), "x", "x:", &key.public(), "\u{1b}[2J:"] {
        assert!(matches!(parse_signatures(text), Err(Error::Malformed { .. })), "{text}");
    }
}

#[test]
fn a_signature_of_another_text_is_verified_with_its_comment() {
    let (key, other) = (Key::new(), Key::new());
    let (text, comment) = ("a list\n", "of a list");
    let signature = key.sign(text, comment, &[]);
    let id = key.keys().ids().next().unwrap();
    let verify = |keys: &PublicKeys, text: &str, signature: &str| {
        keys.verify_content(text.as_bytes(), signature)
    };
    let line = key.public().lines().nth(1).unwrap().to_owned();
    for keys in [key.keys(), PublicKeys::of_line(&line).unwrap()] {
        assert_eq!(verify(&keys, text, &signature), Ok((id, comment.to_owned())));
    }
    assert_eq!(verify(&key.keys(), "a lisT\n", &signature), Err(Error::Broken(id)));
    let changed = signature.replace(comment, "of a lisT");
    assert_eq!(verify(&key.keys(), text, &changed), Err(Error::Broken(id)));
    let unknown = verify(&other.keys(), text, &signature);
    assert!(matches!(unknown, Err(Error::UnknownKey { .. })), "{unknown:?}");
    let legacy = key.sign(text, comment, &["-l"]);
    assert_eq!(verify(&key.keys(), text, &legacy), Err(Error::Legacy(id)));
    for line in ["", "RWQ", "untrusted comment: x"] {
        assert!(PublicKeys::of_line(line).is_err(), "{line}");
    }
}

//! OpenSSH public key lines: `type base64 [comment]` (RFC 4253 §6.6, RFC 5656 §3.1, RFC 8709 §4).
//!
//! Options before the type are refused: they would restrict what the key may do, which is decided on the installed system.
//! A reason never repeats a part of the line: the file may be a private key, and errors are logged.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The longest line: RSA with 16384 bits and a comment.
const MAX_LINE_BYTES: usize = 8 * 1024;
/// The shortest RSA modulus.
const MIN_RSA_BITS: usize = 2048;

/// The reason for refusing a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidKey {
    #[error("has {0} bytes, at most {MAX_LINE_BYTES} are allowed")]
    TooLong(usize),
    #[error("has a line break or another control character")]
    Control,
    #[error("is a DSA key: these are too weak")]
    Dsa,
    #[error("is a part of a private key: give the public key, whose file ends with .pub")]
    Private,
    #[error("is PEM: give the key in one line, as in a file that ends with .pub")]
    Pem,
    #[error("does not begin with a key type, such as ssh-ed25519: options are not allowed")]
    Type,
    #[error("has no base64 after its type")]
    Base64,
    #[error("has no valid key of type {0} in its base64")]
    Form(&'static str),
    #[error("is an RSA key of {0} bits, at least {MIN_RSA_BITS} are needed")]
    Short(usize),
}

/// The structure after the type inside the base64.
#[derive(Clone, Copy)]
enum KeyFormat {
    Rsa,
    Ed25519,
    /// The curve and the length of its field in bytes.
    Ecdsa(&'static str, usize),
}

/// Type, format, and true if a security key's application follows.
const KEY_TYPES: [(&str, KeyFormat, bool); 7] = [
    ("ssh-ed25519", KeyFormat::Ed25519, false),
    ("ssh-rsa", KeyFormat::Rsa, false),
    ("ecdsa-sha2-nistp256", KeyFormat::Ecdsa("nistp256", 32), false),
    ("ecdsa-sha2-nistp384", KeyFormat::Ecdsa("nistp384", 48), false),
    ("ecdsa-sha2-nistp521", KeyFormat::Ecdsa("nistp521", 66), false),
    ("sk-ssh-ed25519@openssh.com", KeyFormat::Ed25519, true),
    ("sk-ecdsa-sha2-nistp256@openssh.com", KeyFormat::Ecdsa("nistp256", 32), true),
];

/// Passes if `line` is one public key of sufficient strength.
pub(super) fn check(line: &str) -> Result<(), InvalidKey> {
    if line.len() > MAX_LINE_BYTES {
        return Err(InvalidKey::TooLong(line.len()));
    }
    if line.starts_with("----") {
        let is_private = line.contains("PRIVATE KEY");
        return Err(if is_private { InvalidKey::Private } else { InvalidKey::Pem });
    }
    if line.chars().any(|c| c.is_control() && c != '\t') {
        return Err(InvalidKey::Control);
    }
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    let key_type = words.next().unwrap_or_default();
    if key_type == "ssh-dss" {
        return Err(InvalidKey::Dsa);
    }
    let found = KEY_TYPES.iter().find(|(name, ..)| *name == key_type);
    let (name, form, security_key) = found.ok_or(InvalidKey::Type)?;
    let blob =
        words.next().and_then(|word| STANDARD.decode(word).ok()).ok_or(InvalidKey::Base64)?;
    let bits = key_bits(&blob, name, *form, *security_key).ok_or(InvalidKey::Form(name))?;
    match form {
        KeyFormat::Rsa if bits < MIN_RSA_BITS => Err(InvalidKey::Short(bits)),
        KeyFormat::Rsa | KeyFormat::Ed25519 | KeyFormat::Ecdsa(..) => Ok(()),
    }
}

/// Returns the size in bits of the key in `blob`, if all of it has this format.
fn key_bits(blob: &[u8], name: &str, form: KeyFormat, security_key: bool) -> Option<usize> {
    let (inner, mut rest) = string(blob)?;
    if inner != name.as_bytes() {
        return None;
    }
    let bits = match form {
        KeyFormat::Rsa => mpint_bits(take(&mut rest)?).and(mpint_bits(take(&mut rest)?))?,
        KeyFormat::Ed25519 => Some(take(&mut rest)?.len() * 8).filter(|bits| *bits == 256)?,
        KeyFormat::Ecdsa(curve, field) => {
            let (named, point) = (take(&mut rest)?, take(&mut rest)?);
            // Uncompressed: 4, then both coordinates (SEC 1 §2.3.3).
            let form = point.first() == Some(&4) && point.len() == 1 + 2 * field;
            (named == curve.as_bytes() && form).then_some(field * 8)?
        }
    };
    if security_key {
        take(&mut rest).filter(|application| !application.is_empty())?;
    }
    rest.is_empty().then_some(bits)
}

/// Returns the size in bits of a positive mpint in its shortest form (RFC 4251 §5).
fn mpint_bits(mpint: &[u8]) -> Option<usize> {
    let digits = match mpint {
        [0, digits @ ..] => Some(digits).filter(|digits| digits.first().is_some_and(|d| *d >= 128)),
        [first, ..] => Some(mpint).filter(|_| *first < 128),
        [] => None,
    }?;
    Some(digits.len() * 8 - digits.first()?.leading_zeros() as usize)
}

/// Removes the next length-prefixed string from `rest` and returns it.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (taken, after) = string(rest)?;
    *rest = after;
    Some(taken)
}

/// Splits off a length-prefixed string (RFC 4251 §5).
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ED25519: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@here";

    fn blob(parts: &[&[u8]]) -> String {
        let encode =
            |part: &&[u8]| [&u32::try_from(part.len()).unwrap().to_be_bytes(), *part].concat();
        STANDARD.encode(parts.iter().flat_map(encode).collect::<Vec<_>>())
    }

    fn rsa(bits: usize) -> String {
        let mut modulus = vec![0xff; bits / 8];
        modulus.insert(0, 0);
        format!("ssh-rsa {}", blob(&[b"ssh-rsa", &[1, 0, 1], &modulus]))
    }

    #[test]
    fn every_supported_type_passes() {
        let mut point = vec![7; 65];
        point[0] = 4;
        let ecdsa = blob(&[b"ecdsa-sha2-nistp256", b"nistp256", &point]);
        let sk = blob(&[b"sk-ssh-ed25519@openssh.com", &[1; 32], b"ssh:"]);
        for line in [
            ED25519.to_owned(),
            rsa(2048),
            format!("ecdsa-sha2-nistp256 {ecdsa} a comment of words"),
            format!("sk-ssh-ed25519@openssh.com {sk}"),
        ] {
            assert_eq!(check(&line), Ok(()), "{line}");
        }
    }

    #[test]
    fn weak_keys_are_refused_with_the_reason() {
        assert_eq!(check(&rsa(1024)), Err(InvalidKey::Short(1024)));
        assert_eq!(check(&rsa(2040)), Err(InvalidKey::Short(2040)));
        assert_eq!(check("ssh-dss AAAAB3NzaC1kc3M="), Err(InvalidKey::Dsa));
    }

    #[test]
    fn options_line_breaks_and_other_text_are_refused() {
        let options = format!("command=\"reboot\" {ED25519}");
        assert_eq!(check(&options), Err(InvalidKey::Type));
        assert_eq!(check(&format!("{ED25519}\n{ED25519}")), Err(InvalidKey::Control));
        assert_eq!(check("ssh-ed25519"), Err(InvalidKey::Base64));
        assert_eq!(check("ssh-ed25519 AAAA*"), Err(InvalidKey::Base64));
    }

    #[test]
    fn no_part_of_a_private_key_is_repeated() {
        let begin = "-----BEGIN OPENSSH PRIVATE KEY-----";
        assert_eq!(check(begin), Err(InvalidKey::Private));
        assert_eq!(check("-----BEGIN RSA PUBLIC KEY-----"), Err(InvalidKey::Pem));
        let content = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW";
        let reason = check(content).unwrap_err().to_string();
        assert_eq!(
            reason,
            "does not begin with a key type, such as ssh-ed25519: options are not allowed"
        );
    }

    #[test]
    fn the_decoded_key_has_the_stated_type_and_no_trailing_bytes() {
        let other = blob(&[b"ssh-rsa", &[1; 32]]);
        let longer = blob(&[b"ssh-ed25519", &[1; 32], b"x"]);
        let shorter = blob(&[b"ssh-ed25519", &[1; 31]]);
        for wrong in [other, longer, shorter] {
            assert_eq!(
                check(&format!("ssh-ed25519 {wrong}")),
                Err(InvalidKey::Form("ssh-ed25519"))
            );
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes: Vec<u8>, which in 0..KEY_TYPES.len(), text in ".*") {
            let (name, ..) = KEY_TYPES[which];
            let framed = [&blob_bytes(name.as_bytes()), &bytes[..]].concat();
            let _verdict = (check(&text), check(&format!("{name} {}", STANDARD.encode(framed))));
        }
    }

    fn blob_bytes(part: &[u8]) -> Vec<u8> {
        STANDARD.decode(blob(&[part])).unwrap()
    }
}

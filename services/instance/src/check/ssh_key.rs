//! OpenSSH public key lines: `type base64 [comment]` (RFC 4253 §6.6, RFC 5656 §3.1, RFC 8709 §4).
//!
//! A line's options would decide what a key may do, which is the installed system's business: they are refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The longest line, in bytes: RSA with 16384 bits and a comment.
const LINE: usize = 8 * 1024;
/// The shortest RSA modulus, in bits.
const RSA_BITS: usize = 2048;

/// Why a line is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoKey {
    #[error("has {0} bytes, at most {LINE} are allowed")]
    TooLong(usize),
    #[error("has a line break or another control character")]
    Control,
    #[error("is a DSA key: these are too weak")]
    Dsa,
    #[error("begins with {0:?}, which is no type of key: options are not allowed")]
    Type(String),
    #[error("has no base64 after its type")]
    Base64,
    #[error("is not what a key of type {0} looks like inside")]
    Form(&'static str),
    #[error("is an RSA key of {0} bits, at least {RSA_BITS} are needed")]
    Short(usize),
}

/// What follows the type inside the base64.
#[derive(Clone, Copy)]
enum Form {
    Rsa,
    Ed25519,
    /// The curve and its field's length in bytes.
    Ecdsa(&'static str, usize),
}

/// Type, form, and whether a security key's application follows.
const TYPES: [(&str, Form, bool); 7] = [
    ("ssh-ed25519", Form::Ed25519, false),
    ("ssh-rsa", Form::Rsa, false),
    ("ecdsa-sha2-nistp256", Form::Ecdsa("nistp256", 32), false),
    ("ecdsa-sha2-nistp384", Form::Ecdsa("nistp384", 48), false),
    ("ecdsa-sha2-nistp521", Form::Ecdsa("nistp521", 66), false),
    ("sk-ssh-ed25519@openssh.com", Form::Ed25519, true),
    ("sk-ecdsa-sha2-nistp256@openssh.com", Form::Ecdsa("nistp256", 32), true),
];

/// Passes if `line` is one public key that is strong enough.
pub(super) fn check(line: &str) -> Result<(), NoKey> {
    if line.len() > LINE {
        return Err(NoKey::TooLong(line.len()));
    }
    if line.chars().any(|c| c.is_control() && c != '\t') {
        return Err(NoKey::Control);
    }
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    let given = words.next().unwrap_or_default();
    if given == "ssh-dss" {
        return Err(NoKey::Dsa);
    }
    let known = TYPES.iter().find(|(name, ..)| *name == given);
    let (name, form, security_key) =
        known.ok_or_else(|| NoKey::Type(given.chars().take(40).collect()))?;
    let blob = words.next().and_then(|word| STANDARD.decode(word).ok()).ok_or(NoKey::Base64)?;
    let bits = inside(&blob, name, *form, *security_key).ok_or(NoKey::Form(name))?;
    match form {
        Form::Rsa if bits < RSA_BITS => Err(NoKey::Short(bits)),
        Form::Rsa | Form::Ed25519 | Form::Ecdsa(..) => Ok(()),
    }
}

/// The bits of the key in `blob`, if it is of this form to its last byte.
fn inside(blob: &[u8], name: &str, form: Form, security_key: bool) -> Option<usize> {
    let (inner, mut rest) = string(blob)?;
    if inner != name.as_bytes() {
        return None;
    }
    let bits = match form {
        Form::Rsa => bits(take(&mut rest)?).and(bits(take(&mut rest)?))?,
        Form::Ed25519 => Some(take(&mut rest)?.len() * 8).filter(|bits| *bits == 256)?,
        Form::Ecdsa(curve, field) => {
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

/// The bits of a positive mpint in its shortest form (RFC 4251 §5).
fn bits(mpint: &[u8]) -> Option<usize> {
    let digits = match mpint {
        [0, digits @ ..] => Some(digits).filter(|digits| digits.first().is_some_and(|d| *d >= 128)),
        [first, ..] => Some(mpint).filter(|_| *first < 128),
        [] => None,
    }?;
    Some(digits.len() * 8 - digits.first()?.leading_zeros() as usize)
}

/// The next length-prefixed string, which `rest` then lacks.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (taken, after) = string(rest)?;
    *rest = after;
    Some(taken)
}

/// A length-prefixed string and what follows it (RFC 4251 §5).
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
    fn every_usual_type_passes() {
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
    fn weak_keys_are_refused_by_name() {
        assert_eq!(check(&rsa(1024)), Err(NoKey::Short(1024)));
        assert_eq!(check(&rsa(2040)), Err(NoKey::Short(2040)));
        assert_eq!(check("ssh-dss AAAAB3NzaC1kc3M="), Err(NoKey::Dsa));
    }

    #[test]
    fn options_line_breaks_and_what_is_no_key_are_refused() {
        let options = format!("command=\"reboot\" {ED25519}");
        assert_eq!(check(&options), Err(NoKey::Type("command=\"reboot\"".into())));
        assert_eq!(check(&format!("{ED25519}\n{ED25519}")), Err(NoKey::Control));
        assert_eq!(check("ssh-ed25519"), Err(NoKey::Base64));
        assert_eq!(check("ssh-ed25519 AAAA*"), Err(NoKey::Base64));
        assert!(check("-----BEGIN OPENSSH PRIVATE KEY-----").is_err());
    }

    #[test]
    fn the_inside_is_what_the_line_says_to_its_last_byte() {
        let other = blob(&[b"ssh-rsa", &[1; 32]]);
        let longer = blob(&[b"ssh-ed25519", &[1; 32], b"x"]);
        let shorter = blob(&[b"ssh-ed25519", &[1; 31]]);
        for wrong in [other, longer, shorter] {
            assert_eq!(check(&format!("ssh-ed25519 {wrong}")), Err(NoKey::Form("ssh-ed25519")));
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_sent_breaks_the_parser(bytes: Vec<u8>, which in 0..TYPES.len(), text in ".*") {
            let (name, ..) = TYPES[which];
            let framed = [&blob_bytes(name.as_bytes()), &bytes[..]].concat();
            let _verdict = (check(&text), check(&format!("{name} {}", STANDARD.encode(framed))));
        }
    }

    fn blob_bytes(part: &[u8]) -> Vec<u8> {
        STANDARD.decode(blob(&[part])).unwrap()
    }
}

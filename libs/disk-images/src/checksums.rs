//! Checksums, and publishers' lists of them.
//!
//! Debian and Ubuntu write lines of sha512sum(1) and sha256sum(1): `HEX  NAME`, or `HEX *NAME` for
//! a file that was read as binary. Rocky Linux writes lines in the form of BSD:
//! `SHA256 (NAME) = HEX`, and comments that begin with `#`.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;

use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// A checksum of a file: hexadecimal digits in lower case. Their number depends on the algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum(String);

/// A checksum that is being computed.
pub struct Sum(Box<dyn DynDigest + Send + Sync>);

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sum").finish_non_exhaustive()
    }
}

/// Reason why a checksum file does not give the checksum of a file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// There is no line for the file.
    #[error("the checksum file has no line for {0}")]
    Missing(String),
    /// Two lines for the file differ.
    #[error("the checksum file has different checksums of {0}")]
    Ambiguous(String),
    /// The line has no checksum of a known algorithm.
    #[error("the checksum of {0} is neither SHA-256 nor SHA-512 in hexadecimal")]
    Invalid(String),
}

impl Checksum {
    /// Parses hexadecimal digits. `name` is that of the algorithm in a line of the form of BSD.
    fn parse(hex: &str, name: Option<&str>) -> Option<Self> {
        let checksum = Self(hex.to_ascii_lowercase());
        let is_named = name.is_none_or(|name| name.eq_ignore_ascii_case(checksum.algorithm()));
        let is_hex = hex.bytes().all(|digit| digit.is_ascii_hexdigit());
        (is_named && is_hex && [64, 128].contains(&hex.len())).then_some(checksum)
    }

    fn algorithm(&self) -> &'static str {
        if self.0.len() == 64 { "sha256" } else { "sha512" }
    }

    /// Begins a sum with the same algorithm.
    pub fn sum(&self) -> Sum {
        if self.0.len() == 64 { Sum::sha256() } else { Sum(Box::<Sha512>::default()) }
    }

    /// Returns the hexadecimal digits.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

/// A text that is not a checksum.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not sha256:<64 hexadecimal digits> or sha512:<128 hexadecimal digits>")]
pub struct InvalidChecksum;

/// Parses the form that a checksum is displayed in: `sha256:DIGITS` or `sha512:DIGITS`.
impl FromStr for Checksum {
    type Err = InvalidChecksum;

    fn from_str(text: &str) -> Result<Self, InvalidChecksum> {
        let (name, hex) = text.split_once(':').ok_or(InvalidChecksum)?;
        Self::parse(hex, Some(name)).ok_or(InvalidChecksum)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm(), self.0)
    }
}

impl Sum {
    /// Begins a sum with SHA-256.
    pub fn sha256() -> Self {
        Self(Box::<Sha256>::default())
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of all bytes.
    pub fn finish(self) -> Checksum {
        Checksum(self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Returns the SHA-256 of the file at `path`.
pub fn sha256_of_file(path: &Path) -> std::io::Result<Checksum> {
    let mut sum = Sum::sha256();
    add(&mut sum, &mut File::open(path)?)?;
    Ok(sum.finish())
}

/// Adds the rest of `file` to `sum`. Returns its number of bytes.
pub fn add(sum: &mut Sum, file: &mut File) -> std::io::Result<u64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut length = 0;
    loop {
        let read = file.read(&mut buffer)?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok(length);
        };
        sum.update(bytes);
        length += bytes.len() as u64;
    }
}

/// Returns the checksum of `file` in the checksum file `text`.
pub fn find(text: &str, file: &str) -> Result<Checksum, Error> {
    let mut found: Option<Checksum> = None;
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    for (algorithm, name, hex) in lines.filter_map(parse_line) {
        if name.trim_start_matches("./") != file {
            continue;
        }
        let checksum = Checksum::parse(hex, algorithm);
        let checksum = checksum.ok_or_else(|| Error::Invalid(file.into()))?;
        if found.replace(checksum.clone()).is_some_and(|before| before != checksum) {
            return Err(Error::Ambiguous(file.into()));
        }
    }
    found.ok_or_else(|| Error::Missing(file.into()))
}

/// Returns algorithm, name and digits in a line.
fn parse_line(line: &str) -> Option<(Option<&str>, &str, &str)> {
    if let Some((before, hex)) = line.rsplit_once(") = ") {
        let (algorithm, name) = before.split_once(" (")?;
        return Some((Some(algorithm), name, hex.trim()));
    }
    let (hex, name) = line.split_once(' ')?;
    let name = name.strip_prefix([' ', '*']).unwrap_or(name);
    Some((None, name, hex))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(digit: &str, length: usize) -> String {
        digit.repeat(length)
    }

    #[test]
    fn lines_of_sha512sum_and_of_sha256sum_in_binary_mode_are_read() {
        let debian = format!(
            "{}  debian-12-generic-amd64.json\n{}  debian-12-generic-amd64.qcow2\n",
            hex("a", 128),
            hex("B", 128)
        );
        let found = find(&debian, "debian-12-generic-amd64.qcow2").unwrap();
        assert_eq!(found.to_string(), format!("sha512:{}", hex("b", 128)));
        let ubuntu = format!("{} *a-arm64.img\n{} *a-amd64.img\n", hex("1", 64), hex("2", 64));
        let found = find(&ubuntu, "a-amd64.img").unwrap();
        assert_eq!(found.to_string(), format!("sha256:{}", hex("2", 64)));
    }

    #[test]
    fn lines_in_the_form_of_bsd_and_comments_are_read() {
        let rocky = format!(
            "# Rocky-9.latest.x86_64.qcow2: 609812480 bytes\nSHA256 (Rocky-9.latest.x86_64.qcow2) = {}\n",
            hex("c", 64)
        );
        let found = find(&rocky, "Rocky-9.latest.x86_64.qcow2").unwrap();
        assert_eq!(found.to_string(), format!("sha256:{}", hex("c", 64)));
    }

    #[test]
    fn a_file_without_the_line_or_with_a_wrong_one_is_refused() {
        let missing = Err(Error::Missing("b.img".into()));
        assert_eq!(find("", "b.img"), missing);
        let other = format!("{} *bb.img\n{}  b.img.json\n", hex("1", 64), hex("1", 64));
        assert_eq!(find(&other, "b.img"), missing);
        // A page of an error in place of the file.
        assert_eq!(find("<html>\n<body>b.img = 404</body>", "b.img"), missing);
        for wrong in [
            format!("{}  b.img", hex("1", 63)),
            format!("{}  b.img", hex("x", 64)),
            format!("SHA512 (b.img) = {}", hex("1", 64)),
            format!("MD5 (b.img) = {}", hex("1", 32)),
        ] {
            assert_eq!(find(&wrong, "b.img"), Err(Error::Invalid("b.img".into())), "{wrong}");
        }
        let two = format!("{}  b.img\n{}  b.img\n", hex("1", 64), hex("2", 64));
        assert_eq!(find(&two, "b.img"), Err(Error::Ambiguous("b.img".into())));
    }

    #[test]
    fn the_displayed_form_is_parsed_and_others_are_refused() {
        for (name, length) in [("sha256", 64), ("sha512", 128)] {
            let text = format!("{name}:{}", hex("a", length));
            assert_eq!(text.parse::<Checksum>().unwrap().to_string(), text);
        }
        for text in ["", "sha256:", "md5:00", &hex("a", 64), &format!("sha512:{}", hex("a", 64))] {
            assert_eq!(text.parse::<Checksum>(), Err(InvalidChecksum), "{text}");
        }
    }

    #[test]
    fn the_example_of_fips_180_4_has_its_sums() {
        let mut sum = Sum::sha256();
        sum.update(b"ab");
        sum.update(b"c");
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sum.finish().to_string(), abc);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_search_panic(text in "(\\PC|\n){0,200}", name in "\\PC{0,20}") {
            let _either = find(&text, &name);
        }
    }
}

//! Texts from files, and values of options. The file `-` is standard input.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use indicatif::HumanBytes;

/// The largest file that is read, in bytes: more than the largest object that the server takes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The longest part of a value that an error quotes, in characters.
const MAX_QUOTED: usize = 60;

/// Reads the file at `path`, without a byte order mark.
pub fn text(path: &Path) -> anyhow::Result<String> {
    let decoded = bytes(path).and_then(decoded);
    decoded.with_context(|| reading(path))
}

/// Reads the file at `path` for the fields `userdata` and `userdata_bytes` of an instance: text is in the first, other data, such as an
/// archive, in the second.
pub fn user_data(path: &Path) -> anyhow::Result<(String, Vec<u8>)> {
    let bytes = bytes(path).with_context(|| reading(path))?;
    Ok(match str::from_utf8(&bytes) {
        Ok(text) if !text.contains('\0') => (without_mark(text).to_owned(), Vec::new()),
        Ok(_) | Err(_) => (String::new(), bytes),
    })
}

fn reading(path: &Path) -> String {
    match path == Path::new("-") {
        true => "reading standard input".to_owned(),
        false => format!("reading {}", path.display()),
    }
}

fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path == Path::new("-") {
        return limited(&mut std::io::stdin(), MAX_FILE_BYTES);
    }
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    anyhow::ensure!(!metadata.is_dir(), "it is a folder");
    let (bytes, limit) = (metadata.len(), HumanBytes(MAX_FILE_BYTES));
    let size = HumanBytes(bytes);
    anyhow::ensure!(bytes <= MAX_FILE_BYTES, "it has {size}, and may have {limit}");
    limited(&mut file, MAX_FILE_BYTES)
}

fn limited(reader: &mut dyn Read, limit: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit + 1).read_to_end(&mut bytes)?;
    let is_short = u64::try_from(bytes.len()).is_ok_and(|length| length <= limit);
    anyhow::ensure!(is_short, "it has more than {}", HumanBytes(limit));
    Ok(bytes)
}

fn decoded(bytes: Vec<u8>) -> anyhow::Result<String> {
    let text = String::from_utf8(bytes).context("it is not text in UTF-8")?;
    Ok(without_mark(&text).to_owned())
}

fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Returns the beginning of `text` for an error, in one line.
pub fn short(text: &str) -> String {
    let line: String = text.chars().take(MAX_QUOTED).collect();
    let line = line.replace(['\n', '\r'], " ");
    if text.chars().nth(MAX_QUOTED).is_some() { line + "…" } else { line }
}

/// Parses an option of the form KEY=VALUE.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not of the form KEY=VALUE")?;
    Ok((key.into(), value.into()))
}

/// Parses a duration of one unit, such as `30d`, `12h`, `45m` or `90s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 30d, 12h, 45m or 90s");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number = text.strip_suffix(unit).filter(|it| it.bytes().all(|b| b.is_ascii_digit()));
    let number: u32 = number.and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_one_unit() {
        for (text, seconds) in [("90s", 90), ("45m", 2700), ("12h", 43_200), ("30d", 2_592_000)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "d", "30", "-1d", "1.5h", "1w", "1d2h", "30ä", "99999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_has_a_largest_size_and_is_text_without_a_byte_order_mark() {
        let read = |bytes: &[u8]| {
            let read = limited(&mut &bytes[..], 10).and_then(decoded);
            read.map_err(|error| error.to_string())
        };
        assert_eq!(read("\u{feff}name: a".as_bytes()), Ok("name: a".into()));
        assert_eq!(read(b"0123456789"), Ok("0123456789".into()));
        assert_eq!(read(b"0123456789a"), Err("it has more than 10 B".into()));
        assert_eq!(read(b"\xff\xfe"), Err("it is not text in UTF-8".into()));
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large.yaml");
        File::create(&large).unwrap().set_len(41 << 20).unwrap();
        let refused = |path: &Path| format!("{:#}", text(path).unwrap_err());
        let error = refused(&large);
        assert!(error.ends_with("large.yaml: it has 41.00 MiB, and may have 16.00 MiB"), "{error}");
        assert!(refused(folder.path()).ends_with(": it is a folder"));
    }

    #[test]
    fn user_data_is_text_if_it_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            user_data(&path).unwrap()
        };
        for text in ["#cloud-config\r\n", "H4sIAAAAAAAA/w==", "ä", ""] {
            assert_eq!(read(text.as_bytes()), (text.to_owned(), Vec::new()));
        }
        assert_eq!(read("\u{feff}#cloud-config".as_bytes()).0, "#cloud-config");
        for bytes in [&[0x1f, 0x8b, 8, 0][..], b"\xff\xfea\0", b"ustar\0", b"\xef\xbb\xbf\0"] {
            assert_eq!(read(bytes), (String::new(), bytes.to_vec()));
        }
    }

    #[test]
    fn a_quoted_value_is_one_short_line() {
        assert_eq!(short("a\nb"), "a b");
        assert_eq!(short(&"ä".repeat(1000)), "ä".repeat(60) + "…");
    }
}

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
    if path == Path::new("-") {
        return limited(&mut std::io::stdin(), MAX_FILE_BYTES).context("reading standard input");
    }
    let reading = || format!("reading {}", path.display());
    let mut file = File::open(path).with_context(reading)?;
    let metadata = file.metadata().with_context(reading)?;
    anyhow::ensure!(!metadata.is_dir(), "{}: it is a folder", reading());
    let (bytes, limit) = (metadata.len(), HumanBytes(MAX_FILE_BYTES));
    let size = HumanBytes(bytes);
    anyhow::ensure!(bytes <= MAX_FILE_BYTES, "{}: it has {size}, and may have {limit}", reading());
    limited(&mut file, MAX_FILE_BYTES).with_context(reading)
}

fn limited(reader: &mut dyn Read, limit: u64) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    reader.take(limit + 1).read_to_end(&mut bytes)?;
    let is_short = u64::try_from(bytes.len()).is_ok_and(|length| length <= limit);
    anyhow::ensure!(is_short, "it has more than {}", HumanBytes(limit));
    let text = String::from_utf8(bytes).context("it is not text in UTF-8")?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
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
        let read = |bytes: &[u8]| limited(&mut &bytes[..], 10).map_err(|error| error.to_string());
        assert_eq!(read("\u{feff}name: a".as_bytes()), Ok("name: a".into()));
        assert_eq!(read(b"0123456789"), Ok("0123456789".into()));
        assert_eq!(read(b"0123456789a"), Err("it has more than 10 B".into()));
        assert_eq!(read(b"\xff\xfe"), Err("it is not text in UTF-8".into()));
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large.yaml");
        File::create(&large).unwrap().set_len(41 << 20).unwrap();
        let error = text(&large).unwrap_err().to_string();
        assert!(error.ends_with("it has 41.00 MiB, and may have 16.00 MiB"), "{error}");
        assert!(text(folder.path()).unwrap_err().to_string().ends_with("it is a folder"));
    }

    #[test]
    fn a_quoted_value_is_one_short_line() {
        assert_eq!(short("a\nb"), "a b");
        assert_eq!(short(&"ä".repeat(1000)), "ä".repeat(60) + "…");
    }
}

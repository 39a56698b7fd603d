//! Durations and sizes as the flags of the original have them.

use std::time::Duration;

/// Parses a duration such as `10s`, `1m30s` or `1.5h`. `0` needs no unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = length(rest, |letter| letter.is_ascii_digit() || letter == '.');
        let (number, after) = rest.split_at(digits);
        let (unit, after) = after.split_at(length(after, |letter| letter.is_alphabetic()));
        let value: f64 = number.parse().map_err(|_| wrong_duration(text))?;
        let seconds = value * seconds_of(unit).ok_or_else(|| wrong_duration(text))?;
        let part = Duration::try_from_secs_f64(seconds).map_err(|_| wrong_duration(text))?;
        total = total.checked_add(part).ok_or_else(|| wrong_duration(text))?;
        rest = after;
    }
    if text.is_empty() { Err(wrong_duration(text)) } else { Ok(total) }
}

/// Parses a size in bytes such as `1MiB`, `64KB` or `4096`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = length(text, |letter| letter.is_ascii_digit());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1000 * 1000,
        "g" | "gb" => 1000 * 1000 * 1000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        _ => return Err(wrong_size(text)),
    };
    let number: u64 = number.parse().map_err(|_| wrong_size(text))?;
    number.checked_mul(factor).ok_or_else(|| wrong_size(text))
}

/// Returns the length of the beginning of `text` whose characters satisfy `belongs`, in bytes.
fn length(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|letter| !belongs(letter)).unwrap_or(text.len())
}

fn seconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

fn wrong_duration(text: &str) -> String {
    format!("{text:?} is not a duration such as 10s, 1m30s or 0")
}

fn wrong_size(text: &str) -> String {
    format!("{text:?} is not a size such as 1MiB or 4096")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        let seconds = |text| duration(text).unwrap().as_secs_f64();
        assert_eq!([seconds("10s"), seconds("3m"), seconds("1m30s")], [10.0, 180.0, 90.0]);
        assert_eq!([seconds("0"), seconds("250ms"), seconds("1.5h")], [0.0, 0.25, 5400.0]);
        for text in ["", "10", "s", "1x", "-1s", "1.2.3s", "1s ", "1e9h"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        assert_eq!(size("1MiB"), Ok(1 << 20));
        assert_eq!([size("4096"), size("64KB"), size("2gib")], [Ok(4096), Ok(64_000), Ok(2 << 30)]);
        for text in ["", "MiB", "1 MiB", "1TB", "-1", "99999999999GiB"] {
            assert!(size(text).is_err(), "{text:?}");
        }
    }
}

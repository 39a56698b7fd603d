//! The filter of log lines, checked. `tracing` takes a misspelt level for the name of a target, and then logs nothing.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// A part of a filter that selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} is neither a level (error, warn, info, debug, trace, off) nor TARGET=LEVEL")]
pub struct InvalidFilter {
    /// The part.
    part: String,
}

/// Parses `text`: levels and `TARGET=LEVEL`, separated by commas, such as `info,store=debug`.
pub fn parse_filter(text: &str) -> Result<EnvFilter, InvalidFilter> {
    let invalid = |part: &str| InvalidFilter { part: part.trim().to_owned() };
    for part in text.split(',') {
        let (target, level) = part.rsplit_once('=').unwrap_or(("-", part));
        let is_level = !level.trim().is_empty() && level.trim().parse::<LevelFilter>().is_ok();
        if !is_level || level.trim().parse::<usize>().is_ok() || target.trim().is_empty() {
            return Err(invalid(part));
        }
    }
    EnvFilter::builder().parse(text).map_err(|_| invalid(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_with_levels_are_filters() {
        for filter in [
            "info",
            "WARN",
            "off",
            "info,store=debug",
            "netboot::http=trace, warn",
            "a[b{c=1}]=debug",
        ] {
            assert!(parse_filter(filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn a_misspelt_level_is_refused_and_named() {
        for (filter, part) in [
            ("verbose", "verbose"),
            ("inf=,o", "inf="),
            ("info,store=debgu", "store=debgu"),
            ("info,store", "store"),
            ("info,=debug", "=debug"),
            ("info,", ""),
            ("", ""),
            ("3", "3"),
        ] {
            let error = parse_filter(filter).unwrap_err();
            assert_eq!(error, InvalidFilter { part: part.into() }, "{filter}");
        }
        let text = parse_filter("verbose").unwrap_err().to_string();
        assert!(text.starts_with("\"verbose\" is neither a level (error, warn, "), "{text}");
    }
}

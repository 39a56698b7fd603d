//! The log, whose level is set as that of the original.

use runtime::telemetry::{self, Format};

/// The environment variable with the log level.
const LEVEL: &str = "IMAGEAPI_LOGLEVEL";
/// Libraries whose details say nothing about the node.
const LIBRARIES: &str = "h2=warn,hyper=warn,hyper_util=warn,rustls=warn";

/// Begins logging to standard error.
pub(crate) fn init() -> anyhow::Result<()> {
    let wanted = std::env::var(LEVEL).unwrap_or_default();
    let level = level(&wanted);
    telemetry::init_logging(Format::Human, &format!("{},{LIBRARIES}", level.unwrap_or("info")))?;
    if level.is_none() && !wanted.is_empty() {
        tracing::warn!(
            level = wanted,
            "{LEVEL} is not one of PANIC FATAL ERROR WARN INFO DEBUG TRACE: INFO is used"
        );
    }
    Ok(())
}

/// Returns the level for a word of the original, upper case only. Its two highest levels are errors here.
fn level(word: &str) -> Option<&'static str> {
    Some(match word {
        "PANIC" | "FATAL" | "ERROR" => "error",
        "WARN" => "warn",
        "INFO" => "info",
        "DEBUG" => "debug",
        "TRACE" => "trace",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_in_upper_case_only() {
        assert_eq!([level("PANIC"), level("TRACE")], [Some("error"), Some("trace")]);
        assert_eq!([level("info"), level("")], [None, None]);
    }
}

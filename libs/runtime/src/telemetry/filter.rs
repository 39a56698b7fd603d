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

/// The crates of this workspace, as targets name them. A name also stands for those that begin with it.
const OWN_CRATES: [&str; 39] = [
    "actions",
    "address",
    "all_in_one",
    "builder",
    "cli",
    "containers",
    "dhcp",
    "disk_images",
    "file_stream",
    "fleet",
    "gateway",
    "hardware",
    "identity",
    "image",
    "image_signature",
    "imageapi",
    "instance",
    "ipxe_script",
    "iso_arguments",
    "machine",
    "metadata",
    "mounts",
    "netboot",
    "node",
    "nouns",
    "pinned_tls",
    "power",
    "range_cache",
    "runtime",
    "sandbox",
    "site_archive",
    "store",
    "stored_image",
    "syslog",
    "tftp",
    "tinwright",
    "worker",
    "workflow",
    "yaml",
];

/// Parses `text`: levels and `TARGET=LEVEL`, separated by commas, such as `info,store=debug`. The levels debug and trace without a target are
/// those of our own crates: libraries, whose lines are the most by far, stay at info, unless they are named (`debug,h2=debug`).
pub fn parse_filter(text: &str) -> Result<EnvFilter, InvalidFilter> {
    let invalid = |part: &str| InvalidFilter { part: part.trim().to_owned() };
    for part in text.split(',') {
        let (target, level) = part.rsplit_once('=').unwrap_or(("-", part));
        let is_level = !level.trim().is_empty() && level.trim().parse::<LevelFilter>().is_ok();
        if !is_level || level.trim().parse::<usize>().is_ok() || target.trim().is_empty() {
            return Err(invalid(part));
        }
    }
    EnvFilter::builder().parse(with_libraries_at_info(text)).map_err(|_| invalid(text))
}

/// Replaces a level above info that has no target by one for each of our crates.
fn with_libraries_at_info(text: &str) -> String {
    let parts = text.split(',').map(str::trim);
    let (targets, levels): (Vec<_>, Vec<_>) = parts.partition(|part| part.contains('='));
    let is_detailed =
        |level: &&&str| level.parse::<LevelFilter>().is_ok_and(|level| level > LevelFilter::INFO);
    let Some(level) = levels.last().filter(is_detailed) else { return text.to_owned() };
    let is_named = |name: &str| {
        targets.iter().any(|part| part.split_once('=').is_some_and(|(it, _)| it.trim() == name))
    };
    let own = OWN_CRATES.iter().filter(|name| !is_named(name));
    let own = own.map(|name| format!("{name}={level}"));
    let named = targets.iter().map(|part| (*part).to_owned());
    std::iter::once("info".to_owned()).chain(own).chain(named).collect::<Vec<_>>().join(",")
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
    fn debug_without_a_target_is_for_our_own_crates() {
        for same in ["info", "off", "info,store=debug", "debug,warn"] {
            assert_eq!(with_libraries_at_info(same), same);
        }
        let filter = with_libraries_at_info("h2=debug, DEBUG,store=warn");
        assert!(filter.starts_with("info,actions=DEBUG,address=DEBUG,"), "{filter}");
        assert!(filter.ends_with(",yaml=DEBUG,h2=debug,store=warn"), "{filter}");
        assert!(!filter.contains("store=DEBUG"), "{filter}");
        assert!(parse_filter("h2=debug, DEBUG,store=warn").is_ok());
    }

    #[test]
    fn each_crate_of_the_workspace_is_known() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folders = ["libs", "services"].map(|folder| root.join(folder).read_dir().unwrap());
        let mut names: Vec<_> = folders
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace('-', "_"))
            .collect();
        names.push("tinwright_worker".into());
        for name in &names {
            assert!(OWN_CRATES.iter().any(|own| name.starts_with(own)), "{name}");
        }
        for own in OWN_CRATES {
            assert!(names.iter().any(|name| name.starts_with(own)), "{own}");
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

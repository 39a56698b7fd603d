//! What a worker can do, and what actions need. Workers that do not say so are of an in-memory
//! environment that is older than these abilities.

use std::collections::BTreeSet;

use tinwright::workflow::v1::Action;

/// The beginning of the warning of a workflow whose worker cannot run its next action.
pub const OUTDATED: &str = "the in-memory environment is too old";
/// The worker writes images by their maps (`IMG_MAP`).
const MAP: &str = "map";
/// The worker completes paths with the server that it was booted from.
const RELATIVE_URL: &str = "relative_url";
/// The variables with URLs that may be paths.
const URLS: [&str; 3] = ["ARCHIVE_URL", "IMG_MAP", "IMG_URL"];

/// The abilities of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abilities(BTreeSet<String>);

impl Abilities {
    /// The abilities with these names. Unknown ones are of a newer worker.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// True if no action needs more.
    pub fn are_complete(&self) -> bool {
        [MAP, RELATIVE_URL].iter().all(|name| self.0.contains(*name))
    }

    /// Returns the reason why a worker with these abilities cannot run `action`; none if it can.
    pub fn missing_for(&self, action: &Action) -> Option<String> {
        let missing = needed(action).find(|name| !self.0.contains(*name))?;
        Some(format!(
            "{OUTDATED} for action {}, which needs {missing}: build it again (tinwright osie build)",
            action.name
        ))
    }
}

/// Returns the abilities that `action` needs.
fn needed(action: &Action) -> impl Iterator<Item = &'static str> {
    let pairs = || action.environment.iter().filter_map(|pair| pair.split_once('='));
    let has_map = pairs().any(|(name, value)| name == "IMG_MAP" && !value.is_empty());
    let is_path = |(name, value): (&str, &str)| URLS.contains(&name) && value.starts_with('/');
    let has_path = pairs().any(is_path);
    let needed = [(has_map, MAP), (has_path, RELATIVE_URL)];
    needed.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(environment: &[&str]) -> Action {
        let environment = environment.iter().map(|pair| (*pair).to_owned()).collect();
        Action { name: "write".into(), environment, ..Action::default() }
    }

    #[test]
    fn only_what_older_workers_cannot_do_needs_an_ability() {
        let all = Abilities::new([MAP, RELATIVE_URL].map(str::to_owned));
        let old = Abilities::default();
        for (environment, needed) in [
            (&["IMG_URL=http://a/b", "IMG_MAP="][..], None),
            (&["IMG_URL=/files/os.raw.zst"], Some("relative_url")),
            (&["ARCHIVE_URL=/files/root.tar"], Some("relative_url")),
            (&["IMG_URL=http://a/b", "IMG_MAP=http://a/c"], Some("map")),
            (&["DEST_PATH=/etc/hostname"], None),
        ] {
            let reason = old.missing_for(&action(environment));
            let expected = needed.map(|name| {
                format!(
                    "the in-memory environment is too old for action write, which needs {name}: build it again (tinwright osie build)"
                )
            });
            assert_eq!(reason, expected);
            assert_eq!(all.missing_for(&action(environment)), None);
        }
        assert!(all.are_complete() && !old.are_complete());
    }
}

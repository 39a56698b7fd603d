//! `meta-data/tags`: a list in Tinkerbell's tree, a directory `instance/` of keys in Amazon's.

use super::row::{Row, Stars, text};
use super::version::Dialect;
use super::{Body, lines};
use crate::machine::Machine;

pub(super) const ROWS: &[Row] = &[
    Row::leaf("meta-data/tags", |m| {
        text(lines(
            m.tags().iter().map(String::as_str).filter(|tag| !tag.contains(char::is_control)),
        ))
    })
    .only(Dialect::Tinkerbell),
    Row::each("meta-data/tags/instance/*", keys, value).only(Dialect::Ec2),
];

/// The longest key in the tree. With a longer one, the percent-encoded path could exceed the longest path that is read.
const MAX_KEY_BYTES: usize = 255;

/// True if a client can follow `key` from a listing. Clients split listings at every line separator of Unicode, trim the
/// lines, and resolve dots as in any URL.
fn is_listable(key: &str) -> bool {
    let breaks = |c: char| c.is_control() || matches!(c, '/' | '\u{2028}' | '\u{2029}');
    let whole = !key.is_empty() && key.len() <= MAX_KEY_BYTES && key == key.trim();
    whole && !key.contains(breaks) && !matches!(key, "." | "..")
}

fn keys(machine: &Machine, _: Stars) -> Vec<String> {
    let keys = machine.tag_pairs().map(|(key, _)| key);
    keys.filter(|key| is_listable(key)).map(str::to_owned).collect()
}

fn value(machine: &Machine, stars: Stars) -> Option<Body> {
    let [name] = stars else { return None };
    let (_, value) = machine.tag_pairs().find(|(key, _)| key == name && is_listable(key))?;
    Some(value.to_owned().into())
}

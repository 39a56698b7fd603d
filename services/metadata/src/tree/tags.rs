//! `meta-data/tags`: a list in Tinkerbell's tree, a directory `instance/` of keys in Amazon's.

use super::row::{Row, Stars, text};
use super::version::Dialect;
use super::{Body, lines};
use crate::machine::Machine;

pub(super) const ROWS: &[Row] = &[
    Row::leaf("meta-data/tags", |m| {
        text(lines(tags(m).iter().filter(|tag| !tag.contains(char::is_control))))
    })
    .only(Dialect::Tinkerbell),
    Row::each("meta-data/tags/instance/*", keys, value).only(Dialect::Ec2),
];

/// A key longer than this is left out, so that its path, percent-encoded, stays below what is read of one.
const LONGEST: usize = 255;

fn tags(machine: &Machine) -> &[String] {
    machine.instance.as_ref().map_or(&[], |instance| &instance.tags)
}

/// A tag as key and value; without a `=` the value is empty.
fn split(tag: &str) -> (&str, &str) {
    tag.split_once('=').unwrap_or((tag, ""))
}

/// Whether a listing may hold `key`, and a client that follows the listing come back with it. Clients split listings
/// at every line separator Unicode has, trim the lines, and resolve dots as in any URL.
fn is_listable(key: &str) -> bool {
    let breaks = |c: char| c.is_control() || matches!(c, '/' | '\u{2028}' | '\u{2029}');
    let whole = !key.is_empty() && key.len() <= LONGEST && key == key.trim();
    whole && !key.contains(breaks) && !matches!(key, "." | "..")
}

fn keys(machine: &Machine, _: Stars) -> Vec<String> {
    let keys = tags(machine).iter().map(|tag| split(tag).0);
    keys.filter(|key| is_listable(key)).map(str::to_owned).collect()
}

fn value(machine: &Machine, stars: Stars) -> Option<Body> {
    let [asked] = stars else { return None };
    let mut pairs = tags(machine).iter().map(|tag| split(tag));
    let (_, value) = pairs.find(|(key, _)| key == asked && is_listable(key))?;
    Some(value.to_owned().into())
}

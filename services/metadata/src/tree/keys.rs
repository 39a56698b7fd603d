//! `meta-data/public-keys`: who may log in.
//!
//! A directory that lists `0=name` where its sub-directories are called `0/`: EC2's one irregular listing, and every
//! client knows it.

use super::row::{Row, Stars, text};
use super::version::Dialect;
use super::{Body, lines};
use crate::machine::Machine;

pub(super) const ROWS: &[Row] = &[
    Row::leaf("meta-data/public-keys", raw).only(Dialect::Tinkerbell),
    Row::listing("meta-data/public-keys", |m| {
        Some(lines(m.key_names().iter().enumerate().map(|(n, name)| format!("{n}={name}"))).into())
    }),
    Row::each("meta-data/public-keys/*/openssh-key", numbers, openssh_key).only(Dialect::Ec2),
    Row::each("meta-data/public-keys/*/openssh-key", numbers_unless_raw, openssh_key)
        .only(Dialect::Tinkerbell),
];

/// The keys themselves, one a line, for machines whose readers are as old as that (Hegel's).
fn raw(machine: &Machine) -> Option<Body> {
    if machine.raw_keys { text(lines(machine.ssh_keys())) } else { None }
}

fn numbers_unless_raw(machine: &Machine, stars: Stars) -> Vec<String> {
    if machine.raw_keys { Vec::new() } else { numbers(machine, stars) }
}

fn numbers(machine: &Machine, _: Stars) -> Vec<String> {
    (0..machine.ssh_keys().len()).map(|n| n.to_string()).collect()
}

fn openssh_key(machine: &Machine, stars: Stars) -> Option<Body> {
    let keys = machine.ssh_keys();
    // EC2 says 404, for which the BOSH agent waits ten seconds at every boot; an empty key it takes at once.
    if keys.is_empty() && stars == ["0"] {
        return Some(String::new().into());
    }
    let mut numbered = keys.iter().enumerate();
    let key = numbered.find(|(n, _)| stars == [n.to_string()])?.1;
    Some((*key).to_owned().into())
}

//! `meta-data/public-keys`: the SSH keys of the instance.
//!
//! The listing has `0=name` for the subdirectory `0/`. It is the only irregular listing of EC2, and all clients know it.

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

/// Returns the keys themselves, one per line, for machines with clients of Hegel's age.
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
    // EC2 answers 404, for which the BOSH agent waits ten seconds at every boot. It accepts an empty key at once.
    if keys.is_empty() && stars == ["0"] {
        return Some(String::new().into());
    }
    let mut numbered = keys.iter().enumerate();
    let key = numbered.find(|(n, _)| stars == [n.to_string()])?.1;
    Some((*key).to_owned().into())
}

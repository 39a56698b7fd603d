//! Machines that objects name, and their names for tables.

use std::collections::{BTreeSet, HashMap};

use runtime::Channel;
use tinwright::hardware::v1::Hardware;

use super::{Query, Resource as _};
use crate::connect::View;
use crate::failure;

/// Returns the readable machines with these ids, by id.
pub(crate) async fn machines<'a>(
    channel: &Channel,
    ids: impl Iterator<Item = &'a str>,
) -> HashMap<String, Hardware> {
    /// More are read by pages of the list.
    const MAX_GETS: usize = 20;
    let ids: BTreeSet<_> = ids.filter(|id| !id.is_empty()).collect();
    if ids.len() > MAX_GETS {
        let all = Hardware::all(channel, &Query::<Hardware>::default()).await;
        return all.unwrap_or_default().into_iter().map(|it| (it.id.clone(), it)).collect();
    }
    let mut machines = HashMap::new();
    for id in ids {
        match Hardware::get(channel, id, View::Basic).await {
            Ok(machine) => drop(machines.insert(machine.id.clone(), machine)),
            Err(error) if failure::is_not_found(&error) => {}
            // A caller that may not read machines sees their ids.
            Err(_) => break,
        }
    }
    machines
}

/// Returns the names of the readable machines with these ids, by id.
pub(crate) async fn machine_names<'a>(
    channel: &Channel,
    ids: impl Iterator<Item = &'a str>,
) -> HashMap<String, String> {
    machines(channel, ids).await.into_iter().map(|(id, machine)| (id, machine.name)).collect()
}

//! Choice of a free machine for an order by placement.
//!
//! ```text
//! read the machines that fit ─▶ choose one ─▶ no BMC, or a workflow there? ─yes─▶ choose the next
//!                                  ▲              └no─▶ commit the instance with its claim
//!                                  └──────── another order was first ◀──┘
//! ```
//!
//! There is one commit per try, on the occupant key of the machine (`instances`): so each machine has one instance, however many orders there are. An
//! order is refused only after each machine that fits was seen not to be free.
//!
//! **Order of the tries.** The first choice follows from the order's content alone: a plan names the machine that the creation takes. After a
//! collision the rest is tried in random order, since the other orders may have the same content.
//!
//! **Spreading.** Instances of a tenant with equal placements are a group. Each has an index entry `spread/<group>/<value>/<id>`, which is
//! written and deleted with the claim on its machine; the entries are counted, and no number is stored. Orders of one group change the
//! same guard key, so none counts while another one commits.

mod candidates;

use std::time::Duration;

use store::records;
use store::records::requests::IdempotentRequest;
use tinwright::hardware::v1::{Hardware, ListHardwareRequest};
use tinwright::instance::v1 as pb;
use tinwright::{LocationId, ModelId};

pub(crate) use self::candidates::Counts;
use self::candidates::{Availability, Candidate, Candidates};
use crate::instances::spread::Spread;
use crate::instances::{self, Instances};
use crate::order_check;
use crate::peers::{self, Peers};

/// Tries while other orders of the same group come first. Each of these tries is another order that succeeded.
const MAX_SPREAD_TRIES: u32 = 10_000;
/// The longest pause before such a try.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// An order without a machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no such model, location or zone.
    #[error("{noun} {name} not found")]
    Missing {
        /// Its kind.
        noun: &'static str,
        /// Its name or id, as the order has it.
        name: String,
    },
    /// No machine that fits is free.
    #[error("{0}")]
    NoMachineFits(Counts),
    /// The instance could not be stored.
    #[error(transparent)]
    Instances(#[from] instances::Error),
    /// Another service could not be asked.
    #[error(transparent)]
    Peer(#[from] peers::Error),
}

/// The choice for one order.
#[derive(Debug)]
pub(crate) struct Choice<'a> {
    instances: &'a Instances,
    peers: &'a Peers,
    placement: &'a pb::Placement,
    tenant: &'a str,
    needs_bmc: bool,
    candidates: Candidates,
}

impl<'a> Choice<'a> {
    /// Reads the machines that fit the placement of `instance`, which has one in its stored form. The order of the tries follows from the
    /// content of `instance`.
    pub(crate) async fn new(
        instances: &'a Instances,
        peers: &'a Peers,
        placement: &'a pb::Placement,
        instance: &'a pb::Instance,
    ) -> Result<Self, Error> {
        let request = ListHardwareRequest {
            labels: placement.labels.clone(),
            location_id: placement.location_id.clone(),
            model_id: placement.model_id.clone(),
            zone: placement.zone.clone(),
            ..ListHardwareRequest::default()
        };
        // The machines first: one that is deleted or taken meanwhile is found by the commit, or by the reconciler.
        let machines = peers.machines(request).await?;
        let occupied = instances.occupied_machines().await.map_err(instances::Error::from)?;
        let mut candidates = Candidates::new(placement);
        for machine in &machines {
            candidates.add(machine, occupied.contains(&machine.id), &placement.spread_label);
        }
        candidates.sort_by_content(instance);
        let needs_bmc = order_check::needs_bmc(instance);
        let tenant = &instance.tenant;
        Ok(Self { instances, peers, placement, tenant, needs_bmc, candidates })
    }

    /// Returns the best machine that is free now, with what an instance on it claims in its group. Fails if none is.
    pub(crate) async fn next(&mut self) -> Result<(Candidate, Option<Spread>), Error> {
        loop {
            let group = match self.placement.spread_label.as_str() {
                "" => None,
                _ => Some(self.instances.spread_group(self.tenant, self.placement).await?),
            };
            let Some(best) = self.candidates.best(group.as_ref()) else {
                return Err(Error::NoMachineFits(self.candidates.counts().clone()));
            };
            if !best.is_checked {
                let availability = self.availability_elsewhere(&best.id).await?;
                if availability != Availability::Free {
                    self.candidates.exclude(&best.id, availability);
                    continue;
                }
                self.candidates.set_checked(&best.id);
            }
            let spread = group.map(|group| group.claim(&best.spread_value));
            return Ok((best, spread));
        }
    }

    /// Returns what the power and workflow services know of the machine `id`.
    async fn availability_elsewhere(&self, id: &str) -> Result<Availability, peers::Error> {
        if self.needs_bmc && !self.peers.has_bmc(id).await? {
            Ok(Availability::WithoutBmc)
        } else if self.peers.has_open_workflow(id).await? {
            Ok(Availability::Busy)
        } else {
            Ok(Availability::Free)
        }
    }

    /// Creates `instance` on a free machine. A repeated `request` returns the first result.
    pub(crate) async fn claim(
        &mut self,
        instance: &pb::Instance,
        request: Option<&IdempotentRequest>,
    ) -> Result<pb::Instance, Error> {
        let mut spread_tries = 0;
        loop {
            let (machine, spread) = match self.next().await {
                // The same request may have taken the last machine meanwhile.
                Err(refused @ Error::NoMachineFits(_)) => {
                    return self.instances.previous_result(request).await?.ok_or(refused);
                }
                next => next?,
            };
            let order = pb::Instance { hardware_id: machine.id.clone(), ..instance.clone() };
            let is_spread = spread.is_some();
            match self.instances.create_claimed(order, spread, request.cloned()).await {
                Err(error) if is_occupied(&error) => {
                    self.candidates.exclude(&machine.id, Availability::Occupied);
                    self.candidates.shuffle()?;
                }
                Err(error) if is_spread && error.is_stale() && spread_tries < MAX_SPREAD_TRIES => {
                    spread_tries += 1;
                    tokio::time::sleep(pause(spread_tries)?).await;
                }
                result => return Ok(result?),
            }
        }
    }
}

/// Returns `placement` with the ids of its model and location in place of their names. Its zone has to be one of the location.
pub(crate) async fn resolve(
    peers: &Peers,
    mut placement: pb::Placement,
) -> Result<pb::Placement, Error> {
    let pb::Placement { model_id, location_id, labels: _, spread_label: _, zone } = &mut placement;
    if !model_id.is_empty() {
        let by_id = model_id.parse().map(|id: ModelId| id.to_string());
        let found = peers.model_id(by_id.as_deref().map_err(|_| model_id.as_str())).await?;
        *model_id = found.ok_or_else(|| missing("model", model_id))?;
    }
    if !location_id.is_empty() {
        let by_id = location_id.parse().map(|id: LocationId| id.to_string());
        let found = peers.location(by_id.as_deref().map_err(|_| location_id.as_str())).await?;
        let found = found.ok_or_else(|| missing("location", location_id))?;
        if !zone.is_empty() && !found.zones.iter().any(|it| it.name == *zone) {
            return Err(missing("zone", zone));
        }
        *location_id = found.id;
    }
    Ok(placement)
}

fn missing(noun: &'static str, name: &str) -> Error {
    Error::Missing { noun, name: name.to_owned() }
}

/// Returns what can be done with `machine`, which is `occupied` or not.
pub(crate) fn availability(machine: &Hardware, occupied: bool) -> Availability {
    use tinwright::hardware::v1::State;
    match machine.state() {
        _ if occupied => Availability::Occupied,
        State::Provisionable if machine.protect => Availability::Protected,
        State::Provisionable => Availability::Free,
        State::Failed => Availability::Failed,
        State::Maintenance => Availability::Maintenance,
        State::Deleting => Availability::Deleting,
        State::Enrolled | State::Unspecified => Availability::Enrolled,
    }
}

/// True if `error` says that the machine has an instance.
fn is_occupied(error: &instances::Error) -> bool {
    matches!(error, instances::Error::Records(records::Error::Taken { index, .. }) if index == "occupant")
}

/// Returns a random pause before this try. Its mean grows with the number of tries.
fn pause(tries: u32) -> Result<Duration, instances::Error> {
    let longest = Duration::from_millis(1 << tries.min(6)).min(MAX_PAUSE);
    let [random] = instances::random_bytes()?;
    Ok(longest * u32::from(random) / 256)
}

#[cfg(test)]
mod tests;

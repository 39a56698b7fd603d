//! The machines that fit a placement, and the one that is tried next.

use std::collections::HashMap;
use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use prost::Message as _;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1 as pb;

use super::availability;
use crate::instances;
use crate::instances::spread::{Group, value_digest};

/// What can be done with a machine that fits a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Availability {
    /// It can be chosen.
    Free,
    /// It has an instance.
    Occupied,
    /// A workflow that has not ended is on it, for no instance.
    Busy,
    /// The order needs a BMC, and it has none.
    WithoutBmc,
    /// It is not accepted yet.
    Enrolled,
    /// An automatic step failed.
    Failed,
    /// It is in maintenance.
    Maintenance,
    /// It is protected against instances.
    Protected,
    /// Its record is being deleted.
    Deleting,
}

impl Availability {
    /// All but free, in the order of messages.
    const NOT_FREE: [Self; 8] = [
        Self::Occupied,
        Self::Busy,
        Self::WithoutBmc,
        Self::Enrolled,
        Self::Failed,
        Self::Maintenance,
        Self::Protected,
        Self::Deleting,
    ];

    /// Returns the name of the number of these machines in an `ErrorInfo`.
    fn key(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Occupied => "occupied",
            Self::Busy => "busy",
            Self::WithoutBmc => "without_bmc",
            Self::Enrolled => "enrolled",
            Self::Failed => "failed",
            Self::Maintenance => "maintenance",
            Self::Protected => "protected",
            Self::Deleting => "deleting",
        }
    }
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "with a workflow",
            Self::WithoutBmc => "without a BMC",
            Self::Maintenance => "in maintenance",
            Self::Enrolled => "not accepted",
            Self::Free | Self::Occupied | Self::Failed | Self::Protected | Self::Deleting => {
                self.key()
            }
        })
    }
}

/// The numbers of the machines that fit a placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    by_availability: HashMap<&'static str, u64>,
    /// Machines that fit but for the label over whose values instances are spread.
    without_label: u64,
    /// The requirements of the placement, in words; empty if it has none.
    requirements: String,
}

impl Counts {
    /// The number of machines with this availability.
    pub(crate) fn of(&self, availability: Availability) -> u64 {
        self.by_availability.get(availability.key()).copied().unwrap_or_default()
    }

    /// All machines that fit.
    pub(crate) fn matching(&self) -> u64 {
        self.by_availability.values().sum()
    }

    /// True if one of the machines becomes free without an operator.
    pub(crate) fn can_become_free(&self) -> bool {
        self.of(Availability::Occupied) + self.of(Availability::Busy) > 0
    }

    /// Returns the numbers for an `ErrorInfo`.
    pub(crate) fn metadata(&self) -> HashMap<String, String> {
        let each = Availability::NOT_FREE.map(|it| (it.key().to_owned(), self.of(it).to_string()));
        let all = [("matching", self.matching()), ("without_label", self.without_label)];
        let all = all.map(|(key, number)| (key.to_owned(), number.to_string()));
        each.into_iter().chain(all).collect()
    }

    fn add(&mut self, availability: Availability) {
        *self.by_availability.entry(availability.key()).or_default() += 1;
    }

    fn remove(&mut self, availability: Availability) {
        let number = self.by_availability.entry(availability.key()).or_default();
        *number = number.saturating_sub(1);
    }
}

/// Such as "3 machines fit: 2 occupied, 1 failed".
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.matching() {
            0 if self.without_label > 0 => f.write_str("no machine fits")?,
            0 if self.requirements.is_empty() => f.write_str("no machine fits: there is none")?,
            0 => write!(f, "no machine fits: none has the {} of the order", self.requirements)?,
            1 => f.write_str("1 machine fits, and is not free")?,
            many => write!(f, "{many} machines fit, and none is free")?,
        }
        let mut separator = ": ";
        for availability in Availability::NOT_FREE {
            let number = self.of(availability);
            if number > 0 {
                write!(f, "{separator}{number} {availability}")?;
                separator = ", ";
            }
        }
        if self.without_label > 0 {
            write!(f, "; {} have no such label to be spread by", self.without_label)?;
        }
        Ok(())
    }
}

/// A machine that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its id.
    pub(crate) id: String,
    /// Its name, if it has one.
    pub(crate) name: String,
    /// The digest of its value of the label by which instances are spread; empty without one.
    pub(crate) spread_value: String,
    /// True once it is known that it has no workflow, and the BMC that the order needs.
    pub(crate) is_checked: bool,
}

/// The machines that fit a placement, in the order in which they are tried.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    free: Vec<Candidate>,
    counts: Counts,
}

impl Candidates {
    /// No machines yet that fit `placement`.
    pub(crate) fn new(placement: &pb::Placement) -> Self {
        let pb::Placement { model_id, location_id, labels, spread_label: _, zone } = placement;
        let requirements = [
            ("model", !model_id.is_empty()),
            ("location", !location_id.is_empty()),
            ("zone", !zone.is_empty()),
            ("labels", !labels.is_empty()),
        ];
        let set = requirements.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name);
        let requirements = set.collect::<Vec<_>>().join(" and ");
        Self { counts: Counts { requirements, ..Counts::default() }, ..Self::default() }
    }

    /// Adds `machine`, if it has the label `spread_label`, or that is empty.
    pub(crate) fn add(&mut self, machine: &Hardware, is_occupied: bool, spread_label: &str) {
        let spread_value = match spread_label {
            "" => String::new(),
            label => match machine.labels.get(label) {
                Some(value) => value_digest(value),
                None => {
                    self.counts.without_label += 1;
                    return;
                }
            },
        };
        let availability = availability(machine, is_occupied);
        self.counts.add(availability);
        if availability == Availability::Free {
            let (id, name) = (machine.id.clone(), machine.name.clone());
            self.free.push(Candidate { id, name, spread_value, is_checked: false });
        }
    }

    /// Puts the candidates in an order that follows from the content of the order `instance` alone.
    pub(crate) fn sort_by_content(&mut self, instance: &pb::Instance) {
        let content = pb::Instance { id: String::new(), ..instance.clone() };
        self.sort_by_seed(digest(&SHA256, &content.encode_to_vec()).as_ref());
    }

    /// Puts the candidates in a random order.
    pub(crate) fn shuffle(&mut self) -> Result<(), instances::Error> {
        let seed: [u8; 32] = instances::random_bytes()?;
        self.sort_by_seed(&seed);
        Ok(())
    }

    fn sort_by_seed(&mut self, seed: &[u8]) {
        self.free.sort_by_cached_key(|candidate| {
            let digest = digest(&SHA256, &[seed, candidate.id.as_bytes()].concat());
            digest.as_ref().to_vec()
        });
    }

    /// Returns the candidate to be tried: the first one, in `group` the first one whose value has the fewest instances.
    pub(crate) fn best(&self, group: Option<&Group>) -> Option<Candidate> {
        let fewest = |candidate: &&Candidate| {
            group.map_or(0, |group| group.instances_with(&candidate.spread_value))
        };
        // Of equal ones the first.
        self.free.iter().min_by_key(fewest).cloned()
    }

    /// Removes the candidate `id`, which is not free.
    pub(crate) fn exclude(&mut self, id: &str, availability: Availability) {
        self.free.retain(|candidate| candidate.id != id);
        self.counts.remove(Availability::Free);
        self.counts.add(availability);
    }

    /// Records that the candidate `id` has no workflow, and the BMC that the order needs.
    pub(crate) fn set_checked(&mut self, id: &str) {
        for candidate in self.free.iter_mut().filter(|candidate| candidate.id == id) {
            candidate.is_checked = true;
        }
    }

    /// The numbers of the machines.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }
}

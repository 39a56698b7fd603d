//! The subnets of the site's configuration file as records, so that nothing is granted where addresses are leased.
//!
//! What is missing is created; what is there is never changed: it may be an operator's. A difference is reported.

use nouns::Edit as _;
use store::records;
use tinwright::address::v1 as pb;

use crate::Error;
use crate::block::{Block, Span};
use crate::grants::Grants;
use crate::ranges::span;
use crate::subnets::network;

/// Attempts while other processes import the same file.
const MAX_ATTEMPTS: usize = 8;
/// The label of records that were created from the file.
const SOURCE_LABEL: (&str, &str) = ("tinwright/source", "config");

/// What was imported, or the text of what is in the way; an error is a failure of the store.
type Imported<T> = Result<Result<T, String>, records::Error>;

/// A subnet of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredSubnet {
    /// The network as address/bits.
    pub cidr: String,
    /// The gateway; empty for none.
    pub gateway: String,
    /// The first and the last address of each leased range.
    pub ranges: Vec<(String, String)>,
}

impl Grants {
    /// Creates the subnets of the file, and their ranges for leases, where they are missing. Returns the contradictions between the
    /// file and the records, for people.
    pub async fn import(
        &self,
        subnets: &[ConfiguredSubnet],
    ) -> Result<Vec<String>, records::Error> {
        let mut contradictions = Vec::new();
        for wanted in subnets {
            let mut report = |text: &str| {
                contradictions.push(format!("subnet {}: {text}", wanted.cidr));
            };
            let subnet = match self.import_subnet_repeatedly(wanted).await? {
                Ok(subnet) => subnet,
                Err(text) => {
                    report(&text);
                    continue;
                }
            };
            if subnet.gateway != wanted.gateway {
                let [file, stored] = [&wanted.gateway, &subnet.gateway]
                    .map(|gateway| if gateway.is_empty() { "none" } else { gateway.as_str() });
                let name = &subnet.name;
                report(&format!("the gateway is {file}, and {stored} in subnet {name}"));
            }
            for (first, last) in &wanted.ranges {
                if let Err(text) = self.import_range_repeatedly(&subnet, first, last).await? {
                    report(&text);
                }
            }
        }
        Ok(contradictions)
    }

    async fn import_subnet_repeatedly(&self, wanted: &ConfiguredSubnet) -> Imported<pb::Subnet> {
        let mut attempts = Attempts::default();
        loop {
            if let Some(outcome) = attempts.after(self.import_subnet(wanted).await)? {
                return Ok(outcome);
            }
        }
    }

    async fn import_range_repeatedly(
        &self,
        subnet: &pb::Subnet,
        first: &str,
        last: &str,
    ) -> Imported<()> {
        let mut attempts = Attempts::default();
        loop {
            if let Some(outcome) = attempts.after(self.import_range(subnet, first, last).await)? {
                return Ok(outcome);
            }
        }
    }

    /// Returns the subnet with the network of `wanted`, which is created if no other one has a part of it.
    async fn import_subnet(&self, wanted: &ConfiguredSubnet) -> Result<pb::Subnet, Error> {
        let block: Block = wanted.cidr.parse().map_err(|_| invalid(&wanted.cidr))?;
        if let Some(found) = self.subnets.overlapping(block.span()).await? {
            if network(&found)? == block {
                return Ok(found);
            }
            let text = format!("subnet {} has the network {}", found.name, found.cidr);
            return Err(Error::Overlaps { noun: "subnet", id: found.id, text });
        }
        let subnet = pb::Subnet {
            name: name(&wanted.cidr),
            cidr: wanted.cidr.clone(),
            gateway: wanted.gateway.clone(),
            labels: labels(),
            ..pb::Subnet::default()
        };
        let made = self.subnets.create(subnet, None).await?;
        tracing::info!(subnet.name = made.name, cidr = made.cidr, "subnet of the file created");
        Ok(made)
    }

    /// Creates the range for leases from `first` to `last`, unless it is there.
    async fn import_range(
        &self,
        subnet: &pb::Subnet,
        first: &str,
        last: &str,
    ) -> Result<(), Error> {
        let parsed = first.parse().ok().zip(last.parse().ok());
        let wanted = parsed.and_then(|(first, last)| Span::new(first, last));
        let wanted = wanted.ok_or_else(|| invalid(first))?;
        for range in self.ranges.of_subnet(&subnet.id).await? {
            let addresses = span(&range)?;
            if addresses == wanted && range.kind() == pb::RangeKind::Dynamic {
                return Ok(());
            }
            if addresses.overlaps(wanted) {
                let kind = match range.kind() {
                    pb::RangeKind::Dynamic => "is for leases",
                    pb::RangeKind::Static | pb::RangeKind::Unspecified => "is for grants",
                };
                let text = format!("{wanted} is leased, and range {} {kind}", range.name);
                let text = format!("{text}: {addresses}");
                return Err(Error::Overlaps { noun: "range", id: range.id, text });
            }
        }
        let range = pb::Range {
            name: name(first),
            subnet_id: subnet.id.clone(),
            first: first.to_owned(),
            last: last.to_owned(),
            kind: pb::RangeKind::Dynamic.into(),
            labels: labels(),
            ..pb::Range::default()
        };
        let made = self.ranges.create(range, None).await?;
        tracing::info!(range.name = made.name, "range of the file created");
        Ok(())
    }
}

/// The attempts to create one record, while other processes create the same.
#[derive(Default)]
struct Attempts(usize);

impl Attempts {
    /// Returns the outcome after an attempt with this `result`: what was made, or the text of what is in the way. None: try again. A
    /// failure of the store is an error.
    fn after<T>(
        &mut self,
        result: Result<T, Error>,
    ) -> Result<Option<Result<T, String>>, records::Error> {
        self.0 += 1;
        match result {
            Ok(made) => Ok(Some(Ok(made))),
            Err(Error::Records(error @ records::Error::Store(_))) => Err(error),
            Err(Error::Busy | Error::Records(_)) if self.0 < MAX_ATTEMPTS => Ok(None),
            Err(error) => Ok(Some(Err(error.to_string()))),
        }
    }
}

fn labels() -> std::collections::BTreeMap<String, String> {
    let (key, value) = SOURCE_LABEL;
    [(key.to_owned(), value.to_owned())].into()
}

/// Returns the name of a record that is created for a network or a first address.
fn name(address: &str) -> String {
    format!("config-{}", address.replace(['.', '/', ':'], "-"))
}

fn invalid(text: &str) -> Error {
    tinwright::status::Violations::single("subnets", format!("{text} is invalid")).into()
}

#[cfg(test)]
mod tests;

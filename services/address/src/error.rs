//! Failed requests to this service, and their gRPC status.

use std::collections::HashMap;
use std::time::Duration;

use store::records;
use tinwright::TenantName;
use tinwright::address::v1 as pb;
use tinwright::status::{self, AddressInUse, Violations};
use tonic::Status;

use crate::block::Block;
use crate::claims::Holder;

/// A failed request about addresses.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request has invalid fields.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// Another object has a part of the block.
    #[error("{}", describe_taken(*.block, .by, .name))]
    Taken {
        /// The wanted block.
        block: Block,
        /// The claim that is in the way.
        by: Box<pb::Claim>,
        /// The name of its holder; empty if it has none, or it is not known.
        name: String,
    },
    /// A client leases the address.
    #[error("{}", .0.text)]
    Leased(Box<AddressInUse>),
    /// Another object of the site is in the way.
    #[error("{text}")]
    Overlaps {
        /// Its noun.
        noun: &'static str,
        /// Its id.
        id: String,
        /// The reason.
        text: String,
    },
    /// No block is free.
    #[error("{name} is exhausted: {taken} of {total} blocks are taken")]
    Exhausted {
        /// What the block was to be taken from, such as `range web`.
        name: String,
        /// Blocks that are granted, held back after their release, or taken otherwise.
        taken: u128,
        /// All blocks.
        total: u128,
        /// The time after which a block that is held back, or pending, is free; none if there is none.
        delay: Option<Duration>,
    },
    /// The tenant has as many grants as it may have.
    #[error("tenant {tenant} has {} in subnet {subnet}, and may have no more", grants(*quota))]
    Quota {
        /// The tenant.
        tenant: String,
        /// The subnet's name.
        subnet: String,
        /// The quota.
        quota: i64,
    },
    /// The object cannot be used in its state.
    #[error("{text}")]
    Precondition {
        /// The stable reason.
        reason: &'static str,
        /// Noun and id of the object.
        subject: String,
        /// The reason for people.
        text: String,
    },
    /// There is no such tenant, or whether there is one is not known.
    #[error(transparent)]
    Tenant(#[from] runtime::tenants::Error),
    /// Another service did not answer.
    #[error("the {service} service did not answer")]
    Unavailable {
        /// The service.
        service: &'static str,
        /// The status received.
        #[source]
        status: Box<Status>,
    },
    /// Other writers were first, each time.
    #[error("other requests came first: repeat")]
    Busy,
    /// The record is missing, has changed, or cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

/// Returns `count` with its noun.
fn grants(count: i64) -> String {
    if count == 1 { "1 grant".into() } else { format!("{count} grants") }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Records(error.into())
    }
}

impl Error {
    /// The error for `block`, of which `by` has a part.
    pub(crate) fn taken(block: Block, by: pb::Claim) -> Self {
        Self::Taken { block, by: Box::new(by), name: String::new() }
    }

    /// True if another writer came first, so that the same request may succeed now.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::Records(
                    records::Error::Changed { .. } | records::Error::Exists { noun: "claim", .. }
                )
        )
    }

    /// Returns the status for a caller who is limited to the objects of `tenant`, or is not limited. It names no object of others.
    pub fn into_status(self, tenant: Option<&TenantName>) -> Status {
        if let (Self::Records(records::Error::Taken { .. }), Some(_)) = (&self, tenant) {
            let text = "the interface has another primary address";
            return status::already_exists("attachment", "primary", text);
        }
        if let Self::Taken { block, by, .. } = &self {
            return in_use(*block, by, self.to_string()).visible_to(tenant).into();
        }
        if let Self::Leased(used) = self {
            return used.visible_to(tenant).into();
        }
        self.into()
    }
}

fn in_use(block: Block, by: &pb::Claim, text: String) -> AddressInUse {
    let (noun, id, tenant) = (by.noun.clone(), by.object_id.clone(), by.tenant.clone());
    AddressInUse { address: short(block), noun, id, tenant, text }
}

/// Returns the block as people write it: without the length, if it is one address.
fn short(block: Block) -> String {
    if block.is_single() { block.address().to_string() } else { block.to_string() }
}

fn describe_taken(block: Block, by: &pb::Claim, name: &str) -> String {
    let has = by.block.parse().unwrap_or(block);
    let subject = match (has == block, has.span().contains(block.span())) {
        (true, _) => short(block),
        (false, true) => format!("{} is in {has}, which", short(block)),
        (false, false) => format!("{block} has {}, which", short(has)),
    };
    let pb::Claim { noun, object_id: id, tenant, .. } = by;
    let holder = match name {
        "" => format!("{noun} {id}"),
        name => format!("{noun} {name} ({id})"),
    };
    let relation = match (noun.as_str(), tenant.as_str()) {
        (Holder::HARDWARE, _) => {
            "is reserved for machine".to_owned() + holder.trim_start_matches(noun)
        }
        (Holder::SUBNET, _) => format!("is the gateway of {holder}"),
        (Holder::GRANT, "") => format!("is granted: {holder}"),
        (Holder::GRANT, tenant) => format!("is granted to tenant {tenant}: {holder}"),
        _ => format!("is an address of {holder}"),
    };
    format!("{subject} {relation}")
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Taken { block, by, .. } => in_use(block, &by, text).into(),
            Error::Leased(used) => (*used).into(),
            Error::Overlaps { noun, id, .. } => status::already_exists(noun, &id, text),
            Error::Exhausted { taken, total, delay, .. } => {
                let count = |name: &str, count: u128| (name.to_owned(), count.to_string());
                let counts = HashMap::from([count("taken", taken), count("total", total)]);
                status::exhausted("ADDRESSES_EXHAUSTED", counts, delay, text)
            }
            Error::Quota { tenant, .. } => status::over_quota(&format!("tenant/{tenant}"), text),
            Error::Precondition { reason, subject, .. } => {
                status::failed_precondition(reason, &subject, text)
            }
            Error::Tenant(error) => error.into(),
            Error::Unavailable { .. } => Self::unavailable(text),
            Error::Busy => Self::aborted(text),
            Error::Records(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_said_with_its_noun_in_the_right_number() {
        for (quota, grants) in [(0, "0 grants"), (1, "1 grant"), (2, "2 grants")] {
            let (tenant, subnet) = ("acme".to_owned(), "lab".to_owned());
            let text = Error::Quota { tenant, subnet, quota }.to_string();
            assert_eq!(
                text,
                format!("tenant acme has {grants} in subnet lab, and may have no more")
            );
        }
    }
}

//! Failed requests to this service, and their gRPC status.

use std::collections::HashMap;
use std::time::Duration;

use store::records;
use tinwright::TenantName;
use tinwright::address::v1 as pb;
use tinwright::status::{self, Violations};
use tonic::Status;

use crate::block::Block;

/// A failed request about addresses.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request has invalid fields.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// Another object has a part of the block.
    #[error("{block} is taken by {} {}, which has {}", .by.noun, .by.object_id, .by.block)]
    Taken {
        /// The wanted block.
        block: Block,
        /// The claim that is in the way.
        by: Box<pb::Claim>,
    },
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
    #[error("tenant {tenant} has {quota} grants in subnet {subnet}, and may have no more")]
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

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Records(error.into())
    }
}

impl Error {
    /// True if another writer came first, so that the same request may succeed now.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Busy | Self::Records(records::Error::Changed { .. }))
    }

    /// Returns the status for a caller who is limited to the objects of `tenant`, or is not limited. It names no object of others.
    pub fn into_status(self, tenant: Option<&TenantName>) -> Status {
        if let (Self::Records(records::Error::Taken { .. }), Some(_)) = (&self, tenant) {
            let text = "the interface has another primary address";
            return status::already_exists("attachment", "primary", text);
        }
        if let (Self::Taken { block, by }, Some(tenant)) = (&self, tenant)
            && by.tenant != tenant.as_str()
        {
            let block = block.to_string();
            return status::already_exists("block", &block, format!("{block} is taken"));
        }
        self.into()
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Taken { by, .. } => status::already_exists(&by.noun, &by.object_id, text),
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

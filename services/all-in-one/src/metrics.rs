//! The metrics of a process's objects, store and certificates (docs/reference/metrics.md).
//!
//! - `objects`: the states of workflows, instances and power jobs, and how long they took; pure.
//! - `follow`: follows the watches of this process's services.
//! - `store`: a store whose commits are measured.
//! - `certificates`: the ends of the certificates.

mod certificates;
mod follow;
mod objects;
mod store;

pub(crate) use self::certificates::CertificateMetrics;
pub(crate) use self::follow::ObjectFeeds;
pub(crate) use self::objects::ObjectMetrics;
pub(crate) use self::store::MeasuredStore;

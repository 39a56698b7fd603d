//! The metrics of a process's objects, store, workers and certificates (docs/reference/metrics.md).
//!
//! - `objects`: the states of the objects of all nouns that have some, and how long they took; pure.
//! - `follow`: follows the records of this process's services.
//! - `store`: a store whose commits are measured; `store_size`: its bytes.
//! - `workers`: the workers that are alive.
//! - `certificates`: the ends of the certificates.

mod certificates;
mod follow;
mod objects;
mod store;
mod store_size;
mod workers;

pub(crate) use self::certificates::CertificateMetrics;
pub(crate) use self::objects::ObjectMetrics;
pub(crate) use self::store::MeasuredStore;
pub(crate) use self::store_size::StoreSize;
pub(crate) use self::workers::WorkerMetrics;

//! The kinds of records in the store, and the messages that are not part of the contract. Callers never see these.
//!
//! ```text
//! power/bmc/<id>            the BMC without password
//! power/hardware/<hardware id>          ─▶ id: a machine has one BMC
//! power/address/<digest of the address> ─▶ id: a BMC and its system belong to one machine
//! power/endpoint/<digest>/<id>          ─▶ id: the records of one BMC
//! power/password/<id>       its password, encrypted
//! power/job/<id>            the job
//! power/queue/<hardware id> the machine's jobs that have not ended, oldest first, and the claim on them; deleted once there are
//!                           neither jobs nor a claim
//! power/request/<id>        the result of a request, for a week
//! ```

use std::collections::BTreeMap;

use nouns::{Served, Viewer};
use store::records::{Index, Kind};
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Protocol;
use tinwright::secret::{Sealable, Secrets as _};

use crate::address::Address;
use crate::tenant_view;

/// The index of addresses with their systems.
pub(crate) const ADDRESS: &str = "address";
/// The index of addresses.
pub(crate) const ENDPOINT: &str = "endpoint";

/// A BMC's password at rest.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Password {
    /// The BMC's id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// The password, encrypted for this id.
    #[prost(bytes = "vec", tag = "3")]
    pub sealed: Vec<u8>,
}

/// The jobs of one machine that have not ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Queue {
    /// The machine.
    #[prost(string, tag = "1")]
    pub hardware_id: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// The jobs, oldest first. Only the first is carried out.
    #[prost(string, repeated, tag = "3")]
    pub job_ids: Vec<String>,
    /// Progress of the first job's present operation; none before its start.
    #[prost(message, optional, tag = "4")]
    pub progress: Option<Progress>,
    /// The claim of the process that carries them out; none if no process has claimed the queue.
    #[prost(message, optional, tag = "5")]
    pub claim: Option<Claim>,
}

/// The claim of a process on a machine's queue.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Claim {
    /// The name of the process.
    #[prost(string, tag = "1")]
    pub holder: String,
    /// The revision of the queue before the latest renewal. It differs with every renewal.
    #[prost(int64, tag = "2")]
    pub replaced: i64,
}

impl Claim {
    /// Returns the claim of `process` that replaces the claim in `queue`.
    pub fn new(process: &str, queue: &Queue) -> Self {
        Self { holder: process.to_owned(), replaced: queue.revision }
    }
}

/// Progress of an operation. It is stored before a request is sent, so that a restart knows the latest request.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Progress {
    /// The time at which the operation counts as failed, in milliseconds since 1970.
    #[prost(int64, tag = "1")]
    pub deadline: i64,
    /// The name of the latest request; empty before the first.
    #[prost(string, tag = "2")]
    pub request: String,
    /// The time of that request, in milliseconds since 1970.
    #[prost(int64, tag = "3")]
    pub request_time: i64,
    /// True if the BMC accepted it. If false, the request may or may not have arrived.
    #[prost(bool, tag = "4")]
    pub accepted: bool,
    /// True if a reading since the operation began found the machine off.
    #[prost(bool, tag = "5")]
    pub was_off: bool,
    /// The names of requests that the BMC refused.
    #[prost(string, repeated, tag = "6")]
    pub refused: Vec<String>,
    /// The time of the machine's last reset as the BMC had it before the first request.
    #[prost(string, tag = "7")]
    pub reset_time: String,
    /// The boot mode that the BMC reported before the first request; empty if it reported none.
    #[prost(string, tag = "8")]
    pub boot_mode: String,
    /// Properties and parameters that refusals named as missing.
    #[prost(string, repeated, tag = "9")]
    pub missing: Vec<String>,
    /// Properties and parameters that refusals named as not accepted.
    #[prost(string, repeated, tag = "10")]
    pub unwanted: Vec<String>,
    /// The names of requests that failed in the BMC, once for each failure. They may succeed later, or never.
    #[prost(string, repeated, tag = "11")]
    pub faltered: Vec<String>,
    /// The refusal that is most useful to a person.
    #[prost(message, optional, tag = "12")]
    pub refusal: Option<BestRefusal>,
    /// The number of refusals of the present operation: they are no attempts.
    #[prost(int32, tag = "13")]
    pub refusals: i32,
    /// The forms of the latest request, to be noted once its effect is verified.
    #[prost(btree_map = "string, string", tag = "14")]
    pub forms: BTreeMap<String, String>,
    /// The names of requests that the BMC accepted, and that had no effect.
    #[prost(string, repeated, tag = "15")]
    pub ineffective: Vec<String>,
}

/// A refusal of a request.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BestRefusal {
    /// The request and the answer.
    #[prost(string, tag = "1")]
    pub text: String,
    /// Its use for people; more is better.
    #[prost(int32, tag = "2")]
    pub rank: i32,
}

/// The kind of BMC records.
#[derive(Debug)]
pub enum Bmc {}

// Its only secret is encrypted by itself.
impl Sealable for Password {}

impl Sealable for Queue {}

impl Kind for Bmc {
    type Record = pb::Bmc;
    type Id = tinwright::BmcId;
    const KIND: &'static str = "bmc";
    const INDEXES: &'static [&'static str] = &["hardware", ADDRESS, ENDPOINT];

    fn indexes(bmc: &pb::Bmc) -> Vec<Index> {
        let mut indexes = vec![Index::unique("hardware", &bmc.hardware_id)];
        if let Some(address) = Address::of(bmc) {
            indexes.push(Index::shared(ENDPOINT, address.endpoint_key()));
            if !bmc.shares_address {
                indexes.push(Index::unique(ADDRESS, address.key()));
            }
        }
        indexes
    }

    fn warning(bmc: &pb::Bmc) -> &str {
        &bmc.warning
    }

    /// The first login pins the certificate: a transition, which is an event.
    fn state(bmc: &pb::Bmc) -> String {
        match &bmc.protocol {
            Some(Protocol::Redfish(redfish)) if !redfish.certificate_sha256.is_empty() => {
                "pinned".into()
            }
            Some(Protocol::Redfish(_) | Protocol::Ipmi(_)) | None => String::new(),
        }
    }

    /// The SHA-256 of the pinned certificate.
    fn state_reason(bmc: &pb::Bmc) -> &str {
        match &bmc.protocol {
            Some(Protocol::Redfish(redfish)) => &redfish.certificate_sha256,
            Some(Protocol::Ipmi(_)) | None => "",
        }
    }
}

impl Served for Bmc {}

tinwright::stored_record!(Password, "password of BMC", id);

impl Kind for Password {
    type Record = Self;
    type Id = tinwright::BmcId;
    const KIND: &'static str = "password";
}

/// The kind of job records.
#[derive(Debug)]
pub enum Job {}

impl Kind for Job {
    type Record = pb::PowerJob;
    type Id = tinwright::PowerJobId;
    const KIND: &'static str = "job";

    fn event_reason(job: &pb::PowerJob) -> &str {
        if job.tenant.is_empty() { &job.state_reason } else { tenant_view::state_reason(job) }
    }
}

impl Served for Job {
    fn show(viewer: &Viewer, job: pb::PowerJob) -> pb::PowerJob {
        match viewer.tenant {
            Some(_) => tenant_view::view(job),
            None => job.without_secrets(),
        }
    }
}

tinwright::stored_record!(Queue, "queue of hardware", hardware_id);

impl Kind for Queue {
    type Record = Self;
    type Id = tinwright::HardwareId;
    const KIND: &'static str = "queue";
}

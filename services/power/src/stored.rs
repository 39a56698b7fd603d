//! What the store keeps besides the messages of the contract: nothing here is ever shown to a caller.
//!
//! ```text
//! power/bmc/<id>            the BMC as callers see it       power/hardware/<hardware id> ─▶ id
//! power/password/<id>       its password, sealed
//! power/job/<id>            the job as callers see it
//! power/queue/<hardware id> the machine's jobs that have not ended, oldest first, and who carries them out; absent while there
//!                           are none, but for one whose holder has still to let go
//! power/request/<id>        what was answered, for a week
//! ```

use store::records::{Index, Kind};
use tinwright::power::v1 as pb;

/// A BMC's password at rest.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Password {
    /// The BMC's id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// Sealed for the BMC that has this id.
    #[prost(bytes = "vec", tag = "3")]
    pub sealed: Vec<u8>,
}

/// The jobs of one machine that have not ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Queue {
    /// Whose BMC.
    #[prost(string, tag = "1")]
    pub hardware_id: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// Oldest first. Only the first is carried out.
    #[prost(string, repeated, tag = "3")]
    pub job_ids: Vec<String>,
    /// How far the first job's present operation is; nothing before its start.
    #[prost(message, optional, tag = "4")]
    pub progress: Option<Progress>,
    /// Which process carries them out; none before one begins.
    #[prost(message, optional, tag = "5")]
    pub claim: Option<Claim>,
}

/// A process carries out a machine's jobs: see [`claim`](crate::claim).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Claim {
    /// What the process is called.
    #[prost(string, tag = "1")]
    pub holder: String,
    /// Which revision of the queue it last replaced: another with every renewal, and never the same again.
    #[prost(int64, tag = "2")]
    pub replaced: i64,
}

/// How far an operation is: stored before the BMC is called, so that a restart knows what may have been asked.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Progress {
    /// When the operation has failed, in milliseconds since 1970.
    #[prost(int64, tag = "1")]
    pub deadline: i64,
    /// The name of what was asked last. Empty: nothing yet.
    #[prost(string, tag = "2")]
    pub asked: String,
    /// When, in milliseconds since 1970.
    #[prost(int64, tag = "3")]
    pub asked_at: i64,
    /// The BMC said yes. Without it, nobody knows whether the question arrived.
    #[prost(bool, tag = "4")]
    pub accepted: bool,
    /// The machine has been off since the operation began.
    #[prost(bool, tag = "5")]
    pub seen_off: bool,
    /// The names of what the BMC refused for good.
    #[prost(string, repeated, tag = "6")]
    pub refused: Vec<String>,
    /// When the machine was last reset, as the BMC said before it was asked anything.
    #[prost(string, tag = "7")]
    pub reset_time: String,
}

/// The kind of BMC records.
#[derive(Debug)]
pub enum Bmc {}

impl Kind for Bmc {
    type Record = pb::Bmc;
    const NOUN: &'static str = "BMC";
    const KIND: &'static str = "bmc";
    const INDEXES: &'static [&'static str] = &["hardware"];

    fn id(bmc: &pb::Bmc) -> &str {
        &bmc.id
    }

    fn revision_mut(bmc: &mut pb::Bmc) -> &mut i64 {
        &mut bmc.revision
    }

    fn indexes(bmc: &pb::Bmc) -> Vec<Index> {
        vec![Index::unique("hardware", &bmc.hardware_id)]
    }
}

/// The kind of password records.
#[derive(Debug)]
pub enum Sealed {}

impl Kind for Sealed {
    type Record = Password;
    const NOUN: &'static str = "password of BMC";
    const KIND: &'static str = "password";
    const INDEXES: &'static [&'static str] = &[];

    fn id(password: &Password) -> &str {
        &password.id
    }

    fn revision_mut(password: &mut Password) -> &mut i64 {
        &mut password.revision
    }

    fn indexes(_: &Password) -> Vec<Index> {
        Vec::new()
    }
}

/// The kind of job records.
#[derive(Debug)]
pub enum Job {}

impl Kind for Job {
    type Record = pb::PowerJob;
    const NOUN: &'static str = "power job";
    const KIND: &'static str = "job";
    const INDEXES: &'static [&'static str] = &[];

    fn id(job: &pb::PowerJob) -> &str {
        &job.id
    }

    fn revision_mut(job: &mut pb::PowerJob) -> &mut i64 {
        &mut job.revision
    }

    fn indexes(_: &pb::PowerJob) -> Vec<Index> {
        Vec::new()
    }
}

/// The kind of queue records.
#[derive(Debug)]
pub enum Waiting {}

impl Kind for Waiting {
    type Record = Queue;
    const NOUN: &'static str = "queue of hardware";
    const KIND: &'static str = "queue";
    const INDEXES: &'static [&'static str] = &[];

    fn id(queue: &Queue) -> &str {
        &queue.hardware_id
    }

    fn revision_mut(queue: &mut Queue) -> &mut i64 {
        &mut queue.revision
    }

    fn indexes(_: &Queue) -> Vec<Index> {
        Vec::new()
    }
}

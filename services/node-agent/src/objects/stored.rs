//! Objects as records of the journal.

use super::object::{Effect, NodeObject, Run};
use super::state::ObjectState;
use crate::definition::Definition;
use crate::journal::{ObjectBody, ObjectRecord, Phase};

impl NodeObject {
    /// Returns the record of the object in the phase `phase`.
    pub(crate) fn to_record(&self, phase: Phase) -> ObjectRecord {
        let body = match self.definition.clone() {
            Definition::Attachment(attachment) => ObjectBody::Attachment(attachment),
            Definition::Mount(mount) => ObjectBody::Mount(mount),
            Definition::Container(container) => ObjectBody::Container(container),
        };
        ObjectRecord {
            body: Some(body),
            phase: phase.into(),
            owner: self.owner,
            mark: self.mark.clone(),
            baseline: self.baseline.clone(),
            device_detail: self.device_detail.clone(),
            run: self.run.number,
            is_starting: self.run.is_starting,
            deletion: None,
        }
    }

    /// Returns the object of a record: one that was being created is to be collected, and one that was being deleted is deleted again.
    /// None for a record without a body, which this version does not write.
    pub(crate) fn from_record(record: ObjectRecord) -> Option<Self> {
        let (phase, body) = (record.phase(), record.body?);
        let mut object = Self::new(match body {
            ObjectBody::Attachment(attachment) => Definition::Attachment(attachment),
            ObjectBody::Mount(mount) => Definition::Mount(mount),
            ObjectBody::Container(container) => Definition::Container(container),
        });
        (object.state, object.effect) = match phase {
            Phase::Unspecified | Phase::Creating => (ObjectState::Collecting, Effect::Unknown),
            Phase::Ready => (ObjectState::Ready, Effect::Exists),
            Phase::Vanished => (ObjectState::Vanished, Effect::Exists),
            Phase::Deleting => (ObjectState::Deleting { vanished: false }, Effect::Exists),
        };
        object.owner = record.owner;
        object.mark = record.mark;
        object.baseline = record.baseline;
        object.device_detail = record.device_detail;
        object.run = Run { number: record.run, is_starting: record.is_starting };
        Some(object)
    }

    /// Returns the phase that the object is in, outside of a creation or deletion by a call.
    pub(crate) fn phase(&self) -> Phase {
        match self.state {
            ObjectState::Creating => Phase::Creating,
            ObjectState::Collecting if self.effect == Effect::Unknown => Phase::Creating,
            ObjectState::Collecting | ObjectState::Ready => Phase::Ready,
            ObjectState::Vanished => Phase::Vanished,
            ObjectState::Deleting { .. } => Phase::Deleting,
        }
    }
}

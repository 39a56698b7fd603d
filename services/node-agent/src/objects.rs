//! All objects of the node in memory. Pure: no journal, no kernel, no clock.
//!
//! The count of an object is its owner (1 if it was posted directly) plus its users (the objects that depend on it) plus its holds
//! (creations under way that have obtained it). Users are not stored: they follow from the dependencies of the other objects.

mod object;
mod state;
mod stored;
mod views;

use std::collections::BTreeMap;

use crate::definition::{Definition, MAX_DEPTH, ObjectType};
use crate::error::CallError;

pub(crate) use object::{Effect, NodeObject, Run};
pub(crate) use state::{Event, ObjectState};
pub use views::Snapshot;
pub(crate) use views::{filter_attachments, filter_containers, filter_mounts};

/// The most objects in one view: an object with all that it depends on, counted once for each path to it.
const MAX_VIEW_OBJECTS: usize = 4096;

/// All objects, by id.
#[derive(Debug)]
pub(crate) struct Registry {
    objects: BTreeMap<i64, NodeObject>,
    /// The names of containers that have one, also of those that are being created.
    names: BTreeMap<String, i64>,
    next_id: i64,
    max_objects: usize,
}

impl Registry {
    /// Returns a registry without objects, whose first one gets the id `next_id`.
    pub(crate) const fn new(next_id: i64, max_objects: usize) -> Self {
        Self { objects: BTreeMap::new(), names: BTreeMap::new(), next_id, max_objects }
    }

    pub(crate) fn get(&self, id: i64) -> Option<&NodeObject> {
        self.objects.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: i64) -> Option<&mut NodeObject> {
        self.objects.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &NodeObject)> {
        self.objects.iter().map(|(&id, object)| (id, object))
    }

    /// Returns the object `id` of the type `object_type`, if a caller may see it.
    pub(crate) fn find(&self, id: i64, object_type: ObjectType) -> Result<&NodeObject, CallError> {
        let found = self.objects.get(&id).filter(|object| object.is_visible());
        found
            .filter(|object| object.definition.object_type() == object_type)
            .ok_or_else(|| CallError::not_found(format!("{} {id}", object_type.name())))
    }

    /// Returns the id of the container with the name `name`, if a caller may see it.
    pub(crate) fn find_name(&self, name: &str) -> Option<i64> {
        let id = self.names.get(name).copied()?;
        self.objects.get(&id).filter(|object| object.is_visible()).map(|_| id)
    }

    /// Reports a name that is in use.
    pub(crate) fn check_name(&self, definition: &Definition) -> Result<(), CallError> {
        let Definition::Container(container) = definition else { return Ok(()) };
        match self.names.get(&container.name) {
            Some(id) => Err(CallError::busy(format!("container {id} has the name"))),
            None => Ok(()),
        }
    }

    /// Reports the limit of objects, if it is reached.
    pub(crate) fn check_space(&self) -> Result<(), CallError> {
        if self.objects.len() >= self.max_objects {
            return Err(CallError::busy(format!("the node has {} objects", self.max_objects)));
        }
        Ok(())
    }

    /// Obtains the object `id` for a creation: it stays until [`Registry::release`], or until it has the new object as user.
    pub(crate) fn hold(&mut self, id: i64, object_type: ObjectType) -> Result<(), CallError> {
        let name = object_type.name();
        let object = self.find(id, object_type)?;
        match object.state {
            ObjectState::Ready => {}
            ObjectState::Vanished => {
                return Err(CallError::failed(format!("{name} {id} has vanished from the kernel")));
            }
            ObjectState::Creating | ObjectState::Collecting | ObjectState::Deleting { .. } => {
                return Err(CallError::not_found(format!("{name} {id} is being removed")));
            }
        }
        if let Some(object) = self.objects.get_mut(&id) {
            object.holds += 1;
        }
        Ok(())
    }

    /// Gives up a hold. True if the object is to be collected now.
    pub(crate) fn release(&mut self, id: i64) -> bool {
        let Some(object) = self.objects.get_mut(&id) else { return false };
        object.holds = object.holds.saturating_sub(1);
        object.collect_if_unused()
    }

    /// Adds an object that is being created, with a new id. It becomes a user of its dependencies, whose holds end. An error
    /// changes nothing.
    pub(crate) fn insert(
        &mut self,
        mut definition: Definition,
        holds: &[i64],
    ) -> Result<i64, CallError> {
        self.check_space()?;
        self.check_name(&definition)?;
        let (depth, view_objects) = self.extent(&definition)?;
        let id = self.next_id;
        self.next_id += 1;
        definition.set_id(id);
        for dependency in holds {
            if let Some(object) = self.objects.get_mut(dependency) {
                object.holds = object.holds.saturating_sub(1);
            }
        }
        let mut object = NodeObject::new(definition);
        (object.depth, object.view_objects, object.holds) = (depth, view_objects, 1);
        self.put(id, object);
        Ok(id)
    }

    /// Adds an object under its id: one that was read from the journal. Its dependencies come before it.
    pub(crate) fn restore(&mut self, id: i64, mut object: NodeObject) {
        (object.depth, object.view_objects) =
            self.extent(&object.definition).unwrap_or((MAX_DEPTH, MAX_VIEW_OBJECTS));
        self.next_id = self.next_id.max(id + 1);
        self.put(id, object);
    }

    fn put(&mut self, id: i64, object: NodeObject) {
        for dependency in object.definition.dependencies() {
            if let Some(dependency) = self.objects.get_mut(&dependency) {
                dependency.users.insert(id);
            }
        }
        if let Definition::Container(container) = &object.definition
            && !container.name.is_empty()
            && object.state != ObjectState::Collecting
        {
            self.names.insert(container.name.clone(), id);
        }
        self.objects.insert(id, object);
    }

    /// Frees the name of a container whose creation failed. The container itself stays until its creation is undone.
    pub(crate) fn free_name(&mut self, id: i64) {
        self.names.retain(|_, named| *named != id);
    }

    /// Removes an object. Returns the dependencies that are to be collected now, the last obtained first.
    pub(crate) fn remove(&mut self, id: i64) -> Vec<i64> {
        let Some(object) = self.objects.remove(&id) else { return Vec::new() };
        self.free_name(id);
        let mut unused = Vec::new();
        for dependency in object.definition.dependencies().into_iter().rev() {
            if let Some(object) = self.objects.get_mut(&dependency) {
                object.users.remove(&id);
                if object.collect_if_unused() {
                    unused.push(dependency);
                }
            }
        }
        unused
    }

    /// Returns the length of the longest chain from a new object with `definition`, and the number of objects in its view.
    fn extent(&self, definition: &Definition) -> Result<(usize, usize), CallError> {
        let (mut depth, mut view_objects) = (1, 1_usize);
        for dependency in definition.references() {
            let Some(object) = self.objects.get(&dependency) else { continue };
            depth = depth.max(object.depth + 1);
            view_objects = view_objects.saturating_add(object.view_objects);
        }
        if depth > MAX_DEPTH {
            return Err(CallError::invalid(format!("a chain of more than {MAX_DEPTH} objects")));
        }
        if view_objects > MAX_VIEW_OBJECTS {
            return Err(CallError::invalid(format!("more than {MAX_VIEW_OBJECTS} objects in one")));
        }
        Ok((depth, view_objects))
    }
}

#[cfg(test)]
mod tests;

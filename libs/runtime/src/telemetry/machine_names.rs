//! The names of machines, by which log lines for people call them.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The names by machine id. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MachineNames(Arc<RwLock<HashMap<String, String>>>);

impl MachineNames {
    /// Sets the name of the machine `id`. An empty name removes it.
    pub fn set(&self, id: &str, name: &str) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if name.is_empty() {
            names.remove(id);
        } else if names.get(id).is_none_or(|known| known != name) {
            names.insert(id.to_owned(), name.to_owned());
        }
    }

    /// Replaces all names by `names`, which are ids and names.
    pub fn replace<'a>(&self, names: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let named = names.into_iter().filter(|(_, name)| !name.is_empty());
        let new = named.map(|(id, name)| (id.to_owned(), name.to_owned())).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Returns the name of the machine `id`, if it is known.
    pub fn get(&self, id: &str) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

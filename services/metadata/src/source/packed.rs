//! Records by their ids, as they came over the wire: looked at again only when something about them changes, they take a
//! fraction of the room so.

use std::collections::HashMap;
use std::marker::PhantomData;

use prost::Message;

/// The records of one kind.
#[derive(Debug)]
pub(super) struct Packed<T> {
    bytes: HashMap<String, Box<[u8]>>,
    kind: PhantomData<T>,
}

impl<T> Default for Packed<T> {
    fn default() -> Self {
        Self { bytes: HashMap::new(), kind: PhantomData }
    }
}

impl<T: Message + Default> Packed<T> {
    /// Those given, each with its id.
    pub(super) fn of(all: impl IntoIterator<Item = (String, T)>) -> Self {
        let mut packed = Self::default();
        all.into_iter().for_each(|(id, record)| packed.insert(id, &record));
        packed
    }

    pub(super) fn insert(&mut self, id: String, record: &T) {
        self.bytes.insert(id, record.encode_to_vec().into());
    }

    pub(super) fn get(&self, id: &str) -> Option<T> {
        T::decode(&**self.bytes.get(id)?).ok()
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<T> {
        T::decode(&*self.bytes.remove(id)?).ok()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &String> {
        self.bytes.keys()
    }
}

//! The migrations of the store, oldest first. docs/store.md says how one is added.

use store::schema::Migration;

/// Returns every migration since [`store::schema::FIRST_VERSION`]. New ones are appended; none is ever removed or moved.
pub(crate) fn all() -> Vec<Migration> {
    vec![]
}

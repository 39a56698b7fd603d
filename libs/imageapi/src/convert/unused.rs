//! Members that an object does not use: definitions of other kinds, and the mount beside a base
//! that is the root directory. The original validates them, and has them in each of its answers.
//!
//! In the contract they are one JSON text, which only these functions read. So none of them is
//! taken for a definition, and none is lost because it is incomplete.

use crate::fields::Fields;
use crate::reader;

/// Returns the unused members in `fields`, an attachment or a mount, as JSON; empty if there are
/// none. `used` is what its conversion left of its definition, which is that of `kind`. Keys of RBD
/// users are removed: no store encrypts them here, and no option of the server shows them.
pub(super) fn unused_json(mut fields: Fields, kind: &str, mut used: Fields) -> String {
    used.retain_objects();
    if !used.is_empty() {
        fields = fields.with(kind, used);
    }
    fields.retain_objects();
    fields.remove_texts("secret");
    if fields.is_empty() {
        return String::new();
    }
    // Objects have text keys only, so they can always be written.
    serde_json::to_string(&fields).unwrap_or_default()
}

/// Adds the unused members in `json` to the members of a result. Text that is not theirs, which
/// only callers of the contract can send, is left out.
pub(super) fn with_unused(mut fields: Fields, json: &str) -> Fields {
    if let Ok(Some(mut unused)) = reader::read(json.as_bytes(), fields.object.name, fields.object) {
        unused.remove_texts("secret");
        fields.fill(unused);
    }
    fields
}

//! Records that objects with names of Tinkerbell may change.
//!
//! A name of Tinkerbell may have dots, a name here has none, so two objects of Tinkerbell may have
//! one name here. The record of a renamed object has the original name as a label. A file with
//! another original name does not change the record.

use tinwright::requests::Labels;

use super::Resource;
use crate::files::Object;
use crate::tinkerbell::ORIGINAL_NAME;

/// Passes if the object in `file` may change `stored`, which was found by its name or a MAC.
/// `is_same` is true if other values show that both are one, false if they show that both differ.
pub(super) fn check<R: Resource>(
    file: &Object,
    stored: &R,
    is_same: Option<bool>,
) -> anyhow::Result<()> {
    let (in_file, in_record) = (label(file), stored.labels().get(ORIGINAL_NAME));
    let name = in_file.or_else(|| file.key("name"));
    // An id says which record is meant.
    let Some(name) = name.filter(|_| file.key("id").is_none()) else { return Ok(()) };
    let is_other = in_record.is_some_and(|original| !original.eq_ignore_ascii_case(name));
    let is_meant = match (is_converted(file), in_file, in_record) {
        (true, Some(_), Some(_)) => !is_other && is_same != Some(false),
        // The record is older than the label, or that of an object without dots.
        (true, Some(_), None) => is_same == Some(true),
        (true, None, _) => !is_other,
        // People leave out the label in files of their own.
        (false, _, _) => !is_other || is_same != Some(false),
    };
    if is_meant { Ok(()) } else { Err(refused(name, stored, is_other)) }
}

/// Returns the error that `stored` is not the object with the original name `name`, but one with
/// another original name, or with other MACs.
fn refused<R: Resource>(name: &str, stored: &R, is_other: bool) -> anyhow::Error {
    let (kind, title, id) = (R::NAME, stored.title(), stored.id());
    let label = stored.labels().get(ORIGINAL_NAME);
    match label {
        Some(_) if !is_other => anyhow::anyhow!(
            "the {kind} {title:?} stands for another {name:?}, without a MAC of this one: \
             if they are one, change the MACs of {id} first"
        ),
        Some(_) | None => {
            let original = label.unwrap_or(&title);
            anyhow::anyhow!(
                "the {kind} {title:?} stands for {original:?}, not for {name:?}: \
                 rename one of them; if they are one, give {id} the label {ORIGINAL_NAME}: {name}"
            )
        }
    }
}

/// Adds labels of a record to `labels` of the object in `file`. For a converted object without
/// labels in Tinkerbell these are all; for one of our own, the original name, which people leave
/// out.
pub(super) fn keep_labels(file: &Object, labels: Option<&mut Labels>, stored: &Labels) {
    let Some(labels) = labels else { return };
    if !is_converted(file) {
        let original =
            stored.get_key_value(ORIGINAL_NAME).filter(|(key, _)| !labels.contains_key(*key));
        labels.extend(original.map(|(key, name)| (key.clone(), name.clone())));
    } else if labels.len() == 1 && labels.contains_key(ORIGINAL_NAME) {
        let original = std::mem::take(labels);
        labels.extend(stored.clone());
        labels.extend(original);
    }
}

/// True for a converted object. Of our own ones, only the text of a template says which fields it
/// has, and it has no kind.
fn is_converted(file: &Object) -> bool {
    file.fields.is_some() && file.kind().is_some()
}

/// Returns the original name in the labels of `file`.
fn label(file: &Object) -> Option<&str> {
    file.value.get("labels")?.get(ORIGINAL_NAME)?.as_str()
}

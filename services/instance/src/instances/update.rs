//! Updates: the fields that may be changed, and how they are merged.

use tinwright::field_mask;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::Os;
use tinwright::status::Violations;

/// Returns `old` with the fields from `update` that `paths` names. Without a path these are all mutable fields, except
/// secrets that `update` leaves empty.
pub(super) fn merge(
    old: &pb::Instance,
    update: &pb::Instance,
    paths: &[String],
) -> Result<pb::Instance, Violations> {
    let mut new = field_mask::merge(old, update, paths)?;
    if paths.is_empty() {
        restore_script(old, &mut new);
    }
    if new.os != old.os {
        // The new script has not run yet.
        new.script_time = None;
    }
    Ok(new)
}

/// Copies the script's text from `old` if `new` has a script with neither URL nor text, as basic views show it.
fn restore_script(old: &pb::Instance, new: &mut pb::Instance) {
    if let (Some(Os::CustomIpxe(old)), Some(Os::CustomIpxe(new))) = (&old.os, &mut new.os)
        && new.url.is_empty()
        && new.contents.is_empty()
    {
        new.contents.clone_from(&old.contents);
    }
}

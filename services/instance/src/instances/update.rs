//! Updates: the fields that may be changed, and how they are merged.

use tinwright::field_mask;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::Os;
use tinwright::status::Violations;

use super::{Error, boot_gate};
use crate::check::is_node;
use crate::state::State;

/// The only field that can be changed while an instance is being deleted: if its template is lost, the machine could not be
/// cleaned.
const CLEAN_UP_TEMPLATE: &str = "deprovision_template_id";

/// Passes if the state of `old` allows the fields that `paths` names to be changed.
pub(super) fn check_state(old: &pb::Instance, paths: &[String]) -> Result<(), Error> {
    let (instance, workflow) = (old.id.clone(), old.workflow_id.clone());
    if !State::try_from(old)?.is_being_deleted() {
        Ok(())
    } else if paths != [CLEAN_UP_TEMPLATE] {
        Err(Error::BeingDeleted(instance))
    } else if !workflow.is_empty() {
        Err(Error::BeingCleaned { instance, workflow })
    } else {
        Ok(())
    }
}

/// Returns `old` with the fields from `update` that `paths` names, except a script with neither URL nor text. Without a path
/// these are all mutable fields, except secrets that `update` leaves empty, and a protection that it does not have. User data in
/// one form replaces those in the other.
pub(super) fn merge(
    old: &pb::Instance,
    update: &pb::Instance,
    paths: &[String],
) -> Result<pb::Instance, Violations> {
    let mut new = field_mask::merge(old, update, paths)?;
    restore_script(old, &mut new);
    clear_other_user_data(&mut new, update, paths);
    if paths.is_empty() {
        // A caller that does not know the field sends false.
        new.protect |= old.protect;
    }
    boot_gate::check_update(old, &mut new, paths)?;
    if new.image_id != old.image_id {
        // The caller looked the image up.
        new.image_sha256.clone_from(&update.image_sha256);
    }
    if new.os != old.os {
        // The new script has not run yet.
        new.script_time = None;
    }
    // Another stack of a node is applied without a boot, so the instance stays active.
    if is_node(&new) != is_node(old) {
        new.stack_time = None;
    }
    Ok(new)
}

/// Clears the user data that `new` has from before, if the update sets the other form of it: text or bytes.
fn clear_other_user_data(new: &mut pb::Instance, update: &pb::Instance, paths: &[String]) {
    let is_named = |field| paths.is_empty() || paths.iter().any(|path| path == field);
    let sets_text = is_named("userdata") && !update.userdata.is_empty();
    let sets_bytes = is_named("userdata_bytes") && !update.userdata_bytes.is_empty();
    match (sets_text, sets_bytes) {
        (true, false) => new.userdata_bytes.clear(),
        (false, true) => new.userdata.clear(),
        // Two forms are refused, as at a creation.
        (true, true) | (false, false) => {}
    }
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

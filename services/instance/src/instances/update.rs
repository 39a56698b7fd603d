//! Which fields of an instance may be changed, and changing them.

use tinwright::field_mask;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::Os;
use tinwright::status::Violations;

/// `old` with the fields that `paths` names from `update`; without a path every mutable one, but for secrets that `update`
/// leaves empty.
pub(super) fn merged(
    old: &pb::Instance,
    update: &pb::Instance,
    paths: &[String],
) -> Result<pb::Instance, Violations> {
    let mut new = field_mask::merge(old, update, paths)?;
    if paths.is_empty() {
        keep_script(old, &mut new);
    }
    if new.os != old.os {
        // Another script has not been run yet.
        new.script_time = None;
    }
    Ok(new)
}

/// A script is a secret inside of what basic views show: one that is named by neither URL nor text is the one there was.
fn keep_script(old: &pb::Instance, new: &mut pb::Instance) {
    if let (Some(Os::CustomIpxe(old)), Some(Os::CustomIpxe(new))) = (&old.os, &mut new.os)
        && new.url.is_empty()
        && new.contents.is_empty()
    {
        new.contents.clone_from(&old.contents);
    }
}

//! The policy of a machine.

use std::time::Duration;

use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::policy::{BootMethod, MetadataSource, MetadataTokens, PhoneHome};
use tinwright::status::Violations;
use tinwright::{boot_image, check as values};

use super::{check_kernel_params, check_word, enum_value};

/// The largest TTL of a response with a session token, as in EC2.
const MAX_HOPS: u32 = 64;
/// The end of protobuf timestamps, the year 10000, in seconds since 1970.
const TIMESTAMP_END_SECONDS: i64 = 253_402_300_800;

/// Adds the violations of `policy`.
pub(super) fn check(policy: &pb::Policy, wrong: &mut Violations) {
    wrong.take("phone_home", enum_value::<PhoneHome>(policy.phone_home));
    wrong.take("metadata_tokens", enum_value::<MetadataTokens>(policy.metadata_tokens));
    wrong.take("metadata_source", enum_value::<MetadataSource>(policy.metadata_source));
    check_boot(policy, wrong);
    wrong.take("deprovision_template_id", check_word(&policy.deprovision_template_id));
    check_kernel_params("kernel_params", &policy.kernel_params, wrong);
    let hops = policy.metadata_hop_limit;
    if hops > MAX_HOPS {
        wrong.add("metadata_hop_limit", format!("{hops} is not between 0 and {MAX_HOPS}"));
    }
    if let Some(window) = policy.user_data_window
        && !Duration::try_from(window).is_ok_and(|window| !window.is_zero())
    {
        wrong.add("user_data_window", "is not above zero: leave it out for no limit");
    }
    if let Some(time) = policy.tokens_revoke_time
        && !((0..TIMESTAMP_END_SECONDS).contains(&time.seconds)
            && (0..1_000_000_000).contains(&time.nanos))
    {
        wrong.add("tokens_revoke_time", "is not between the years 1970 and 9999");
    }
}

/// Adds the violations of the boot method.
fn check_boot(policy: &pb::Policy, wrong: &mut Violations) {
    wrong.take("boot_method", enum_value::<BootMethod>(policy.boot_method));
    let url = &policy.boot_image_url;
    if !url.is_empty() {
        let url = boot_image::example_url(url);
        wrong.take("boot_image_url", values::url(&url, &["http", "https"]));
    } else if policy.boot_method() == BootMethod::VirtualMedia {
        wrong.add("boot_image_url", "is empty: a boot from virtual media needs an image");
    }
}

//! How the site treats a machine.

use std::time::Duration;

use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::policy::{MetadataSource, MetadataTokens, PhoneHome, WorkerIdentity};
use tinwright::status::Violations;

use super::{known, word, words};

/// The largest TTL that an answer with a session token may have (EC2's own limit).
const HOPS: u32 = 64;
/// The end of what a protobuf timestamp can say, in seconds since 1970: the year 10000.
const ETERNITY: i64 = 253_402_300_800;

/// What is wrong with `policy`.
pub(super) fn check(policy: &pb::Policy) -> Violations {
    let mut wrong = Violations::default();
    wrong.take("phone_home", known::<PhoneHome>(policy.phone_home));
    wrong.take("metadata_tokens", known::<MetadataTokens>(policy.metadata_tokens));
    wrong.take("worker_identity", known::<WorkerIdentity>(policy.worker_identity));
    wrong.take("metadata_source", known::<MetadataSource>(policy.metadata_source));
    wrong.take("deprovision_template_id", word(&policy.deprovision_template_id));
    words("kernel_params", &policy.kernel_params, &mut wrong);
    let hops = policy.metadata_hop_limit;
    if hops > HOPS {
        wrong.add("metadata_hop_limit", format!("{hops} is not between 0 and {HOPS}"));
    }
    if let Some(window) = policy.user_data_window
        && !Duration::try_from(window).is_ok_and(|window| !window.is_zero())
    {
        wrong.add("user_data_window", "is no time above zero: leave it out for always");
    }
    if let Some(time) = policy.tokens_revoke_time
        && !((0..ETERNITY).contains(&time.seconds) && (0..1_000_000_000).contains(&time.nanos))
    {
        wrong.add("tokens_revoke_time", "is no time between the years 1970 and 9999");
    }
    wrong
}

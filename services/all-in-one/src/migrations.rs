//! The migrations of the store, oldest first. docs/store.md says how one is added.

use hardware::records::HardwareKind;
use instance::instances::InstanceKind;
use instance::instances::hostname_scopes::scope_hostnames;
use power::migration::{claim_addresses, name_the_protocol};
use store::schema::Migration;
use workflow::workflows::{WorkflowKind, index_live_workflows};

/// The services that stored the results of requests in clear.
const REQUEST_OWNERS: [&str; 7] =
    ["address", "hardware", "identity", "instance", "node", "power", "workflow"];

/// Returns every migration since [`store::schema::FIRST_VERSION`]. New ones are appended; none is ever removed or moved.
pub(crate) fn all() -> Vec<Migration> {
    vec![
        Migration::reseal::<HardwareKind>("encrypt the secrets of machines", "hardware"),
        Migration::reseal::<InstanceKind>("encrypt the secrets of instances", "instance"),
        Migration::reseal::<WorkflowKind>("encrypt the secrets of workflows", "workflow"),
        index_live_workflows(),
        Migration::reseal_requests("encrypt the digests of requests", &REQUEST_OWNERS),
        name_the_protocol(),
        scope_hostnames(),
        claim_addresses(),
    ]
}

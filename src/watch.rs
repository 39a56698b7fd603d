//! The events of a watch: all objects, then synced, then each change.

/// The message of the status `UNAVAILABLE` with which a server ends its streams when it stops.
pub const SERVER_STOPS: &str = "the server is ending";

/// An event of a watch's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<T> {
    /// An object that exists: at the beginning, or new or changed since.
    Put(T),
    /// The id of an object that was deleted.
    Deleted(String),
    /// The end of the objects that existed when the watch began.
    Synced,
}

/// An event for a follower of a watch that is opened again whenever it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedEvent<T> {
    /// All objects: replaces what the follower had. The feed is live from here on.
    Snapshot(Vec<T>),
    /// An object that is new or changed.
    Put(T),
    /// The id of an object that was deleted.
    Deleted(String),
    /// The watch ended. The follower's objects may be stale until the next [`FeedEvent::Snapshot`].
    Disconnected,
}

/// A response message of a watch call.
pub trait WatchResponse: From<WatchEvent<Self::Object>> {
    /// The watched message.
    type Object;

    /// Returns the event, or none if only a newer server knows its kind.
    fn into_event(self) -> Option<WatchEvent<Self::Object>>;
}

/// Implements [`WatchResponse`]: every response has the same three cases, under its own generated names.
macro_rules! watch_responses {
    ($($package:ident :: $response:ident, $events:ident :: $case:ident => $object:ident;)*) => {$(
        impl WatchResponse for crate::$package::v1::$response {
            type Object = crate::$package::v1::$object;

            fn into_event(self) -> Option<WatchEvent<Self::Object>> {
                use crate::$package::v1::$events::Event;
                Some(match self.event? {
                    Event::$case(object) => WatchEvent::Put(object),
                    Event::DeletedId(id) => WatchEvent::Deleted(id),
                    Event::Synced(_) => WatchEvent::Synced,
                })
            }
        }

        impl From<WatchEvent<crate::$package::v1::$object>> for crate::$package::v1::$response {
            fn from(event: WatchEvent<crate::$package::v1::$object>) -> Self {
                use crate::$package::v1::$events::Event;
                let event = Some(match event {
                    WatchEvent::Put(object) => Event::$case(object),
                    WatchEvent::Deleted(id) => Event::DeletedId(id),
                    WatchEvent::Synced => Event::Synced(crate::common::v1::Synced {}),
                });
                Self { event }
            }
        }
    )*};
}

watch_responses! {
    address::WatchGrantsResponse, watch_grants_response::Grant => Grant;
    address::WatchLocationBindingsResponse, watch_location_bindings_response::LocationBinding => LocationBinding;
    address::WatchRangesResponse, watch_ranges_response::Range => Range;
    address::WatchSubnetsResponse, watch_subnets_response::Subnet => Subnet;
    hardware::WatchHardwareResponse, watch_hardware_response::Hardware => Hardware;
    hardware::WatchLocationsResponse, watch_locations_response::Location => Location;
    hardware::WatchModelsResponse, watch_models_response::Model => Model;
    hardware::WatchUnknownMachinesResponse, watch_unknown_machines_response::UnknownMachine => UnknownMachine;
    identity::WatchRevocationsResponse, watch_revocations_response::Revocation => Revocation;
    identity::WatchTenantsResponse, watch_tenants_response::Tenant => Tenant;
    instance::WatchInstancesResponse, watch_instances_response::Instance => Instance;
    netboot::WatchLeasesResponse, watch_leases_response::Lease => Lease;
    node::WatchNodesResponse, watch_nodes_response::Node => Node;
    node::WatchStacksResponse, watch_stacks_response::Stack => Stack;
    power::WatchBmcsResponse, watch_bmcs_response::Bmc => Bmc;
    power::WatchPowerJobsResponse, watch_power_jobs_response::PowerJob => PowerJob;
    workflow::WatchTemplatesResponse, watch_templates_response::Template => Template;
    workflow::WatchWorkflowsResponse, watch_workflows_response::Workflow => Workflow;
}

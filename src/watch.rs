//! What a watch tells, whatever it is of: everything, then synced, then changes.

/// One thing told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// There, new or changed.
    Put(T),
    /// No longer there; its id.
    Deleted(String),
    /// Everything that was there at the beginning has been told.
    Synced,
}

/// What a follower is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News<T> {
    /// All there is: replaces whatever was known. The feed is live from here on.
    All(Vec<T>),
    /// There, new or changed.
    Put(T),
    /// No longer there; its id.
    Deleted(String),
    /// The feed is cut: what is known may be old from here on, until the next [`News::All`].
    Cut,
}

/// A response of a watch.
pub trait Watched: From<Event<Self::Object>> {
    /// What is watched.
    type Object;

    /// What it tells; nothing if it is of a kind that only a newer server knows.
    fn event(self) -> Option<Event<Self::Object>>;
}

/// Every watch's response has the same three cases, under names of its own.
macro_rules! watched {
    ($($package:ident :: $response:ident, $events:ident :: $case:ident => $object:ident;)*) => {$(
        impl Watched for crate::$package::v1::$response {
            type Object = crate::$package::v1::$object;

            fn event(self) -> Option<Event<Self::Object>> {
                use crate::$package::v1::$events::Event as Told;
                Some(match self.event? {
                    Told::$case(object) => Event::Put(object),
                    Told::DeletedId(id) => Event::Deleted(id),
                    Told::Synced(_) => Event::Synced,
                })
            }
        }

        impl From<Event<crate::$package::v1::$object>> for crate::$package::v1::$response {
            fn from(event: Event<crate::$package::v1::$object>) -> Self {
                use crate::$package::v1::$events::Event as Told;
                let event = Some(match event {
                    Event::Put(object) => Told::$case(object),
                    Event::Deleted(id) => Told::DeletedId(id),
                    Event::Synced => Told::Synced(crate::common::v1::Synced {}),
                });
                Self { event }
            }
        }
    )*};
}

watched! {
    hardware::WatchHardwareResponse, watch_hardware_response::Hardware => Hardware;
    instance::WatchInstancesResponse, watch_instances_response::Instance => Instance;
    netboot::WatchLeasesResponse, watch_leases_response::Lease => Lease;
    power::WatchBmcsResponse, watch_bmcs_response::Bmc => Bmc;
    power::WatchPowerJobsResponse, watch_power_jobs_response::PowerJob => PowerJob;
    workflow::WatchTemplatesResponse, watch_templates_response::Template => Template;
    workflow::WatchWorkflowsResponse, watch_workflows_response::Workflow => Workflow;
}

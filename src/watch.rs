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

/// Implements [`WatchResponse`]. Each response has the same three cases under its own names.
macro_rules! watch_responses {
    ($($response:ty, $event:ty, $case:ident, $object:ty;)*) => {$(
        impl WatchResponse for $response {
            type Object = $object;

            fn into_event(self) -> Option<WatchEvent<$object>> {
                type Event = $event;
                Some(match self.event? {
                    Event::$case(object) => WatchEvent::Put(object),
                    Event::DeletedId(id) => WatchEvent::Deleted(id),
                    Event::Synced(_) => WatchEvent::Synced,
                })
            }
        }

        impl From<WatchEvent<$object>> for $response {
            fn from(event: WatchEvent<$object>) -> Self {
                type Event = $event;
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

include!(concat!(env!("OUT_DIR"), "/watch_responses.rs"));

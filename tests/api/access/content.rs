//! All that a server has stored, read from a backup.

use std::collections::BTreeMap;

use prost::Message;
use prost::bytes::{Buf as _, Bytes};
use runtime::{Channel, Role};
use tinwright::store::v1::BackupRequest;
use tinwright::store::v1::store_service_client::StoreServiceClient;

use crate::support::RunningServer;

/// The first line of a backup.
const HEADER: &str = "tinwright store 1\n";

/// A pair in a backup.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    value: Option<Bytes>,
}

/// The pairs of the store by key, without those of events.
pub type Content = BTreeMap<String, Bytes>;

/// Reads the content of a store.
pub struct ContentReader(StoreServiceClient<Channel>);

impl ContentReader {
    pub async fn new(server: &RunningServer) -> Self {
        Self(StoreServiceClient::new(server.channel(Some(Role::Admin)).await))
    }

    /// Returns what is stored now.
    pub async fn read(&mut self) -> Content {
        let mut chunks = self.0.backup(BackupRequest {}).await.unwrap().into_inner();
        let mut backup = Vec::new();
        while let Some(chunk) = chunks.message().await.unwrap() {
            backup.extend(chunk.data);
        }
        let mut rest = Bytes::from(backup);
        assert_eq!(rest.split_to(HEADER.len()), HEADER);
        let mut content = Content::new();
        while rest.has_remaining() {
            let Entry { key, value } = Entry::decode_length_delimited(&mut rest).unwrap();
            match value {
                _ if key.is_empty() || key.contains("/event/") => None,
                Some(value) => content.insert(key, value),
                None => content.remove(&key),
            };
        }
        content
    }
}

/// Returns the keys that `before` and `after` do not agree on.
pub fn changed_keys<'a>(before: &'a Content, after: &'a Content) -> Vec<&'a str> {
    let keys = before.keys().chain(after.keys());
    let mut changed: Vec<_> =
        keys.filter(|key| before.get(*key) != after.get(*key)).map(String::as_str).collect();
    changed.sort_unstable();
    changed.dedup();
    changed
}

//! Fetches and parses the storage part of an instance's metadata.
//!
//! The server is Tinkerbell's Hegel or a replacement. Go programs omit empty values or write them as null.

use std::path::PathBuf;

use reqwest::Url;
use serde::Deserialize;

use super::Error;
use crate::context::Context;
use crate::download::Download;
use crate::environment::{self, Environment};
use crate::error;

/// Default port of the metadata server.
const PORT: u16 = 50061;

/// Maximum number of bytes of metadata.
const MAX_METADATA_BYTES: usize = 4 << 20;

/// The storage that the metadata describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    pub(super) disks: Vec<Disk>,
    pub(super) filesystems: Vec<Filesystem>,
}

/// A disk and its partitions, in order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Disk {
    pub(super) device: PathBuf,
    /// True if both ends of the disk are zeroed first.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) wipe_table: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) partitions: Vec<Partition>,
}

/// A partition. Sizes and starts are in units of 512 bytes, also on disks with larger sectors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Partition {
    pub(super) label: Option<String>,
    /// Number in the table; 0 or absent: the next one.
    pub(super) number: Option<u32>,
    /// 0 or absent: the rest of the disk.
    pub(super) size: Option<u64>,
    /// 0 or absent: after the previous partition.
    pub(super) start: Option<u64>,
    /// Partition type; overrides the label's type.
    pub(super) type_guid: Option<String>,
}

/// A file system to create.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Filesystem {
    pub(super) device: PathBuf,
    pub(super) format: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) create: MkfsOptions,
}

impl Storage {
    /// Fetches the metadata and parses its storage part.
    pub(super) async fn fetch(
        environment: &Environment,
        context: &Context,
    ) -> Result<Self, error::Error> {
        let (location, text) = if environment.optional("TEST").is_some() {
            let path = environment.required("JSON_FILE")?;
            let text = tokio::fs::read(path).await;
            let failed =
                |error| Error::Metadata { location: path.into(), reason: format!("{error}") };
            (path.to_owned(), text.map_err(failed)?)
        } else {
            let url = url(environment)?;
            (format!("GET {url}"), fetch(url, context).await?)
        };
        Ok(Self::parse(&text).map_err(|reason| Error::Metadata { location, reason })?)
    }

    /// Parses the metadata `text`. Fails with a reason.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let storage = document.metadata.instance.storage;
        let storage = storage.ok_or("metadata.instance.storage is missing")?;
        for (what, listed) in [("volume groups", storage.volume_groups), ("RAIDs", storage.raid)] {
            if !listed.is_empty() {
                return Err(Error::Unsupported(what).to_string());
            }
        }
        let mounts = storage.filesystems.into_iter().filter_map(|filesystem| filesystem.mount);
        Ok(Self { disks: storage.disks, filesystems: mounts.collect() })
    }
}

fn url(environment: &Environment) -> Result<Url, environment::Error> {
    const NAME: &str = "MIRROR_HOST";
    let host = environment.required(NAME)?;
    let port = environment.parsed("METADATA_SERVICE_PORT", "a port")?.unwrap_or(PORT);
    let url = Url::parse(&format!("http://{host}:{port}/metadata")).ok();
    // A value with more than a host name would change the path of the URL.
    url.filter(|url| url.path() == "/metadata")
        .ok_or_else(|| environment::Error::invalid(NAME, host, "a host"))
}

async fn fetch(url: Url, context: &Context) -> Result<Vec<u8>, error::Error> {
    let location = format!("GET {url}");
    let retry = context.retry_policy.clone();
    let all = async {
        let mut text = Vec::new();
        let mut download = Download::open(&[], url, retry, Box::new(|_, _| ())).await?;
        while let Some(bytes) = download.next().await? {
            text.extend_from_slice(&bytes);
            if text.len() > MAX_METADATA_BYTES {
                let reason = format!("larger than {MAX_METADATA_BYTES} bytes");
                return Err(Error::Metadata { location, reason }.into());
            }
        }
        Ok(text)
    };
    context.stop.run_until_cancelled(all).await.ok_or(error::Error::Cancelled)?
}

/// The JSON document.
#[derive(Deserialize)]
struct Document {
    #[serde(default, deserialize_with = "or_default")]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default, deserialize_with = "or_default")]
    instance: Instance,
}

#[derive(Default, Deserialize)]
struct Instance {
    storage: Option<StorageDocument>,
}

#[derive(Deserialize)]
struct StorageDocument {
    #[serde(default, deserialize_with = "or_default")]
    disks: Vec<Disk>,
    #[serde(default, deserialize_with = "or_default")]
    filesystems: Vec<FilesystemDocument>,
    #[serde(default, deserialize_with = "or_default")]
    volume_groups: Vec<serde_json::Value>,
    #[serde(default, deserialize_with = "or_default")]
    raid: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct FilesystemDocument {
    mount: Option<Filesystem>,
}

/// Options of the mkfs program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct MkfsOptions {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) options: Vec<String>,
}

/// Deserializes a value that may be null.
fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(storage: &str) -> Result<Storage, String> {
        let text =
            format!(r#"{{"metadata": {{"state": "", "instance": {{"storage": {storage}}}}}}}"#);
        Storage::parse(text.as_bytes())
    }

    #[test]
    fn disks_and_file_systems_are_parsed_and_the_rest_is_ignored() {
        let storage = parse(
            r#"{
            "disks": [{"device": "/dev/sda", "wipe_table": true, "partitions": [
                {"label": "ROOT", "number": 1, "size": 0}]}],
            "filesystems": [{"mount": {"device": "/dev/sda1", "format": "ext4", "point": "/",
                "create": {"options": ["-L", "ROOT"]}}}],
            "volume_groups": null}"#,
        );
        let label = Some("ROOT".to_owned());
        let partition = Partition { label, number: Some(1), size: Some(0), ..Partition::default() };
        let device = "/dev/sda".into();
        let disk = Disk { device, wipe_table: true, partitions: vec![partition] };
        let create = MkfsOptions { options: vec!["-L".to_owned(), "ROOT".to_owned()] };
        let filesystem = Filesystem { device: "/dev/sda1".into(), format: "ext4".into(), create };
        let expected = Storage { disks: vec![disk], filesystems: vec![filesystem] };
        assert_eq!(storage, Ok(expected));
    }

    #[test]
    fn absent_and_null_values_are_empty() {
        let nothing = Storage { disks: Vec::new(), filesystems: Vec::new() };
        assert_eq!(parse("{}"), Ok(nothing.clone()));
        assert_eq!(parse(r#"{"disks": null, "filesystems": [{"mount": null}]}"#), Ok(nothing));
        let disk = parse(r#"{"disks": [{"device": "/dev/sda", "partitions": null}]}"#).unwrap();
        assert_eq!(disk.disks[0].partitions, []);
    }

    #[test]
    fn missing_and_unsupported_storage_is_named() {
        let missing = Err("metadata.instance.storage is missing".to_owned());
        for text in ["{}", r#"{"metadata": null}"#, r#"{"metadata": {"instance": {}}}"#] {
            assert_eq!(Storage::parse(text.as_bytes()), missing, "{text}");
        }
        let groups = parse(r#"{"volume_groups": [{"name": "vg"}]}"#).unwrap_err();
        assert_eq!(groups, "the metadata's storage has volume groups, which are not supported");
    }

    #[test]
    fn the_server_is_a_host_and_a_port() {
        let requested = |host: &str, port: &str| {
            let variables = [("MIRROR_HOST", host), ("METADATA_SERVICE_PORT", port)];
            let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
            url(&variables.into_iter().collect()).map(|url| url.to_string()).ok()
        };
        let metadata = |at: &str| Some(format!("http://{at}/metadata"));
        assert_eq!(requested("192.0.2.1", ""), metadata("192.0.2.1:50061"));
        assert_eq!(requested("hegel", "7080"), metadata("hegel:7080"));
        assert_eq!(requested("[2001:db8::1]", ""), metadata("[2001:db8::1]:50061"));
        for (host, port) in [("", ""), ("http://hegel", ""), ("a b", ""), ("hegel", "x")] {
            assert_eq!(requested(host, port), None, "{host} {port}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,80}|[\\[\\]{}:,\"a0]{0,40}") {
            let _either = Storage::parse(text.as_bytes());
        }
    }
}

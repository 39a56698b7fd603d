//! Indexes and manifests of artifacts: which layer is the disk.

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, Os};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The media types of indexes and manifests, as a request accepts them.
pub(crate) const MEDIA_TYPES: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v2+json";
/// Annotation with the name of a layer's file.
const TITLE: &str = "org.opencontainers.image.title";
/// Maximum number of platforms that a failure names.
const MAX_SHOWN_PLATFORMS: usize = 20;

/// What a tag or a digest stands for.
#[derive(Debug)]
pub(crate) enum Document {
    /// Manifests of several platforms.
    Index(Box<ImageIndex>),
    /// What one artifact is made of.
    Manifest(Box<ImageManifest>),
}

/// The fields that tell the two.
#[derive(Deserialize)]
struct Outline {
    manifests: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
}

impl Document {
    /// Parses a document. One that can be read as both is refused.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let invalid = |error: serde_json::Error| format!("not a manifest: {error}");
        let Outline { manifests, layers } = serde_json::from_str(text).map_err(invalid)?;
        match (manifests, layers) {
            (Some(_), None) => serde_json::from_str(text).map(Self::Index).map_err(invalid),
            (None, Some(_)) => serde_json::from_str(text).map(Self::Manifest).map_err(invalid),
            (Some(_), Some(_)) => Err("not a manifest: has layers and manifests".into()),
            (None, None) => Err("not a manifest: has neither layers nor manifests".into()),
        }
    }

    /// Returns the only layer, which may have `max_bytes` bytes.
    pub(crate) fn layer(&self, max_bytes: u64) -> Result<&Descriptor, String> {
        let Self::Manifest(manifest) = self else {
            return Err("an index in an index: not supported".into());
        };
        match manifest.layers().as_slice() {
            [layer] if layer.size() > max_bytes => {
                Err(format!("layer: {} bytes: the limit is {max_bytes} bytes", layer.size()))
            }
            [layer] => Ok(layer),
            layers => Err(format!("{} layers: expected one, with the disk", layers.len())),
        }
    }
}

/// Returns the digest of the manifest for Linux on `architecture`.
pub(crate) fn of_architecture<'a>(
    index: &'a ImageIndex,
    architecture: &str,
) -> Result<&'a str, String> {
    let is_wanted = |it: &&Descriptor| {
        it.platform().as_ref().is_some_and(|platform| {
            *platform.os() == Os::Linux && platform.architecture().to_string() == architecture
        })
    };
    if let Some(manifest) = index.manifests().iter().find(is_wanted) {
        return Ok(manifest.digest().as_ref());
    }
    let platforms = index.manifests().iter().map(|it| match it.platform() {
        Some(platform) => format!("{}/{}", platform.os(), platform.architecture()),
        None => "no platform".into(),
    });
    let found: Vec<_> = platforms.take(MAX_SHOWN_PLATFORMS).collect();
    Err(format!("linux/{architecture}: not in the index, which has {}", found.join(", ")))
}

/// Returns the name of the file in `layer`, or an empty text.
pub(crate) fn file_name(layer: &Descriptor) -> String {
    let title = layer.annotations().as_ref().and_then(|annotations| annotations.get(TITLE));
    title.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn descriptor(digit: &str, size: u64) -> Value {
        let digest = format!("sha256:{}", digit.repeat(64));
        json!({"mediaType": "application/octet-stream", "digest": digest, "size": size})
    }

    fn manifest(layers: &[Value]) -> Document {
        let value = json!({"schemaVersion": 2, "config": descriptor("0", 2), "layers": layers});
        Document::parse(&value.to_string()).unwrap()
    }

    fn index(platforms: &[(&str, &str)]) -> ImageIndex {
        let manifests = platforms.iter().enumerate().map(|(number, (os, architecture))| {
            let mut value = descriptor(&number.to_string(), 9);
            value["platform"] = json!({"os": os, "architecture": architecture});
            value
        });
        let manifests: Vec<_> = manifests.collect();
        let value = json!({"schemaVersion": 2, "manifests": manifests});
        match Document::parse(&value.to_string()).unwrap() {
            Document::Index(index) => *index,
            Document::Manifest(manifest) => panic!("{manifest:?}"),
        }
    }

    #[test]
    fn a_manifest_has_one_layer_within_the_limit() {
        let layer = |layers: &[Value]| {
            manifest(layers).layer(10).map(|layer| layer.digest().digest().to_owned())
        };
        assert_eq!(layer(&[descriptor("1", 10)]), Ok("1".repeat(64)));
        assert_eq!(
            layer(&[descriptor("1", 11)]),
            Err("layer: 11 bytes: the limit is 10 bytes".into())
        );
        let two = [descriptor("1", 1), descriptor("2", 1)];
        assert_eq!(layer(&two), Err("2 layers: expected one, with the disk".into()));
        assert_eq!(layer(&[]), Err("0 layers: expected one, with the disk".into()));
    }

    #[test]
    fn the_manifest_of_the_architecture_is_taken_of_an_index() {
        let index = index(&[("unknown", "unknown"), ("linux", "arm64"), ("linux", "amd64")]);
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        assert_eq!(of_architecture(&index, "arm64"), Ok(&*digest("1")));
        assert_eq!(of_architecture(&index, "amd64"), Ok(&*digest("2")));
        let problem = "linux/riscv64: not in the index, which has unknown/unknown, linux/arm64, \
                       linux/amd64";
        assert_eq!(of_architecture(&index, "riscv64"), Err(problem.into()));
        assert!(Document::Index(Box::new(index)).layer(10).is_err());
    }

    #[test]
    fn a_document_that_can_be_read_in_two_ways_is_refused() {
        for (text, problem) in [
            (r#"{"schemaVersion": 2}"#, "not a manifest: has neither layers nor manifests"),
            (r#"{"layers": [], "manifests": []}"#, "not a manifest: has layers and manifests"),
            (r#"{"layers": [7]}"#, "not a manifest: "),
            ("[]", "not a manifest: "),
        ] {
            let found = Document::parse(text).unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
    }

    #[test]
    fn the_title_of_a_layer_is_the_name_of_its_file() {
        let mut layer = descriptor("1", 1);
        layer["annotations"] = json!({"org.opencontainers.image.title": "disk.raw"});
        let name = |layer: Value| manifest(&[layer]).layer(1).map(file_name);
        assert_eq!(name(layer), Ok("disk.raw".into()));
        assert_eq!(name(descriptor("1", 1)), Ok(String::new()));
    }
}

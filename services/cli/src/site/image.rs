//! An image in an archive.
//!
//! The archive has the stored file, its map, and the record with the signatures. A server stores an
//! image in its own way: what is uploaded is the stored file, and the record says which content that
//! has to have.

use std::path::Path;

use anyhow::Context as _;
use runtime::Channel;
use site_archive::{Archive, ArchivedFile, Digest};
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;
use tinwright::image::v1::image_source::Source;
use tinwright::json;

use crate::connect::{Io, View, call};
use crate::image::server::create::full_name;
use crate::image::server::upload::{self, UploadFile};
use crate::image::server::wait;
use crate::output;
use crate::resource::{self, FromFiles as _, Resource as _};

/// Name of the file with the record.
pub(super) const RECORD: &str = "image.json";
/// Name of the file with the map.
pub(super) const MAP: &str = "disk.map";
/// Maximum size of a record in bytes: labels, a description and eight signatures.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// Returns the name of the stored file of `image`.
pub(super) fn stored_name(image: &pb::Image) -> &'static str {
    match image.kind() {
        pb::ImageKind::Archive => "archive.tar.zst",
        pb::ImageKind::Disk | pb::ImageKind::Unspecified => "disk.raw.zst",
    }
}

/// Returns the folder of `image`.
pub(super) fn folder(image: &pb::Image) -> String {
    format!("images/{}", full_name(image))
}

/// Returns what the creator of `image` has set.
fn settings(image: &pb::Image) -> pb::Image {
    let image = image.clone();
    pb::Image {
        name: image.name,
        tenant: image.tenant,
        labels: image.labels,
        family: image.family,
        public: image.public,
        description: image.description,
        kind: image.kind,
        keep_data_source: image.keep_data_source,
        ..pb::Image::default()
    }
}

/// Returns the record of `image` for another site.
pub(super) fn record(image: &pb::Image) -> anyhow::Result<Vec<u8>> {
    let kept = pb::Image {
        size_bytes: image.size_bytes,
        sha256: image.sha256.clone(),
        stored_sha256: image.stored_sha256.clone(),
        map_sha256: image.map_sha256.clone(),
        properties: image.properties.clone(),
        signatures: image.signatures.clone(),
        ..settings(image)
    };
    let mut text = serde_json::to_vec_pretty(&json::write(&kept)?)?;
    text.push(b'\n');
    Ok(text)
}

/// An image in an archive, with its record.
#[derive(Debug)]
pub(super) struct ArchivedImage {
    image: pb::Image,
    stored: ArchivedFile,
}

/// What the server has of an image.
#[derive(Debug)]
pub(super) enum Standing {
    /// Nothing.
    Absent,
    /// A part of its content.
    Uploading(pb::Image),
    /// Its content.
    Stored(pb::Image),
}

impl ArchivedImage {
    /// Reads the image in `folder` of `archive`, which has these files.
    pub(super) fn read<R: std::io::Read + std::io::Seek>(
        archive: &mut Archive<R>,
        folder: &str,
        files: &[ArchivedFile],
    ) -> anyhow::Result<Self> {
        let named = |name: &str| {
            let wanted = format!("{folder}/{name}");
            files
                .iter()
                .find(|file| file.name == wanted)
                .with_context(|| format!("{wanted}: missing"))
        };
        let record = archive.read(named(RECORD)?, MAX_RECORD_BYTES)?;
        let image = serde_json::from_slice(&record).map_err(anyhow::Error::from);
        let image = image.and_then(|value| Ok(json::read::<pb::Image>(value)?));
        let image = image.with_context(|| format!("{folder}/{RECORD}"))?;
        let is_its = self::folder(&image) == folder;
        anyhow::ensure!(is_its, "{folder}/{RECORD}: it is of {}", self::folder(&image));
        let stored = named(stored_name(&image))?;
        require(stored, "stored_sha256", &image.stored_sha256)?;
        let map = files.iter().find(|file| file.name == format!("{folder}/{MAP}"));
        map.map_or(Ok(()), |map| require(map, "map_sha256", &image.map_sha256))?;
        anyhow::ensure!(
            image.sha256.parse::<Digest>().is_ok(),
            "{folder}/{RECORD}: sha256: not a SHA-256: {:?}",
            image.sha256
        );
        Ok(Self { stored: stored.clone(), image })
    }

    /// Returns what the server has of the image. Fails if it has another image with its name.
    pub(super) async fn standing(&self, channel: &Channel) -> anyhow::Result<Standing> {
        let name = full_name(&self.image);
        let found = resource::optional(pb::Image::get(channel, &name, View::Basic).await)?;
        // The name of a family stands for another image.
        let is_it =
            |found: &pb::Image| found.name == self.image.name && found.tenant == self.image.tenant;
        let Some(found) = found.filter(is_it) else { return Ok(Standing::Absent) };
        let found = match found.state() {
            ImageState::Processing => wait::until_ready(channel, &found).await?,
            ImageState::Uploading if found.source == Some(self.source()) => {
                return Ok(Standing::Uploading(found));
            }
            ImageState::Ready
            | ImageState::Unspecified
            | ImageState::Uploading
            | ImageState::Failed
            | ImageState::Damaged => found,
        };
        let state = output::state(&found);
        anyhow::ensure!(
            found.state() == ImageState::Ready,
            "image {name}: the server has one with this name that is {state}: delete it first"
        );
        anyhow::ensure!(
            found.sha256 == self.image.sha256,
            "image {name}: the server has another one with this name: its sha256 is {}, that of the \
             archive is {}",
            found.sha256,
            self.image.sha256
        );
        Ok(Standing::Stored(found))
    }

    /// Stores the image, which the server has as `standing` says. `archive` is the path of the
    /// archive.
    pub(super) async fn store(
        &self,
        standing: Standing,
        archive: &Path,
        io: &mut Io<'_>,
    ) -> anyhow::Result<()> {
        let (word, stored) = match standing {
            Standing::Stored(found) => ("unchanged", found),
            Standing::Absent => {
                let created = self.new_image().create(io.channel).await?;
                ("created", self.upload(&created, archive, io.channel).await?)
            }
            Standing::Uploading(found) => {
                ("created", self.upload(&found, archive, io.channel).await?)
            }
        };
        let label = format!("image/{}", full_name(&self.image));
        io.print(&format!("{label} {word}"))?;
        self.add_signatures(&label, &stored, io).await
    }

    /// Returns the image to create.
    fn new_image(&self) -> pb::Image {
        pb::Image { source: Some(self.source()), ..settings(&self.image) }
    }

    /// Returns the source of the image: the server compares the file with its checksum.
    fn source(&self) -> pb::ImageSource {
        let format = match self.image.kind() {
            pb::ImageKind::Archive => "tar",
            pb::ImageKind::Disk | pb::ImageKind::Unspecified => "raw",
        };
        let file_name = stored_name(&self.image).to_owned();
        pb::ImageSource {
            source: Some(Source::Upload(pb::UploadSource { file_name })),
            checksum: format!("sha256:{}", self.stored.sha256),
            format: format.to_owned(),
        }
    }

    /// Uploads the content to `image`, and waits until it is ready. An image that cannot become
    /// ready, or gets other content, is deleted.
    async fn upload(
        &self,
        image: &pb::Image,
        archive: &Path,
        channel: &Channel,
    ) -> anyhow::Result<pb::Image> {
        let file = UploadFile::part(archive.to_owned(), self.stored.offset, self.stored.bytes)?;
        upload::send(channel, image, &file).await?;
        let failure = match wait::until_ready(channel, image).await {
            Ok(ready) if ready.sha256 == self.image.sha256 => return Ok(ready),
            Ok(other) => anyhow::anyhow!(
                "image {}: its content has the sha256 {}, and had {} where it was exported",
                image.name,
                other.sha256,
                self.image.sha256
            ),
            Err(error) => match pb::Image::get(channel, &image.id, View::Basic).await {
                Ok(found) if found.state() == ImageState::Failed => error,
                // The connection broke: the same command goes on.
                Ok(_) | Err(_) => return Err(error),
            },
        };
        call(channel, pb::DeleteImageRequest { id: image.id.clone(), revision: 0 }).await?;
        Err(failure)
    }

    /// Adds the signatures that `stored` lacks.
    async fn add_signatures(
        &self,
        label: &str,
        stored: &pb::Image,
        io: &mut Io<'_>,
    ) -> anyhow::Result<()> {
        for signature in &self.image.signatures {
            if stored.signatures.iter().any(|other| other.key_id == signature.key_id) {
                continue;
            }
            let key = &signature.key_id;
            let (image_id, text) = (stored.id.clone(), signature.text.clone());
            let added = io.call(pb::AddSignatureRequest { image_id, text }).await;
            added.with_context(|| {
                format!("{label}: its signature of key {key} is not valid here: sign it again")
            })?;
            io.print(&format!("{label} signature of {key} added"))?;
        }
        Ok(())
    }
}

/// Passes if `file` has the digest that the record names.
fn require(file: &ArchivedFile, field: &str, digest: &str) -> anyhow::Result<()> {
    let (name, found) = (&file.name, file.sha256);
    let is_equal = digest.parse().is_ok_and(|digest: Digest| digest == found);
    anyhow::ensure!(is_equal, "{name}: its SHA-256 is {found}, {field} of {RECORD} is {digest:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use site_archive::{ListedFile, Trust, Writer};

    use super::*;

    fn image() -> pb::Image {
        pb::Image {
            id: "01990000-0000-7000-8000-00000000000a".into(),
            name: "debian-12".into(),
            kind: pb::ImageKind::Disk.into(),
            state: ImageState::Ready.into(),
            family: "debian".into(),
            sha256: Digest::of(b"raw").to_string(),
            stored_sha256: Digest::of(b"stored").to_string(),
            map_sha256: Digest::of(b"map").to_string(),
            ..pb::Image::default()
        }
    }

    /// Reads the image in `folder` of an archive with these files.
    fn read(folder: &str, files: &[(&str, &[u8])]) -> Result<ArchivedImage, String> {
        let listed = |(name, content): &(&str, &[u8])| {
            let (name, bytes) = (format!("images/{name}"), content.len() as u64);
            ListedFile { name, bytes, sha256: Digest::of(content) }
        };
        let listed: Vec<_> = files.iter().map(listed).collect();
        let mut writer = Writer::new(Vec::new(), listed.clone(), None).unwrap();
        for (file, (_, content)) in listed.iter().zip(files) {
            writer.begin(&file.name).unwrap();
            writer.write(content).unwrap();
            writer.end().unwrap();
        }
        let source = Cursor::new(writer.finish().unwrap());
        let mut archive = Archive::open(source, &Trust::Anybody, &mut |_| ()).unwrap();
        let files = archive.files().to_vec();
        ArchivedImage::read(&mut archive, folder, &files).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn an_image_is_uploaded_with_its_settings_and_the_checksum_of_the_exported_file() {
        let record = record(&image()).unwrap();
        let files: [(&str, &[u8]); 3] = [
            ("debian-12/image.json", &record),
            ("debian-12/disk.map", b"map"),
            ("debian-12/disk.raw.zst", b"stored"),
        ];
        let read = read("images/debian-12", &files).unwrap();
        let new = read.new_image();
        assert_eq!(
            (new.id.as_str(), new.name.as_str(), new.family.as_str()),
            ("", "debian-12", "debian")
        );
        let source = new.source.unwrap();
        assert_eq!(source.checksum, format!("sha256:{}", Digest::of(b"stored")));
        assert_eq!(source.format, "raw");
        assert_eq!((read.stored.bytes, read.image.sha256), (6, image().sha256));
    }

    #[test]
    fn an_image_whose_files_are_not_those_of_its_record_is_refused() {
        let record = record(&image()).unwrap();
        let own: (&str, &[u8]) = ("debian-12/image.json", &record);
        let disk: (&str, &[u8]) = ("debian-12/disk.raw.zst", b"stored");
        for (files, reason) in [
            (vec![disk], "images/debian-12/image.json: missing"),
            (vec![own], "images/debian-12/disk.raw.zst: missing"),
            (vec![own, ("debian-12/disk.raw.zst", b"other")], "stored_sha256 of image.json is"),
            (vec![own, disk, ("debian-12/disk.map", b"other")], "map_sha256 of image.json is"),
            (vec![("debian-12/image.json", b"{"), disk], "images/debian-12/image.json: EOF"),
        ] {
            let refused = read("images/debian-12", &files).unwrap_err();
            assert!(refused.contains(reason), "{reason}: {refused}");
        }
        let moved: [(&str, &[u8]); 2] = [("a/image.json", &record), ("a/disk.raw.zst", b"stored")];
        let refused = read("images/a", &moved).unwrap_err();
        assert_eq!(refused, "images/a/image.json: it is of images/debian-12");
    }
}

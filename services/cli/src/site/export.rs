//! `site export`.

use std::fs::Permissions;
use std::io::{BufWriter, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use indicatif::{HumanBytes, ProgressBar};
use runtime::Channel;
use site_archive::{COMMENT, Digest, ListedFile, Writer, list_text};
use tinwright::image::v1 as pb;

use super::folders::{self, Folders};
use super::image;
use super::objects::{self, ObjectKind};
use crate::connect::{Io, View};
use crate::image::bar::bar;
use crate::output;
use crate::resource::Resource as _;
use crate::{minisign, site::blob};

/// Maximum size of a map in bytes, as in the image service.
const MAX_MAP_BYTES: usize = 64 << 20;
/// Maximum size of a document in bytes, as in the import.
pub(super) const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// Bytes that are read of a file at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Permissions of the archive.
const MODE: u32 = 0o644;

/// Options of an export.
#[derive(Debug, clap::Args)]
pub struct ExportSite {
    /// Write this archive, a tar; one that exists is replaced when the new one is complete
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Include this image, with its signatures; may be repeated; for administrators
    #[arg(long = "image", value_name = "NAME|FAMILY|ID")]
    images: Vec<String>,
    /// Include this template; may be repeated
    #[arg(long = "template", value_name = "NAME|ID")]
    templates: Vec<String>,
    /// Include all objects of these kinds, without secrets
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    objects: Vec<ObjectKind>,
    /// The folders to include
    #[command(flatten)]
    folders: Folders,
    /// Sign with this secret key of `minisign -G`; needs the program minisign
    #[arg(long, value_name = "FILE", required_unless_present = "unsigned")]
    sign_key: Option<PathBuf>,
    /// Read the password of the key from this file [default: minisign asks for it, or reads it from
    /// standard input]
    #[arg(long, value_name = "FILE", requires = "sign_key")]
    password_file: Option<PathBuf>,
    /// Write an archive without a signature, which only `site import --allow-unsigned` takes
    #[arg(long, conflicts_with = "sign_key")]
    unsigned: bool,
}

/// A file of the archive.
#[derive(Debug)]
struct Planned {
    listed: ListedFile,
    content: Content,
}

/// Where the content of a file is.
#[derive(Debug)]
enum Content {
    Text(Vec<u8>),
    File(PathBuf),
    /// At the server.
    Blob,
}

impl ExportSite {
    /// Writes the archive, and prints its files.
    pub(super) async fn run(self, io: &mut Io<'_>) -> anyhow::Result<()> {
        let planned = self.plan(io.channel).await?;
        anyhow::ensure!(
            !planned.is_empty(),
            "nothing to export: give --image, --template, --objects, --osie, --loaders or --files"
        );
        let listed: Vec<_> = planned.iter().map(|file| file.listed.clone()).collect();
        let sign = |key: &PathBuf| {
            minisign::sign(&list_text(&listed), COMMENT, key, self.password_file.as_deref())
        };
        let signature = self.sign_key.as_ref().map(sign).transpose()?;
        write(&self.file, &planned, signature.as_deref(), io.channel).await?;
        for file in &listed {
            io.print(&format!("{}  {}", file.name, HumanBytes(file.bytes)))?;
        }
        Ok(())
    }

    /// Returns all files, small ones first.
    async fn plan(&self, channel: &Channel) -> anyhow::Result<Vec<Planned>> {
        let mut planned = self.documents(channel).await?;
        for (name, folder) in self.folders.all() {
            let Some(folder) = folder else { continue };
            let files = folders::listed(name, folder)?;
            planned.extend(
                files
                    .into_iter()
                    .map(|(listed, path)| Planned { listed, content: Content::File(path) }),
            );
        }
        let mut images: Vec<pb::Image> = Vec::new();
        for name in &self.images {
            let image = pb::Image::find(channel, name, View::Basic).await?;
            if images.iter().all(|other| other.id != image.id) {
                planned.extend(of_image(&image, channel).await?);
                images.push(image);
            }
        }
        Ok(planned)
    }

    /// Returns the documents with objects.
    async fn documents(&self, channel: &Channel) -> anyhow::Result<Vec<Planned>> {
        let mut kinds = self.objects.clone();
        kinds.sort();
        kinds.dedup();
        let mut documents = Vec::new();
        for kind in kinds {
            documents.push((kind, objects::all(kind, channel).await?));
        }
        if !self.templates.is_empty() {
            let is_all = documents.iter().any(|(kind, _)| *kind == ObjectKind::Template);
            anyhow::ensure!(!is_all, "--template: --objects has all templates already");
            let document = objects::templates(&self.templates, channel).await?;
            documents.push((ObjectKind::Template, document));
        }
        let mut planned = Vec::new();
        for (kind, document) in documents.into_iter().filter(|(_, text)| !text.is_empty()) {
            let bytes = document.len() as u64;
            let (size, limit) = (HumanBytes(bytes), HumanBytes(MAX_DOCUMENT_BYTES));
            let is_small = bytes <= MAX_DOCUMENT_BYTES;
            anyhow::ensure!(is_small, "--objects {kind:?}: {size}, and at most {limit} are taken");
            let name = format!("objects/{}.yaml", format!("{kind:?}").to_lowercase());
            planned.push(text(name, document.into_bytes()));
        }
        Ok(planned)
    }
}

/// Returns the file `name` with the content `content`.
fn text(name: String, content: Vec<u8>) -> Planned {
    let (bytes, sha256) = (content.len() as u64, Digest::of(&content));
    Planned { listed: ListedFile { name, bytes, sha256 }, content: Content::Text(content) }
}

/// Returns the files of `image`.
async fn of_image(image: &pb::Image, channel: &Channel) -> anyhow::Result<Vec<Planned>> {
    let (title, state) = (image.title(), output::state(image));
    let is_ready = image.state() == pb::ImageState::Ready;
    anyhow::ensure!(is_ready, "image {title} is {state}: only ready images are exported");
    let digest = |text: &str| {
        text.parse::<Digest>().with_context(|| format!("image {title}: digest {text:?}"))
    };
    let folder = image::folder(image);
    let mut files = vec![text(format!("{folder}/{}", image::RECORD), image::record(image)?)];
    if !image.map_sha256.is_empty() {
        let map = blob::read(channel, digest(&image.map_sha256)?, MAX_MAP_BYTES).await;
        let map = map.with_context(|| format!("image {title}: its map"))?;
        files.push(text(format!("{folder}/{}", image::MAP), map));
    }
    let name = format!("{folder}/{}", image::stored_name(image));
    let sha256 = digest(&image.stored_sha256)?;
    let listed = ListedFile { name, bytes: image.stored_bytes, sha256 };
    files.push(Planned { listed, content: Content::Blob });
    Ok(files)
}

/// Writes the archive to `path`. It gets its name when it is complete.
async fn write(
    path: &Path,
    planned: &[Planned],
    signature: Option<&str>,
    channel: &Channel,
) -> anyhow::Result<()> {
    let writing = || format!("writing {}", path.display());
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let out = tempfile::NamedTempFile::new_in(folder).with_context(writing)?;
    let listed = planned.iter().map(|file| file.listed.clone()).collect();
    let mut writer = Writer::new(BufWriter::new(out), listed, signature)?;
    for file in planned {
        let name = &file.listed.name;
        writer.begin(name)?;
        file.write(&mut writer, channel).await.with_context(|| name.clone())?;
        writer.end()?;
    }
    let out = writer.finish()?.into_inner().map_err(|error| error.into_error());
    let out = out.with_context(writing)?;
    out.as_file().set_permissions(Permissions::from_mode(MODE)).with_context(writing)?;
    out.as_file().sync_all().with_context(writing)?;
    out.persist(path).with_context(writing)?;
    Ok(())
}

impl Planned {
    /// Writes the content to `writer`.
    async fn write(
        &self,
        writer: &mut Writer<impl Write>,
        channel: &Channel,
    ) -> anyhow::Result<()> {
        let ListedFile { name, bytes, sha256 } = &self.listed;
        match &self.content {
            Content::Text(text) => Ok(writer.write(text)?),
            Content::File(path) => {
                let mut file = std::fs::File::open(path)?;
                let mut buffer = vec![0; CHUNK_BYTES];
                loop {
                    match file.read(&mut buffer)? {
                        0 => return Ok(()),
                        read => writer.write(buffer.get(..read).unwrap_or_default())?,
                    }
                }
            }
            Content::Blob => {
                let bar = bar(name, "exporting", "");
                bar.set_length(*bytes);
                let copied = copy(writer, &bar, *sha256, channel).await;
                bar.finish_and_clear();
                copied
            }
        }
    }
}

async fn copy(
    writer: &mut Writer<impl Write>,
    bar: &ProgressBar,
    digest: Digest,
    channel: &Channel,
) -> anyhow::Result<()> {
    let mut each = |part: &[u8]| {
        bar.inc(part.len() as u64);
        Ok(writer.write(part)?)
    };
    blob::copy(channel, digest, &mut each).await
}

//! `site import`.
//!
//! ```text
//! signature ─▶ all digests ─▶ what the server has of the images ─▶ folders, objects, images
//! ```
//!
//! Nothing is stored before all of the archive was read and found right. What is stored is compared
//! with its digest again: the archive could have been changed meanwhile.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use image_signature::PublicKeys;
use site_archive::{Archive, ArchivedFile, Trust};

use super::export::MAX_DOCUMENT_BYTES;
use super::folders::{self, Folders};
use super::image::{self, ArchivedImage};
use crate::connect::Io;
use crate::files::Object;
use crate::image::bar::bar;
use crate::resource::{ApplyOptions, SendOptions};
use crate::{apply, files, input};

/// Options of an import.
#[derive(Debug, clap::Args)]
pub struct ImportSite {
    /// The archive
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Accept an archive that this public key signed: a file of minisign, or the key itself; may be
    /// repeated
    #[arg(long = "key", value_name = "FILE|KEY", required_unless_present = "allow_unsigned")]
    keys: Vec<String>,
    /// Accept any archive: whoever could change the file decides what machines install
    #[arg(long, conflicts_with = "keys")]
    allow_unsigned: bool,
    /// The folders to write; one that is not given is left out
    #[command(flatten)]
    folders: Folders,
}

/// The files of an archive.
#[derive(Debug, Default)]
struct Contents {
    /// Files of images, by the folders of these.
    images: BTreeMap<String, Vec<ArchivedFile>>,
    /// Documents with objects.
    documents: Vec<ArchivedFile>,
    /// Files of each folder of the boot server.
    folders: BTreeMap<&'static str, Vec<ArchivedFile>>,
}

impl ImportSite {
    /// Stores what the archive has, and prints it.
    pub(super) async fn run(self, io: &mut Io<'_>) -> anyhow::Result<()> {
        let mut archive = self.open().await?;
        let shown = || self.file.display().to_string();
        if let Some(key) = archive.signer() {
            io.print(&format!("{}: signed by {key}", shown()))?;
        }
        let contents = self.contents(archive.files()).with_context(shown)?;
        let objects = contents.objects(&mut archive).with_context(shown)?;
        let mut images = Vec::new();
        for image in contents.images(&mut archive).with_context(shown)? {
            let standing = image.standing(io.channel).await?;
            images.push((image, standing));
        }
        self.write_folders(&mut archive, &contents, io)?;
        apply::apply(objects.into_iter().map(Ok).collect(), &options(), io).await?;
        for (image, standing) in images {
            image.store(standing, &self.file, io).await?;
        }
        Ok(())
    }

    /// Checks the archive.
    async fn open(&self) -> anyhow::Result<Archive<File>> {
        let (trust, path) = (self.trust()?, self.file.clone());
        let shown = path.display().to_string();
        let check = move || {
            let file = File::open(&path)?;
            let metadata = file.metadata()?;
            anyhow::ensure!(metadata.is_file(), "not a regular file");
            let bar = bar(&path.display().to_string(), "checking", "");
            bar.set_length(metadata.len());
            let archive = Archive::open(file, &trust, &mut |bytes| bar.inc(bytes));
            bar.finish_and_clear();
            Ok(archive?)
        };
        // The connection is kept alive meanwhile.
        let archive = tokio::task::spawn_blocking(check).await.context("checking the archive")?;
        archive.with_context(|| shown)
    }

    fn trust(&self) -> anyhow::Result<Trust> {
        let mut keys = PublicKeys::default();
        for key in &self.keys {
            keys.extend(public_keys(key).with_context(|| format!("--key {}", input::short(key)))?);
        }
        Ok(if self.allow_unsigned { Trust::Anybody } else { Trust::Keys(keys) })
    }

    /// Returns `files` by what they are for. Fails if this program does not know one of them.
    fn contents(&self, files: &[ArchivedFile]) -> anyhow::Result<Contents> {
        let mut contents = Contents::default();
        for file in files {
            let (top, rest) = file.name.split_once('/').unwrap_or_default();
            let folder = self.folders.all().into_iter().find(|(name, _)| *name == top);
            if let Some((name, _)) = folder {
                contents.folders.entry(name).or_default().push(file.clone());
            } else if top == "objects" && !rest.contains('/') && rest.ends_with(".yaml") {
                contents.documents.push(file.clone());
            } else if let Some(folder) = image_folder(&file.name) {
                contents.images.entry(folder.to_owned()).or_default().push(file.clone());
            } else {
                anyhow::bail!("{}: of no kind that this version knows", file.name);
            }
        }
        Ok(contents)
    }

    fn write_folders(
        &self,
        archive: &mut Archive<File>,
        contents: &Contents,
        io: &mut Io<'_>,
    ) -> anyhow::Result<()> {
        for (name, folder) in self.folders.all() {
            let files = contents.folders.get(name).map(Vec::as_slice).unwrap_or_default();
            let Some(folder) = folder else {
                if !files.is_empty() {
                    io.print(&format!("{name}: {} files left out: give --{name}", files.len()))?;
                }
                continue;
            };
            anyhow::ensure!(!files.is_empty(), "--{name}: the archive has no files for it");
            for file in files {
                let rest = file.name.strip_prefix(name).unwrap_or_default();
                let target = folder.join(rest.trim_start_matches('/'));
                let word = folders::write(archive, file, &target)?;
                io.print(&format!("{} {word}", file.name))?;
            }
        }
        Ok(())
    }
}

impl Contents {
    /// Reads the objects of the documents.
    fn objects(&self, archive: &mut Archive<File>) -> anyhow::Result<Vec<Object>> {
        let mut objects = Vec::new();
        for file in &self.documents {
            let text = archive.read(file, MAX_DOCUMENT_BYTES)?;
            let text = String::from_utf8(text).with_context(|| file.name.clone())?;
            objects.extend(files::parse(&file.name, &text)?);
        }
        Ok(objects)
    }

    /// Reads the records of the images.
    fn images(&self, archive: &mut Archive<File>) -> anyhow::Result<Vec<ArchivedImage>> {
        let each = self.images.iter();
        each.map(|(folder, files)| ArchivedImage::read(archive, folder, files)).collect()
    }
}

/// Returns the folder of the image that has the file `name`.
fn image_folder(name: &str) -> Option<&str> {
    let (folder, file) = name.rsplit_once('/')?;
    let is_known = [image::RECORD, image::MAP, "disk.raw.zst", "archive.tar.zst"].contains(&file);
    (folder.starts_with("images/") && is_known).then_some(folder)
}

/// Reads public keys: those in the file `text`, or the key `text` itself.
fn public_keys(text: &str) -> anyhow::Result<PublicKeys> {
    match PublicKeys::of_line(text) {
        Ok(keys) => Ok(keys),
        Err(_) => Ok(PublicKeys::parse(&input::text(Path::new(text))?)?),
    }
}

/// Returns the options of the application: orders that erase disks are asked for.
fn options() -> ApplyOptions {
    ApplyOptions {
        files: Vec::new(),
        dry_run: false,
        diff: false,
        send: SendOptions::default(),
        yes: false,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use site_archive::Digest;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        import: ImportSite,
    }

    fn parse(line: &str) -> Result<ImportSite, clap::Error> {
        let words = ["import"].into_iter().chain(line.split(' '));
        Program::try_parse_from(words).map(|program| program.import)
    }

    fn contents(name: &str) -> Result<Contents, String> {
        let sha256 = Digest::of(b"");
        let file = ArchivedFile { name: name.into(), bytes: 0, offset: 0, sha256 };
        let import = parse("site.tar --allow-unsigned").unwrap();
        import.contents(&[file]).map_err(|error| error.to_string())
    }

    #[test]
    fn an_archive_is_trusted_by_a_key_or_explicitly_without_one() {
        assert!(parse("site.tar").is_err());
        assert!(parse("site.tar --key a --allow-unsigned").is_err());
        let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        let trust = parse(&format!("site.tar --key {key}")).unwrap().trust().unwrap();
        let Trust::Keys(keys) = trust else { panic!("{trust:?}") };
        assert_eq!(keys.ids().count(), 1);
        let wrong = parse("site.tar --key no-such-file").unwrap().trust().unwrap_err();
        assert!(format!("{wrong:#}").starts_with("--key no-such-file: reading no-such-file: "));
    }

    #[test]
    fn files_of_no_known_kind_are_refused() {
        for name in
            ["osie/vmlinuz-x86_64", "files/a/b", "images/a/image.json", "images/acme/a/disk.map"]
        {
            assert!(contents(name).is_ok(), "{name}");
        }
        assert_eq!(contents("objects/hardware.yaml").unwrap().documents.len(), 1);
        for name in
            ["a", "objects/a.sh", "objects/a/b.yaml", "images/image.json", "images/a/b", "keys/a"]
        {
            let reason = contents(name).unwrap_err();
            assert_eq!(reason, format!("{name}: of no kind that this version knows"));
        }
    }
}

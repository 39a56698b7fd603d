//! Images for virtual media, patched for one machine as they are read.
//!
//! A source image has placeholders of 1024 octets in place of the kernel's arguments. Their offsets are scanned once, with
//! the image's digest, and again if the file changes. A response is the requested part of the file, with the machine's
//! arguments and blanks in place of each placeholder. ISO 9660 has no checksum over the contents of files.
//!
//! - [`overlay`]: replaces placeholders in any part; values in, values out.
//! - [`scan`]: finds the placeholders.

pub mod overlay;
pub mod scan;

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use self::scan::Scanned;
use crate::Mac;
use crate::bootscripts::{BootRefusal, BootScripts};
use crate::site::serving::Iso;
use crate::tftp::{Directories, FileError};

/// Time for which a machine gets the same arguments. Its tokens last longer.
const ARGUMENTS_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Time after the last read for which they stay: an image must not change while a BMC reads it.
const READ_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The source images of a directory.
#[derive(Debug)]
pub struct Images {
    directory: Directories,
    placeholder: String,
    /// Scanned images by name. Locked during a scan, so that each image is scanned once.
    scanned: tokio::sync::Mutex<HashMap<String, ScannedImage>>,
    given: Mutex<HashMap<Mac, MachineArguments>>,
}

/// A scanned image, and the stamp of its file.
#[derive(Debug)]
struct ScannedImage {
    stamp: Stamp,
    scanned: Arc<Scanned>,
}

/// Differs if a file's octets may differ.
type Stamp = (u64, u64, i64, i64);

/// Arguments that a machine was given.
#[derive(Clone, Debug)]
struct MachineArguments {
    text: Arc<str>,
    made: SystemTime,
    read: SystemTime,
}

/// An image as one machine sees it.
#[derive(Debug)]
pub struct Image {
    /// The source file.
    pub file: std::fs::File,
    /// Its scan.
    pub source: Arc<Scanned>,
    /// Replacement of each placeholder, of the same length.
    pub patch: Arc<[u8]>,
    /// ETag: differs if any octet may differ.
    pub tag: String,
}

impl Images {
    /// Opens the images of `settings`.
    pub fn open(settings: &Iso) -> io::Result<Self> {
        let directory = Directories::open([&settings.directory])?;
        let (scanned, given) = Default::default();
        Ok(Self { directory, placeholder: settings.placeholder.clone(), scanned, given })
    }

    /// Returns the image `name` for the machine at `mac`, with its arguments by `boots` at `now`.
    pub async fn image(
        &self,
        name: &str,
        mac: Mac,
        boots: &BootScripts,
        now: SystemTime,
    ) -> Result<Image, BootRefusal> {
        let text = self.arguments(mac, now, || boots.image_arguments(mac, now))?;
        let patch = overlay::padded(&text)
            .ok_or_else(|| BootRefusal::Broken(format!("{} octets of arguments", text.len())))?;
        let (file, source) = self.find(name).await?;
        let (own, of_patch) = (&source.digest, hex(&Sha256::digest(&patch)));
        let tag = format!("\"{own}-{}\"", of_patch.get(..16).unwrap_or_default());
        Ok(Image { file, source, patch: patch.into(), tag })
    }

    /// Returns the arguments of `mac`: the same for a while, since an image is read in hundreds of parts.
    fn arguments(
        &self,
        mac: Mac,
        now: SystemTime,
        make: impl FnOnce() -> Result<String, BootRefusal>,
    ) -> Result<Arc<str>, BootRefusal> {
        let mut all = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let within = |since: SystemTime, span| now.duration_since(since).is_ok_and(|is| is < span);
        if let Some(given) = all.get_mut(&mac)
            && (within(given.made, ARGUMENTS_LIFETIME) || within(given.read, READ_IDLE_TIMEOUT))
        {
            given.read = now;
            return Ok(given.text.clone());
        }
        let text: Arc<str> = make()?.into();
        all.insert(mac, MachineArguments { text: text.clone(), made: now, read: now });
        Ok(text)
    }

    /// Returns the source file and its scan.
    async fn find(&self, name: &str) -> Result<(std::fs::File, Arc<Scanned>), BootRefusal> {
        let found = self.directory.find_file(name.to_owned()).await;
        let (file, _) = found.map_err(|error| match error {
            FileError::NotFound | FileError::NotAllowed => {
                BootRefusal::Nothing("no such image".into())
            }
            FileError::TryLater | FileError::Unreadable(_) => unreadable(&error),
        })?;
        let stamp = stamp(&file).map_err(unreadable)?;
        let mut scanned = self.scanned.lock().await;
        if let Some(known) = scanned.get(name).filter(|known| known.stamp == stamp) {
            return Ok((file, known.scanned.clone()));
        }
        let (copy, placeholder) = (file.try_clone().map_err(unreadable)?, self.placeholder.clone());
        let looked = tokio::task::spawn_blocking(move || scan::scan(copy, &placeholder));
        let new = looked.await.map_err(unreadable)?.map_err(unreadable)?;
        let (digest, places) = (&new.digest, new.places.len());
        tracing::info!(image = name, digest, places, "image scanned");
        if places == 0 {
            return Err(BootRefusal::Broken(format!("image {name} has no placeholder")));
        }
        let new = Arc::new(new);
        scanned.insert(name.to_owned(), ScannedImage { stamp, scanned: new.clone() });
        Ok((file, new))
    }

    /// Scans all images, so that the first BMC need not wait. A failure is logged, and reported when the image is requested.
    pub async fn warm(&self) {
        let names = self.directory.names().unwrap_or_default();
        for name in names.iter().filter(|name| name.ends_with(".iso")) {
            if let Err(refusal) = self.find(name).await {
                tracing::warn!(image = name, ?refusal, "image cannot be served");
            }
        }
    }
}

fn stamp(file: &std::fs::File) -> io::Result<Stamp> {
    let about = file.metadata()?;
    Ok((about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
}

fn unreadable(error: impl std::fmt::Display) -> BootRefusal {
    BootRefusal::Broken(format!("image cannot be read: {error}"))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The images in a directory, with Tinkerbell's placeholder, and for the machines themselves only.
impl From<PathBuf> for Iso {
    fn from(directory: PathBuf) -> Self {
        Self { directory, placeholder: scan::PLACEHOLDER.into(), sources: Vec::new() }
    }
}

//! Images for virtual media, patched for one machine as they are read.
//!
//! A source image is scanned for placeholders once, and again if the file changes. A response is the requested part of the
//! file, with the machine's arguments in place of each placeholder: the crate [`iso_arguments`].

use std::collections::HashMap;
use std::io::Seek as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use iso_arguments::{Arguments, Scanned, scan};
use tftp::ErrorCode;

use crate::Mac;
use crate::bootscripts::{BootRefusal, BootResult, BootScripts};
use crate::site::Iso;
use crate::tftp::{Directories, DiskFile, OpenDirectoryError};

pub use iso_arguments::PLACEHOLDER;

/// Lifetime of a machine's arguments. Its tokens last longer.
const ARGUMENTS_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// The arguments stay for this time after the last read: an image must not change while a BMC reads it.
const READ_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The source images of a directory.
#[derive(Debug)]
pub struct Images {
    directory: Directories,
    placeholder: String,
    /// Scanned images by name, with the tags of their files. Locked during a scan, so that each image is scanned once.
    scanned: tokio::sync::Mutex<HashMap<String, (String, Arc<Scanned>)>>,
    arguments: Mutex<HashMap<Mac, MachineArguments>>,
}

/// Kernel arguments of a machine.
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
    /// Replacement of each placeholder.
    pub arguments: Arguments,
    /// ETag: differs if any octet may differ.
    pub tag: String,
}

impl Images {
    /// Opens the directory of images of `settings`.
    pub fn open(settings: &Iso) -> Result<Self, OpenDirectoryError> {
        let directory = Directories::open([&settings.directory])?;
        let (scanned, arguments) = Default::default();
        Ok(Self { directory, placeholder: settings.placeholder.clone(), scanned, arguments })
    }

    /// Returns the image `name` for the machine at `mac`, with its arguments by `boots`.
    pub async fn image(&self, name: &str, mac: Mac, boots: &BootScripts) -> BootResult<Image> {
        let text = self.arguments(mac, boots)?;
        let arguments =
            Arguments::new(&text).map_err(|error| BootRefusal::Broken(error.to_string()))?;
        let (file, source) = self.find(name).await?;
        let tag = source.tag(&arguments);
        Ok(Image { file, source, arguments, tag })
    }

    /// Returns the arguments of `mac`: the same for a while, since an image is read in hundreds of parts.
    fn arguments(&self, mac: Mac, boots: &BootScripts) -> BootResult<Arc<str>> {
        let now = boots.clock.wall();
        let mut all = self.arguments.lock().unwrap_or_else(PoisonError::into_inner);
        let within = |since: SystemTime, span| now.duration_since(since).is_ok_and(|is| is < span);
        if let Some(own) = all.get_mut(&mac)
            && (within(own.made, ARGUMENTS_LIFETIME) || within(own.read, READ_IDLE_TIMEOUT))
        {
            own.read = now;
            return Ok(own.text.clone());
        }
        let text: Arc<str> = boots.image_arguments(mac, now)?.into();
        all.insert(mac, MachineArguments { text: text.clone(), made: now, read: now });
        Ok(text)
    }

    /// Returns the source file and its scan.
    async fn find(&self, name: &str) -> BootResult<(std::fs::File, Arc<Scanned>)> {
        let found = self.directory.find_file(name.to_owned()).await;
        let DiskFile { file, tag, .. } = found.map_err(|error| match error.code() {
            ErrorCode::UNDEFINED => unreadable(&error),
            _ => BootRefusal::Nothing("no such image".into()),
        })?;
        let mut scanned = self.scanned.lock().await;
        if let Some((_, source)) = scanned.get(name).filter(|(scanned, _)| *scanned == tag) {
            return Ok((file, source.clone()));
        }
        let placeholder = self.placeholder.clone();
        let mut copy = file.try_clone().map_err(unreadable)?;
        copy.rewind().map_err(unreadable)?;
        let scanning = tokio::task::spawn_blocking(move || scan(copy, &placeholder));
        let new = scanning.await.map_err(unreadable)?.map_err(unreadable)?;
        let (digest, places) = (&new.digest, new.places.len());
        tracing::info!(image = name, digest, places, "image scanned");
        if places == 0 {
            return Err(BootRefusal::Broken(format!("image {name} has no placeholder")));
        }
        let new = Arc::new(new);
        scanned.insert(name.to_owned(), (tag, new.clone()));
        Ok((file, new))
    }

    /// Scans all images, so that the first BMC does not wait. A failure is logged here, and reported when the image is requested.
    pub async fn warm(&self) {
        let names = self.directory.names().unwrap_or_default();
        for name in names.iter().filter(|name| name.ends_with(".iso")) {
            if let Err(refusal) = self.find(name).await {
                tracing::warn!(image = name, reason = %refusal, "image cannot be served");
            }
        }
    }
}

fn unreadable(error: impl std::fmt::Display) -> BootRefusal {
    BootRefusal::Broken(format!("image cannot be read: {error}"))
}

/// The images in a directory, with Tinkerbell's placeholder, and for the machines themselves only.
impl From<PathBuf> for Iso {
    fn from(directory: PathBuf) -> Self {
        Self { directory, placeholder: PLACEHOLDER.into(), sources: Vec::new() }
    }
}

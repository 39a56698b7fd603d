//! Images for virtual media, made for one machine as they are read (netboot specification, section 10).
//!
//! A source image holds a placeholder of 1024 octets where its boot menu writes the kernel's arguments. Where the
//! placeholders are is found once, with the image's digest, and again if the file changes; an answer is the file with each
//! of them replaced by the machine's arguments and blanks, whatever part of it is asked for. ISO 9660 has no checksum over
//! what is in files.
//!
//! - [`overlay`]: the replacing, over any part; values in, values out.
//! - [`scan`]: finding the placeholders.

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

/// How long one machine is given the same arguments. Its tokens last longer.
const SAME: Duration = Duration::from_secs(10 * 60);
/// And how long after the last read: what a BMC is in the middle of must not change.
const IDLE: Duration = Duration::from_secs(60);

/// The source images of a directory.
#[derive(Debug)]
pub struct Images {
    directory: Directories,
    placeholder: String,
    /// What is known of each, by name. Held while one is looked through, so that it is done once.
    scanned: tokio::sync::Mutex<HashMap<String, Known>>,
    given: Mutex<HashMap<Mac, Given>>,
}

/// An image, and which file it was.
#[derive(Debug)]
struct Known {
    stamp: Stamp,
    scanned: Arc<Scanned>,
}

/// Another one whenever a file's octets may be others.
type Stamp = (u64, u64, i64, i64);

/// The arguments that a machine was given.
#[derive(Clone, Debug)]
struct Given {
    text: Arc<str>,
    made: SystemTime,
    read: SystemTime,
}

/// An image as one machine sees it.
#[derive(Debug)]
pub struct Image {
    /// The source.
    pub file: std::fs::File,
    /// What is in it.
    pub source: Arc<Scanned>,
    /// What stands in the place of the placeholders: as long as one.
    pub patch: Arc<[u8]>,
    /// Another one whenever any octet may be another.
    pub tag: String,
}

impl Images {
    /// Those that `settings` name.
    pub fn open(settings: &Iso) -> io::Result<Self> {
        let directory = Directories::open([&settings.directory])?;
        let (scanned, given) = Default::default();
        Ok(Self { directory, placeholder: settings.placeholder.clone(), scanned, given })
    }

    /// The image `name` for the machine at `mac`, asked for by `boots`'s rules with its arguments at `now`.
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

    /// The arguments of `mac`: the same for a while, since an image is read in hundreds of parts.
    fn arguments(
        &self,
        mac: Mac,
        now: SystemTime,
        make: impl FnOnce() -> Result<String, BootRefusal>,
    ) -> Result<Arc<str>, BootRefusal> {
        let mut all = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let within = |since: SystemTime, span| now.duration_since(since).is_ok_and(|is| is < span);
        if let Some(given) = all.get_mut(&mac)
            && (within(given.made, SAME) || within(given.read, IDLE))
        {
            given.read = now;
            return Ok(given.text.clone());
        }
        let text: Arc<str> = make()?.into();
        all.insert(mac, Given { text: text.clone(), made: now, read: now });
        Ok(text)
    }

    /// The source file, and what is in it.
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
        tracing::info!(image = name, digest, places, "image looked through");
        if places == 0 {
            return Err(BootRefusal::Broken(format!("image {name} has no placeholder")));
        }
        let new = Arc::new(new);
        scanned.insert(name.to_owned(), Known { stamp, scanned: new.clone() });
        Ok((file, new))
    }

    /// Looks through every image there is, so that the first BMC need not wait. What fails is said when it is asked for.
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

/// The images in a directory, with the usual placeholder, and no BMC but the machine itself.
impl From<PathBuf> for Iso {
    fn from(directory: PathBuf) -> Self {
        Self { directory, placeholder: scan::PLACEHOLDER.into(), sources: Vec::new() }
    }
}

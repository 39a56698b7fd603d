//! Images for virtual media, patched for one machine as they are read.
//!
//! A source image has placeholders of 1024 octets in place of the kernel's arguments. Their offsets are scanned once, with
//! the image's digest, and again if the file changes. A response is the requested part of the file, with the machine's
//! arguments and blanks in place of each placeholder. ISO 9660 has no checksum over the contents of files.
//!
//! [`overlay`] replaces placeholders in any part; the module [`scan`] finds them.

pub mod scan;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use tftp::ErrorCode;

use self::scan::Scanned;
use crate::Mac;
use crate::bootscripts::{BootRefusal, BootResult, BootScripts};
use crate::site::Iso;
use crate::tftp::{Directories, DiskFile, OpenDirectoryError};

/// Octets of a placeholder.
const PLACEHOLDER_BYTES: usize = 1024;
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
    /// Replacement of each placeholder, of the same length.
    pub patch: Arc<[u8]>,
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
        let patch = padded(&text)
            .ok_or_else(|| BootRefusal::Broken(format!("{} octets of arguments", text.len())))?;
        let (file, source) = self.find(name).await?;
        let (own, of_patch) = (&source.digest, hex(&Sha256::digest(&patch)));
        let tag = format!("\"{own}-{}\"", of_patch.get(..16).unwrap_or_default());
        Ok(Image { file, source, patch: patch.into(), tag })
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
        let (copy, placeholder) = (file.try_clone().map_err(unreadable)?, self.placeholder.clone());
        let scan = tokio::task::spawn_blocking(move || scan::scan(copy, &placeholder));
        let new = scan.await.map_err(unreadable)?.map_err(unreadable)?;
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

/// Returns `text` with blanks up to the length of a placeholder; none if it is longer, since nothing may be cut.
fn padded(text: &str) -> Option<Vec<u8>> {
    let mut patch = text.as_bytes().to_vec();
    if patch.len() > PLACEHOLDER_BYTES {
        return None;
    }
    patch.resize(PLACEHOLDER_BYTES, b' ');
    Some(patch)
}

/// Writes `patch` over each of `places` as far as it lies in `part`, which begins at `offset` of the whole.
pub fn overlay(part: &mut [u8], offset: u64, places: &[u64], patch: &[u8]) {
    let end = offset.saturating_add(part.len() as u64);
    for place in places {
        let from = (*place).max(offset);
        let to = place.saturating_add(patch.len() as u64).min(end);
        if from >= to {
            continue;
        }
        let within = |begin: u64| {
            let index = |at: u64| usize::try_from(at - begin).unwrap_or(usize::MAX);
            index(from)..index(to)
        };
        if let (Some(part), Some(patch)) = (part.get_mut(within(offset)), patch.get(within(*place)))
        {
            part.copy_from_slice(patch);
        }
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arguments_are_padded_and_never_cut() {
        let padded = |length| padded(&"x".repeat(length));
        assert_eq!(padded(3).unwrap(), [&b"xxx"[..], &[b' '; 1021]].concat());
        assert_eq!(padded(PLACEHOLDER_BYTES).unwrap().len(), PLACEHOLDER_BYTES);
        assert_eq!(padded(PLACEHOLDER_BYTES + 1), None);
    }

    proptest! {
        #[test]
        fn any_part_is_that_part_of_the_whole(
            places in prop::collection::btree_set(0..6_u64, 0..4),
            from in 0..9000_usize,
            length in 0..9000_usize,
        ) {
            let places: Vec<u64> = places.into_iter().map(|place| place * 1300 + 7).collect();
            let source: Vec<u8> = (0..8192_u32).map(|n| (n % 251) as u8).collect();
            let patch = padded("console=ttyS0").unwrap();
            let mut whole = source.clone();
            for place in &places {
                let place = usize::try_from(*place).unwrap();
                let end = (place + PLACEHOLDER_BYTES).min(whole.len());
                whole[place..end].copy_from_slice(&patch[..end - place]);
            }
            let (from, to) = (from.min(source.len()), (from + length).min(source.len()));
            let mut part = source[from..to].to_vec();
            overlay(&mut part, from as u64, &places, &patch);
            prop_assert_eq!(&part, &whole[from..to]);
        }
    }
}

//! The variables of the action.

use std::path::PathBuf;
use std::time::Duration;

use image_signature::SignedImage;
use reqwest::Url;

use crate::checksum::Checksum;
use crate::context::Context;
use crate::download::{self, RetryPolicy};
use crate::environment::{self, Environment};
use crate::error::Error;
use crate::image_keys;
use crate::unpack::Decompress;

/// Form of checksums in variables.
const CHECKSUM: &str = "`sha256:` or `sha512:` and hexadecimal digits";

/// The parsed variables.
pub(super) struct ImageOptions {
    pub(super) url: Url,
    /// The map of the image. None: the image is written from its first byte to its last.
    pub(super) map: Option<MapOptions>,
    /// What is signed of the image, on a machine that installs signed images only.
    pub(super) signed: Option<SignedImage>,
    pub(super) disk: PathBuf,
    pub(super) decompress: Decompress,
    pub(super) checksum: Option<Checksum>,
    /// True if the image may be anything.
    pub(super) is_any: bool,
    pub(super) force: bool,
    pub(super) verify: bool,
    pub(super) retry: RetryPolicy,
    pub(super) interval: Duration,
}

/// The map of an image.
pub(super) struct MapOptions {
    pub(super) url: Url,
    /// Checksum of the map itself.
    pub(super) checksum: Checksum,
}

impl ImageOptions {
    pub(super) fn parse(environment: &Environment, context: &Context) -> Result<Self, Error> {
        let sha256 = environment.parsed("IMG_SHA256", CHECKSUM)?;
        let map = MapOptions::parse(environment, context)?;
        Ok(Self {
            url: download::url(environment, "IMG_URL", context.boot_server.as_ref())?,
            disk: environment.required("DEST_DISK")?.into(),
            decompress: decompress(environment, map.is_some())?,
            signed: signed(environment, context, map.as_ref())?,
            map,
            checksum: environment.parsed("IMG_CHECKSUM", CHECKSUM)?.or(sha256),
            is_any: environment.boolean("IMG_ANY_CONTENT")?.unwrap_or_default(),
            force: environment.flag("IMG_FORCE"),
            verify: environment.choice("IMG_VERIFY") != Some(false),
            retry: retry(environment, &context.retry_policy)?,
            interval: environment.progress_interval()?,
        })
    }
}

impl MapOptions {
    /// Returns `None` if the template names no map. The content of the disk is checked by the map,
    /// so the checksum of the map itself is required.
    fn parse(
        environment: &Environment,
        context: &Context,
    ) -> Result<Option<Self>, environment::Error> {
        let checksum = environment.parsed("IMG_MAP_SHA256", CHECKSUM)?;
        let has_map = environment.optional("IMG_MAP").is_some();
        match checksum {
            None if has_map => Err(environment::Error::Missing("IMG_MAP_SHA256")),
            None => Ok(None),
            Some(checksum) => {
                let url = download::url(environment, "IMG_MAP", context.boot_server.as_ref())?;
                Ok(Some(Self { url, checksum }))
            }
        }
    }
}

/// Returns what is signed of the image. An image without a map would be written before its digest is
/// known, so a machine with keys refuses it.
fn signed(
    environment: &Environment,
    context: &Context,
    map: Option<&MapOptions>,
) -> Result<Option<SignedImage>, Error> {
    let digest = map.map(|map| image_keys::sha256("IMG_MAP_SHA256", &map.checksum));
    let digest = digest.transpose()?;
    let signed = image_keys::signed_image(environment, context, digest)?;
    match (&signed, map) {
        (Some(_), None) => Err(image_keys::Error::NoMap.into()),
        (Some(_), Some(_)) | (None, _) => Ok(signed),
    }
}

/// Returns the setting for decompression. The file of a map is always compressed.
fn decompress(environment: &Environment, has_map: bool) -> Result<Decompress, environment::Error> {
    const NAME: &str = "COMPRESSED";
    match environment.choice(NAME) {
        Some(true) => Ok(Decompress::Required("COMPRESSED is true")),
        Some(false) if has_map => {
            let value = environment.optional(NAME).unwrap_or_default();
            Err(environment::Error::invalid(NAME, value, "`true`, which IMG_MAP requires"))
        }
        Some(false) => Ok(Decompress::Never),
        None => Ok(Decompress::IfCompressed),
    }
}

fn retry(
    environment: &Environment,
    default: &RetryPolicy,
) -> Result<RetryPolicy, environment::Error> {
    let minutes = environment.minutes("RETRY_DURATION_MINUTES")?;
    let give_up_after = match environment.choice("RETRY_ENABLED") {
        Some(false) => Duration::ZERO,
        Some(true) | None => minutes.unwrap_or(default.give_up_after),
    };
    Ok(RetryPolicy { give_up_after, ..default.clone() })
}

//! Signatures of images. The service has no keys: it checks only that a signature names the image.

use std::time::SystemTime;

use image_signature::{MAX_SIGNATURES, Signature, SignedImage};
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;
use tinwright::status::Violations;

use crate::error::Error;

/// Parses a signature that a caller sent.
pub(crate) fn parse(text: &str) -> Result<Signature, Violations> {
    Signature::parse(text).map_err(|error| Violations::single("text", error.to_string()))
}

/// Returns `image` with `signature`, which replaces one by the same key.
pub(crate) fn added(
    image: &pb::Image,
    signature: &Signature,
    now: SystemTime,
) -> Result<pb::Image, Error> {
    if image.state() != ImageState::Ready {
        let text = format!("image {} is {}, not ready", image.name, image.state().word());
        return Err(Error::precondition("IMAGE_NOT_READY", "image", &image.id, text));
    }
    let differs =
        |error: image_signature::Difference| Violations::single("text", error.to_string());
    signature.image().require(&signed(image)).map_err(differs)?;
    let key_id = signature.key_id().to_string();
    let mut added = image.clone();
    if added.signatures.iter().any(|it| it.key_id == key_id && it.text == signature.text()) {
        return Ok(added);
    }
    added.signatures.retain(|it| it.key_id != key_id);
    if added.signatures.len() >= MAX_SIGNATURES {
        let text = format!("image {}: at most {MAX_SIGNATURES} signatures", image.name);
        return Err(Error::precondition("TOO_MANY_SIGNATURES", "image", &image.id, text));
    }
    let time = Some(now.into());
    added.signatures.push(pb::ImageSignature { key_id, text: signature.text().to_owned(), time });
    added.update_time = time;
    Ok(added)
}

/// Returns the values of `image` that a signature has to name.
fn signed(image: &pb::Image) -> SignedImage {
    SignedImage {
        name: image.name.clone(),
        size_bytes: image.size_bytes,
        sha256: image.sha256.clone(),
        stored_sha256: image.stored_sha256.clone(),
        map_sha256: Some(image.map_sha256.clone()).filter(|map| !map.is_empty()),
    }
}

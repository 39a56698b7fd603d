//! `image sign` and `image verify`: signatures in the format of minisign.
//!
//! The program `minisign` signs ([`crate::minisign`]).

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use disk_images::checksums;
use image_signature::{PublicKeys, Signature, SignedImage};
use tinwright::image::v1 as pb;

use super::find_by_own_name;
use crate::connect::{Io, View};
use crate::output::Format;
use crate::resource::{self, Resource as _};
use crate::{input, minisign, output};

/// Options of a signature.
#[derive(Debug, clap::Args)]
pub struct SignImage {
    /// The image
    #[arg(value_name = "NAME|ID")]
    name: String,
    /// Sign with this secret key of `minisign -G`; needs the program minisign
    #[arg(long, value_name = "FILE", required_unless_present_any = ["signature", "text"])]
    key: Option<PathBuf>,
    /// Read the password of the key from this file [default: minisign asks for it, or reads it from
    /// standard input]
    #[arg(long, value_name = "FILE", requires = "key")]
    password_file: Option<PathBuf>,
    /// Add the signature in this file, which was made on another computer
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "text"])]
    signature: Option<PathBuf>,
    /// Sign nothing: write the text for another computer to this file, and print the command that
    /// signs it
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    text: Option<PathBuf>,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Options of a verification.
#[derive(Debug, clap::Args)]
pub struct VerifyImage {
    /// The image
    #[arg(value_name = "NAME|FAMILY|ID")]
    name: String,
    /// Accept signatures by the public keys in this file; may be repeated
    #[arg(long = "key", value_name = "FILE", required = true)]
    keys: Vec<PathBuf>,
    /// Also compare the stored file of the image, which was downloaded
    #[arg(long, value_name = "FILE")]
    stored: Option<PathBuf>,
    /// Also compare the map of the image, which was downloaded
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
}

impl SignImage {
    /// Signs the image, and prints it.
    pub(super) async fn run(self, io: &mut Io<'_>) -> anyhow::Result<()> {
        let image = find_by_own_name(io.channel, &self.name).await?;
        let signed = signed(&image)?;
        if let Some(path) = &self.text {
            std::fs::write(path, signed.text())
                .with_context(|| format!("writing {}", path.display()))?;
            return io.print(&command_line(path, &signed));
        }
        let text = match (&self.key, &self.signature) {
            (Some(key), _) => {
                let password = self.password_file.as_deref();
                minisign::sign(&signed.text(), &signed.comment(), key, password)?
            }
            (None, Some(path)) => input::text(path)?,
            (None, None) => anyhow::bail!("no key: give --key"),
        };
        let request = pb::AddSignatureRequest { image_id: image.id, text };
        let image = resource::required(io.call(request).await?.image)?;
        resource::print(&[image], self.output, io).await
    }
}

impl VerifyImage {
    /// Verifies the signatures of the image, and prints the key of the first valid one.
    pub(super) async fn run(self, io: &mut Io<'_>) -> anyhow::Result<()> {
        let keys = keys(&self.keys)?;
        let image = pb::Image::find(io.channel, &self.name, View::Basic).await?;
        let name = image.title();
        let stored = signed(&image)?;
        let signatures = image.signatures.iter().map(|it| Signature::parse(&it.text));
        let signatures: Result<Vec<_>, _> = signatures.collect();
        let signatures = signatures.with_context(|| format!("image {name}"))?;
        let valid = keys.verify(&signatures, |signed| signed.require(&stored));
        let valid = valid.with_context(|| format!("image {name}"))?;
        let signed = valid.image();
        if let Some(path) = &self.stored {
            signed.require_stored(&sha256(path)?).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.map {
            let digest = sha256(path)?;
            signed.require_map(Some(&digest)).with_context(|| path.display().to_string())?;
        }
        io.print(&format!("image {name}: signed by {}", valid.key_id()))
    }
}

/// Returns the values of `image` that a signature names.
fn signed(image: &pb::Image) -> anyhow::Result<SignedImage> {
    let state = output::state(image);
    anyhow::ensure!(!image.sha256.is_empty(), "image {} has no content: {state}", image.title());
    Ok(SignedImage {
        name: image.name.clone(),
        size_bytes: image.size_bytes,
        sha256: image.sha256.clone(),
        stored_sha256: image.stored_sha256.clone(),
        map_sha256: Some(image.map_sha256.clone()).filter(|map| !map.is_empty()),
    })
}

/// Returns the command that signs the text at `path` on another computer.
fn command_line(path: &Path, signed: &SignedImage) -> String {
    // The comment has lower-case letters, digits, colons, semicolons, hyphens and spaces only.
    format!("minisign -S -m {} -t '{}'", path.display(), signed.comment())
}

/// Reads public keys.
fn keys(paths: &[PathBuf]) -> anyhow::Result<PublicKeys> {
    let mut all = PublicKeys::default();
    for path in paths {
        let keys = PublicKeys::parse(&input::text(path)?);
        all.extend(keys.with_context(|| path.display().to_string())?);
    }
    Ok(all)
}

fn sha256(path: &Path) -> anyhow::Result<String> {
    let sum = checksums::sha256_of_file(path);
    Ok(sum.with_context(|| format!("reading {}", path.display()))?.hex().to_owned())
}

//! Virtual drives of a BMC (DSP2046, VirtualMedia). Services list them at the system, older ones at its manager; images are inserted by
//! an action, in older services by a PATCH of the drive.

use reqwest::Method;
use serde_json::{Value, json};

use super::response::{id, link};
use super::{Error, Redfish, monitor};
use crate::plan::{DriveKind, MediaCall};

/// Maximum number of managers of a system whose drives are read.
const MAX_MANAGERS: usize = 4;
/// Maximum number of drives of one collection that are read.
const MAX_DRIVES: usize = 16;

/// A virtual drive, as it was last read.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct VirtualDrive {
    /// Its link.
    pub link: String,
    /// The URL of its image; empty if it has none.
    pub image: String,
    /// True if an image is inserted.
    pub inserted: bool,
    /// The link of the action that inserts an image.
    pub insert: Option<String>,
    /// The link of the action that ejects it.
    pub eject: Option<String>,
    /// The version of the resource.
    pub etag: Option<String>,
}

impl std::fmt::Debug for VirtualDrive {
    /// Without the URL of the image, which may have a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { link, inserted, .. } = self;
        f.debug_struct("VirtualDrive").field("link", link).field("inserted", inserted).finish()
    }
}

impl VirtualDrive {
    /// Reads the drive in `body`, if it is one of `kind`.
    fn read(body: &Value, etag: Option<String>, kind: DriveKind) -> Option<Self> {
        let types = body.get("MediaTypes").and_then(Value::as_array)?;
        let mut types = types.iter().filter_map(Value::as_str);
        if !types.any(|one| kind.media_types().contains(&one)) {
            return None;
        }
        let action = |name: &str| {
            let pointer = format!("/Actions/#VirtualMedia.{name}/target");
            Some(body.pointer(&pointer)?.as_str()?.to_owned())
        };
        let image = body.get("Image").and_then(Value::as_str).unwrap_or_default();
        Some(Self {
            link: id(body)?,
            image: image.to_owned(),
            // A service without the property has an image inserted while it shows one.
            inserted: match body.get("Inserted").and_then(Value::as_bool) {
                Some(inserted) => inserted,
                None => !image.is_empty(),
            },
            insert: action("InsertMedia"),
            eject: action("EjectMedia"),
            etag,
        })
    }
}

impl Redfish {
    /// Reads the first virtual drive of this kind: of the system, else of its managers. One with actions comes before one without.
    pub async fn drive(&mut self, kind: DriveKind) -> Result<Option<VirtualDrive>, Error> {
        let url = match &self.system {
            Some(url) => url.clone(),
            None => self.find().await?,
        };
        let system = self.get(&url).await?.body;
        self.system = Some(url);
        let mut collections: Vec<_> = link(&system, "VirtualMedia").into_iter().collect();
        let managers = system.pointer("/Links/ManagedBy").and_then(Value::as_array);
        for manager in managers.into_iter().flatten().filter_map(id).take(MAX_MANAGERS) {
            let manager = self.get_if_present(&manager).await?.unwrap_or_default();
            collections.extend(link(&manager, "VirtualMedia"));
        }
        let mut without_actions = None;
        for collection in collections {
            for member in self.members(collection).await?.into_iter().take(MAX_DRIVES) {
                let url = self.resolve(&member)?;
                let response = match self.get(&url).await {
                    Err(error) if error.is_missing() => continue,
                    response => response?,
                };
                match VirtualDrive::read(&response.body, response.etag, kind) {
                    Some(drive) if drive.insert.is_some() => return Ok(Some(drive)),
                    Some(drive) => without_actions = without_actions.or(Some(drive)),
                    None => {}
                }
            }
        }
        Ok(without_actions)
    }

    /// Sends `call` to `drive`, and waits for the task that it starts. The caller has to read the drive again to verify the effect.
    pub(super) async fn change_drive(
        &mut self,
        drive: &VirtualDrive,
        call: &MediaCall,
    ) -> Result<(), Error> {
        let missing =
            |name: &str| Error::Protocol(format!("the virtual drive has no action {name}"));
        let (method, target, body) = match call {
            MediaCall::Insert(image) => {
                let body =
                    json!({"Image": image.expose(), "Inserted": true, "WriteProtected": true});
                (Method::POST, drive.insert.as_ref().ok_or_else(|| missing("InsertMedia"))?, body)
            }
            MediaCall::InsertImageOnly(image) => {
                let body = json!({"Image": image.expose()});
                (Method::POST, drive.insert.as_ref().ok_or_else(|| missing("InsertMedia"))?, body)
            }
            MediaCall::PatchImage(image) => {
                (Method::PATCH, &drive.link, json!({"Image": image.expose(), "Inserted": true}))
            }
            MediaCall::Eject => {
                let target = drive.eject.as_ref().ok_or_else(|| missing("EjectMedia"))?;
                (Method::POST, target, json!({}))
            }
            MediaCall::PatchNoImage => {
                (Method::PATCH, &drive.link, json!({"Image": null, "Inserted": false}))
            }
        };
        let etag = drive.etag.as_deref().filter(|_| method == Method::PATCH);
        let url = self.resolve(target)?;
        let response = self.send(method, &url, Some(&body), etag).await?;
        monitor::wait_for_task(self, response).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_without_inserted_is_read_by_its_image() {
        let body = |image: Value| json!({"@odata.id": "/m/1", "MediaTypes": ["CD", "DVD"], "Image": image});
        let empty = VirtualDrive::read(&body(json!(null)), None, DriveKind::Cd).unwrap();
        assert!(!empty.inserted && empty.image.is_empty());
        let full = VirtualDrive::read(&body(json!("http://192.0.2.1/a.iso")), None, DriveKind::Cd);
        assert!(full.unwrap().inserted);
        assert_eq!(VirtualDrive::read(&body(json!(null)), None, DriveKind::Usb), None);
        assert_eq!(VirtualDrive::read(&json!({}), None, DriveKind::Cd), None);
    }

    #[test]
    fn the_url_of_an_image_is_in_no_log() {
        let drive = VirtualDrive { image: "http://192.0.2.1/token".into(), ..Default::default() };
        assert!(!format!("{drive:?}").contains("token"));
    }
}

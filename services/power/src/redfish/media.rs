//! Virtual drives of a BMC (DSP2046, VirtualMedia). Services list them at the system, older ones at
//! its manager; images are inserted by an action, in older services by a PATCH of the drive.

use reqwest::{Method, Url};
use serde_json::{Map, Value, json};

use super::change::ResourceChange;
use super::response::{ETag, Response, id, link};
use super::{Error, Redfish, monitor};
use crate::forms::{EjectMedia, INSERT_PARAMETERS, InsertForm};
use crate::plan::{DriveKind, MediaCall};

/// Maximum number of managers of a system whose drives are read.
const MAX_MANAGERS: usize = 4;
/// Maximum number of drives of one collection that are read.
const MAX_DRIVES: usize = 16;
/// The end of the name of a property that lists the values of a parameter.
const ALLOWABLE: &str = "@Redfish.AllowableValues";
/// The values of the parameter TransferMethod, the preferred one first.
const TRANSFER_METHODS: [&str; 2] = ["Stream", "Upload"];

/// A virtual drive, as it was last read.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct VirtualDrive {
    /// Its link.
    pub link: String,
    /// The URL of its image; empty if it has none.
    pub image: String,
    /// True if an image is inserted.
    pub inserted: bool,
    /// The media that it may show.
    pub media_types: Vec<String>,
    /// The link of the action that inserts an image.
    pub insert: Option<String>,
    /// The link of the resource that lists the parameters of that action.
    pub insert_info: Option<String>,
    /// The parameters of that action.
    pub parameters: Parameters,
    /// The link of the action that ejects it.
    pub eject: Option<String>,
    /// The version of the resource.
    pub etag: ETag,
}

/// The parameters of an action, as a service lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The listed ones.
    pub listed: Vec<Parameter>,
    /// True if there are no others.
    pub is_complete: bool,
}

/// A parameter of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// True if the action fails without it.
    pub is_required: bool,
    /// Its values; empty if they are not listed.
    pub values: Vec<String>,
}

impl Parameters {
    /// Reads an ActionInfo resource (DSP2046), if it lists parameters.
    fn of_info(info: &Value) -> Option<Self> {
        let listed = info.get("Parameters").and_then(Value::as_array)?;
        let parameter = |one: &Value| {
            Some(Parameter {
                name: one.get("Name")?.as_str()?.to_owned(),
                is_required: one.get("Required").and_then(Value::as_bool).unwrap_or_default(),
                values: texts(one.get("AllowableValues")),
            })
        };
        Some(Self { listed: listed.iter().filter_map(parameter).collect(), is_complete: true })
    }

    /// Reads the values that an action lists itself.
    fn of_action(action: &Value) -> Self {
        let properties = action.as_object().into_iter().flatten();
        let parameter = |(key, values): (&String, &Value)| {
            let name = key.strip_suffix(ALLOWABLE)?.to_owned();
            Some(Parameter { name, is_required: false, values: texts(Some(values)) })
        };
        Self { listed: properties.filter_map(parameter).collect(), is_complete: false }
    }

    /// Returns the listed parameter with this name.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.listed.iter().find(|parameter| parameter.name == name)
    }

    /// Returns the first of `wanted` that is a value of the parameter `name`, in its spelling; the
    /// first one if none is listed.
    fn choose<'a>(&'a self, name: &str, wanted: &[&'a str]) -> &'a str {
        let values =
            self.get(name).map(|parameter| parameter.values.as_slice()).unwrap_or_default();
        let listed = |one: &&str| values.iter().find(|value| value.eq_ignore_ascii_case(one));
        let found = wanted.iter().find_map(listed).map(String::as_str);
        found.or(wanted.first().copied()).unwrap_or_default()
    }
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
    fn read(body: &Value, etag: ETag, kind: DriveKind) -> Option<Self> {
        let types = body.get("MediaTypes").and_then(Value::as_array)?;
        let mut types = types.iter().filter_map(Value::as_str);
        if !types.any(|one| kind.media_types().contains(&one)) {
            return None;
        }
        let action = |name: &str| body.pointer(&format!("/Actions/#VirtualMedia.{name}"));
        let target = |name: &str| Some(action(name)?.get("target")?.as_str()?.to_owned());
        let insert = action("InsertMedia").unwrap_or(&Value::Null);
        let image = body.get("Image").and_then(Value::as_str).unwrap_or_default();
        let info = insert.get("@Redfish.ActionInfo").and_then(Value::as_str);
        Some(Self {
            link: id(body)?,
            image: image.to_owned(),
            // A service without the property has an image inserted while it shows one.
            inserted: match body.get("Inserted").and_then(Value::as_bool) {
                Some(inserted) => inserted,
                None => !image.is_empty(),
            },
            media_types: texts(body.get("MediaTypes")),
            insert: target("InsertMedia"),
            insert_info: info.map(str::to_owned),
            parameters: Parameters::of_action(insert),
            eject: target("EjectMedia"),
            etag,
        })
    }

    /// Returns the value of a parameter for an insertion of `image`; none for a name that is not
    /// known.
    fn value(&self, name: &str, image: &str, kind: DriveKind) -> Option<Value> {
        let protocol = image.split_once(':').map_or("http", |(scheme, _)| scheme);
        let protocol = protocol.to_ascii_uppercase();
        let own = |media: &&&str| self.media_types.iter().any(|own| own == **media);
        let media: Vec<&str> =
            kind.media_types().iter().filter(own).chain(kind.media_types()).copied().collect();
        Some(match name {
            "Inserted" | "WriteProtected" => json!(true),
            "MediaType" => json!(self.parameters.choose(name, &media)),
            "TransferProtocolType" => json!(self.parameters.choose(name, &[&protocol])),
            "TransferMethod" => json!(self.parameters.choose(name, &TRANSFER_METHODS)),
            // The file server asks for neither.
            "UserName" | "Password" => json!(""),
            _ => return None,
        })
    }

    /// Returns the body that inserts `image` with the parameters of `form`.
    fn insertion(&self, image: &str, form: &InsertForm, kind: DriveKind) -> Value {
        let mut body = Map::from_iter([("Image".to_owned(), json!(image))]);
        for name in INSERT_PARAMETERS.iter().filter(|name| form.parameters.contains(name)) {
            body.extend(self.value(name, image, kind).map(|value| ((*name).to_owned(), value)));
        }
        Value::Object(body)
    }
}

/// Returns the texts in a list.
fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Redfish {
    /// Reads the first virtual drive of this kind: of the system, else of its managers. One with
    /// actions comes before one without.
    pub async fn drive(&mut self, kind: DriveKind) -> Result<Option<VirtualDrive>, Error> {
        if let Some((known, url)) = self.drive.clone()
            && known == kind
            && let Some(drive) = self.read_drive(&url, kind).await?
        {
            return Ok(Some(drive));
        }
        let found = self.find_drive(kind).await?;
        self.drive = match &found {
            Some(drive) => {
                Some((kind, self.connection.resolve(&self.connection.root, &drive.link)?))
            }
            None => None,
        };
        Ok(found)
    }

    /// A drive or a manager that cannot be read does not matter, unless no drive is found.
    async fn find_drive(&mut self, kind: DriveKind) -> Result<Option<VirtualDrive>, Error> {
        let (mut without_actions, mut unread) = (None, None);
        let base = self.system_url().await?;
        for collection in self.drive_collections(&mut unread).await? {
            let members = match self.members(&base, collection).await {
                Err(error) if error.is_answer() => {
                    unread.get_or_insert(error);
                    continue;
                }
                members => members?,
            };
            for member in members.into_iter().take(MAX_DRIVES) {
                let url = self.connection.resolve(&base, &member)?;
                match self.read_drive(&url, kind).await {
                    Ok(Some(drive)) if drive.insert.is_some() => return Ok(Some(drive)),
                    Ok(Some(drive)) => without_actions = without_actions.or(Some(drive)),
                    Ok(None) => {}
                    Err(error) if error.is_answer() => {
                        unread.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        match (without_actions, unread) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// Returns the links of the collections of drives: of the system, and of its managers.
    async fn drive_collections(
        &mut self,
        unread: &mut Option<Error>,
    ) -> Result<Vec<String>, Error> {
        let base = self.system_url().await?;
        let system = self.get(&base).await?.body;
        let mut collections: Vec<_> = link(&system, "VirtualMedia").into_iter().collect();
        let managers = system.pointer("/Links/ManagedBy").and_then(Value::as_array);
        for manager in managers.into_iter().flatten().filter_map(id).take(MAX_MANAGERS) {
            match self.get_if_present(&base, &manager).await {
                Ok(Some(manager)) => collections.extend(link(&manager.body, "VirtualMedia")),
                Ok(None) => {}
                Err(error) if error.is_answer() => {
                    unread.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(collections)
    }

    /// Reads the drive at `url` with the parameters of its action. None if it does not exist, or is
    /// of another kind.
    async fn read_drive(
        &mut self,
        url: &Url,
        kind: DriveKind,
    ) -> Result<Option<VirtualDrive>, Error> {
        let response = match self.get(url).await {
            Err(error) if error.is_missing() => return Ok(None),
            response => response?,
        };
        let Response { url, body, etag, .. } = response;
        let Some(mut drive) = VirtualDrive::read(&body, etag, kind) else { return Ok(None) };
        if let Some(info) = drive.insert_info.clone()
            && let Some(parameters) = self.insert_parameters(&url, info).await?
        {
            drive.parameters = parameters;
        }
        Ok(Some(drive))
    }

    /// Reads the parameters in the resource `info`, once. None if a service does not have it.
    async fn insert_parameters(
        &mut self,
        base: &Url,
        info: String,
    ) -> Result<Option<Parameters>, Error> {
        if let Some((known, parameters)) = &self.insert_info
            && *known == info
        {
            return Ok(parameters.clone());
        }
        let read = self.get_if_present(base, &info).await?;
        let parameters = read.and_then(|read| Parameters::of_info(&read.body));
        self.insert_info = Some((info, parameters.clone()));
        Ok(parameters)
    }

    /// Sends `call` to `drive`, and waits for the task that it starts. The caller has to read the
    /// drive again to verify the effect.
    pub(super) async fn change_drive(
        &mut self,
        drive: &VirtualDrive,
        call: &MediaCall,
    ) -> Result<(), Error> {
        let action = |link: &Option<String>, name: &str| {
            let missing = || Error::Protocol(format!("the virtual drive has no action {name}"));
            Ok::<_, Error>((Method::POST, link.clone().ok_or_else(missing)?))
        };
        let patch = || (Method::PATCH, drive.link.clone());
        let ((method, target), body) = match call {
            MediaCall::Insert { image, form, kind } => {
                let body = drive.insertion(image.expose(), form, *kind);
                let by_patch = form.by_patch;
                let target = if by_patch { patch() } else { action(&drive.insert, "InsertMedia")? };
                (target, Some(body))
            }
            MediaCall::Eject(EjectMedia::Action) => {
                (action(&drive.eject, "EjectMedia")?, Some(json!({})))
            }
            MediaCall::Eject(EjectMedia::ActionWithoutBody) => {
                (action(&drive.eject, "EjectMedia")?, None)
            }
            MediaCall::Eject(EjectMedia::Patch) => {
                (patch(), Some(json!({"Image": null, "Inserted": false})))
            }
        };
        let base = self.system_url().await?;
        let resource = self.connection.resolve(&base, &drive.link)?;
        let url = self.connection.resolve(&base, &target)?;
        let change =
            ResourceChange { method, url, resource, body: body.as_ref(), etag: &drive.etag };
        let response = self.change(change).await?;
        monitor::wait_for_task(self, response).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_without_inserted_is_read_by_its_image() {
        let body = |image: Value| json!({"@odata.id": "/m/1", "MediaTypes": ["CD", "DVD"], "Image": image});
        let empty = VirtualDrive::read(&body(json!(null)), ETag::default(), DriveKind::Cd).unwrap();
        assert!(!empty.inserted && empty.image.is_empty());
        let full = VirtualDrive::read(
            &body(json!("http://192.0.2.1/a.iso")),
            ETag::default(),
            DriveKind::Cd,
        );
        assert!(full.unwrap().inserted);
        assert_eq!(VirtualDrive::read(&body(json!(null)), ETag::default(), DriveKind::Usb), None);
        assert_eq!(VirtualDrive::read(&json!({}), ETag::default(), DriveKind::Cd), None);
    }

    #[test]
    fn parameters_have_the_values_that_the_service_lists() {
        let info = json!({"Parameters": [
            {"Name": "TransferProtocolType", "Required": true, "AllowableValues": ["NFS", "Https"]},
            {"Name": "TransferMethod", "AllowableValues": ["Upload"]},
        ]});
        let parameters = Parameters::of_info(&info).unwrap();
        let drive = VirtualDrive {
            parameters,
            media_types: vec!["Floppy".into(), "DVD".into()],
            ..VirtualDrive::default()
        };
        let form = InsertForm { by_patch: false, parameters: INSERT_PARAMETERS.to_vec() };
        let body = drive.insertion("https://192.0.2.1/a.iso", &form, DriveKind::Cd);
        let wanted = json!({
            "Image": "https://192.0.2.1/a.iso", "Inserted": true, "WriteProtected": true, "MediaType": "DVD",
            "TransferProtocolType": "Https", "TransferMethod": "Upload", "UserName": "", "Password": "",
        });
        assert_eq!(body, wanted);
    }

    #[test]
    fn an_action_lists_values_itself() {
        let action = json!({"target": "/x", "MediaType@Redfish.AllowableValues": ["CD"]});
        let parameters = Parameters::of_action(&action);
        assert_eq!(parameters.get("MediaType").unwrap().values, ["CD"]);
        assert!(!parameters.is_complete);
    }

    #[test]
    fn the_url_of_an_image_is_in_no_log() {
        let drive = VirtualDrive { image: "http://192.0.2.1/token".into(), ..Default::default() };
        assert!(!format!("{drive:?}").contains("token"));
    }
}

//! The virtual CD drive.

use axum::http::Method;
use serde_json::{Value, json};

use super::system::ID;
use super::{Answer, Bmc, Quirk, Received};

/// What is in the drive.
#[derive(Debug, Default)]
pub(super) struct Media {
    pub(super) image: Option<String>,
}

/// Parameters that an insertion may need.
const NEEDS: [(Quirk, &[&str]); 5] = [
    (Quirk::InsertNeedsMediaType, &["MediaType"]),
    (Quirk::InsertNeedsProtocol, &["TransferProtocolType"]),
    (Quirk::InsertNeedsMethod, &["TransferMethod"]),
    (Quirk::InsertNeedsCredentials, &["UserName", "Password"]),
    (Quirk::InsertNeedsUnknown, &["OemTicket"]),
];

impl Bmc {
    pub(super) fn virtual_media(&mut self, request: &Received, rest: &[&str]) -> Answer {
        let drive = format!("/Systems/{ID}/VirtualMedia/Cd");
        let by_action = !self.has(Quirk::MediaByPatch);
        match (&request.method, rest) {
            (&Method::GET, []) => Answer::ok(json!({"Members": [self.link(&drive)]})),
            (&Method::GET, ["Cd"]) => self.versioned(self.read_drive(&drive)),
            (&Method::GET, ["Cd", "InsertActionInfo"]) => Answer::ok(self.insert_info()),
            (&Method::PATCH, ["Cd"]) if !by_action => self.patch_drive(request),
            (&Method::POST, ["Cd", "Actions", "VirtualMedia.InsertMedia"]) if by_action => {
                self.insert(request)
            }
            (&Method::POST, ["Cd", "Actions", "VirtualMedia.EjectMedia"]) if by_action => {
                self.eject(request)
            }
            (&Method::PATCH | &Method::POST, _) => {
                Answer::refusal(self, 405, "OperationNotAllowed", &[])
            }
            _ => Answer::refusal(self, 404, "ResourceMissingAtURI", &[&request.path]),
        }
    }

    fn read_drive(&self, drive: &str) -> Value {
        let mut body = json!({
            "@odata.id": self.address(drive), "MediaTypes": ["CD", "DVD"],
            "Image": self.media.image, "Inserted": self.media.image.is_some(),
        });
        if !self.has(Quirk::MediaByPatch) {
            let action = |name: &str| json!({"target": self.address(&format!("{drive}/Actions/VirtualMedia.{name}"))});
            let mut insert = action("InsertMedia");
            if self.has(Quirk::InsertListsParameters) {
                insert["@Redfish.ActionInfo"] =
                    json!(self.address(&format!("{drive}/InsertActionInfo")));
            }
            let eject = action("EjectMedia");
            body["Actions"] =
                json!({"#VirtualMedia.InsertMedia": insert, "#VirtualMedia.EjectMedia": eject});
        }
        body
    }

    fn needs(&self) -> impl Iterator<Item = &'static str> {
        let needed = NEEDS.iter().filter(|(quirk, _)| self.has(*quirk));
        needed.flat_map(|(_, names)| names.iter().copied())
    }

    fn insert_info(&self) -> Value {
        let mut parameters = vec![json!({"Name": "Image", "Required": true})];
        parameters.extend(self.needs().map(|name| json!({"Name": name, "Required": true})));
        parameters.push(json!({"Name": "Inserted", "Required": false}));
        if !self.has(Quirk::InsertRefusesWriteProtected) {
            parameters.push(json!({"Name": "WriteProtected", "Required": false}));
        }
        json!({"Parameters": parameters})
    }

    fn insert(&mut self, request: &Received) -> Answer {
        const ACTION: &str = "VirtualMedia.InsertMedia";
        if self.is_read_only() {
            return Answer::refusal(self, 403, "InsufficientPrivilege", &[]);
        }
        if let Some(missing) = self.needs().find(|name| request.value(name).is_none()) {
            return Answer::refusal(self, 400, "ActionParameterMissing", &[ACTION, missing]);
        }
        let is_refused = self.has(Quirk::InsertRefusesWriteProtected);
        if is_refused && request.value("WriteProtected").is_some() {
            let arguments = [ACTION, "WriteProtected"];
            return Answer::refusal(self, 400, "ActionParameterUnknown", &arguments);
        }
        self.media.image = request.value("Image").and_then(Value::as_str).map(str::to_owned);
        self.version += 1;
        Answer::done()
    }

    fn eject(&mut self, request: &Received) -> Answer {
        if self.is_read_only() {
            return Answer::refusal(self, 403, "InsufficientPrivilege", &[]);
        }
        if self.has(Quirk::EjectWithoutBody) && request.body.is_some() {
            return Answer::refusal(self, 400, "UnrecognizedRequestBody", &[]);
        }
        self.media.image = None;
        self.version += 1;
        Answer::done()
    }

    fn patch_drive(&mut self, request: &Received) -> Answer {
        if self.is_read_only() {
            return Answer::refusal(self, 403, "InsufficientPrivilege", &[]);
        }
        if let Some(refusal) = self.condition(request) {
            return refusal;
        }
        self.media.image = request.value("Image").and_then(Value::as_str).map(str::to_owned);
        self.version += 1;
        Answer::done()
    }
}

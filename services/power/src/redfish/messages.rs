//! Messages in the answers of a BMC (DSP0266, "Error responses"; the Base registry of DSP8011):
//! texts for people, and the properties and parameters that a refused request lacks or must not
//! have.

use serde_json::Value;

use crate::forms::INSERT_PARAMETERS;

/// Maximum length of a text of a BMC in an error.
const MAX_TEXT_CHARS: usize = 300;
/// Maximum number of messages of an answer that are read.
const MAX_MESSAGES: usize = 32;
/// Maximum length of the name of a property or parameter.
const MAX_NAME_BYTES: usize = 64;
/// The list of messages.
const EXTENDED_INFO: &str = "@Message.ExtendedInfo";

/// Messages that name what is missing, and the position of its name in their arguments.
const MISSING: [(&str, usize); 4] = [
    ("PropertyMissing", 0),
    ("CreateFailedMissingReqProperties", 0),
    ("ActionParameterMissing", 1),
    ("QueryParameterMissing", 0),
];
/// Messages that name what must not be there, or not with this value, and the position of its name.
const UNWANTED: [(&str, usize); 14] = [
    ("PropertyUnknown", 0),
    ("PropertyNotWritable", 0),
    ("PropertyNotUpdated", 0),
    ("PropertyDeprecated", 0),
    ("PropertyValueConflict", 0),
    ("PropertyValueNotInList", 1),
    ("PropertyValueTypeError", 1),
    ("PropertyValueFormatError", 1),
    ("ActionParameterNotSupported", 0),
    ("ActionParameterUnknown", 1),
    ("ActionParameterValueConflict", 0),
    ("ActionParameterValueTypeError", 1),
    ("ActionParameterValueFormatError", 1),
    ("ActionParameterValueNotInList", 1),
];
/// Messages that say that the same request may succeed later.
const TEMPORARY: [&str; 8] = [
    "ResourceInUse",
    "ResourceInStandby",
    "ResourceNotReady",
    "ServiceInUnknownState",
    "ServiceShuttingDown",
    "ServiceTemporarilyUnavailable",
    "OperationTimeout",
    "SessionLimitExceeded",
];
/// Messages that say that the same request never succeeds, besides those that name what is wrong
/// with it.
const FINAL: [&str; 8] = [
    "ActionNotSupported",
    "ActionParameterDuplicate",
    "EmptyJSON",
    "InsufficientPrivilege",
    "MalformedJSON",
    "OperationNotAllowed",
    "ResourceMissingAtURI",
    "UnrecognizedRequestBody",
];
/// Messages of a refused user name or password.
const UNAUTHORIZED: [&str; 2] = ["UnauthorizedLoginAttempt", "ResourceAtUriUnauthorized"];
/// Messages of a refused or missing If-Match.
const PRECONDITION: [&str; 2] = ["PreconditionFailed", "PreconditionRequired"];
/// Words of texts that name what is missing, for services without ids of messages.
const MISSING_WORDS: [&str; 6] = ["missing", "require", "must be", "mandatory", "needs", "specify"];
/// Words of texts that name what must not be there.
const UNWANTED_WORDS: [&str; 8] = [
    "not supported",
    "unsupported",
    "unknown",
    "unrecognized",
    "unexpected",
    "not writable",
    "read-only",
    "not allowed",
];
/// Properties of a boot override. A text is searched for them and for the parameters of an insertion.
const BOOT_PROPERTIES: [&str; 3] =
    ["BootSourceOverrideEnabled", "BootSourceOverrideTarget", "BootSourceOverrideMode"];

/// Messages of an answer, and the names in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// Their texts; empty if there are none.
    pub text: String,
    /// Properties and parameters that the request lacks.
    pub missing: Vec<String>,
    /// Properties and parameters that the request must not have, or not with this value.
    pub unwanted: Vec<String>,
    /// True if the same request may succeed later.
    pub is_temporary: bool,
    /// True if the same request never succeeds.
    pub is_final: bool,
    /// True if the user name or the password is refused.
    pub is_unauthorized: bool,
    /// True if the condition of the request is refused, or missing.
    pub is_precondition: bool,
}

impl Messages {
    /// Reads the messages of an error, or of a success with remarks, in `body`.
    pub(super) fn of_answer(body: &Value) -> Self {
        let error = body.get("error").unwrap_or(&Value::Null);
        let own = [error.get(EXTENDED_INFO), body.get(EXTENDED_INFO)];
        // A message about one property may stand beside it.
        let of_properties = body.as_object().into_iter().flatten();
        let of_properties =
            of_properties.filter(|(key, _)| key.ends_with(EXTENDED_INFO) && *key != EXTENDED_INFO);
        let lists = own.into_iter().flatten().chain(of_properties.map(|(_, list)| list));
        let mut read = Self::read(lists);
        if read.text.is_empty()
            && let Some(general) = error.get("message").and_then(Value::as_str)
        {
            read.text = shorten(general);
            read.note_names(general);
        }
        read
    }

    /// Reads the list `name` of `object`, such as the messages of a task.
    pub(super) fn of_list(object: &Value, name: &str) -> Self {
        Self::read(object.get(name).into_iter())
    }

    fn read<'a>(lists: impl Iterator<Item = &'a Value>) -> Self {
        let (mut read, mut texts) = (Self::default(), Vec::new());
        let messages = lists.filter_map(Value::as_array).flatten().take(MAX_MESSAGES);
        for message in messages {
            let string = |name: &str| message.get(name).and_then(Value::as_str);
            texts.extend(string("Message"));
            let id = string("MessageId").unwrap_or_default();
            let is_named = read.note_id(id.rsplit('.').next().unwrap_or_default(), message);
            if let (false, Some(text)) = (is_named, string("Message")) {
                read.note_names(text);
            }
        }
        read.text = shorten(&texts.join(" "));
        read
    }

    /// Notes what the id of a message says. True if that names a property or parameter.
    fn note_id(&mut self, id: &str, message: &Value) -> bool {
        self.is_temporary |= TEMPORARY.contains(&id);
        self.is_final |= FINAL.contains(&id);
        self.is_unauthorized |= UNAUTHORIZED.contains(&id);
        self.is_precondition |= PRECONDITION.contains(&id);
        let position = |known: &[(&str, usize)]| {
            known.iter().find(|(name, _)| *name == id).map(|(_, position)| *position)
        };
        let (names, position) = match (position(&MISSING), position(&UNWANTED)) {
            (Some(position), _) => (&mut self.missing, position),
            (None, Some(position)) => (&mut self.unwanted, position),
            (None, None) => return false,
        };
        let argument = message.get("MessageArgs").and_then(|arguments| arguments.get(position));
        let related = message.get("RelatedProperties").and_then(|properties| properties.get(0));
        let name = argument.or(related).and_then(Value::as_str).map(last_segment);
        let is_name = |name: &&str| (1..=MAX_NAME_BYTES).contains(&name.len());
        let Some(name) = name.filter(is_name) else { return false };
        names.push(name.to_owned());
        true
    }

    /// Notes the known names in a text that says what is missing, or what must not be there.
    fn note_names(&mut self, text: &str) {
        let words = text.to_lowercase();
        let has = |list: &[&str]| list.iter().any(|word| words.contains(word));
        let names = match (has(&UNWANTED_WORDS), has(&MISSING_WORDS)) {
            (true, _) => &mut self.unwanted,
            (false, true) => &mut self.missing,
            (false, false) => return,
        };
        let parts: Vec<_> = text.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
        let known = INSERT_PARAMETERS.into_iter().chain(BOOT_PROPERTIES);
        names.extend(known.filter(|name| parts.contains(name)).map(str::to_owned));
    }

    /// True if the request itself is what is wrong.
    pub(super) fn names_a_mistake(&self) -> bool {
        self.is_final || !self.missing.is_empty() || !self.unwanted.is_empty()
    }
}

/// Returns the last name of a path such as `#/Boot/BootSourceOverrideMode`.
fn last_segment(path: &str) -> &str {
    path.rsplit(['/', '.', '#']).next().unwrap_or_default()
}

/// Returns the start of a text that is not too long for an error, in one line.
pub(super) fn shorten(text: &str) -> String {
    let text = text.trim().replace(['\n', '\r'], " ");
    text.chars().take(MAX_TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn error(messages: Value) -> Value {
        json!({"error": {"message": "general", "@Message.ExtendedInfo": messages}})
    }

    #[test]
    fn the_text_of_an_error_is_its_messages_else_its_general_message() {
        let body = error(
            json!([{"Message": "Power is locked."}, {"MessageId": "x"}, {"Message": "Try later."}]),
        );
        assert_eq!(Messages::of_answer(&body).text, "Power is locked. Try later.");
        let general = Messages::of_answer(&json!({"error": {"message": "general"}}));
        assert_eq!(general.text, "general");
        assert_eq!(Messages::of_answer(&json!({"error": "text"})), Messages::default());
    }

    #[test]
    fn a_message_names_what_is_missing_by_its_arguments_or_its_related_property() {
        let by_arguments = error(json!([{
            "MessageId": "Base.1.8.ActionParameterMissing", "Message": "x",
            "MessageArgs": ["VirtualMedia.InsertMedia", "MediaType"]
        }]));
        assert_eq!(Messages::of_answer(&by_arguments).missing, ["MediaType"]);
        let by_relation = error(json!([{
            "MessageId": "Base.1.0.PropertyMissing", "Message": "x",
            "RelatedProperties": ["#/Boot/BootSourceOverrideMode"]
        }]));
        assert_eq!(Messages::of_answer(&by_relation).missing, ["BootSourceOverrideMode"]);
        let by_path = error(json!([{
            "MessageId": "PropertyNotWritable", "MessageArgs": ["Boot/BootSourceOverrideMode"]
        }]));
        assert_eq!(Messages::of_answer(&by_path).unwanted, ["BootSourceOverrideMode"]);
        let beside = json!({"WriteProtected@Message.ExtendedInfo": [{
            "MessageId": "Base.1.8.PropertyNotWritable", "MessageArgs": ["WriteProtected"]
        }]});
        assert_eq!(Messages::of_answer(&beside).unwanted, ["WriteProtected"]);
    }

    #[test]
    fn a_text_without_an_id_names_what_is_missing() {
        let body =
            json!({"error": {"message": "The TransferProtocolType and MediaType are required."}});
        assert_eq!(Messages::of_answer(&body).missing, ["MediaType", "TransferProtocolType"]);
        let body = error(json!([{"Message": "Parameter WriteProtected is not supported."}]));
        assert_eq!(Messages::of_answer(&body).unwanted, ["WriteProtected"]);
        assert!(
            !Messages::of_answer(&json!({"error": {"message": "MediaType"}})).names_a_mistake()
        );
    }

    proptest! {
        #[test]
        fn any_json_can_be_read(text in "[\\[\\]{}:,\"@a-zA-Z0-9. ]{0,80}") {
            let body: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            Messages::of_answer(&body);
            Messages::of_answer(&error(body.clone()));
            Messages::of_answer(&error(json!([{"MessageId": "PropertyMissing", "MessageArgs": body}])));
        }
    }
}

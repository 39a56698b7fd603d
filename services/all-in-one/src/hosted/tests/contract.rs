//! Compares what a store does with records of a kind to the options of the noun's message.

use prost::Message as _;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind as FieldKind, MapKey, MessageDescriptor, Value,
};
use store::records::Kind;
use tinwright::object::Quota;
use tinwright::secret::Sealable as _;
use tinwright::{Stored as _, TenantName, json, options};

const SECRET: &str = "hunter2";
/// Messages inside of a noun's message that have secrets are at most so deep.
const MAX_DEPTH: usize = 6;

/// What the store does with records of a kind.
pub(super) struct Treatment {
    quota: Option<Quota>,
    is_visible: fn(&[u8], &TenantName) -> bool,
    is_sealed: fn(&[u8]) -> bool,
}

impl Treatment {
    pub(super) fn of<K: Kind>() -> Self {
        Self { quota: K::QUOTA, is_visible: is_visible::<K>, is_sealed: is_sealed::<K> }
    }

    /// Checks quota, isolation of tenants, and encryption of the noun `message`.
    pub(super) fn check(&self, message: &str, owner: &str) {
        let message = descriptor(message, owner);
        assert_eq!(self.quota.is_some(), has_quota(&message), "quota of {}", message.full_name());
        if let Some(tenant) = message.get_field_by_name("tenant") {
            let mut record = DynamicMessage::new(message.clone());
            record.set_field(&tenant, Value::String("other".into()));
            let acme = "acme".parse().unwrap();
            let is_visible = (self.is_visible)(&record.encode_to_vec(), &acme);
            assert!(!is_visible, "acme sees {} of another tenant", message.full_name());
        }
        if let Some(record) = with_secrets(&message, MAX_DEPTH) {
            let is_sealed = (self.is_sealed)(&record.encode_to_vec());
            assert!(is_sealed, "a secret of {} is not encrypted", message.full_name());
        }
    }
}

/// True if callers of `tenant` may see the record in `bytes`.
fn is_visible<K: Kind>(bytes: &[u8], tenant: &TenantName) -> bool {
    K::Record::decode(bytes).unwrap().is_visible_to(Some(tenant))
}

/// True if the part of the record in `bytes` that is stored in clear has no secret.
fn is_sealed<K: Kind>(bytes: &[u8]) -> bool {
    let mut record = K::Record::decode(bytes).unwrap();
    let sealed = record.take_secrets();
    let clear = record.encode_to_vec();
    !sealed.is_empty() && !clear.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
}

/// Returns the message of a noun of the service `owner`.
fn descriptor(message: &str, owner: &str) -> MessageDescriptor {
    let name = format!("tinwright.{owner}.v1.{message}");
    json::pool().unwrap().get_message_by_name(&name).unwrap_or_else(|| panic!("no {name}"))
}

fn has_quota(message: &MessageDescriptor) -> bool {
    let noun = message.parent_pool().get_extension_by_name("tinwright.common.v1.noun").unwrap();
    message.options().get_extension(&noun).as_message().unwrap().has_field_by_name("quota")
}

/// Returns a message with a value in each of its secret fields. None: neither it nor a
/// message in it, down to the `depth`, has one.
fn with_secrets(message: &MessageDescriptor, depth: usize) -> Option<DynamicMessage> {
    let mut filled = DynamicMessage::new(message.clone());
    for field in message.fields() {
        if let Some(value) = secret_value(&field, depth) {
            filled.set_field(&field, value);
        }
    }
    filled.fields().next()?;
    Some(filled)
}

/// Returns a value of `field` that has a secret.
fn secret_value(field: &FieldDescriptor, depth: usize) -> Option<Value> {
    let kind = field.kind();
    let kind = match kind.as_message().filter(|_| field.is_map()) {
        Some(entry) => entry.map_entry_value_field().kind(),
        None => kind,
    };
    let one = if let FieldKind::Message(inner) = &kind {
        Value::Message(with_secrets(inner, depth.checked_sub(1)?)?)
    } else if kind == FieldKind::String {
        Value::String(SECRET.into())
    } else if kind == FieldKind::Bytes {
        Value::Bytes(SECRET.into())
    } else {
        return None;
    };
    let is_secret = options::is_set(field, "secret") || matches!(one, Value::Message(_));
    is_secret.then(|| match one {
        one if field.is_map() => {
            Value::Map([(MapKey::String("key".into()), one)].into_iter().collect())
        }
        one if field.is_list() => Value::List(vec![one]),
        one => one,
    })
}

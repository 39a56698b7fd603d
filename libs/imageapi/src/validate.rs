//! The checks of the API description, with the codes and messages of the original. Only the first error is reported: properties
//! are checked in alphabetical order, nested objects in place, and read-only properties after all others.

use crate::error::ApiError;
use crate::fields::{Fields, Value};
use crate::schema::{
    IPV4_PATTERN, MAX_NAME_CHARS, NAME_PATTERN, Property, TextRule, Usage, ValueType,
    is_container_name, is_ipv4, is_monitor_with_port,
};

const WRONG_TYPE: u16 = 601;
const REQUIRED: u16 = 602;
const TOO_LONG: u16 = 603;
const TOO_SHORT: u16 = 604;
const PATTERN: u16 = 605;
const ENUM: u16 = 606;
const READ_ONLY: u16 = 619;

/// Where properties are, and which forms of a value are accepted there.
#[derive(Clone, Copy)]
pub(crate) struct Validator {
    /// `body` or `query`, for messages.
    pub(crate) place: &'static str,
    /// Accepts monitors with a port, and IPv6 addresses of monitors.
    pub(crate) rbd_monitor_ports: bool,
}

impl Validator {
    /// For query parameters.
    pub(crate) const QUERY: Self = Self { place: "query", rbd_monitor_ports: false };

    /// Checks an object, and then that it has no read-only property.
    pub(crate) fn check(self, fields: &Fields) -> Result<(), ApiError> {
        self.check_properties(fields)?;
        self.check_read_only(fields)
    }

    /// Returns the error of a value that `name` requires and does not have.
    pub(crate) fn required(self, name: &str) -> ApiError {
        ApiError::validation(REQUIRED, format!("{name} in {} is required", self.place))
    }

    /// Returns the error of a text that is no value of the type `expected`.
    pub(crate) fn wrong_type(self, name: &str, expected: &str, text: &str) -> ApiError {
        let message = format!("{name} in {} must be of type {expected}: {text:?}", self.place);
        ApiError::validation(WRONG_TYPE, message)
    }

    /// Checks one property.
    pub(crate) fn check_property(
        self,
        property: &Property,
        value: Option<&Value>,
    ) -> Result<(), ApiError> {
        let is_required = property.usage == Usage::Required;
        let Some(value) = value else {
            return if is_required { Err(self.required(property.name)) } else { Ok(()) };
        };
        match (property.value, value) {
            // The original does not tell an optional text that is empty from an unset one.
            (ValueType::Text(_), Value::Text(text)) if text.is_empty() && !is_required => Ok(()),
            (ValueType::Text(rule), Value::Text(text)) => {
                self.check_text(property.name, rule, text)
            }
            (ValueType::Texts(rule), Value::Texts(texts)) => {
                texts.iter().enumerate().try_for_each(|(index, text)| {
                    self.check_text(&format!("{}.{index}", property.name), rule, text)
                })
            }
            (_, value) => nested(value).try_for_each(|inner| self.check_properties(inner)),
        }
    }

    fn check_properties(self, fields: &Fields) -> Result<(), ApiError> {
        let mut properties = fields.object.properties.iter();
        properties.try_for_each(|property| self.check_property(property, fields.get(property)))
    }

    fn check_text(self, name: &str, rule: TextRule, text: &str) -> Result<(), ApiError> {
        let place = self.place;
        let pattern = |pattern: &str| {
            let message = format!("{name} in {place} should match '{pattern}'");
            Err(ApiError::validation(PATTERN, message))
        };
        match rule {
            TextRule::NotEmpty if text.is_empty() => {
                let message = format!("{name} in {place} should be at least 1 chars long");
                Err(ApiError::validation(TOO_SHORT, message))
            }
            TextRule::OneOf(texts) if !texts.contains(&text) => {
                let texts = texts.join(" ");
                let message = format!("{name} in {place} should be one of [{texts}]");
                Err(ApiError::validation(ENUM, message))
            }
            TextRule::ContainerName if text.chars().count() > MAX_NAME_CHARS => {
                let message =
                    format!("{name} in {place} should be at most {MAX_NAME_CHARS} chars long");
                Err(ApiError::validation(TOO_LONG, message))
            }
            TextRule::ContainerName if !is_container_name(text) => pattern(NAME_PATTERN),
            TextRule::MonitorAddress if self.rbd_monitor_ports && is_monitor_with_port(text) => {
                Ok(())
            }
            TextRule::Ipv4 | TextRule::MonitorAddress if !is_ipv4(text) => pattern(IPV4_PATTERN),
            TextRule::Any
            | TextRule::NotEmpty
            | TextRule::OneOf(_)
            | TextRule::ContainerName
            | TextRule::Ipv4
            | TextRule::MonitorAddress => Ok(()),
        }
    }

    fn check_read_only(self, fields: &Fields) -> Result<(), ApiError> {
        fields.object.properties.iter().try_for_each(|property| {
            let Some(value) = fields.get(property) else { return Ok(()) };
            // As in the original, zero is the same as unset.
            if property.usage == Usage::ReadOnly && !value.is_zero() {
                let message = format!("{} in {} is readOnly", property.name, self.place);
                return Err(ApiError::validation(READ_ONLY, message));
            }
            nested(value).try_for_each(|inner| self.check_read_only(inner))
        })
    }
}

/// Returns the objects in `value`. Elements that are `null` are left out; the conversion refuses them.
fn nested(value: &Value) -> impl Iterator<Item = &Fields> {
    let (one, many) = match value {
        Value::Object(fields) => (Some(fields), &[][..]),
        Value::Objects(objects) => (None, &objects[..]),
        Value::Boolean(_) | Value::Integer(_) | Value::Text(_) | Value::Texts(_) => (None, &[][..]),
    };
    one.into_iter().chain(many.iter().flatten())
}

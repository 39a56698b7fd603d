//! The objects of the ImageAPI as tables: one row a property. Reading, validation and writing follow the tables.

pub(crate) mod tables;

use std::net::{Ipv6Addr, SocketAddrV4, SocketAddrV6};

/// The longest name of a container, in characters.
pub(crate) const MAX_NAME_CHARS: usize = 128;
/// The pattern of a container's name. The original's digit class ends at 1; this one accepts more.
pub(crate) const NAME_PATTERN: &str = "^[A-Za-z0-9._-]*$";
/// The pattern of an IPv4 address without a port.
pub(crate) const IPV4_PATTERN: &str = r"^(?:[0-9]{1,3}\.){3}[0-9]{1,3}$";

/// An object, or the query parameters of an operation.
pub(crate) struct ObjectSchema {
    /// The name of the definition in the API description.
    pub(crate) name: &'static str,
    /// The properties in alphabetical order, which is the order of validation and of responses.
    pub(crate) properties: &'static [Property],
}

impl ObjectSchema {
    /// Returns the property with `name`, without regard to letter case.
    pub(crate) fn property(&self, name: &str) -> Option<&'static Property> {
        self.properties.iter().find(|property| property.name.eq_ignore_ascii_case(name))
    }
}

/// A property of an object, or a query parameter.
pub(crate) struct Property {
    pub(crate) name: &'static str,
    pub(crate) value: ValueType,
    pub(crate) usage: Usage,
}

/// The type of a property.
#[derive(Clone, Copy)]
pub(crate) enum ValueType {
    Boolean,
    /// A signed number of 64 bits.
    Integer,
    Text(TextRule),
    Texts(TextRule),
    Object(&'static ObjectSchema),
    Objects(&'static ObjectSchema),
}

impl ValueType {
    /// Returns the type in words, with an article.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Boolean => "a boolean",
            Self::Integer => "an integer of 64 bits",
            Self::Text(_) => "a string",
            Self::Texts(_) | Self::Objects(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// The texts that a property may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextRule {
    Any,
    NotEmpty,
    /// An enum.
    OneOf(&'static [&'static str]),
    /// [`NAME_PATTERN`], of at most [`MAX_NAME_CHARS`].
    ContainerName,
    /// [`IPV4_PATTERN`].
    Ipv4,
    /// [`IPV4_PATTERN`]; other forms of an address by a switch.
    MonitorAddress,
}

/// Where a property may be present, and when a response has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Present in a request, and in every response, there `null` if it is unset.
    Required,
    /// Present in every response, there `null` if it is empty.
    Nullable,
    /// Present in a response exactly if the message has it, although it may be false or 0.
    Defaulted(DefaultValue),
    /// Left out of responses when it is false, 0 or empty.
    Optional,
    /// As [`Usage::Optional`], and not accepted in requests.
    ReadOnly,
}

/// The default that the API description declares for a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultValue {
    Boolean(bool),
    Integer(i64),
    Text(&'static str),
}

/// True if `text` matches [`NAME_PATTERN`].
pub(crate) fn is_container_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// True if `text` matches [`IPV4_PATTERN`].
pub(crate) fn is_ipv4(text: &str) -> bool {
    let is_number =
        |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    text.split('.').count() == 4 && text.split('.').all(is_number)
}

/// True if `text` is an IPv4 address with a port, or an IPv6 address in brackets, with or without a port.
pub(crate) fn is_monitor_with_port(text: &str) -> bool {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok();
    text.parse::<SocketAddrV4>().is_ok()
        || text.parse::<SocketAddrV6>().is_ok()
        || bracketed().is_some()
}

//! Code for messages with fields marked `secret`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use protox::prost_reflect::{
    DescriptorPool, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor, Value,
};

use crate::names::{camel, oneof_path, type_path};

/// Secret fields of third-party proto files, which cannot carry our option.
const PUBLISHED_SECRETS: [&str; 2] = ["hegel.GetResponse.JSON", "hegel.SubscribeResponse.JSON"];

/// Generates `Debug` and `Secrets` for messages with fields marked `secret`.
pub(crate) struct Secrets {
    pub(crate) option: Option<ExtensionDescriptor>,
}

impl Secrets {
    /// True if `field` is marked as secret, or listed in [`PUBLISHED_SECRETS`].
    fn is_secret(&self, field: &FieldDescriptor) -> bool {
        let options = field.options();
        let marked = |option| matches!(*options.get_extension(option), Value::Bool(true));
        self.option.as_ref().is_some_and(marked) || PUBLISHED_SECRETS.contains(&field.full_name())
    }

    /// Returns the messages that have a secret field themselves.
    pub(crate) fn messages_with_secrets<'a>(
        &'a self,
        pool: &'a DescriptorPool,
    ) -> impl Iterator<Item = MessageDescriptor> + 'a {
        pool.all_messages().filter(|message| message.fields().any(|field| self.is_secret(&field)))
    }

    /// True if `message`, or a message nested in it, has a secret field.
    fn has_secrets(&self, message: &MessageDescriptor) -> bool {
        self.reaches_secret(message, &mut BTreeSet::new())
    }

    /// True if a secret field is found from `message` on. Messages can contain each other: those in
    /// `visited` are left out.
    fn reaches_secret(&self, message: &MessageDescriptor, visited: &mut BTreeSet<String>) -> bool {
        let ours = message.package_name() != "google.protobuf";
        if !ours || !visited.insert(message.full_name().to_owned()) {
            return false;
        }
        message.fields().any(|field| {
            let kind = field.kind();
            self.is_secret(&field)
                || matches!(kind, Kind::Message(inner) if self.reaches_secret(&inner, visited))
        })
    }

    /// True if `field` is a message that has secrets.
    fn has_nested(&self, field: &FieldDescriptor) -> bool {
        matches!(field.kind(), Kind::Message(inner) if self.has_secrets(&inner))
    }

    /// Returns the generated code: `Debug`, `Secrets` and `Sealable` of the messages in `pool`.
    pub(crate) fn code(&self, pool: &DescriptorPool) -> Result<String, std::fmt::Error> {
        let mut code = String::new();
        for message in self.messages_with_secrets(pool) {
            self.debug(&message, &mut code)?;
        }
        for message in pool.all_messages() {
            if !message.is_map_entry() && self.has_secrets(&message) {
                self.clear(&message, &mut code)?;
            }
            if !message.is_map_entry() && message.package_name().starts_with("tinwright.") {
                self.seal(&message, &mut code)?;
            }
        }
        Ok(code)
    }

    /// Writes an implementation of `Debug` without the secret fields.
    fn debug(&self, message: &MessageDescriptor, code: &mut String) -> std::fmt::Result {
        writeln!(code, "impl std::fmt::Debug for {} {{", type_path(message))?;
        writeln!(code, "fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{")?;
        write!(code, "f.debug_struct({:?})", message.name())?;
        let plain =
            |field: &FieldDescriptor| field.containing_oneof().is_none() && !self.is_secret(field);
        for field in message.fields().filter(plain) {
            // The getter of an enum field returns the enum value, whose `Debug` is its name.
            let getter = matches!(field.kind(), Kind::Enum(_)) && !field.is_list();
            let call = if getter { "()" } else { "" };
            write!(code, ".field({0:?}, &self.{0}{call})", field.name())?;
        }
        for oneof in message.oneofs() {
            write!(code, ".field({0:?}, &self.{0})", oneof.name())?;
        }
        writeln!(code, ".finish_non_exhaustive() }} }}")
    }

    /// Writes an implementation of `Secrets`, which clears the secret fields of a message and of
    /// nested messages.
    fn clear(&self, message: &MessageDescriptor, code: &mut String) -> std::fmt::Result {
        writeln!(code, "impl crate::secret::Secrets for {} {{", type_path(message))?;
        writeln!(code, "fn clear_secrets(&mut self) {{")?;
        for field in message.fields() {
            let name = field.name().to_lowercase();
            match field.containing_oneof() {
                _ if self.is_secret(&field) => {
                    writeln!(code, "self.{name} = Default::default();")?;
                }
                _ if !self.has_nested(&field) => {}
                Some(oneof) => {
                    let case = format!("{}::{}", oneof_path(message, &oneof), camel(&name));
                    let oneof = oneof.name();
                    writeln!(
                        code,
                        "if let Some({case}(inner)) = &mut self.{oneof} {{ inner.clear_secrets(); }}"
                    )?;
                }
                None => {
                    let clear = "crate::secret::Secrets::clear_secrets";
                    writeln!(code, "self.{name}.iter_mut().for_each({clear});")?;
                }
            }
        }
        writeln!(code, "}} }}")
    }

    /// Writes an implementation of `Sealable`, which takes the secret fields out of a message and
    /// of nested messages, and puts them back.
    fn seal(&self, message: &MessageDescriptor, code: &mut String) -> std::fmt::Result {
        let name = type_path(message);
        if !self.has_secrets(message) {
            return writeln!(code, "impl crate::secret::Sealable for {name} {{}}");
        }
        let (mut own, mut take, mut put) = (String::new(), String::new(), String::new());
        for field in message.fields() {
            let (name, number) = (field.name().to_lowercase(), field.number());
            if self.is_secret(&field) {
                write!(own, "{name}: std::mem::take(&mut self.{name}), ")?;
            } else if self.has_nested(&field) {
                let nested = match field.containing_oneof() {
                    Some(oneof) => {
                        let case = format!("{}::{}", oneof_path(message, &oneof), camel(&name));
                        format!(
                            "if let (index, Some({case}(inner))) = (0, &mut self.{})",
                            oneof.name()
                        )
                    }
                    None => format!("for (index, inner) in self.{name}.iter_mut().enumerate()"),
                };
                writeln!(take, "{nested} {{ part.nest({number}, index, inner.take_secrets()); }}")?;
                writeln!(put, "{nested} {{ part.put_nested({number}, index, inner)?; }}")?;
            }
        }
        writeln!(code, "impl crate::secret::Sealable for {name} {{")?;
        writeln!(code, "const HAS_SECRETS: bool = true;")?;
        writeln!(code, "fn take_secrets(&mut self) -> crate::secret::SecretPart {{")?;
        match own.is_empty() {
            true => writeln!(code, "let mut part = crate::secret::SecretPart::default();")?,
            false => {
                writeln!(code, "let own = Self {{ {own} ..Default::default() }};")?;
                let mutable = if take.is_empty() { "" } else { "mut " };
                writeln!(code, "let {mutable}part = crate::secret::SecretPart::of(&own);")?;
            }
        }
        writeln!(code, "{take} part }}")?;
        writeln!(code, "fn put_secrets(&mut self, part: &crate::secret::SecretPart)")?;
        writeln!(
            code,
            "-> Result<(), prost::DecodeError> {{ part.put_own(self)?; {put} Ok(()) }} }}"
        )
    }
}

//! Our options of messages, states and calls (`proto/tinwright/common/v1/options.proto`).

use protox::prost_reflect::{
    DynamicMessage, FieldDescriptor, FileDescriptor, Kind, ReflectMessage as _, Value,
};

use crate::names::variant;

/// True if `field` has the option `name`.
pub(crate) fn is_marked(field: &FieldDescriptor, name: &str) -> bool {
    let extension = format!("tinwright.common.v1.{name}");
    let extension = field.parent_message().parent_pool().get_extension_by_name(&extension);
    extension.is_some_and(|it| matches!(*field.options().get_extension(&it), Value::Bool(true)))
}

/// An option of a message, a state or a call. It has settings.
pub(crate) struct Options {
    settings: DynamicMessage,
    file: FileDescriptor,
    /// The element and the option, for errors.
    place: String,
}

impl Options {
    /// Returns the option `name` among the `options` of `element`, which `file` declares. None: it
    /// is not set.
    pub(crate) fn find(
        file: &FileDescriptor,
        element: &str,
        options: &DynamicMessage,
        name: &str,
    ) -> Option<Self> {
        let extension = format!("tinwright.common.v1.{name}");
        let extension = file.parent_pool().get_extension_by_name(&extension)?;
        if !options.has_extension(&extension) {
            return None;
        }
        let settings = options.get_extension(&extension).as_message()?.clone();
        Some(Self { settings, file: file.clone(), place: format!("{element}: option {name}") })
    }

    /// Returns the option as [`find`](Self::find) does. It is an error if it is not set.
    pub(crate) fn require(
        file: &FileDescriptor,
        element: &str,
        options: &DynamicMessage,
        name: &str,
    ) -> Result<Self, String> {
        Self::find(file, element, options, name)
            .ok_or_else(|| format!("{}: {element}: option {name}: missing", file.name()))
    }

    /// True if the setting `name` is true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.value(name).as_bool() == Some(true)
    }

    /// Returns the setting `name`; 0 if it is not set.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let value = self.value(name);
        value.as_u64().or(value.as_u32().map(u64::from)).unwrap_or_default()
    }

    /// Returns the setting `name`, which has settings of its own. None: it is not set.
    pub(crate) fn group(&self, name: &str) -> Option<Self> {
        if !self.settings.has_field_by_name(name) {
            return None;
        }
        let settings = self.value(name).as_message()?.clone();
        let place = format!("{}: {name}", self.place);
        Some(Self { settings, file: self.file.clone(), place })
    }

    /// Returns the setting `name`; empty if it is not set.
    pub(crate) fn text(&self, name: &str) -> String {
        self.value(name).as_str().unwrap_or_default().to_owned()
    }

    /// Returns the texts of the setting `name`.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let value = self.value(name);
        let texts = value.as_list().into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    /// Returns the setting `name`, which is a value of an enum, as Rust spells it. It is an error
    /// if it is not set.
    pub(crate) fn choice(&self, name: &str) -> Result<String, String> {
        let field = self.settings.descriptor().get_field_by_name(name);
        let Some(Kind::Enum(choices)) = field.map(|field| field.kind()) else {
            return Err(self.error(&format!("{name}: not an enum")));
        };
        let number = self.value(name).as_enum_number().filter(|number| *number != 0);
        match number.and_then(|number| choices.get_value(number)) {
            Some(value) => Ok(variant(&choices, &value)),
            None => Err(self.error(&format!("{name}: missing"))),
        }
    }

    /// Fails if `service`, from the setting `name`, is not a package with a gRPC service.
    pub(crate) fn require_package(&self, name: &str, service: &str) -> Result<(), String> {
        let package = format!("tinwright.{service}.v1");
        match self.file.parent_pool().services().any(|it| it.package_name() == package) {
            true => Ok(()),
            false => Err(self.error(&format!("{name}: no package with a service: {package:?}"))),
        }
    }

    /// Returns an error of this option, with its place.
    pub(crate) fn error(&self, problem: &str) -> String {
        format!("{}: {}: {problem}", self.file.name(), self.place)
    }

    fn value(&self, name: &str) -> Value {
        self.settings.get_field_by_name(name).map_or(Value::Bool(false), |it| it.into_owned())
    }
}

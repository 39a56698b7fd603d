//! An object as the values of its properties: what was read from JSON, or is written to it.

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};

use crate::schema::{ObjectSchema, Property, Usage};

/// The value of a property.
pub(crate) enum Value {
    Boolean(bool),
    Integer(i64),
    Text(String),
    /// Elements that are `null` are empty texts.
    Texts(Vec<String>),
    Object(Fields),
    /// None for elements that are `null`.
    Objects(Vec<Option<Fields>>),
}

impl Value {
    /// True if the value is false, 0 or empty.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Boolean(value) => !value,
            Self::Integer(value) => *value == 0,
            Self::Text(text) => text.is_empty(),
            Self::Texts(texts) => texts.is_empty(),
            Self::Object(_) => false,
            Self::Objects(objects) => objects.is_empty(),
        }
    }
}

/// The properties of an object that have a value. Unset and `null` are the same.
pub(crate) struct Fields {
    /// The table of the object.
    pub(crate) object: &'static ObjectSchema,
    /// No table has many properties, so a search is as fast as an index, and an empty object has no memory of its own.
    values: Vec<(&'static Property, Value)>,
}

impl Fields {
    /// An object without any property.
    pub(crate) fn new(object: &'static ObjectSchema) -> Self {
        Self { object, values: Vec::new() }
    }

    /// Sets or removes a property.
    pub(crate) fn set(&mut self, property: &'static Property, value: Option<Value>) {
        self.values.retain(|(other, _)| !std::ptr::eq(*other, property));
        self.values.extend(value.map(|value| (property, value)));
    }

    /// Sets the property with `name`, unless `value` is none.
    pub(crate) fn with(mut self, name: &str, value: impl IntoValue) -> Self {
        let property = self.object.property(name);
        debug_assert!(property.is_some(), "{} has no property {name}", self.object.name);
        self.values.extend(property.zip(value.into_value()));
        self
    }

    /// True if no property has a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Removes all properties that are neither objects nor arrays of objects.
    pub(crate) fn retain_objects(&mut self) {
        self.values.retain(|(_, value)| matches!(value, Value::Object(_) | Value::Objects(_)));
    }

    /// Removes the text property with `name` from this object and from all objects in it.
    pub(crate) fn remove_texts(&mut self, name: &str) {
        let is_text = |value: &Value| matches!(value, Value::Text(_));
        self.values.retain(|(property, value)| property.name != name || !is_text(value));
        for (_, value) in &mut self.values {
            match value {
                Value::Object(inner) => inner.remove_texts(name),
                Value::Objects(inner) => {
                    inner.iter_mut().flatten().for_each(|inner| inner.remove_texts(name));
                }
                Value::Boolean(_) | Value::Integer(_) | Value::Text(_) | Value::Texts(_) => {}
            }
        }
    }

    /// Adds the properties of `other`, an object of the same table, that this object does not have.
    /// In objects that both have, the same is done.
    pub(crate) fn fill(&mut self, other: Self) {
        for (property, value) in other.values {
            match (self.get_mut(property), value) {
                (None, value) => self.values.push((property, value)),
                (Some(Value::Object(own)), Value::Object(inner)) => own.fill(inner),
                (Some(_), _) => {}
            }
        }
    }

    fn get_mut(&mut self, property: &Property) -> Option<&mut Value> {
        let mut values = self.values.iter_mut();
        values.find(|(other, _)| std::ptr::eq(*other, property)).map(|(_, value)| value)
    }

    /// Returns the value of `property`.
    pub(crate) fn get(&self, property: &Property) -> Option<&Value> {
        self.values.iter().find(|(other, _)| std::ptr::eq(*other, property)).map(|(_, value)| value)
    }

    /// Removes and returns the value of the property with `name`.
    fn take(&mut self, name: &str) -> Option<Value> {
        debug_assert!(self.object.property(name).is_some(), "{} in {}", name, self.object.name);
        let index = self.values.iter().position(|(property, _)| property.name == name)?;
        Some(self.values.swap_remove(index).1)
    }

    /// Takes a boolean property.
    pub(crate) fn boolean(&mut self, name: &str) -> Option<bool> {
        if let Value::Boolean(value) = self.take(name)? { Some(value) } else { None }
    }

    /// Takes an integer property.
    pub(crate) fn integer(&mut self, name: &str) -> Option<i64> {
        if let Value::Integer(value) = self.take(name)? { Some(value) } else { None }
    }

    /// Takes a text property.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        if let Value::Text(text) = self.take(name)? { Some(text) } else { None }
    }

    /// Takes an array of texts, which is empty if it is unset.
    pub(crate) fn texts(&mut self, name: &str) -> Vec<String> {
        if let Some(Value::Texts(texts)) = self.take(name) { texts } else { Vec::new() }
    }

    /// Takes an object property.
    pub(crate) fn object(&mut self, name: &str) -> Option<Fields> {
        if let Value::Object(fields) = self.take(name)? { Some(fields) } else { None }
    }

    /// Takes an array of objects, which is empty if it is unset.
    pub(crate) fn objects(&mut self, name: &str) -> Vec<Option<Fields>> {
        if let Some(Value::Objects(objects)) = self.take(name) { objects } else { Vec::new() }
    }
}

/// Writes the properties in the order of the table. Which of them are written is said at [`Usage`].
impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for property in self.object.properties {
            let value = self.get(property);
            let is_written = match property.usage {
                Usage::Required | Usage::Nullable => true,
                Usage::Defaulted(_) => value.is_some(),
                Usage::Optional | Usage::ReadOnly => value.is_some_and(|value| !value.is_zero()),
            };
            if is_written {
                map.serialize_entry(property.name, &value)?;
            }
        }
        map.end()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Boolean(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Texts(texts) => serialize_array(texts, serializer),
            Self::Object(fields) => fields.serialize(serializer),
            Self::Objects(objects) => serialize_array(objects, serializer),
        }
    }
}

/// Writes an array; an empty one is `null`, because messages do not tell it from an unset one.
fn serialize_array<S: Serializer>(
    elements: &[impl Serialize],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if elements.is_empty() {
        return serializer.serialize_none();
    }
    let mut array = serializer.serialize_seq(Some(elements.len()))?;
    elements.iter().try_for_each(|element| array.serialize_element(element))?;
    array.end()
}

/// A field of a message that becomes the value of a property.
pub(crate) trait IntoValue {
    /// Returns the value, or none if the field is unset.
    fn into_value(self) -> Option<Value>;
}

macro_rules! into_value {
    ($($type:ty: $value:expr,)*) => {
        $(impl IntoValue for $type {
            fn into_value(self) -> Option<Value> {
                Some(($value)(self))
            }
        })*
    };
}

into_value! {
    bool: Value::Boolean,
    i64: Value::Integer,
    &String: |text: &String| Value::Text(text.clone()),
    String: Value::Text,
    Vec<String>: Value::Texts,
    Fields: Value::Object,
    Vec<Fields>: |objects: Vec<Fields>| Value::Objects(objects.into_iter().map(Some).collect()),
}

impl<T: IntoValue> IntoValue for Option<T> {
    fn into_value(self) -> Option<Value> {
        self.and_then(T::into_value)
    }
}

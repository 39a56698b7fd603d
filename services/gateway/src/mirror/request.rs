//! The message of a request of HTTP.
//!
//! Path, query and body are put together into the JSON of the call's request message, which is then read as any message. A wrong part is
//! named by its field.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use percent_encoding::percent_decode_str;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};
use tinwright::options::is_set;
use tonic::Status;

use super::form;
use super::json::JsonObjects;
use crate::errors::Problem;
use crate::routes::{CallRoute, InputSource, Parameter, Routes};

/// The header with the `request_id` of a call.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REQUEST_ID: &str = "request_id";
const REVISION: &str = "revision";
const UPDATE_MASK: &str = "update_mask";

/// Returns the parameters of a query, in order.
pub(super) fn query(text: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

/// The parts of a request.
pub(super) struct HttpRequest<'a> {
    /// The second segment of the path, percent-encoded.
    pub(super) key: Option<&'a str>,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Bytes,
}

type Object = Map<String, Value>;

impl HttpRequest<'_> {
    /// Returns the message for the call of `route`.
    pub(super) fn message(
        &self,
        route: &CallRoute,
        routes: &Routes,
        objects: &JsonObjects,
    ) -> Result<DynamicMessage, Problem> {
        let mut request = Object::new();
        self.add_query(route, &mut request)?;
        self.add_body(route, routes, &mut request)?;
        self.add_path(route, &mut request)?;
        self.add_headers(route, &mut request)?;
        let mut request = Value::Object(request);
        let input = route.call.input();
        // Errors name a field of the body, which is the object itself.
        let object = body_field(route).map(FieldDescriptor::name);
        check_names(&input, &mut request, String::new(), object)?;
        objects.encode(&input, &mut request);
        let mut track = serde_path_to_error::Track::new();
        let json = serde_path_to_error::Deserializer::new(request, &mut track);
        let message = DynamicMessage::deserialize(input.clone(), json);
        message.map_err(|error| {
            let path = track.path();
            let reason = form::reason(&input, &path, &error.to_string());
            Problem::field(&within(&path.to_string(), object), reason)
        })
    }

    fn add_query(&self, route: &CallRoute, request: &mut Object) -> Result<(), Problem> {
        if self.query.is_empty() {
            return Ok(());
        }
        let parameters = route.parameters();
        for (name, value) in &self.query {
            let (base, entry) = match name.strip_suffix(']').and_then(|it| it.split_once('[')) {
                Some((base, entry)) => (base, Some(entry)),
                None => (name.as_str(), None),
            };
            let parameter = parameters.iter().find(|it| it.name == base);
            let Some(Parameter { path, .. }) = parameter else {
                return Err(Problem::field(name, "is not a parameter of this request"));
            };
            add_parameter(request, path, entry, value)
                .map_err(|reason| Problem::field(name, reason))?;
        }
        let chosen: Vec<_> =
            route.selectors.iter().filter(|key| request.contains_key(*key)).collect();
        match chosen.as_slice() {
            [_, second, ..] => Err(Problem::field(second, "is given besides another key")),
            _ => Ok(()),
        }
    }

    fn add_body(
        &self,
        route: &CallRoute,
        routes: &Routes,
        request: &mut Object,
    ) -> Result<(), Problem> {
        let body = self.json()?;
        if let Some(field) = body_field(route) {
            let Some(Value::Object(object)) = body else {
                return Err(Problem::field(field.name(), "is missing: the body is this object"));
            };
            if route.method == Method::PATCH {
                add_mask(route, routes, field, &object, request)?;
            }
            request.insert(field.name().to_owned(), Value::Object(object));
            return Ok(());
        }
        let members = match body {
            None => return Ok(()),
            Some(Value::Object(members)) => members,
            Some(_) => return Err(Problem::field("", "the body is not an object")),
        };
        for (name, value) in members {
            let mut fields = route.fields_from(InputSource::Member);
            let field = fields.find(|field| field.name() == name || field.json_name() == name);
            let Some(field) = field else {
                return Err(Problem::field(&name, "is not a field of this request"));
            };
            if request.insert(field.name().to_owned(), value).is_some() {
                return Err(Problem::field(&name, "is given twice"));
            }
        }
        Ok(())
    }

    /// Returns the body; none if it is empty.
    fn json(&self) -> Result<Option<Value>, Problem> {
        let kind = self.headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or(""));
        let essence = kind.map(|kind| kind.split(';').next().unwrap_or("").trim());
        let is_json = essence.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
        if self.body.is_empty() {
            return Ok(None);
        }
        if !is_json {
            let status = Status::invalid_argument("Content-Type: application/json is required");
            return Err(Problem::with_http(StatusCode::UNSUPPORTED_MEDIA_TYPE, status));
        }
        let json = serde_json::from_slice(&self.body);
        json.map(Some).map_err(|error| Problem::field("body", format!("is not JSON: {error}")))
    }

    fn add_path(&self, route: &CallRoute, request: &mut Object) -> Result<(), Problem> {
        let (Some(key), Some(name)) = (self.key, &route.key) else { return Ok(()) };
        let decoded = percent_decode_str(key).decode_utf8();
        let decoded = decoded.map_err(|_| Problem::field(name, "is not UTF-8"))?;
        for input in &route.inputs {
            match &input.source {
                InputSource::Path => {
                    request.insert(input.field.name().to_owned(), (*decoded).into());
                }
                InputSource::Body { key: Some(key) } => {
                    let object = request.get_mut(input.field.name()).and_then(Value::as_object_mut);
                    if let Some(object) = object {
                        set_equal(object, key, (*decoded).into(), "the path")?;
                    }
                }
                InputSource::Body { key: None } | InputSource::Query | InputSource::Member => {}
            }
        }
        Ok(())
    }

    fn add_headers(&self, route: &CallRoute, request: &mut Object) -> Result<(), Problem> {
        if route.method == Method::GET {
            return Ok(());
        }
        let input = route.call.input();
        if let Some(key) = self.header(&IDEMPOTENCY_KEY)? {
            // Ignored, it would promise what does not hold.
            let field = input.get_field_by_name(REQUEST_ID);
            let field = field.ok_or_else(|| {
                Problem::field(
                    "Idempotency-Key",
                    "is for calls with a request_id: see its description",
                )
            })?;
            set_equal(request, &field, key.into(), "Idempotency-Key")?;
        }
        let Some(tag) = self.header(&header::IF_MATCH)?.filter(|tag| *tag != "*") else {
            return Ok(());
        };
        let revision = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
        let revision = revision.filter(|it| it.parse::<i64>().is_ok());
        let wrong = |reason| Problem::field("If-Match", reason);
        let revision =
            revision.ok_or_else(|| wrong("is not a revision in quotation marks, or *"))?;
        if let Some(field) = input.get_field_by_name(REVISION) {
            return set_equal(request, &field, revision.into(), "If-Match");
        }
        let of_object = body_field(route).and_then(|object| {
            let field = object.kind().as_message()?.get_field_by_name(REVISION)?;
            Some((request.get_mut(object.name())?.as_object_mut()?, field))
        });
        let (object, field) = of_object.ok_or_else(|| wrong("is for calls with a revision"))?;
        set_equal(object, &field, revision.into(), "If-Match")
    }

    fn header(&self, name: &HeaderName) -> Result<Option<&str>, Problem> {
        let value = self.headers.get(name).map(|value| value.to_str());
        value.transpose().map_err(|_| Problem::field(name.as_str(), "is not text"))
    }
}

/// Returns the field that is the body.
fn body_field(route: &CallRoute) -> Option<&FieldDescriptor> {
    let input = route.inputs.iter().find(|input| matches!(input.source, InputSource::Body { .. }));
    input.map(|input| &input.field)
}

/// Sets a field that the caller may have set to the same value.
fn set_equal(
    object: &mut Object,
    field: &FieldDescriptor,
    value: Value,
    from: &str,
) -> Result<(), Problem> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for name in [field.name(), field.json_name()] {
        let other = object.get(name).filter(|other| text(other) != text(&value));
        let is_set = |other: &Value| !other.is_null() && !matches!(&*text(other), "" | "0");
        if other.is_some_and(is_set) {
            return Err(Problem::field(field.name(), format!("differs from {from}")));
        }
    }
    object.remove(field.json_name());
    object.insert(field.name().to_owned(), value);
    Ok(())
}

/// Sets the field at `path` in the JSON of a message to the text `value`; in a map the one of `entry`.
fn add_parameter(
    message: &mut Object,
    path: &[FieldDescriptor],
    entry: Option<&str>,
    value: &str,
) -> Result<(), &'static str> {
    let Some((field, inner)) = path.split_first() else { return Err("names no field") };
    let name = field.name().to_owned();
    if !inner.is_empty() {
        let below = message.entry(name).or_insert_with(|| Object::new().into());
        let below = below.as_object_mut().ok_or("is given twice")?;
        return add_parameter(below, inner, entry, value);
    }
    let json = text_value(field, value)?;
    match (field.is_map(), entry) {
        (true, Some(entry)) => {
            let entries = message.entry(name).or_insert_with(|| Object::new().into());
            let entries = entries.as_object_mut().ok_or("is given twice")?;
            match entries.insert(entry.to_owned(), json) {
                None => Ok(()),
                Some(_) => Err("is given twice"),
            }
        }
        (true, None) => Err("needs a key in brackets"),
        (false, Some(_)) => Err("has no keys"),
        (false, None) if field.is_list() => {
            let items = message.entry(name).or_insert_with(|| Vec::<Value>::new().into());
            items.as_array_mut().ok_or("is given twice")?.push(json);
            Ok(())
        }
        (false, None) => match message.insert(name, json) {
            None => Ok(()),
            Some(_) => Err("is given twice"),
        },
    }
}

/// Returns the JSON of a parameter. Protobuf's JSON reads all but truth values as texts.
fn text_value(field: &FieldDescriptor, value: &str) -> Result<Value, &'static str> {
    let is_mask = field.kind().as_message().is_some_and(is_mask);
    match (field.kind(), value) {
        (Kind::Bool, "true") => Ok(true.into()),
        (Kind::Bool, "false") => Ok(false.into()),
        (Kind::Bool, _) => Err("is neither true nor false"),
        _ if is_mask => Ok(camel_paths(value).into()),
        _ => Ok(value.into()),
    }
}

fn is_mask(message: &MessageDescriptor) -> bool {
    message.full_name() == "google.protobuf.FieldMask"
}

/// Returns the paths of a mask as protobuf's JSON spells them: `boot_url,name` is `bootUrl,name`.
fn camel_paths(paths: &str) -> String {
    let mut camel = String::with_capacity(paths.len());
    let mut is_next_upper = false;
    for letter in paths.chars().filter(|letter| *letter != ' ') {
        match letter {
            '_' => is_next_upper = true,
            letter if std::mem::take(&mut is_next_upper) => camel.extend(letter.to_uppercase()),
            letter => camel.push(letter),
        }
    }
    camel
}

/// Without a mask, an update is of the fields in the body that can be updated.
fn add_mask(
    route: &CallRoute,
    routes: &Routes,
    field: &FieldDescriptor,
    object: &Object,
    request: &mut Object,
) -> Result<(), Problem> {
    let has_mask = route.call.input().get_field_by_name(UPDATE_MASK).is_some();
    if !has_mask || request.contains_key(UPDATE_MASK) {
        return Ok(());
    }
    let Kind::Message(message) = field.kind() else { return Ok(()) };
    let by_key = |key: &String| form::named(&message, key);
    let is_updatable =
        |field: &FieldDescriptor| !is_set(field, "output_only") && !is_set(field, "immutable");
    let fields = object.keys().filter_map(by_key).filter(is_updatable);
    let paths: Vec<_> = fields.map(|field| camel_paths(field.name())).collect();
    if paths.is_empty() {
        // An empty mask would replace all fields.
        let mut fixed = object.keys().filter_map(by_key);
        let fixed = fixed
            .find(|field| field.name() != REVISION && route.key.as_deref() != Some(field.name()));
        return Err(match fixed {
            Some(field) => fixed_field(route, routes, &field),
            None => Problem::field(UPDATE_MASK, "is missing, and the body has no field to update"),
        });
    }
    request.insert(UPDATE_MASK.to_owned(), paths.join(",").into());
    Ok(())
}

/// The problem of an update of a `field` that no update changes. It names the call that sets the field, if there is one.
fn fixed_field(route: &CallRoute, routes: &Routes, field: &FieldDescriptor) -> Problem {
    let verb = camel_paths(&format!("set_{}", field.name()));
    let setter = routes.iter().find(|other| {
        other.collection == route.collection
            && other.key.is_some()
            && other.verb.as_deref() == Some(verb.as_str())
    });
    let hint = setter.map(|it| format!(": use {} {}", it.method, it.template()));
    let text = format!("cannot be changed by an update{}", hint.unwrap_or_default());
    Problem::field(field.name(), text)
}

/// Fails if the JSON of a `message` has a key that is not a field. Its path within the request is `path`; the object in the body is the
/// field `object`. Short words of enums are replaced by their names.
fn check_names(
    message: &MessageDescriptor,
    json: &mut Value,
    path: String,
    object: Option<&str>,
) -> Result<(), Problem> {
    if message.package_name() == "google.protobuf" {
        return Ok(());
    }
    let Value::Object(members) = json else { return Ok(()) };
    for (name, value) in members.iter_mut() {
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let Some(field) = form::named(message, name) else {
            let text = format!("is not a field of {}", message.name());
            return Err(Problem::field(&within(&below, object), text));
        };
        if let Kind::Enum(words) = field.kind() {
            form::expand(&words, value);
        }
        let Kind::Message(inner) = field.kind() else { continue };
        if let Value::Array(items) = value {
            for (n, item) in items.iter_mut().enumerate() {
                check_names(&inner, item, format!("{below}[{n}]"), object)?;
            }
        } else if let (true, Value::Object(entries)) = (field.is_map(), &mut *value) {
            let Kind::Message(inner) = inner.map_entry_value_field().kind() else { continue };
            for (key, entry) in entries.iter_mut() {
                check_names(&inner, entry, format!("{below}[{key}]"), object)?;
            }
        } else {
            check_names(&inner, value, below, object)?;
        }
    }
    Ok(())
}

/// Returns `path` from the object in the body on, as services spell it.
fn within(path: &str, object: Option<&str>) -> String {
    let inner = object.and_then(|object| path.strip_prefix(object)?.strip_prefix('.'));
    inner.unwrap_or(path).to_owned()
}

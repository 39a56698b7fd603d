//! The routes of the REST mirror, derived from the descriptors of the contract.
//!
//! ```text
//! GET    /api/v1/<plural>                 List<Plural>     as JSON
//! GET    /api/v1/<plural>                 Watch<Plural>    with Accept: text/event-stream
//! GET    /api/v1/<plural>?<key>=…         Get<Noun>        by another key than that of the path
//! POST   /api/v1/<plural>                 Create<Noun>     the object is the body
//! GET    /api/v1/<plural>/{id}            Get<Noun>        as JSON
//! GET    /api/v1/<plural>/{id}            Watch<Plural>    of one object, with Accept: text/event-stream
//! PATCH  /api/v1/<plural>/{id}            Update<Noun>     the object is the body
//! DELETE /api/v1/<plural>/{id}            Delete<Noun>
//! POST   /api/v1/<plural>[/{id}]:<verb>   every other call (AIP-136)
//! ```
//!
//! No call is named here, so a new one has its route, or is left out for a [`Reason`] by its
//! callers, once it is in the contract. A response is the call's whole response message.
//! `docs/reference/rest.md` has the table; a test compares it.

mod names;
mod nouns;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use http::Method;
use prost_reflect::{
    DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor, ServiceDescriptor,
};
use tinwright::options::is_set;

use self::names::{kebab, lower_camel, snake, words};
use self::nouns::{Noun, Nouns};

/// The path that all routes begin with.
pub const PREFIX: &str = "/api/v1/";

/// The routes, and the calls without one.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    by_collection: BTreeMap<String, Vec<CallRoute>>,
    left_out: Vec<(MethodDescriptor, Reason)>,
}

/// A call of the contract as a request of HTTP.
#[derive(Clone, Debug)]
pub struct CallRoute {
    /// The method.
    pub method: Method,
    /// The first segment of the path after [`PREFIX`], such as `power-jobs`.
    pub collection: String,
    /// The name of the path's second segment, such as `id`, if it has one.
    pub key: Option<String>,
    /// The word after the colon at the end of the path, such as `cancel`.
    pub verb: Option<String>,
    /// The query parameters of which exactly one selects this route. Empty: the route of a request without any of the others'.
    pub selectors: Vec<String>,
    /// The call.
    pub call: MethodDescriptor,
    /// The source of each field of the request message. A field that is not here stays unset.
    pub inputs: Vec<Input>,
}

/// The source of a field of a request message.
#[derive(Clone, Debug)]
pub struct Input {
    /// The field.
    pub field: FieldDescriptor,
    /// Its source.
    pub source: InputSource,
}

/// A part of a request of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputSource {
    /// The segment of the path.
    Path,
    /// Query parameters ([`parameters`]).
    Query,
    /// The member of that name of the body, which is a JSON object.
    Member,
    /// The body is this object. The segment of the path is the field `key` of it.
    Body {
        /// The field, if the path has a segment.
        key: Option<FieldDescriptor>,
    },
}

impl InputSource {
    /// True if it is the body, or a part of it.
    pub fn is_body(&self) -> bool {
        matches!(self, Self::Member | Self::Body { .. })
    }
}

/// A reason why a call has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Only services of the same site may make it.
    Internal,
    /// Only machines make it.
    Machines,
    /// Only doors make it, for themselves.
    Doors,
    /// Only builders make it.
    Builders,
    /// It streams bytes that only the command line reads.
    Bytes,
}

impl Reason {
    /// Returns the reason as a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::Internal => "Only services of the same site may make it.",
            Self::Machines => "Only machines make it.",
            Self::Doors => "Only doors make it, for themselves.",
            Self::Builders => "Only builders make it.",
            Self::Bytes => "It streams bytes, for the command line.",
        }
    }
}

/// The routes of a path.
#[derive(Clone, Debug)]
pub struct MatchedPath<'a> {
    /// All of them: of every method, representation and selector.
    pub routes: Vec<&'a CallRoute>,
    /// The segment of the path, still percent-encoded, if the routes have one.
    pub key: Option<&'a str>,
}

/// A query parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name: the names of the fields that lead to it, with dots. A map has one parameter for each key: `labels[rack]=r1`.
    pub name: String,
    /// The fields, from that of the request message inwards.
    pub path: Vec<FieldDescriptor>,
}

impl Routes {
    /// Derives the routes from the services in `pool`.
    pub fn new(pool: &DescriptorPool) -> Self {
        let mut routes = Self::default();
        let (mut public, mut left_out) = (Vec::new(), Vec::new());
        for call in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
            match reason(&call) {
                Some(reason) => left_out.push((call, reason)),
                None => public.push(call),
            }
        }
        let nouns = Nouns::new(&public);
        for route in public.iter().flat_map(|call| routes_of(call, &nouns)) {
            routes.by_collection.entry(route.collection.clone()).or_default().push(route);
        }
        for routes in routes.by_collection.values_mut() {
            remove_shadowed_filters(routes);
            routes.sort_by_cached_key(CallRoute::rank);
        }
        Self { left_out, ..routes }
    }

    /// Iterates over the routes, by collection.
    pub fn iter(&self) -> impl Iterator<Item = &CallRoute> {
        self.by_collection.values().flatten()
    }

    /// Returns the calls without a route.
    pub fn left_out(&self) -> &[(MethodDescriptor, Reason)] {
        &self.left_out
    }

    /// Returns the routes of `path`, which is percent-encoded and begins after [`PREFIX`]. A colon of a key may be written as it is: only
    /// the text after the last one can be a verb, and only a verb that the collection has.
    pub fn find<'a>(&'a self, path: &'a str) -> Option<MatchedPath<'a>> {
        let (first, key) = match path.split_once('/') {
            Some((_, "")) => return None,
            Some((_, key)) if key.contains('/') => return None,
            Some((first, key)) => (first, Some(key)),
            None => (path, None),
        };
        let Some(key) = key else {
            let (collection, verb) = match first.split_once(':') {
                Some((collection, verb)) => (collection, Some(verb)),
                None => (first, None),
            };
            return self.target(collection, None, verb);
        };
        let with_verb = key
            .rsplit_once(':')
            .filter(|(key, _)| !key.is_empty())
            .and_then(|(key, verb)| self.target(first, Some(key), Some(verb)));
        with_verb.or_else(|| self.target(first, Some(key), None))
    }

    fn target<'a>(
        &'a self,
        collection: &str,
        key: Option<&'a str>,
        verb: Option<&str>,
    ) -> Option<MatchedPath<'a>> {
        let all = self.by_collection.get(collection)?;
        let fits = |route: &&CallRoute| {
            route.key.is_some() == key.is_some() && route.verb.as_deref() == verb
        };
        let routes: Vec<_> = all.iter().filter(fits).collect();
        (!routes.is_empty()).then_some(MatchedPath { routes, key })
    }
}

impl CallRoute {
    /// Returns the template of the path, such as `/api/v1/instances/{id}:retry`.
    pub fn template(&self) -> String {
        let key = self.key.iter().map(|key| format!("/{{{key}}}"));
        let verb = self.verb.iter().map(|verb| format!(":{verb}"));
        format!("{PREFIX}{}{}", self.collection, key.chain(verb).collect::<String>())
    }

    /// Returns the path of the call over gRPC, such as `/tinwright.power.v1.PowerService/GetBmc`.
    pub fn rpc(&self) -> String {
        format!("/{}/{}", self.call.parent_service().full_name(), self.call.name())
    }

    /// True if the response is a stream of events.
    pub fn is_stream(&self) -> bool {
        self.call.is_server_streaming()
    }

    /// True if a request gets this route only with `Accept: text/event-stream`, because without it the path means another one.
    pub fn is_alternative(&self) -> bool {
        self.is_stream() && self.method == Method::GET
    }

    /// True if the request may have a body.
    pub fn has_body(&self) -> bool {
        self.inputs.iter().any(|input| input.source.is_body())
    }

    /// Iterates over the fields from this source.
    pub fn fields_from(&self, source: InputSource) -> impl Iterator<Item = &FieldDescriptor> {
        let fits = move |input: &&Input| input.source == source;
        self.inputs.iter().filter(fits).map(|input| &input.field)
    }

    /// Returns the position of the route within its collection.
    fn rank(&self) -> impl Ord + use<> {
        let methods = [Method::GET, Method::POST, Method::PATCH, Method::DELETE];
        let method = methods.iter().position(|method| *method == self.method);
        let verb = self.verb.clone();
        (self.key.clone(), verb, method, self.is_alternative(), self.selectors.clone())
    }

    /// Returns the query parameters.
    pub fn parameters(&self) -> Vec<Parameter> {
        self.fields_from(InputSource::Query).flat_map(parameters).collect()
    }
}

/// Removes the query parameters of lists that select another call at the path: `?name=…` gets one object.
fn remove_shadowed_filters(routes: &mut [CallRoute]) {
    let is_plain = |route: &CallRoute| {
        let is_of_collection = route.key.is_none() && route.verb.is_none();
        route.method == Method::GET && is_of_collection && !route.is_alternative()
    };
    let selectors =
        routes.iter().filter(|route| is_plain(route)).flat_map(|it| it.selectors.clone());
    let selectors: Vec<String> = selectors.collect();
    let lists = routes.iter_mut().filter(|it| is_plain(it) && it.selectors.is_empty());
    for list in lists {
        let is_shadowed = |input: &Input| {
            input.source == InputSource::Query
                && selectors.iter().any(|it| it == input.field.name())
        };
        list.inputs.retain(|input| !is_shadowed(input));
    }
}

/// Returns the query parameters that set `field`. A message has one for each of its fields, unless
/// JSON writes it as text.
pub fn parameters(field: &FieldDescriptor) -> Vec<Parameter> {
    let single = || vec![Parameter { name: field.name().to_owned(), path: vec![field.clone()] }];
    let Kind::Message(message) = field.kind() else { return single() };
    if field.is_map() || field.is_list() || is_text(&message) {
        return single();
    }
    let below = |inner: Parameter| Parameter {
        name: format!("{}.{}", field.name(), inner.name),
        path: [vec![field.clone()], inner.path].concat(),
    };
    message.fields().flat_map(|field| parameters(&field)).map(below).collect()
}

/// True if JSON writes `message` as a text.
fn is_text(message: &MessageDescriptor) -> bool {
    let names = ["Timestamp", "Duration", "FieldMask"];
    message.package_name() == "google.protobuf" && names.contains(&message.name())
}

/// Returns the reason why `call` has no route, if there is one.
fn reason(call: &MethodDescriptor) -> Option<Reason> {
    use tinwright::common::v1::Audience as To;
    match tinwright::options::call(call).map_or(To::Unspecified, |call| call.audience) {
        To::Unspecified | To::Services | To::Processes => Some(Reason::Internal),
        // A machine without a certificate redeems its token.
        To::Everyone | To::Workers | To::Machines | To::WorkersAndNodes | To::Nodes => {
            Some(Reason::Machines)
        }
        To::Doors => Some(Reason::Doors),
        To::Builders => Some(Reason::Builders),
        To::Viewers | To::ViewersAndDoors | To::Operators | To::Admins => {
            streams_bytes(call).then_some(Reason::Bytes)
        }
    }
}

/// True if the responses of `call` are parts of one text of bytes.
fn streams_bytes(call: &MethodDescriptor) -> bool {
    call.is_server_streaming() && call.output().fields().all(|field| field.kind() == Kind::Bytes)
}

/// Returns the routes of `call`.
fn routes_of(call: &MethodDescriptor, nouns: &Nouns) -> Vec<CallRoute> {
    let name = words(call.name());
    let Some((verb, rest)) = name.split_first() else { return Vec::new() };
    let (singular, plural) = (nouns.by_singular(rest), nouns.by_plural(rest));
    match (verb.as_str(), singular, plural) {
        ("List", _, Some(noun)) => vec![CallRoute::standard(Method::GET, call, noun)],
        ("Watch", _, Some(noun)) if call.is_server_streaming() => watch(call, noun),
        ("Get", Some(noun), _) => get(call, noun),
        ("Create", Some(noun), _) => vec![create(call, noun)],
        ("Update", Some(noun), _) => vec![update(call, noun)],
        ("Delete", Some(noun), _) => {
            vec![CallRoute::standard(Method::DELETE, call, noun).with_key(noun)]
        }
        _ => vec![custom(call, &name, nouns)],
    }
}

impl CallRoute {
    /// Returns the route with all fields in the query.
    fn standard(method: Method, call: &MethodDescriptor, noun: &Noun) -> Self {
        let query = |field| Input { field, source: InputSource::Query };
        Self {
            method,
            collection: noun.plural.clone(),
            key: None,
            verb: None,
            selectors: Vec::new(),
            call: call.clone(),
            inputs: call.input().fields().map(query).collect(),
        }
    }

    /// Takes the field that is the noun's key from the path, and the alternatives to it from nowhere.
    fn with_key(self, noun: &Noun) -> Self {
        let key = noun.key.clone();
        let mut route =
            self.without(|field| field.containing_oneof().is_some() && field.name() != key);
        for input in route.inputs.iter_mut().filter(|input| input.field.name() == key) {
            input.source = InputSource::Path;
        }
        Self { key: Some(key), ..route }
    }

    /// Leaves out the fields that `is_left_out`.
    fn without(mut self, is_left_out: impl Fn(&FieldDescriptor) -> bool) -> Self {
        self.inputs.retain(|input| !is_left_out(&input.field));
        self
    }
}

/// By the key in the path, and by the other keys, if there are any.
fn get(call: &MethodDescriptor, noun: &Noun) -> Vec<CallRoute> {
    let by_path = CallRoute::standard(Method::GET, call, noun).with_key(noun);
    let mut by_query =
        CallRoute::standard(Method::GET, call, noun).without(|field| field.name() == noun.key);
    let keys = by_query.inputs.iter().filter(|input| input.field.containing_oneof().is_some());
    by_query.selectors = keys.map(|input| input.field.name().to_owned()).collect();
    if by_query.selectors.is_empty() { vec![by_path] } else { vec![by_path, by_query] }
}

/// Of all objects, and of one.
fn watch(call: &MethodDescriptor, noun: &Noun) -> Vec<CallRoute> {
    let route = || CallRoute::standard(Method::GET, call, noun);
    let all = route().without(|field| field.name() == noun.key);
    if all.inputs.len() == call.input().fields().len() {
        return vec![all];
    }
    vec![all, route().with_key(noun)]
}

/// The object is the body, if the query can have the rest.
fn create(call: &MethodDescriptor, noun: &Noun) -> CallRoute {
    let mut route = CallRoute::standard(Method::POST, call, noun);
    let is_object = |field: &FieldDescriptor| noun.is_type_of(field);
    let (objects, rest): (Vec<_>, Vec<_>) = call.input().fields().partition(is_object);
    let plain = objects.len() == 1 && rest.iter().all(fits_query);
    for input in &mut route.inputs {
        input.source = match is_object(&input.field) {
            true if plain => InputSource::Body { key: None },
            false if plain => InputSource::Query,
            _ => InputSource::Member,
        };
    }
    route
}

/// The object is the body, and its key is in the path.
fn update(call: &MethodDescriptor, noun: &Noun) -> CallRoute {
    let mut route = CallRoute::standard(Method::PATCH, call, noun);
    for input in route.inputs.iter_mut().filter(|input| noun.is_type_of(&input.field)) {
        let key = noun.message.get_field_by_name(&noun.key);
        input.source = InputSource::Body { key };
    }
    CallRoute { key: Some(noun.key.clone()), ..route }
}

/// Any other call, on a noun of its own service if its name or a field names one, else on a noun that a field names, else on what the
/// service is called.
fn custom(call: &MethodDescriptor, name: &[String], nouns: &Nouns) -> CallRoute {
    let service = call.parent_service();
    let (collection, verb, key) = match nouns.in_name(service, name) {
        Some((noun, verb)) => (noun.plural.clone(), verb, own_key(call, noun)),
        None => match nouns.by_field(call) {
            Some((noun, field)) => {
                (noun.plural.clone(), name.to_vec(), Some((noun.key.clone(), field)))
            }
            None => on_service(service, name),
        },
    };
    let input = |field: FieldDescriptor| {
        let is_key = key.as_ref().is_some_and(|(_, key)| *key == field);
        Input { field, source: if is_key { InputSource::Path } else { InputSource::Member } }
    };
    CallRoute {
        method: Method::POST,
        collection,
        verb: Some(lower_camel(&verb)),
        selectors: Vec::new(),
        call: call.clone(),
        inputs: call.input().fields().map(input).collect(),
        key: key.map(|(name, _)| name),
    }
}

/// Returns the field of a request that has the key of `noun`, with the key's name.
fn own_key(call: &MethodDescriptor, noun: &Noun) -> Option<(String, FieldDescriptor)> {
    let names = [noun.key.clone(), format!("{}_id", snake(&noun.singular))];
    let field = names.iter().find_map(|name| call.input().get_field_by_name(name));
    let field = field.filter(|field| field.containing_oneof().is_none() && !field.is_list())?;
    Some((noun.key.clone(), field))
}

/// Returns the collection that is called as the service, and the rest of the call's name.
fn on_service(
    service: &ServiceDescriptor,
    name: &[String],
) -> (String, Vec<String>, Option<(String, FieldDescriptor)>) {
    let base = words(service.name().trim_end_matches("Service"));
    let verb = names::without(name, &base).unwrap_or_else(|| name.to_vec());
    (kebab(&base), verb, None)
}

/// True if a query can have the field: it is no secret, and one text or a list of them.
fn fits_query(field: &FieldDescriptor) -> bool {
    let text = field.kind().as_message().is_none_or(is_text);
    text && !field.is_map() && !is_set(field, "secret")
}

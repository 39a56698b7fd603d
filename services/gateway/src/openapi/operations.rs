//! The operations: one for each path and method, made of all routes there.

use http::Method;
use prost_reflect::FieldDescriptor;
use runtime::access::admits;
use runtime::{Caller, Role};
use serde_json::{Map, Value, json};
use tinwright::TenantName;

use super::comments::first_sentence;
use super::schemas::{Schemas, reference};
use super::{describe, problems};
use crate::routes::{CallRoute, InputSource, Parameter, Routes};

/// Returns the path items of `routes`.
pub(super) fn paths(schemas: &Schemas, routes: &Routes) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    let all: Vec<_> = routes.iter().collect();
    let same =
        |a: &&CallRoute, b: &&CallRoute| a.template() == b.template() && a.method == b.method;
    for routes in all.chunk_by(same) {
        let Some(first) = routes.first() else { continue };
        let item = paths.entry(first.template()).or_insert_with(|| json!({}));
        let mut operation = operation(schemas, routes);
        if let Some(links) = links(first, &all) {
            operation["responses"]["200"]["links"] = links;
        }
        item[first.method.as_str().to_lowercase()] = operation;
    }
    paths.into()
}

/// Returns the operation of the routes at one path and method. The first is the one of a plain request.
fn operation(schemas: &Schemas, routes: &[&CallRoute]) -> Value {
    let Some(main) = routes.first() else { return Value::Null };
    let comment = |route: &CallRoute| schemas.comments.of_call(&route.call);
    let mut operation = Map::new();
    operation.insert("operationId".to_owned(), operation_id(main).into());
    operation.insert("tags".to_owned(), json!([main.call.parent_service().name()]));
    operation.insert("summary".to_owned(), first_sentence(comment(main)).into());
    let texts = routes
        .iter()
        .map(|route| format!("{}{} {}", condition(route), comment(route), callers(&route.rpc())));
    let text = texts.collect::<Vec<_>>().join("\n\n");
    describe(&mut operation, &text);
    operation.insert("parameters".to_owned(), parameters(schemas, routes).into());
    if main.has_body() {
        operation.insert("requestBody".to_owned(), body(schemas, main));
    }
    let mut responses = Map::from_iter([("200".to_owned(), success(routes))]);
    responses.extend(problems::references(main.has_body()));
    operation.insert("responses".to_owned(), responses.into());
    operation.into()
}

/// Returns the links from a creation to the operations of the object that it returns; none if `route` creates none.
fn links(route: &CallRoute, all: &[&CallRoute]) -> Option<Value> {
    if route.method != Method::POST || route.key.is_some() || route.verb.is_some() {
        return None;
    }
    let of_object = |it: &&&CallRoute| it.collection == route.collection && !it.is_alternative();
    let mut links = Map::new();
    for target in all.iter().filter(of_object) {
        let Some(key) = target.key.as_ref() else { continue };
        let has_key = |field: &FieldDescriptor| {
            let object = field.kind().as_message().cloned();
            object.is_some_and(|object| object.get_field_by_name(key).is_some())
        };
        let object = route.call.output().fields().find(has_key)?;
        let value = format!("$response.body#/{}/{key}", object.name());
        let id = operation_id(target);
        links.insert(id.clone(), json!({"operationId": id, "parameters": {key: value}}));
    }
    (!links.is_empty()).then(|| links.into())
}

/// Returns the name of an operation: that of its call, which other services do not have.
fn operation_id(route: &CallRoute) -> String {
    route.call.name().to_owned()
}

/// Returns the first words of the description of a route; empty for a plain request.
fn condition(route: &CallRoute) -> String {
    if route.is_alternative() {
        return "With `Accept: text/event-stream`: ".to_owned();
    }
    match route.selectors.as_slice() {
        [] => String::new(),
        names => format!("With {}: ", names.join(" or ")),
    }
}

/// Returns a sentence on the callers that may make a call.
fn callers(rpc: &str) -> String {
    let roles = [(Role::Viewer, "viewer"), (Role::Operator, "operator"), (Role::Admin, "admin")];
    let admits = |caller: &Caller| admits(rpc, Some(caller));
    let names: Vec<_> = roles
        .into_iter()
        .filter(|(role, _)| admits(&Caller::from(*role)))
        .map(|(_, name)| name)
        .collect();
    // Any tenant: its name does not count here.
    let tenant = "example".parse::<TenantName>().ok();
    let limited = tenant.and_then(|it| Caller::from(Role::Admin).with_tenant(it).ok());
    let limited = match limited.is_some_and(|caller| admits(&caller)) {
        true => "also with a tenant",
        false => "without a tenant",
    };
    format!("Callers: {}; {limited}.", names.join(", "))
}

/// Returns the parameters of all routes, each once.
fn parameters(schemas: &Schemas, routes: &[&CallRoute]) -> Vec<Value> {
    let mut parameters = Vec::new();
    if let Some(name) = routes.first().and_then(|route| route.key.as_ref()) {
        let schema = json!({"type": "string", "minLength": 1});
        parameters.push(json!({"name": name, "in": "path", "required": true, "schema": schema}));
    }
    parameters.extend(routes.first().into_iter().flat_map(|route| headers(route)));
    for parameter in routes.iter().flat_map(|route| route.parameters()) {
        let present = parameters.iter().any(|it| it["name"] == parameter.name.as_str());
        if !present {
            parameters.extend(query(schemas, &parameter));
        }
    }
    parameters
}

/// Returns the headers that set a field of the request.
fn headers(route: &CallRoute) -> Vec<Value> {
    if route.method == Method::GET {
        return Vec::new();
    }
    let input = route.call.input();
    let object = route.inputs.iter().find(|it| matches!(it.source, InputSource::Body { .. }));
    let object = object.and_then(|it| it.field.kind().as_message().cloned());
    let has_revision = [Some(input.clone()), object]
        .iter()
        .flatten()
        .any(|message| message.get_field_by_name("revision").is_some());
    let revision = json!({
        "name": "If-Match",
        "in": "header",
        "description": "The revision of the object in quotation marks, as its ETag: with another one the call has no effect.",
        "schema": {"type": "string", "pattern": "^(\\*|\"[0-9]{1,18}\")$"},
    });
    let request_id = json!({
        "name": "Idempotency-Key",
        "in": "header",
        "description": "The request_id of the call, in place of the field.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,128}$"},
    });
    // The path of a creation names no object yet.
    let has_revision = has_revision && route.key.is_some();
    let has_request_id = input.get_field_by_name("request_id").is_some();
    let fits = [(has_revision, revision), (has_request_id, request_id)];
    fits.into_iter().filter_map(|(fits, parameter)| fits.then_some(parameter)).collect()
}

fn query(schemas: &Schemas, parameter: &Parameter) -> Option<Value> {
    let field = parameter.path.last()?;
    let schema = schemas.value(field);
    let mut object = Map::new();
    object.insert("name".to_owned(), parameter.name.clone().into());
    object.insert("in".to_owned(), "query".into());
    describe(&mut object, schemas.comments.of_field(field));
    if field.is_map() {
        object.insert("style".to_owned(), "deepObject".into());
        object.insert("explode".to_owned(), true.into());
    }
    object.insert("schema".to_owned(), schema.into());
    Some(object.into())
}

/// Returns the body of a request.
fn body(schemas: &Schemas, route: &CallRoute) -> Value {
    let object = route.inputs.iter().find(|it| matches!(it.source, InputSource::Body { .. }));
    let (schema, required) = match object {
        Some(input) => (Value::from(schemas.value(&input.field)), true),
        None => {
            let fields: Vec<FieldDescriptor> =
                route.fields_from(InputSource::Member).cloned().collect();
            let mut schema = schemas.object(fields.into_iter());
            schema.insert("title".to_owned(), route.call.input().name().into());
            (schema.into(), false)
        }
    };
    json!({"required": required, "content": {"application/json": {"schema": schema}}})
}

/// Returns the answer of success.
fn success(routes: &[&CallRoute]) -> Value {
    let (streams, plain): (Vec<&CallRoute>, Vec<&CallRoute>) =
        routes.iter().copied().partition(|route| route.is_stream());
    let mut content = Map::new();
    let schemas: Vec<_> =
        plain.iter().map(|route| reference(route.call.output().full_name())).collect();
    if let [schema] = schemas.as_slice() {
        content.insert("application/json".to_owned(), json!({"schema": schema}));
    } else if !schemas.is_empty() {
        content.insert("application/json".to_owned(), json!({"schema": {"anyOf": schemas}}));
    }
    for route in streams {
        let message = route.call.output();
        let text = format!("Events whose data is a {} as JSON.", message.name());
        let mut media = json!({"schema": {"type": "string", "description": text}});
        // OpenAPI 3.2 has itemSchema for it.
        media["x-item-schema"] = reference(message.full_name());
        content.insert("text/event-stream".to_owned(), media);
    }
    json!({"description": "Success.", "content": content})
}

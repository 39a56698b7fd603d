//! `docs/reference/api.md`: the services and their calls, with an example for grpcurl and one for Python.

use gateway::openapi::comments::{Comments, first_sentence};
use gateway::routes::Routes;
use prost_reflect::{DynamicMessage, MethodDescriptor, ServiceDescriptor};
use tinwright::options::is_internal;

use super::{cell, row};

/// The calls of the examples of services that have no plain list, and the requests.
const EXAMPLES: [(&str, &str, &str); 2] = [
    ("IdentityService", "ListCertificates", "{}"),
    ("MetadataService", "ExplainMetadata", r#"{"address": "198.51.100.11"}"#),
];
/// The request of the first page of a list.
const FIRST_PAGE: &str = r#"{"page_size": 100}"#;

/// The call of the example of a service, and its request; none for services that only programs of the site call.
fn example(service: &ServiceDescriptor) -> Option<(MethodDescriptor, &'static str)> {
    let chosen = EXAMPLES.iter().find(|(name, ..)| *name == service.name());
    if let Some((_, call, request)) = chosen {
        return Some((service.methods().find(|it| it.name() == *call)?, request));
    }
    let is_list = |call: &MethodDescriptor| {
        let has_pages = call.input().get_field_by_name("page_size").is_some();
        call.name().starts_with("List") && has_pages && !is_internal(call)
    };
    Some((service.methods().find(is_list)?, FIRST_PAGE))
}

fn describe(service: &ServiceDescriptor, comments: &Comments, routes: &Routes) -> String {
    let mut text = format!("## {}\n\n`{}`: ", service.name(), service.full_name());
    text += comments.of_service(service);
    text += "\n\n| call | does | request | REST |\n|---|---|---|---|\n";
    for call in service.methods() {
        let request = call.input();
        let fields: Vec<_> = request.fields().map(|field| format!("`{}`", field.name())).collect();
        // By the id in the path rather than by another key in the query.
        let route = routes.iter().filter(|it| it.call == call).max_by_key(|it| it.key.is_some());
        let rest = route.map(|it| format!("`{} {}`", it.method, it.template())).unwrap_or_default();
        let does = cell(first_sentence(comments.of_call(&call)));
        let note = match (is_internal(&call), call.is_server_streaming()) {
            (true, _) => " (internal)",
            (false, true) => " (stream)",
            (false, false) => "",
        };
        text += &row(&[&format!("{}{note}", call.name()), &does, &fields.join(", "), &rest]);
    }
    let Some((call, request)) = example(service) else { return text + "\n" };
    let path = format!("{}/{}", service.full_name(), call.name());
    text + &format!(
        "\n```sh\ngrpcurl --cacert ca.pem --cert admin.pem --key admin-key.pem -d '{request}' 127.0.0.1:42113 {path}\n```\n\
         \n```python\nprint(call(\"{path}\", {request}))\n```\n\n"
    )
}

fn page() -> String {
    let pool = tinwright::json::pool().unwrap();
    let (comments, routes) = (Comments::new(pool), Routes::new(pool));
    let services = pool.services().filter(|it| it.full_name().starts_with("tinwright."));
    services.map(|service| describe(&service, &comments, &routes)).collect()
}

#[test]
fn each_example_names_a_call_and_its_fields() {
    let pool = tinwright::json::pool().unwrap();
    let mut count = 0;
    for (call, request) in pool.services().filter_map(|service| example(&service)) {
        let message = DynamicMessage::deserialize(
            call.input(),
            &mut serde_json::Deserializer::from_str(request),
        );
        assert!(message.is_ok(), "{}: {request}: {message:?}", call.full_name());
        count += 1;
    }
    assert!(count > 12, "{count}");
}

#[test]
fn the_reference_page_has_every_call() {
    setup::reference::check("docs/reference/api.md", &page());
}

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::*;

fn routes() -> Routes {
    Routes::new(tinwright::json::pool().unwrap())
}

/// The sources of a route's fields, as the reference page spells them.
fn sources(route: &CallRoute) -> [String; 2] {
    let code = |name: &str| format!("`{name}`");
    let query = route.parameters().into_iter().map(|parameter| {
        let map = parameter.path.last().is_some_and(FieldDescriptor::is_map);
        let selector = route.selectors.iter().any(|it| parameter.name.starts_with(it.as_str()));
        let name = code(&format!("{}{}", parameter.name, if map { "[…]" } else { "" }));
        if selector { format!("{name} (one of)") } else { name }
    });
    let body = route.inputs.iter().filter_map(|input| match &input.source {
        InputSource::Member => Some(code(input.field.name())),
        InputSource::Body { .. } => Some(format!("the {} itself", noun(&input.field))),
        InputSource::Path | InputSource::Query => None,
    });
    [query.collect::<Vec<_>>().join(", "), body.collect::<Vec<_>>().join(", ")]
}

/// The name of the message in `field`, in words.
fn noun(field: &FieldDescriptor) -> String {
    let kind = field.kind();
    kind.as_message().map(|it| snake(&words(it.name())).replace('_', " ")).unwrap_or_default()
}

/// The tables of `docs/reference/rest.md`.
fn tables(routes: &Routes) -> String {
    let mut text = String::new();
    text += "| request | call | query | body |\n|---|---|---|---|\n";
    for route in routes.iter() {
        let accept = if route.is_alternative() { " as events" } else { "" };
        let [query, body] = sources(route);
        let path = route.template();
        let call = route.rpc();
        let call = call.rsplit('.').next().unwrap();
        writeln!(text, "| `{} {path}`{accept} | {call} | {query} | {body} |", route.method)
            .unwrap();
    }
    text += "\n## Calls without a route\n\n| call | reason |\n|---|---|\n";
    for (call, reason) in routes.left_out() {
        let service = call.parent_service();
        writeln!(text, "| {}/{} | {} |", service.name(), call.name(), reason.text()).unwrap();
    }
    text
}

#[test]
fn the_reference_page_has_the_table() {
    setup::reference::check("docs/reference/rest.md", &tables(&routes()));
}

#[test]
fn every_call_has_a_route_or_a_reason() {
    let routes = routes();
    let calls =
        tinwright::json::pool().unwrap().services().flat_map(|it| it.methods().collect::<Vec<_>>());
    let routed: BTreeSet<_> = routes.iter().map(|it| it.call.full_name().to_owned()).collect();
    let left_out: BTreeSet<_> =
        routes.left_out().iter().map(|(call, _)| call.full_name().to_owned()).collect();
    assert!(routed.is_disjoint(&left_out));
    let all: BTreeSet<_> = calls.map(|it| it.full_name().to_owned()).collect();
    assert_eq!(&routed | &left_out, all);
}

#[test]
fn no_two_routes_collide() {
    let routes = routes();
    let mut places: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for route in routes.iter() {
        let place = (route.method.to_string(), route.template(), route.is_alternative());
        // The route without selectors is that of requests without any: it must not have a parameter that selects another.
        let taken: Vec<_> = match route.selectors.as_slice() {
            [] => route
                .fields_from(InputSource::Query)
                .map(|it| it.name().to_owned())
                .chain([String::new()])
                .collect(),
            selectors => selectors.to_vec(),
        };
        let names = places.entry(place).or_default();
        for name in taken {
            assert!(
                names.insert(name.clone()),
                "two routes at {} {}: {name:?}",
                route.method,
                route.template()
            );
        }
    }
    let templates: BTreeSet<_> = routes.iter().map(CallRoute::template).collect();
    let without_names: BTreeSet<_> =
        templates.iter().map(|it| it.split(['{', '}']).step_by(2).collect::<String>()).collect();
    assert_eq!(templates.len(), without_names.len(), "a path has two names for its segment");
}

#[test]
fn every_field_has_one_source_and_no_secret_is_in_a_query() {
    for route in routes().iter() {
        let rpc = route.rpc();
        let mut fields: BTreeSet<_> =
            route.inputs.iter().map(|it| it.field.name().to_owned()).collect();
        assert_eq!(fields.len(), route.inputs.len(), "{rpc}");
        let left = |field: &FieldDescriptor| {
            field.containing_oneof().is_some() || route.method == Method::GET
        };
        for field in route.call.input().fields() {
            assert!(fields.remove(field.name()) || left(&field), "{rpc}: {}", field.name());
        }
        let from_path = route.inputs.iter().filter(|it| {
            matches!(it.source, InputSource::Path | InputSource::Body { key: Some(_) })
        });
        assert_eq!(from_path.count(), usize::from(route.key.is_some()), "{rpc}");
        for Parameter { name, path } in route.parameters() {
            assert!(path.iter().all(|field| !is_set(field, "secret")), "{rpc}: {name} is secret");
            assert!(
                path.last()
                    .is_some_and(|it| !(it.is_list() && matches!(it.kind(), Kind::Message(_)))),
                "{rpc}: {name}"
            );
        }
    }
}

#[test]
fn paths_are_found() {
    let routes = routes();
    let found = |path| {
        let target = routes.find(path)?;
        let calls: BTreeSet<_> = target.routes.iter().map(|it| it.call.name().to_owned()).collect();
        Some((calls.into_iter().collect::<Vec<_>>().join(" "), target.key))
    };
    for (path, calls, key) in [
        ("hardware", "CreateHardware GetHardware ListHardware WatchHardware", None),
        ("hardware/7", "DeleteHardware GetHardware UpdateHardware WatchHardware", Some("7")),
        ("hardware/7:setState", "SetHardwareState", Some("7")),
        ("bmcs:enrol", "EnrolBmc", None),
        (
            "unknown-machines/52:54:00:00:00:01",
            "DeleteUnknownMachine GetUnknownMachine WatchUnknownMachines",
            Some("52:54:00:00:00:01"),
        ),
        ("certificates/0a:1b:revoke", "RevokeCertificate", Some("0a:1b")),
        (
            "hardware/a%3AsetState",
            "DeleteHardware GetHardware UpdateHardware WatchHardware",
            Some("a%3AsetState"),
        ),
    ] {
        assert_eq!(found(path), Some((calls.to_owned(), key)), "{path}");
    }
    for path in ["", "hardware/", "hardware/7/8", "hardware:none", "no-such", "hardware:", ":list"]
    {
        assert_eq!(found(path), None, "{path}");
    }
}

#[test]
fn messages_in_a_query_have_a_parameter_for_each_field() {
    let routes = routes();
    let events = routes.find("events").unwrap();
    let list = events.routes.iter().find(|it| it.call.name() == "ListEvents").unwrap();
    let names: Vec<_> = list.parameters().into_iter().map(|it| it.name).collect();
    assert!(names.contains(&"filter.start_time".to_owned()), "{names:?}");
    assert!(names.contains(&"page_size".to_owned()), "{names:?}");
}

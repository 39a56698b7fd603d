//! The OpenAPI document of this door, embedded in the program.

/// Returns the document as JSON.
pub(super) fn document() -> &'static str {
    include_str!("openapi/ial.json")
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::Value;
    use strum::VariantArray as _;

    use super::*;
    use crate::ial::routes::Endpoint;

    #[test]
    fn the_document_has_each_call_with_each_of_its_methods() {
        let document: Value = serde_json::from_str(document()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let mut found = Vec::new();
        for (path, operations) in paths {
            for method in [Method::GET, Method::POST, Method::PUT] {
                let is_documented = operations.get(method.as_str().to_ascii_lowercase()).is_some();
                let route = Endpoint::find(&method, path);
                assert_eq!(route.is_ok(), is_documented, "{method} {path}");
                found.extend(route);
            }
        }
        for route in Endpoint::VARIANTS.iter().filter(|it| **it != Endpoint::OpenApi) {
            assert!(found.contains(route), "{route:?}");
        }
    }
}

//! The node of a request, and the path below the base path of the ImageAPI.

use ::imageapi::{ApiError, BASE_PATH};
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode};
use percent_encoding::percent_decode_str;

use super::NODE;

/// The longest id or name of a node.
const MAX_NODE_BYTES: usize = 255;

/// The node of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTarget {
    /// Id or name; empty for the only one that there is.
    pub node: String,
    /// The path below the base path, with a slash at its beginning.
    pub path: String,
}

/// Returns the target of a request below `/imageapi/v1`: the header names the node.
pub fn by_header(parts: &Parts) -> Result<NodeTarget, ApiError> {
    let node = text(&parts.headers, &NODE)?.unwrap_or_default();
    Ok(NodeTarget { node: checked(node)?, path: parts.uri.path().to_owned() })
}

/// Returns the target of a request below `/nodes`: the path names the node.
pub fn by_path(parts: &Parts) -> Result<NodeTarget, ApiError> {
    let whole = parts.uri.path();
    let no_such_path =
        || ApiError::new(StatusCode::NOT_FOUND, format!("path /nodes{whole} was not found"));
    let (node, rest) = whole.trim_start_matches('/').split_once('/').ok_or_else(no_such_path)?;
    // A base URL that ends with a slash has two of them here.
    let rest = rest.trim_start_matches('/').strip_prefix(BASE_PATH.trim_start_matches('/'));
    let rest = rest.ok_or_else(no_such_path)?;
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err(no_such_path());
    }
    let node = percent_decode_str(node).decode_utf8().map_err(|_| no_such_path())?;
    if node.is_empty() {
        return Err(no_such_path());
    }
    let path = if rest.is_empty() { "/" } else { rest };
    Ok(NodeTarget { node: checked(node.into_owned())?, path: path.to_owned() })
}

/// Returns the value of the header `name`, if there is one.
pub fn text(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str() {
        Ok(text) if values.next().is_none() => Ok(Some(text.trim().to_owned())),
        Ok(_) | Err(_) => {
            let text = format!("the header {name} is there twice, or is not plain text");
            Err(ApiError::new(StatusCode::BAD_REQUEST, text))
        }
    }
}

fn checked(node: String) -> Result<String, ApiError> {
    if node.len() > MAX_NODE_BYTES {
        let text = format!("the name of the node has more than {MAX_NODE_BYTES} bytes");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, text));
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(path: &str, nodes: &[&str]) -> Parts {
        let mut request = Request::get(path);
        for node in nodes {
            request = request.header(NODE, *node);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_header_names_the_node_or_nothing_does() {
        let target = by_header(&parts("/mount", &[" n1 "])).unwrap();
        assert_eq!((target.node.as_str(), target.path.as_str()), ("n1", "/mount"));
        assert_eq!(by_header(&parts("/", &[])).unwrap().node, "");
        assert_eq!(by_header(&parts("/", &["a", "b"])).unwrap_err().status, 400);
        assert_eq!(by_header(&parts("/", &[&"x".repeat(256)])).unwrap_err().status, 400);
    }

    #[test]
    fn the_path_names_the_node() {
        for (path, node, rest) in [
            ("/n1/imageapi/v1/mount", "n1", "/mount"),
            ("/n%201/imageapi/v1/container/", "n 1", "/container/"),
            ("/n1/imageapi/v1", "n1", "/"),
            ("/n1//imageapi/v1/mount", "n1", "/mount"),
            ("/n1//imageapi/v1//mount", "n1", "//mount"),
        ] {
            let target = by_path(&parts(path, &["other"])).unwrap();
            assert_eq!((target.node.as_str(), target.path.as_str()), (node, rest), "{path}");
        }
        for path in ["/", "/n1", "/n1/x", "/n1/imageapi/v1x", "//imageapi/v1/mount", "/n1/v1/mount"]
        {
            let error = by_path(&parts(path, &[])).unwrap_err();
            assert_eq!(error.message, format!("path /nodes{path} was not found"));
            assert_eq!((error.status, error.code), (StatusCode::NOT_FOUND, 404));
        }
    }
}

//! Problem documents, and the answers that have them.

use serde_json::{Map, Value, json};

/// The HTTP statuses of errors, each with the name of its response and the codes behind it.
const PROBLEMS: [(u16, &str, &str); 14] = [
    (400, "BadRequest", "A field of the request is wrong: INVALID_ARGUMENT or OUT_OF_RANGE."),
    (
        401,
        "Unauthenticated",
        "The client did not identify itself, or not by a valid identity: UNAUTHENTICATED.",
    ),
    (403, "Forbidden", "The client may not make the call: PERMISSION_DENIED."),
    (404, "NotFound", "There is no such object, or no such path: NOT_FOUND."),
    (406, "NotAcceptable", "The path has no representation that the request accepts."),
    (
        409,
        "Conflict",
        "The state of the object, or another object, is in the way: ALREADY_EXISTS, FAILED_PRECONDITION, ABORTED, or RESOURCE_EXHAUSTED with a reason.",
    ),
    (412, "PreconditionFailed", "The object does not have the revision that If-Match names."),
    (413, "TooLarge", "The body is too large."),
    (415, "UnsupportedMediaType", "The body is not application/json."),
    (
        429,
        "TooManyRequests",
        "There are too many requests: RESOURCE_EXHAUSTED. Retry-After says when to repeat it.",
    ),
    (500, "InternalError", "The server has an error: INTERNAL, UNKNOWN or DATA_LOSS."),
    (501, "NotImplemented", "This server does not have the call: UNIMPLEMENTED."),
    (
        503,
        "Unavailable",
        "A service, or the store, cannot be reached: UNAVAILABLE. Repeat it after the time that Retry-After says.",
    ),
    (504, "Deadline", "The call took too long: DEADLINE_EXCEEDED. It may still have an effect."),
];

/// The statuses that only requests with a body are answered with.
const OF_BODIES: [u16; 2] = [413, 415];

/// Returns the error responses of an operation, as references. There is no default: another status is an error of the server or of this
/// document, which tests against it find.
pub(super) fn references(has_body: bool) -> Map<String, Value> {
    let fits = |status: &u16| has_body || !OF_BODIES.contains(status);
    let problems = PROBLEMS.iter().filter(|(status, ..)| fits(status));
    let reference = |name: &str| json!({"$ref": format!("#/components/responses/{name}")});
    problems.map(|(status, name, _)| (status.to_string(), reference(name))).collect()
}

/// Returns the error responses.
pub(super) fn responses() -> Map<String, Value> {
    let response = |(status, name, text): &(u16, &str, &str)| {
        let content = json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
        let mut response = json!({"description": text, "content": content});
        if [429, 503].contains(status) {
            response["headers"] = json!({"Retry-After": {
                "description": "Seconds after which the request may be repeated.",
                "schema": {"type": "integer", "minimum": 0},
            }});
        }
        ((*name).to_owned(), response)
    };
    PROBLEMS.iter().map(response).collect()
}

/// Returns the schema of a problem document.
pub(super) fn schemas() -> Map<String, Value> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let problem = json!({
        "type": "object",
        "description": "A problem document (RFC 9457).",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": text("Always about:blank."),
            "title": text("The name of the HTTP status."),
            "status": {"type": "integer", "description": "The HTTP status."},
            "detail": text("What is wrong, in one line for people."),
            "code": text("The code of the call, such as NOT_FOUND."),
            "reason": text("The reason for programs, such as PROTECTED: it does not change."),
            "fields": {
                "type": "array",
                "description": "The wrong fields of the request.",
                "items": {
                    "type": "object",
                    "required": ["field", "description"],
                    "properties": {
                        "field": text("The path of the field, such as interfaces[0].mac."),
                        "description": text("What is wrong, in words that follow the path."),
                    },
                },
            },
            "details": {
                "type": "array",
                "description": "The details of the error (google.rpc), each with its @type.",
                "items": {
                    "type": "object",
                    "required": ["@type"],
                    "properties": {"@type": text("Such as type.googleapis.com/google.rpc.ErrorInfo.")},
                },
            },
        },
    });
    Map::from_iter([("Problem".to_owned(), problem)])
}

//! The OpenAPI document of this door, embedded in the program.

/// Returns the document as JSON.
pub(super) fn document() -> &'static str {
    include_str!("openapi/ial.json")
}

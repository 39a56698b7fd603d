//! Limits of the objects in one request.

use tinwright::node::v1::image_error::Reason;

use crate::error::ApiError;
use crate::fields::Fields;

/// The most attachments, mounts and containers on the way from the outermost object to the innermost, both included.
const MAX_DEPTH: usize = 32;
/// The most directories of an overlay, without the writable one.
const MAX_LOWER: usize = 64;

/// The place of an object in the request.
#[derive(Clone, Copy)]
pub(super) struct Depth(usize);

impl Depth {
    /// The place of the outermost object.
    pub(super) const OUTERMOST: Self = Self(1);

    /// Returns the place of an object inside of this one. An error below [`MAX_DEPTH`].
    pub(super) fn deeper(self) -> Result<Self, ApiError> {
        match self.0 < MAX_DEPTH {
            true => Ok(Self(self.0 + 1)),
            false => Err(ApiError::invalid(&format!("objects are nested deeper than {MAX_DEPTH}"))),
        }
    }
}

/// Checks the number of directories of an overlay.
pub(super) fn check_lower(lower: &[Option<Fields>]) -> Result<(), ApiError> {
    match lower.len() {
        0 => Err(ApiError::invalid("lower is empty")),
        1..=MAX_LOWER => Ok(()),
        _ => Err(ApiError::invalid(&format!("lower has more than {MAX_LOWER} elements"))),
    }
}

/// Checks that an object that is to be created has no id.
pub(super) fn check_no_id(fields: &mut Fields) -> Result<(), ApiError> {
    match fields.integer("id") {
        None | Some(0) => Ok(()),
        Some(_) => Err(ApiError::invalid("id is assigned by the server")),
    }
}

/// Takes the definition that a kind needs.
pub(super) fn definition(fields: &mut Fields, kind: &str) -> Result<Fields, ApiError> {
    fields.object(kind).ok_or_else(|| ApiError::invalid(&format!("{kind} is missing")))
}

/// Returns the error of a kind without a driver. `cause` says which.
pub(super) fn no_driver(cause: &str) -> ApiError {
    ApiError::with_reason(Reason::NoDriver, cause)
}

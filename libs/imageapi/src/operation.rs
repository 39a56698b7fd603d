//! The operations of the ImageAPI: method, path, query parameters, body and status.

use http::{Method, StatusCode};

use crate::error::ApiError;
use crate::schema::TextRule::{Any, OneOf};
use crate::schema::Usage::{Optional, Required};
use crate::schema::ValueType::{Boolean, Integer, Text};
use crate::schema::tables::{
    ATTACH, ATTACHMENT_KINDS, CONTAINER, CONTAINER_STATES, MOUNT, MOUNT_KINDS,
};
use crate::schema::{ObjectSchema, Property, ValueType};

/// The path below which the paths of the operations are.
pub const BASE_PATH: &str = "/imageapi/v1";

/// An operation of the ImageAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// `GET /attach`
    ListAttachments,
    /// `POST /attach`
    CreateAttachment,
    /// `DELETE /attach`
    DeleteAttachment,
    /// `GET /mount`
    ListMounts,
    /// `POST /mount`
    CreateMount,
    /// `DELETE /mount`
    DeleteMount,
    /// `GET /container`
    ListContainers,
    /// `POST /container`
    CreateContainer,
    /// `DELETE /container`
    DeleteContainer,
    /// `PATCH /container`
    SetContainerState,
}

impl Operation {
    /// True if the operation changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Self::ListAttachments | Self::ListMounts | Self::ListContainers)
    }

    /// Returns the HTTP status of success: 201 for creations, else 200.
    pub fn success_status(self) -> StatusCode {
        let creates =
            matches!(self, Self::CreateAttachment | Self::CreateMount | Self::CreateContainer);
        if creates { StatusCode::CREATED } else { StatusCode::OK }
    }
}

/// A path below the base path.
pub(crate) struct Path {
    pub(crate) path: &'static str,
    /// The methods, as the header `Allow` lists them.
    pub(crate) allow: &'static str,
    /// The object that is created there. The body has its name in error messages.
    pub(crate) object: &'static ObjectSchema,
    pub(crate) methods: &'static [OperationRoute],
}

/// One method of a path.
pub(crate) struct OperationRoute {
    pub(crate) method: Method,
    pub(crate) operation: Operation,
    pub(crate) query: &'static ObjectSchema,
}

const fn route(
    method: Method,
    operation: Operation,
    query: &'static ObjectSchema,
) -> OperationRoute {
    OperationRoute { method, operation, query }
}

const fn parameter(name: &'static str, value: ValueType) -> Property {
    Property { name, value, usage: Optional }
}

/// The query parameters of operations without any.
static NONE: ObjectSchema = ObjectSchema { name: "no query", properties: &[] };

static ATTACHMENT_FILTER: ObjectSchema = ObjectSchema {
    name: "query of list_attachments",
    properties: &[parameter("id", Integer), parameter("kind", Text(OneOf(ATTACHMENT_KINDS)))],
};

static MOUNT_FILTER: ObjectSchema = ObjectSchema {
    name: "query of list_mounts",
    properties: &[parameter("id", Integer), parameter("kind", Text(OneOf(MOUNT_KINDS)))],
};

static CONTAINER_FILTER: ObjectSchema = ObjectSchema {
    name: "query of list_containers",
    properties: &[
        parameter("id", Integer),
        parameter("name", Text(Any)),
        parameter("state", Text(OneOf(CONTAINER_STATES))),
    ],
};

static DELETION: ObjectSchema = ObjectSchema {
    name: "query of DELETE /attach and /mount",
    properties: &[
        parameter("force", Boolean),
        Property { name: "id", value: Integer, usage: Required },
    ],
};

static CONTAINER_DELETION: ObjectSchema = ObjectSchema {
    name: "query of delete_container",
    properties: &[
        parameter("force", Boolean),
        parameter("id", Integer),
        parameter("name", Text(Any)),
    ],
};

static STATE_CHANGE: ObjectSchema = ObjectSchema {
    name: "query of set_container_state",
    properties: &[
        parameter("id", Integer),
        parameter("name", Text(Any)),
        Property {
            name: "state",
            value: Text(OneOf(&["running", "exited", "paused"])),
            usage: Required,
        },
    ],
};

/// All paths.
pub(crate) static PATHS: [Path; 3] = [
    Path {
        path: "/attach",
        allow: "GET,DELETE,POST",
        object: &ATTACH,
        methods: &[
            route(Method::GET, Operation::ListAttachments, &ATTACHMENT_FILTER),
            route(Method::DELETE, Operation::DeleteAttachment, &DELETION),
            route(Method::POST, Operation::CreateAttachment, &NONE),
        ],
    },
    Path {
        path: "/mount",
        allow: "GET,DELETE,POST",
        object: &MOUNT,
        methods: &[
            route(Method::GET, Operation::ListMounts, &MOUNT_FILTER),
            route(Method::DELETE, Operation::DeleteMount, &DELETION),
            route(Method::POST, Operation::CreateMount, &NONE),
        ],
    },
    Path {
        path: "/container",
        allow: "GET,DELETE,POST,PATCH",
        object: &CONTAINER,
        methods: &[
            route(Method::GET, Operation::ListContainers, &CONTAINER_FILTER),
            route(Method::DELETE, Operation::DeleteContainer, &CONTAINER_DELETION),
            route(Method::POST, Operation::CreateContainer, &NONE),
            route(Method::PATCH, Operation::SetContainerState, &STATE_CHANGE),
        ],
    },
];

/// Finds the operation of `method` and `path`. The path may end with a slash. It begins with two if
/// the base URL of the client ends with one.
pub(crate) fn find(
    method: &Method,
    path: &str,
) -> Result<(&'static Path, &'static OperationRoute), ApiError> {
    let begun = path.strip_prefix('/').map(|rest| rest.trim_start_matches('/'));
    let name = begun.map(|name| name.strip_suffix('/').unwrap_or(name));
    let Some(found) = PATHS.iter().find(|it| it.path.strip_prefix('/') == name) else {
        let message = format!("path {BASE_PATH}{path} was not found");
        return Err(ApiError::new(StatusCode::NOT_FOUND, message));
    };
    match found.methods.iter().find(|route| route.method == *method) {
        Some(route) => Ok((found, route)),
        None => {
            let message = format!("method {method} is not allowed, but [{}] are", found.allow);
            let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message);
            Err(ApiError { allow: Some(found.allow), ..error })
        }
    }
}

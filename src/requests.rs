//! The standard calls of nouns: create, get, list, update, delete and watch.
//!
//! Each noun has request messages of its own. These traits are what they have in common, so that one
//! implementation serves the calls of all nouns, and one makes them: [`HasCreate`] and its like name
//! the request of an object's call.

use std::collections::BTreeMap;

use prost::{Message, Name};
use prost_types::FieldMask;

use crate::HardwareId;
use crate::client::Call;
use crate::common::v1::View;
use crate::watch::WatchResponse;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A request that creates an object.
pub trait CreateRequest: Message + Name + Default {
    /// The object.
    type Object;
    /// The response, which has the object as it is stored.
    type Response: ObjectResponse<Self::Object>;
    /// The field with the object.
    const FIELD: &'static str;

    /// Returns the request that creates `object`. It has no id: it must not be repeated.
    fn of(object: Self::Object) -> Self;

    /// Returns the id of the request; empty if it must not be repeated.
    fn request_id(&self) -> &str;

    /// Returns the object to create.
    fn into_object(self) -> Option<Self::Object>;
}

/// A response that has an object.
pub trait ObjectResponse<T>: From<T> {
    /// Returns the object. Each server sends one.
    fn into_object(self) -> Option<T>;
}

/// A request that replaces fields of an object.
pub trait UpdateRequest {
    /// The object.
    type Object;
    /// The response, which has the object as it is stored.
    type Response: ObjectResponse<Self::Object>;
    /// The field with the object.
    const FIELD: &'static str;

    /// Returns the request that replaces the fields `mask` of the object with those of `object`;
    /// without a mask, all fields.
    fn of(object: Self::Object, mask: Option<FieldMask>) -> Self;

    /// Returns the object with the new values, and the names of the fields to replace.
    fn into_update(self) -> (Option<Self::Object>, Vec<String>);
}

/// The way in which a request names an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// By its id.
    Id(String),
    /// By its name.
    Name(String),
}

/// A request that reads one object, by its id or name.
pub trait GetRequest {
    /// The object.
    type Object;
    /// The response.
    type Response: ObjectResponse<Self::Object>;

    /// Returns the request for the object that is named `by`, in this `view` if the noun has views.
    fn of(by: By, view: View) -> Self;

    /// Returns the view that the caller wants.
    fn wanted_view(&self) -> View {
        View::Unspecified
    }

    /// Returns how the request names the object; none if it names none.
    fn by(self) -> Option<By>;
}

/// A request that deletes an object.
pub trait DeleteRequest {
    /// The response.
    type Response: Default;
    /// The field with the id.
    const FIELD: &'static str;

    /// Returns the request that deletes the object with the id `id`, whatever its revision is.
    fn of(id: String) -> Self;

    /// Returns the id, and the expected revision or 0.
    fn into_id(self) -> (String, i64);
}

/// A request for a page of objects.
pub trait ListRequest: Filter + Send + Sync + 'static {
    /// The object.
    type Object;
    /// The response.
    type Response: From<Page<Self::Object>> + Into<Page<Self::Object>>;

    /// Returns the request for a page of at most `page_size` objects, with these `labels` if the
    /// noun has labels.
    fn of(page_size: i32, page_token: String, labels: Labels) -> Self;

    /// Returns the view that the caller wants.
    fn wanted_view(&self) -> View {
        View::Unspecified
    }

    /// Returns the maximum number of objects.
    fn page_size(&self) -> i32;

    /// Returns the token of the page; empty for the first one.
    fn page_token(&self) -> &str;
}

/// A page of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The objects.
    pub objects: Vec<T>,
    /// The token of the next page; empty after the last one.
    pub next_page_token: String,
}

/// A request for the changes of objects.
pub trait WatchRequest: Filter + Send + Sync + 'static {
    /// The response.
    type Response: WatchResponse + Send + 'static;

    /// Returns the request for the changes of the object with the id `id`, or of all if it is empty.
    fn of(id: String, view: View) -> Self;

    /// Returns the view that the caller wants.
    fn wanted_view(&self) -> View {
        View::Unspecified
    }

    /// Returns the id of the only object to watch; empty for all.
    fn id(&self) -> &str;
}

/// An object that can be created.
pub trait HasCreate: Sized {
    /// The request.
    type Create: CreateRequest<Object = Self>
        + Call<Response = <Self::Create as CreateRequest>::Response>;
}

/// An object that can be changed.
pub trait HasUpdate: Sized {
    /// The request.
    type Update: UpdateRequest<Object = Self>
        + Call<Response = <Self::Update as UpdateRequest>::Response>;
}

/// An object that can be read by its id or name.
pub trait HasGet: Sized {
    /// The request.
    type Get: GetRequest<Object = Self> + Call<Response = <Self::Get as GetRequest>::Response>;
}

/// An object that can be deleted by its id.
pub trait HasDelete: Sized {
    /// The request.
    type Delete: DeleteRequest + Call<Response = <Self::Delete as DeleteRequest>::Response>;
}

/// An object that can be listed.
pub trait HasList: Sized {
    /// The request.
    type List: ListRequest<Object = Self> + Call<Response = <Self::List as ListRequest>::Response>;
}

/// An object that can be watched.
pub trait HasWatch: Sized {
    /// The request.
    type Watch: WatchRequest<Response: WatchResponse<Object = Self> + Message + Default>
        + Call<Response = <Self::Watch as WatchRequest>::Response>;
}

static NO_LABELS: Labels = BTreeMap::new();

/// The values by which a request filters objects. Empty ones do not filter.
pub trait Filter {
    /// Returns labels that the objects have.
    fn labels(&self) -> &Labels {
        &NO_LABELS
    }

    /// Returns the tenant of the objects.
    fn tenant(&self) -> &str {
        ""
    }

    /// Returns the state of the objects; 0 for any.
    fn state(&self) -> i32 {
        0
    }

    /// Returns the machine of the objects.
    fn hardware_id(&self) -> &str {
        ""
    }

    /// Returns the name of the objects.
    fn name(&self) -> &str {
        ""
    }

    /// True if all objects pass.
    fn is_empty(&self) -> bool {
        self.labels().is_empty()
            && self.state() == 0
            && [self.tenant(), self.hardware_id(), self.name()].iter().all(|text| text.is_empty())
    }

    /// True if `object` passes.
    fn keeps(&self, object: &impl Attributes) -> bool {
        let is_one = |wanted: &str, value: &str| wanted.is_empty() || wanted == value;
        is_one(self.tenant(), object.tenant())
            && is_machine(self.hardware_id(), object.hardware_id())
            && is_one(self.name(), object.name())
            && (self.state() == 0 || self.state() == object.state())
            && object.has_labels(self.labels())
    }
}

/// True if `wanted` is empty, or the id `stored` in any of its forms.
fn is_machine(wanted: &str, stored: &str) -> bool {
    let is_same_id =
        || wanted.parse::<HardwareId>().is_ok_and(|id| stored.parse::<HardwareId>() == Ok(id));
    wanted.is_empty() || wanted == stored || is_same_id()
}

/// The values of an object by which it is filtered.
pub trait Attributes {
    /// Returns the labels.
    fn labels(&self) -> &Labels {
        &NO_LABELS
    }

    /// Returns the tenant; empty for the site.
    fn tenant(&self) -> &str {
        ""
    }

    /// Returns the number of the state; 0 if it has none.
    fn state(&self) -> i32 {
        0
    }

    /// Returns the id of the machine; empty if it has none.
    fn hardware_id(&self) -> &str {
        ""
    }

    /// Returns the name that people gave it; empty if it has none.
    fn name(&self) -> &str {
        ""
    }

    /// True if the object has all of `labels`.
    fn has_labels(&self, labels: &Labels) -> bool {
        labels.iter().all(|(key, value)| self.labels().get(key) == Some(value))
    }
}

/// Implements a function of [`Filter`] or [`Attributes`] by a field.
macro_rules! value {
    (labels, $field:ident) => {
        fn labels(&self) -> &Labels {
            &self.$field
        }
    };
    (state, $field:ident) => {
        fn state(&self) -> i32 {
            self.$field
        }
    };
    ($name:ident, $field:ident) => {
        fn $name(&self) -> &str {
            &self.$field
        }
    };
}

/// Implements [`Attributes`].
macro_rules! attributes {
    ($($object:ty, [$($name:ident $field:ident,)*];)*) => {$(
        impl Attributes for $object {
            $(value!($name, $field);)*
        }
    )*};
}

include!(concat!(env!("OUT_DIR"), "/attributes.rs"));

/// Implements the view that a request has, if it has one.
macro_rules! wanted_view {
    ([]) => {};
    ([view]) => {
        fn wanted_view(&self) -> View {
            self.view()
        }
    };
}

/// Sets the view of a request, if it has one.
macro_rules! with_view {
    ([], $request:expr, $view:ident) => {{
        let _has_none = $view;
        $request
    }};
    ([view], $request:expr, $view:ident) => {{
        let mut request = $request;
        request.view = $view.into();
        request
    }};
}

/// Sets the labels that a list filters by, if it does.
macro_rules! with_labels {
    ([labels $($_other:ident)*], $request:ident, $labels:ident) => {
        Self { labels: $labels, ..$request }
    };
    ([$($_other:ident)*], $request:ident, $labels:ident) => {{
        let _has_none = $labels;
        $request
    }};
}

/// Implements the trait of a standard call.
macro_rules! create {
    ($request:ty, $response:ty, $object:ty, $field:ident) => {
        impl CreateRequest for $request {
            type Object = $object;
            type Response = $response;
            const FIELD: &'static str = stringify!($field);

            fn of(object: $object) -> Self {
                Self { $field: Some(object), ..Self::default() }
            }

            fn request_id(&self) -> &str {
                &self.request_id
            }

            fn into_object(self) -> Option<$object> {
                self.$field
            }
        }

        object_response!($response, $object, $field);
    };
}

macro_rules! update {
    ($request:ty, $response:ty, $object:ty, $field:ident) => {
        impl UpdateRequest for $request {
            type Object = $object;
            type Response = $response;
            const FIELD: &'static str = stringify!($field);

            #[allow(clippy::needless_update)]
            fn of(object: $object, mask: Option<FieldMask>) -> Self {
                Self { $field: Some(object), update_mask: mask, ..Self::default() }
            }

            fn into_update(self) -> (Option<$object>, Vec<String>) {
                (self.$field, self.update_mask.unwrap_or_default().paths)
            }
        }

        object_response!($response, $object, $field);
    };
}

macro_rules! get {
    ($request:ty, $response:ty, $object:ty, $field:ident, $by:ty, $view:tt) => {
        impl GetRequest for $request {
            type Object = $object;
            type Response = $response;

            wanted_view!($view);

            #[allow(clippy::needless_update)]
            fn of(by: By, view: View) -> Self {
                type Field = $by;
                let by = match by {
                    By::Id(id) => Field::Id(id),
                    By::Name(name) => Field::Name(name),
                };
                with_view!($view, Self { by: Some(by), ..Self::default() }, view)
            }

            fn by(self) -> Option<By> {
                type Field = $by;
                Some(match self.by? {
                    Field::Id(id) => By::Id(id),
                    Field::Name(name) => By::Name(name),
                })
            }
        }

        object_response!($response, $object, $field);
    };
}

macro_rules! delete {
    ($request:ty, $response:ty, $id:ident) => {
        impl DeleteRequest for $request {
            type Response = $response;
            const FIELD: &'static str = stringify!($id);

            #[allow(clippy::needless_update)]
            fn of(id: String) -> Self {
                Self { $id: id, ..Self::default() }
            }

            fn into_id(self) -> (String, i64) {
                (self.$id, self.revision)
            }
        }
    };
}

macro_rules! list {
    (
        $request:ty, $response:ty, $object:ty, $objects:ident, $view:tt, [$($filter:ident)*]
    ) => {
        impl Filter for $request {
            $(value!($filter, $filter);)*
        }

        impl ListRequest for $request {
            type Object = $object;
            type Response = $response;

            wanted_view!($view);

            #[allow(clippy::needless_update)]
            fn of(page_size: i32, page_token: String, labels: Labels) -> Self {
                let request = Self { page_size, page_token, ..Self::default() };
                with_labels!([$($filter)*], request, labels)
            }

            fn page_size(&self) -> i32 {
                self.page_size
            }

            fn page_token(&self) -> &str {
                &self.page_token
            }
        }

        impl From<Page<$object>> for $response {
            #[allow(clippy::needless_update)]
            fn from(page: Page<$object>) -> Self {
                let Page { objects, next_page_token } = page;
                Self { $objects: objects, next_page_token, ..Self::default() }
            }
        }

        impl From<$response> for Page<$object> {
            fn from(response: $response) -> Self {
                Self { objects: response.$objects, next_page_token: response.next_page_token }
            }
        }
    };
}

macro_rules! watch {
    ($request:ty, $response:ty, $id:ident, $view:tt, [$($filter:ident)*]) => {
        impl Filter for $request {
            $(value!($filter, $filter);)*
        }

        impl WatchRequest for $request {
            type Response = $response;

            wanted_view!($view);

            #[allow(clippy::needless_update)]
            fn of(id: String, view: View) -> Self {
                with_view!($view, Self { $id: id, ..Self::default() }, view)
            }

            fn id(&self) -> &str {
                &self.$id
            }
        }
    };
}

/// Implements the conversion of an object to the response that has it.
macro_rules! object_response {
    ($response:ty, $object:ty, $field:ident) => {
        impl From<$object> for $response {
            #[allow(clippy::needless_update)]
            fn from(object: $object) -> Self {
                Self { $field: Some(object), ..Self::default() }
            }
        }

        impl ObjectResponse<$object> for $response {
            fn into_object(self) -> Option<$object> {
                self.$field
            }
        }
    };
}

/// Names the request of a call of an object.
macro_rules! call {
    ($trait:ident, $name:ident, $object:ty, $request:ty) => {
        impl $trait for $object {
            type $name = $request;
        }
    };
}

/// Implements the traits of all standard calls.
macro_rules! requests {
    ($($verb:ident $arguments:tt;)*) => {
        $($verb! $arguments;)*
    };
}

include!(concat!(env!("OUT_DIR"), "/requests.rs"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::v1::{ListWorkflowsRequest, Workflow};

    #[test]
    fn a_filter_knows_an_id_in_each_of_its_forms() {
        let machine = HardwareId::new().to_string();
        let workflow = Workflow { hardware_id: machine.clone(), ..Workflow::default() };
        for (wanted, passes) in [
            (String::new(), true),
            (machine.clone(), true),
            (machine.to_uppercase(), true),
            (HardwareId::new().to_string(), false),
            ("x".into(), false),
        ] {
            let request = ListWorkflowsRequest { hardware_id: wanted, ..Default::default() };
            assert_eq!(request.keeps(&workflow), passes, "{}", request.hardware_id);
        }
    }
}

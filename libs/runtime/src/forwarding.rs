//! A door authenticates its clients itself, and sends the URI of the client's caller in the call's metadata. The call is then
//! judged as the client's: it has the client's rights, never the door's, and never more.
//!
//! Only the role `door` may send the metadata, and only for people and credentials: the roles viewer, operator and admin.

use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::metadata::{BinaryMetadataKey, BinaryMetadataValue, MetadataMap};
use tonic::service::Interceptor;
use tonic::{Request, Status};
use tracing::Span;

use crate::identity::{Caller, InvalidCaller, Role};

/// The key of the metadata.
pub const KEY: &str = "tinwright-caller-bin";

/// Adds the client of a door to each call. The door's channel has to be of the role `door`.
#[derive(Clone, Debug)]
pub struct ForwardCaller(BinaryMetadataValue);

impl ForwardCaller {
    /// Forwards `caller`.
    pub fn new(caller: &Caller) -> Self {
        Self(BinaryMetadataValue::from_bytes(caller.to_string().as_bytes()))
    }
}

impl Interceptor for ForwardCaller {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let key = BinaryMetadataKey::from_static(KEY);
        request.metadata_mut().insert_bin(key, self.0.clone());
        Ok(request)
    }
}

/// True if a door may forward callers of this role.
fn is_forwardable(role: Role) -> bool {
    matches!(role, Role::Viewer | Role::Operator | Role::Admin)
}

/// Makes the client of a door the caller of the request, and returns it.
pub(crate) fn apply<B>(request: &mut http::Request<B>) -> Result<Option<Caller>, Status> {
    let client = client(request.headers(), request.extensions().get())?;
    if let Some(client) = &client {
        Span::current().record("caller", tracing::field::display(client));
        request.extensions_mut().insert(client.clone());
    }
    Ok(client)
}

/// Returns the caller in `headers`, if there is one. The connection is of the caller `sender`.
fn client(headers: &HeaderMap, sender: Option<&Caller>) -> Result<Option<Caller>, Status> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let door = sender.filter(|sender| sender.role() == Role::Door).ok_or_else(|| {
        Status::permission_denied(format!("{KEY}: only the role door forwards callers"))
    })?;
    if values.next().is_some() {
        return Err(Status::invalid_argument(format!("{KEY} is there more than once")));
    }
    let client = parse(value)?;
    if !is_forwardable(client.role()) {
        let role = client.role();
        return Err(Status::permission_denied(format!("{KEY}: no door forwards {role}")));
    }
    Ok(Some(client.forwarded_by(door)))
}

fn parse(value: &HeaderValue) -> Result<Caller, Status> {
    let invalid = |reason: &str| Status::invalid_argument(format!("{KEY}: {reason}"));
    let header = HeaderMap::from_iter([(HeaderName::from_static(KEY), value.clone())]);
    let metadata = MetadataMap::from_headers(header);
    let bytes = metadata.get_bin(KEY).and_then(|value| value.to_bytes().ok());
    let bytes = bytes.ok_or_else(|| invalid("not base64"))?;
    let uri = std::str::from_utf8(&bytes).map_err(|_| invalid("not UTF-8"))?;
    uri.parse().map_err(|error: InvalidCaller| invalid(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use prost_reflect::DescriptorPool;
    use tinwright::HardwareId;
    use tonic::Code;
    use tower::ServiceExt as _;

    use super::*;
    use crate::access;
    use crate::identity::MachinePurpose;
    use crate::test_layer::layered;

    fn headers(caller: &Caller) -> HeaderMap {
        let request = ForwardCaller::new(caller).call(Request::new(())).unwrap();
        request.into_parts().0.into_headers()
    }

    fn door() -> Caller {
        Caller::new(Role::Door, "service:gateway").unwrap()
    }

    #[test]
    fn the_client_of_a_door_is_the_caller_and_the_door_is_named() {
        let anna: Caller = "tinwright:viewer?subject=person:anna&tenant=acme".parse().unwrap();
        let forwarded = client(&headers(&anna), Some(&door())).unwrap().unwrap();
        assert_eq!(forwarded.via().map(|it| &**it), Some("service:gateway"));
        assert_eq!(anna.via(), None);
        assert_eq!((forwarded.role(), forwarded.tenant()), (anna.role(), anna.tenant()));
        assert_eq!(forwarded.to_string(), anna.to_string());
        assert_eq!(client(&HeaderMap::new(), Some(&door())).unwrap(), None);
        assert_eq!(client(&HeaderMap::new(), None).unwrap(), None);
    }

    #[test]
    fn only_doors_forward_and_only_people_are_forwarded() {
        let machine = |purpose| Role::Machine(HardwareId::new(), purpose);
        let people = [Role::Viewer, Role::Operator, Role::Admin];
        let others = [Role::Service, Role::Edge, Role::Door, Role::Builder];
        let machines = [MachinePurpose::Work, MachinePurpose::Enrol, MachinePurpose::Node];
        let others: Vec<_> = others.into_iter().chain(machines.map(machine)).collect();
        let forward = |role: Role, sender: Option<Role>| {
            let sender = sender.map(Caller::from);
            client(&headers(&role.into()), sender.as_ref()).map_err(|status| status.code())
        };
        for role in people {
            assert_eq!(forward(role, Some(Role::Door)).unwrap().unwrap().role(), role);
            assert_eq!(forward(role, None), Err(Code::PermissionDenied));
            for sender in people.iter().chain(&others).filter(|role| **role != Role::Door) {
                assert_eq!(forward(role, Some(*sender)), Err(Code::PermissionDenied), "{sender}");
            }
        }
        for role in others {
            assert_eq!(forward(role, Some(Role::Door)), Err(Code::PermissionDenied), "{role}");
        }
    }

    #[test]
    fn other_values_are_refused_with_the_reason() {
        let refused = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(KEY, value.parse().unwrap());
            }
            let status = client(&headers, Some(&door())).unwrap_err();
            (status.code(), status.message().to_owned())
        };
        let invalid = |reason: &str| (Code::InvalidArgument, format!("{KEY}{reason}"));
        let viewer = "dGlud3JpZ2h0OnZpZXdlcg"; // tinwright:viewer
        assert_eq!(refused(&[viewer, viewer]), invalid(" is there more than once"));
        assert_eq!(refused(&["%"]), invalid(": not base64"));
        assert_eq!(refused(&["/w"]), invalid(": not UTF-8"));
        assert_eq!(refused(&[""]), invalid(": \"\" does not name a role"));
        assert_eq!(refused(&["cm9vdA"]), invalid(": \"root\" does not name a role"));
    }

    /// Makes the call `path` over a connection of `sender`. Returns the code of its answer, and the caller by whom it was judged.
    async fn call(path: &str, sender: &Caller, client: Option<&Caller>) -> (Code, Option<Caller>) {
        let service = async |request: axum::extract::Request| {
            let mut response = Status::ok("").into_http::<Body>();
            *response.extensions_mut() = request.extensions().clone();
            response
        };
        let app = Router::new().fallback(service);
        let app = layered(app, (), |(), request, next| access::check(request, next));
        let mut request = http::Request::post(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(sender.clone());
        client.inspect(|client| request.headers_mut().extend(headers(client)));
        let response = app.oneshot(request).await.unwrap();
        let code = Status::from_header_map(response.headers()).unwrap().code();
        (code, response.extensions().get().cloned())
    }

    #[tokio::test]
    async fn a_forwarded_caller_may_make_exactly_the_calls_that_it_may_make_itself() {
        let pool = DescriptorPool::decode(tinwright::DESCRIPTORS).unwrap();
        let methods = pool.services().flat_map(|it| it.methods().collect::<Vec<_>>());
        let uris = [
            "tinwright:viewer",
            "tinwright:operator?subject=person:anna",
            "tinwright:admin",
            "tinwright:viewer?tenant=acme",
            "tinwright:operator?subject=credential:1&tenant=acme",
            "tinwright:admin?tenant=acme",
        ];
        let clients = uris.map(|uri| uri.parse::<Caller>().unwrap());
        for method in methods {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            for client in &clients {
                let (expected, _) = call(&path, client, None).await;
                let (code, seen) = call(&path, &door(), Some(client)).await;
                assert_eq!(code, expected, "{path}, {client}");
                let seen = seen.map(|caller| (caller.to_string(), caller.via().cloned()));
                let caller = (client.to_string(), Some("service:gateway".into()));
                assert_eq!(seen, Some(caller), "{path}");
                // Whoever is no door makes no call at all with this metadata, however large its own rights are.
                let (code, seen) = call(&path, &Role::Admin.into(), Some(client)).await;
                assert_eq!((code, seen), (Code::PermissionDenied, None), "{path}");
            }
        }
    }
}

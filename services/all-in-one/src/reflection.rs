//! gRPC reflection, which is built at its first call: the descriptors take several MiB.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use tonic::service::Routes;
use tower::ServiceExt as _;

/// The paths of both versions.
const PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// The services of both versions, once they were called.
type LazyServices = Arc<LazyLock<Router, Box<dyn FnOnce() -> Router + Send>>>;

/// Returns `router` with reflection of the encoded file descriptor sets `descriptors`.
pub(crate) fn with_reflection(router: Router, descriptors: [&'static [u8]; 2]) -> Router {
    let services: LazyServices = Arc::new(LazyLock::new(Box::new(move || services(descriptors))));
    PATHS
        .into_iter()
        .fold(router, |router, path| router.route(path, post(call).with_state(services.clone())))
}

async fn call(State(services): State<LazyServices>, request: Request) -> Response {
    let response: Result<Response, Infallible> = Router::clone(&services).oneshot(request).await;
    response.unwrap_or_else(|never| match never {})
}

/// Returns the services. Descriptors that cannot be read leave a version out; a test reads them.
fn services(descriptors: [&'static [u8]; 2]) -> Router {
    let builder = || {
        let builder = tonic_reflection::server::Builder::configure();
        descriptors
            .into_iter()
            .fold(builder, |builder, set| builder.register_encoded_file_descriptor_set(set))
    };
    let mut routes = Routes::builder();
    if let Ok(service) = builder().build_v1() {
        routes.add_service(service);
    }
    if let Ok(service) = builder().build_v1alpha() {
        routes.add_service(service);
    }
    routes.routes().into_axum_router()
}

//! A middleware under test as the layer of a router.

use std::pin::Pin;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;

/// Makes the call behind a middleware.
pub(crate) type MakeCall =
    Box<dyn FnOnce(Request) -> Pin<Box<dyn Future<Output = Response> + Send>> + Send>;

/// Returns `app` behind `middleware`, which gets `state`, the request, and what makes the call.
pub(crate) fn layered<S, F>(
    app: Router,
    state: S,
    middleware: impl Fn(S, Request, MakeCall) -> F + Clone + Send + Sync + 'static,
) -> Router
where
    S: Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    app.layer(from_fn(move |request: Request, next: Next| {
        let make_call: MakeCall = Box::new(|request| Box::pin(next.run(request)));
        middleware(state.clone(), request, make_call)
    }))
}

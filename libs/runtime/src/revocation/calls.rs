//! Calls of callers whose credential is revoked: refused, and their open streams ended.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use http::HeaderMap;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;

use super::Revocations;
use crate::identity::Caller;

/// Subjects that a door's clients have.
const SUBJECT_PREFIX: &str = "credential:";

/// Makes a call with `next`. Refuses it if its caller's credential is revoked, and ends its streams once it is, with
/// `UNAUTHENTICATED`.
pub async fn refuse_revoked<F: Future<Output = Response>>(
    revocations: &Revocations,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let subject = request.extensions().get::<Caller>().map(Caller::subject);
    let Some(identity) = subject.filter(|it| it.starts_with(SUBJECT_PREFIX)).cloned() else {
        return next(request).await;
    };
    let Some(response) = revocations.unless_revoked(&identity, next(request)).await else {
        return refusal().into_http();
    };
    let revocations = revocations.clone();
    let revoked = Box::pin(async move { revocations.revoked(&identity).await });
    response.map(|body| Body::new(RevocableBody { body, revoked, is_ended: false }))
}

fn refusal() -> Status {
    Status::unauthenticated("the credential is revoked")
}

/// A body that ends with a status once its caller's credential is revoked.
struct RevocableBody {
    body: Body,
    revoked: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_ended: bool,
}

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        if self.revoked.as_mut().poll(cx).is_pending() {
            return Pin::new(&mut self.body).poll_frame(cx);
        }
        self.is_ended = true;
        let mut trailers = HeaderMap::new();
        let added = refusal().add_header(&mut trailers).map_err(axum::Error::new);
        Poll::Ready(Some(added.map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::Router;
    use axum::routing::post;
    use futures_util::{StreamExt as _, stream};
    use tinwright::identity::v1::Revocation;
    use tinwright::watch::FeedEvent;
    use tonic::Code;
    use tower::ServiceExt as _;

    use super::*;
    use crate::identity::Role;
    use crate::test_layer::layered;

    fn request(subject: &str) -> Request {
        let caller = Caller::new(Role::Viewer, subject).unwrap();
        let mut request = Request::post("/").body(Body::empty()).unwrap();
        request.extensions_mut().insert(caller);
        request
    }

    #[tokio::test]
    async fn the_calls_of_a_revoked_credential_are_refused_and_its_streams_end_with_the_reason() {
        let revocations = Revocations::default();
        let endless = || async {
            Body::from_stream(stream::iter([Ok::<_, Infallible>("x")]).chain(stream::pending()))
        };
        let app = Router::new().route("/", post(endless));
        let app = layered(app, revocations.clone(), async move |it, request, next| {
            refuse_revoked(&it, request, next).await
        });
        let call = async |subject| app.clone().oneshot(request(subject)).await.unwrap();
        let mut open = call("credential:1").await.into_body();
        let mut next = async || std::future::poll_fn(|cx| Pin::new(&mut open).poll_frame(cx)).await;
        assert!(next().await.unwrap().unwrap().is_data());
        let revocation = Revocation { id: "credential:1".into(), ..Revocation::default() };
        revocations.apply(FeedEvent::Put(revocation));
        let trailers = next().await.unwrap().unwrap().into_trailers().unwrap();
        let status = Status::from_header_map(&trailers).unwrap();
        assert_eq!(status.code(), Code::Unauthenticated);
        assert!(next().await.is_none());
        let code = async |subject| {
            let response = call(subject).await;
            Status::from_header_map(response.headers()).map(|status| status.code())
        };
        assert_eq!(code("credential:1").await, Some(Code::Unauthenticated));
        assert_eq!(code("credential:2").await, None);
    }
}

//! The body of a request, while it is passed on.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// Maximum time between two parts of a body.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A body that is cut after a minute without a byte. What was not read can be taken back.
#[derive(Clone, Debug)]
pub(super) struct PassedBody(Arc<Mutex<Passed>>);

#[derive(Debug)]
struct Passed {
    /// What was not read yet; none after the end.
    rest: Option<Body>,
    /// True if the reader gets no more of it, although it has not ended.
    is_broken: bool,
    /// Ends the wait for the next part.
    idle: Option<Pin<Box<Sleep>>>,
}

impl PassedBody {
    pub(super) fn new(body: Body) -> Self {
        let rest = Some(body);
        Self(Arc::new(Mutex::new(Passed { rest, is_broken: false, idle: None })))
    }

    /// True if its client broke it off, or sent nothing for a minute.
    pub(super) fn is_broken(&self) -> bool {
        self.lock().is_broken
    }

    /// Takes what was not read, which its reader gets no more; none after the end.
    pub(super) fn take(&self) -> Option<Body> {
        let mut passed = self.lock();
        passed.is_broken |= passed.rest.is_some();
        passed.rest.take()
    }

    fn lock(&self) -> MutexGuard<'_, Passed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Passed {
    fn poll_rest(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_broken {
            // Never a plain end: what arrived could be taken for the whole body.
            return Poll::Ready(Some(Err(axum::Error::new("the body is not complete"))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let part = Pin::new(rest).poll_frame(context);
        match &part {
            Poll::Pending => return self.poll_idle(context),
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(_))) => self.is_broken = true,
            Poll::Ready(None) => self.rest = None,
        }
        self.idle = None;
        part
    }

    /// Breaks the body if nothing arrives for too long.
    fn poll_idle(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(IDLE_TIMEOUT)));
        if idle.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.is_broken = true;
        Poll::Ready(Some(Err(axum::Error::new("nothing arrived for a minute"))))
    }
}

impl http_body::Body for PassedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.lock().poll_rest(context)
    }

    fn is_end_stream(&self) -> bool {
        let passed = self.lock();
        !passed.is_broken && passed.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let passed = self.lock();
        passed.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};
    use http_body_util::BodyExt as _;

    use super::*;

    fn part(text: &'static str) -> Result<Bytes, axum::Error> {
        Ok(Bytes::from_static(text.as_bytes()))
    }

    async fn next(body: &mut PassedBody) -> Option<Result<Bytes, String>> {
        let frame = body.frame().await?;
        Some(frame.map(|it| it.into_data().unwrap()).map_err(|error| error.to_string()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_cut_after_a_minute_without_a_byte_and_not_before() {
        let slow = |text| async move {
            sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
            part(text)
        };
        let parts = stream::iter(["a", "b"]).then(slow).chain(stream::pending());
        let mut body = PassedBody::new(Body::from_stream(parts));
        assert_eq!(next(&mut body).await, Some(Ok("a".into())));
        // Time without a reader is not the client's.
        sleep(IDLE_TIMEOUT * 2).await;
        assert_eq!(next(&mut body).await, Some(Ok("b".into())));
        assert_eq!(next(&mut body).await, Some(Err("nothing arrived for a minute".into())));
        assert!(body.is_broken() && body.take().is_some());
    }

    #[tokio::test]
    async fn a_body_that_was_taken_back_does_not_look_complete() {
        let mut body = PassedBody::new(Body::from_stream(stream::iter([part("a"), part("b")])));
        assert_eq!(next(&mut body).await, Some(Ok("a".into())));
        assert!(body.take().is_some());
        assert!(!body.is_end_stream());
        assert_eq!(next(&mut body).await, Some(Err("the body is not complete".into())));
        let mut read = PassedBody::new(Body::from("a"));
        assert_eq!(next(&mut read).await, Some(Ok("a".into())));
        assert_eq!(next(&mut read).await, None);
        assert!(read.take().is_none(), "nothing is left");
    }
}

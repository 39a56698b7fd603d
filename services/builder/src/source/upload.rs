//! Sources that clients have uploaded. The image service has them.

use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use runtime::Channel;
use tonic::body::Body;

use super::answer::{Answer, Cut, stalled};
use crate::failure::Failure;
use crate::http::{is_temporary, send};

/// An upload. Its content does not change.
#[derive(Debug)]
pub(crate) struct Upload<'a> {
    pub(crate) channel: &'a Channel,
    pub(crate) image_id: &'a str,
}

impl Upload<'_> {
    /// Requests the upload with `headers`.
    pub(crate) async fn get(&self, headers: &HeaderMap, stall: Duration) -> Result<Answer, Cut> {
        let mut request = Request::get(format!("/uploads/{}", self.image_id)).body(Body::empty());
        if let Ok(request) = &mut request {
            request.headers_mut().extend(headers.clone());
        }
        let request = request.map_err(|error| Failure::host("upload", error))?;
        match tokio::time::timeout(stall, send(self.channel, request)).await {
            Ok(Ok(response)) => Ok(Answer::new(response)),
            Ok(Err(status)) => Err(Self::again(status.message())),
            Err(_) => Err(Self::again(&stalled(stall))),
        }
    }

    /// Fails unless `status` is that of a whole file, or of its rest.
    pub(crate) fn check_status(status: StatusCode) -> Result<(), Cut> {
        let problem = format!("the image service answered {status}");
        match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(()),
            status if is_temporary(status) => Err(Self::again(&problem)),
            // The upload may be there for another builder: its right may be the problem.
            _ => Err(Cut::End(Failure::temporary(format_args!("source.upload: {problem}")))),
        }
    }

    /// A failure that the same request may not have.
    pub(crate) fn again(problem: &str) -> Cut {
        Cut::Again(Failure::temporary(format_args!("source.upload: {problem}")))
    }
}

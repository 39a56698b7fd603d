//! Content of images by its digest, from `/blobs/<digest>` of the server.

use std::time::Duration;

use anyhow::Context as _;
use http::{Request, header};
use http_body_util::BodyExt as _;
use runtime::Channel;
use runtime::retry::{self, Backoff};
use site_archive::Digest;
use tonic::Status;
use tonic::body::Body;

use crate::http_requests;

/// Maximum number of consecutive attempts in which no byte came.
const MAX_FAILURES: u32 = 10;
/// Delays between attempts. Together they are longer than a restart of the server.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));

/// Returns the content `digest`, of at most `max` bytes, after a comparison.
pub(super) async fn read(channel: &Channel, digest: Digest, max: usize) -> anyhow::Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut append = |part: &[u8]| {
        anyhow::ensure!(content.len() + part.len() <= max, "more than {max} bytes");
        content.extend_from_slice(part);
        Ok(())
    };
    copy(channel, digest, &mut append).await.with_context(|| format!("content {digest}"))?;
    anyhow::ensure!(Digest::of(&content) == digest, "content {digest}: it arrived damaged");
    Ok(content)
}

/// Calls `each` with the parts of the content `digest`. After a broken connection it goes on where
/// the bytes end.
pub(super) async fn copy(
    channel: &Channel,
    digest: Digest,
    each: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut received, mut backoff) = (0, BACKOFF);
    loop {
        let before = received;
        let Err(status) = attempt(channel, digest, &mut received, each).await? else {
            return Ok(());
        };
        if received > before {
            backoff.reset();
        }
        if retry::is_final(status.code()) || backoff.failures() >= MAX_FAILURES {
            return Err(status.into());
        }
        backoff.wait().await;
    }
}

/// Requests the bytes behind the `received` ones. The outer error is one of `each`.
async fn attempt(
    channel: &Channel,
    digest: Digest,
    received: &mut u64,
    each: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<Result<(), Status>> {
    let mut request = Request::get(format!("/blobs/{digest}"));
    if *received > 0 {
        request = request.header(header::RANGE, format!("bytes={received}-"));
    }
    let response = match http_requests::send(channel, request.body(Body::empty())?).await {
        Ok(response) => response,
        Err(status) => return Ok(Err(status)),
    };
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let part = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(status) => return Ok(Err(retry::describe_broken(status))),
        };
        each(&part)?;
        *received += part.len() as u64;
    }
    Ok(Ok(()))
}

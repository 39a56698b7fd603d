//! The calls of an outside platform: HTTP requests to the gateway, without sockets, in front of services that know one of each thing.
//!
//! An input is an octet, followed by a request with head and body. If the octet is odd, the body is put into a wrapper with good
//! credentials, as the document of the call: changes of the input then reach the document, which is read after the credentials only.

mod corpus;
mod envelope;
mod services;

use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::to_bytes;
use axum::http::{HeaderMap, Method, StatusCode};
use gateway::ial::{IalSettings, doors};
use gateway::{Backend, Gateway};
use prometheus_client::registry::Registry;
use runtime::Clock;
use runtime::revocation::Revocations;
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

use crate::{Target, http_text};

/// The document that describes the door, which is the only answer without envelope.
const OPENAPI: &str = "openapi.json";
/// The paths of one call, by both methods.
const STATUS_PATHS: [&str; 2] = ["/provision-status", "/provision-check"];

/// The time between two requests. After it the gateway checks any credentials again, right or wrong: the answer to an input does not depend
/// on the inputs before it.
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// A response to an input.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// The gateway with the platform's door.
#[derive(Debug)]
pub struct Ial {
    runtime: Runtime,
    gateway: Router,
    clock: Clock,
}

impl Ial {
    /// Creates the gateway, which limits no rates.
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let clock = Clock::manual(SystemTime::UNIX_EPOCH);
        let gateway = {
            let _in_runtime = runtime.enter();
            gateway(&clock)?
        };
        Ok(Self { runtime, gateway, clock })
    }

    /// Sends a request. None if an HTTP server would refuse it before the gateway.
    fn send(&self, head: &[u8], body: &[u8]) -> anyhow::Result<Option<Answer>> {
        let Some(request) = http_text::request(head, body.to_vec()) else { return Ok(None) };
        self.clock.advance(REQUEST_INTERVAL);
        let answer = self.runtime.block_on(async {
            let (head, body) = self.gateway.clone().oneshot(request).await?.into_parts();
            let body = to_bytes(body, usize::MAX).await?.to_vec();
            anyhow::Ok(Answer { status: head.status, headers: head.headers, body })
        });
        answer.map(Some)
    }

    /// Fails if the status of a machine differs by the path or the method of its call, which has this head and body.
    fn check_variants(&self, head: &[u8], body: &[u8], answer: &Answer) -> anyhow::Result<()> {
        let head = String::from_utf8_lossy(head);
        let Some(used) = STATUS_PATHS.iter().find(|path| head.contains(**path)) else {
            return Ok(());
        };
        let Some((_, rest)) = head.split_once(' ') else { return Ok(()) };
        for (method, path) in [("GET", STATUS_PATHS[0]), ("POST", STATUS_PATHS[1])] {
            let variant = format!("{method} {}", rest.replacen(used, path, 1));
            let Some(other) = self.send(variant.as_bytes(), body)? else { continue };
            let same = (other.status, &other.body) == (answer.status, &answer.body);
            anyhow::ensure!(same, "{method} {path} has another answer");
        }
        Ok(())
    }
}

impl Target for Ial {
    fn corpus(&self) -> Vec<Vec<u8>> {
        corpus::requests()
    }

    fn words(&self) -> Vec<Vec<u8>> {
        corpus::words()
    }

    fn take(&mut self, input: &[u8]) -> anyhow::Result<()> {
        let Some((head, body)) = parts(input) else { return Ok(()) };
        let Some(request) = http_text::request(head, Vec::new()) else { return Ok(()) };
        let Some(answer) = self.send(head, &body)? else { return Ok(()) };
        let (method, path) = (request.method(), request.uri().path());
        let Some(path) = path_of_door(path) else { return Ok(()) };
        let is_document = path.trim_matches('/') == OPENAPI && method == Method::GET;
        if is_document && answer.status == StatusCode::OK {
            return Ok(());
        }
        envelope::check(method, answer.status, &answer.headers, &answer.body)?;
        let has_body = !body.is_empty() && (method == Method::GET || method == Method::POST);
        let is_status = STATUS_PATHS.iter().any(|status| path.ends_with(status));
        if has_body && is_status { self.check_variants(head, &body, &answer) } else { Ok(()) }
    }
}

/// Returns head and body of the request in `input`.
fn parts(input: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let (first, text) = input.split_first()?;
    let (head, body) = http_text::split(text)?;
    let body = if first % 2 == 0 { body.to_vec() } else { corpus::wrapped(body) };
    Some((head, body))
}

/// Returns the path below that of the door; none if the door does not serve it.
fn path_of_door(path: &str) -> Option<&str> {
    let below = path.strip_prefix("//v1").or_else(|| path.strip_prefix("/v1"))?;
    (below.is_empty() || below.starts_with('/')).then_some(below)
}

fn gateway(clock: &Clock) -> anyhow::Result<Router> {
    let channel = services::start()?;
    let backend = Backend::at_one(channel);
    let settings = gateway::GatewaySettings {
        rate_limits: false,
        clock: clock.clone(),
        ..gateway::GatewaySettings::default()
    };
    let gateway = Gateway::new(backend, Revocations::default(), settings, &mut Registry::default());
    let settings =
        IalSettings { is_catalogue_public: true, has_rate_limits: false, clock: clock.clone() };
    let doors = doors(&gateway, settings);
    Ok(gateway.router(doors, Router::new()))
}

#[cfg(test)]
mod tests;

//! The phone-home call, by which the installed system reports that it is up.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use tinwright::HardwareId;

use super::Service;
use super::first_access::AccessEvent;
use super::refusal::Refusal;
use super::request::Client;
use super::response;
use crate::machine::Machine;

/// The largest body of a call; cloud-init's three host keys are 2 KiB.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// The longest time for the body to arrive, and for the call to be stored. Clients repeat it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Stores phone-home calls.
#[async_trait]
pub trait PhoneHome: Send + Sync + 'static {
    /// Stores the call, and returns once it is durable. Clients repeat it until it is.
    async fn report(&self, call: PhoneHomeCall) -> Result<(), NotStored>;
}

/// A phone-home call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhoneHomeCall {
    /// The machine that has the client's address.
    pub hardware: HardwareId,
    /// The id of the instance on it, or its own if there is none.
    pub instance_id: String,
    /// The fields of the body: cloud-init's host keys, host name and the like. A JSON value that is no text is in JSON still.
    pub fields: BTreeMap<String, String>,
}

/// The call is not stored.
#[derive(Debug, thiserror::Error)]
#[error("the phone-home call is not stored")]
pub struct NotStored(#[source] pub Box<dyn std::error::Error + Send + Sync>);

impl Service {
    /// Stores a phone-home call of `machine`.
    pub(super) async fn accept_phone_home(
        &self,
        machine: &Machine,
        client: &Client<'_>,
        body: Body,
    ) -> Result<Response, Refusal> {
        let fields = self.fields(machine, client, body).await?;
        let instance_id = machine.instance_id().into_owned();
        if let Some(claimed) = fields.get("instance_id").filter(|id| **id != instance_id) {
            tracing::warn!(
                claimed,
                "phone-home call refused: another instance's id, perhaps in a copied image"
            );
            return Err(Refusal::Conflict);
        }
        let host_keys = fields.keys().filter(|name| name.starts_with("pub_key_")).count();
        let kind = runtime::phone_home::event_type(&fields);
        tracing::debug!(host_keys, kind, "phone-home call");
        self.store(PhoneHomeCall { hardware: machine.id, instance_id, fields }).await?;
        // With a type it is not the installed system's call, but for example its installer's.
        if kind.is_empty() {
            self.record_access(machine, AccessEvent::PhonedHome, client);
        }
        Ok(response::json("{}"))
    }

    /// Logs the progress that a system reports (Ignition's and Equinix Metal's `events`). It has no other effect.
    pub(super) async fn log_progress(
        &self,
        machine: &Machine,
        client: &Client<'_>,
        body: Body,
    ) -> Result<Response, Refusal> {
        let fields = self.fields(machine, client, body).await?;
        let short = |name| fields.get(name).map(|text| text.chars().take(200).collect::<String>());
        let (code, state, message) = (short("code"), short("state"), short("message"));
        tracing::info!(code, state, reported = message, "progress reported");
        Ok(response::json("{}"))
    }

    /// Returns the fields of a call's body, unless the machine calls too often.
    async fn fields(
        &self,
        machine: &Machine,
        client: &Client<'_>,
        body: Body,
    ) -> Result<BTreeMap<String, String>, Refusal> {
        self.limits.phone_home.take(machine.id, client.now)?;
        let body = tokio::time::timeout(TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await;
        let body = body.ok().and_then(Result::ok).ok_or(Refusal::Malformed)?;
        runtime::phone_home::parse_fields(&body).ok_or(Refusal::Malformed)
    }

    async fn store(&self, call: PhoneHomeCall) -> Result<(), Refusal> {
        let stored = tokio::time::timeout(TIMEOUT, self.phone_home.report(call)).await;
        let stored = stored.unwrap_or_else(|timeout| Err(NotStored(timeout.into())));
        stored.map_err(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "phone-home call not stored; the client repeats it");
            Refusal::NotReady
        })
    }
}

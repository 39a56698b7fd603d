//! The call home: the installed system is up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use tinwright::HardwareId;

use super::Service;
use super::answer;
use super::refusal::Refusal;
use super::seen::Event;
use crate::machine::Machine;

/// What a caller is told once its call is stored.
pub(super) const THANKS: &str = "{}";

/// How many bytes a call may have; cloud-init's three host keys are 2 KiB.
const LARGEST: usize = 64 * 1024;

/// How long a call may take to arrive, and how long to be stored. Callers try again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where calls home go.
#[async_trait]
pub trait PhoneHome: Send + Sync + 'static {
    /// Stores the call, and returns once it is durable. Callers repeat themselves until they hear so.
    async fn report(&self, call: Call) -> Result<(), NotStored>;
}

/// A machine that calls home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The machine, by the address it called from.
    pub hardware: HardwareId,
    /// What it goes by: the instance on it, or itself when there is none.
    pub instance_id: String,
    /// What it said, by name: cloud-init's host keys, host name and the like; nothing for an empty call. A value that
    /// came as JSON and is no text is JSON still.
    pub fields: BTreeMap<String, String>,
}

/// The call is not stored.
#[derive(Debug, thiserror::Error)]
#[error("the call home is not stored")]
pub struct NotStored(#[source] pub Box<dyn std::error::Error + Send + Sync>);

impl Service {
    /// Stores that `machine` called home, and says so.
    pub(super) async fn phoned_home(
        &self,
        machine: &Machine,
        body: Body,
    ) -> Result<Response, Refusal> {
        let fields = self.said(machine, body).await?;
        let instance_id = machine.instance_id().into_owned();
        if let Some(claimed) = fields.get("instance_id").filter(|id| **id != instance_id) {
            tracing::warn!(claimed, "a machine called home as another instance: a copied image?");
            return Err(Refusal::Conflict);
        }
        let host_keys = fields.keys().filter(|name| name.starts_with("pub_key_")).count();
        let kind = runtime::phone_home::event_type(&fields);
        tracing::debug!(host_keys, kind, "a machine called home");
        self.store(Call { hardware: machine.id, instance_id, fields }).await?;
        // An installer's word is not the installed system's.
        if kind.is_empty() {
            self.note(machine, Event::CalledHome);
        }
        Ok(answer::json(THANKS))
    }

    /// Writes down how far a system says it is (Ignition's and Equinix Metal's `events`). Nothing follows from it.
    pub(super) async fn reported(
        &self,
        machine: &Machine,
        body: Body,
    ) -> Result<Response, Refusal> {
        let fields = self.said(machine, body).await?;
        let short = |name| fields.get(name).map(|text| text.chars().take(200).collect::<String>());
        let (state, message) = (short("state"), short("message"));
        tracing::info!(code = ?short("code"), ?state, ?message, "a machine tells how far it is");
        Ok(answer::json(THANKS))
    }

    /// What a call says, unless the machine calls too often.
    async fn said(
        &self,
        machine: &Machine,
        body: Body,
    ) -> Result<BTreeMap<String, String>, Refusal> {
        self.limits.calls.take(machine.id, Instant::now())?;
        let arrived = tokio::time::timeout(PATIENCE, to_bytes(body, LARGEST)).await;
        let body = arrived.ok().and_then(Result::ok).ok_or(Refusal::Malformed)?;
        runtime::phone_home::parse_fields(&body).ok_or(Refusal::Malformed)
    }

    async fn store(&self, call: Call) -> Result<(), Refusal> {
        match tokio::time::timeout(PATIENCE, self.phone_home.report(call)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the caller will try again"
                );
                Err(Refusal::NotReady)
            }
            Err(_) => {
                tracing::warn!(patience = ?PATIENCE, "a call home took too long to store; the caller will try again");
                Err(Refusal::NotReady)
            }
        }
    }
}

//! The claims on the addresses of instances, at the address service.

use runtime::address_claims::{BoxError, Exchange, Holding, HoldingSource};
use store::records::{self, requests::IdempotentRequest};
use tinwright::instance::v1 as pb;
use tokio_util::sync::CancellationToken;

use super::{Error, Instances};

/// Records that are read at a time.
const PAGE_RECORDS: usize = 500;

impl Instances {
    /// Claims the addresses that `new` has and `old` has not.
    pub(super) async fn begin_exchange(
        &self,
        old: Option<&pb::Instance>,
        new: Option<&pb::Instance>,
    ) -> Result<Exchange, Error> {
        let (old, new) = (old.map(holding), new.map(holding));
        Ok(self.claims.begin(old.as_ref(), new.as_ref(), self).await?)
    }

    /// Ends the exchange of claims for a change that was stored, or failed with `error`; or was not made because it `is_obsolete`.
    pub(super) async fn end_exchange(
        &self,
        claims: Exchange,
        error: Option<&Error>,
        is_obsolete: bool,
    ) {
        match error {
            None if !is_obsolete => self.claims.finish(claims).await,
            // It may be stored or not: the next comparison tells.
            Some(Error::Records(records::Error::Store(_))) => {}
            Some(_) | None => self.claims.undo(claims).await,
        }
    }

    /// Deletes an instance that `request` created just now, with its claims. Returns it if it is used already.
    pub(crate) async fn take_back(
        &self,
        created: &pb::Instance,
        request: Option<&IdempotentRequest>,
    ) -> Result<Option<pb::Instance>, Error> {
        let claims = self.begin_exchange(Some(created), None).await?;
        // A grant that was recorded is released by the deletion of the instance.
        let has_begun =
            |it: &pb::Instance| it.state() != pb::State::Queued || !it.primary_grant_id.is_empty();
        let kept = self.records.take_back(&created.id, request, has_begun).await?;
        if kept.is_none() {
            self.claims.finish(claims).await;
        }
        Ok(kept)
    }

    /// Compares the claims with the instances, repeatedly, until `stop`.
    pub(crate) async fn reconcile_claims(&self, stop: &CancellationToken) {
        self.claims.reconcile(self, &self.clock, stop).await;
    }
}

impl HoldingSource for Instances {
    async fn holding(&self, id: &str) -> Result<Option<Holding>, BoxError> {
        Ok(self.records.get(id).await?.as_ref().map(holding))
    }

    async fn holdings(&self, after: &str) -> Result<(Vec<Holding>, bool), BoxError> {
        let (page, more) = self.records.page("", after, PAGE_RECORDS).await?;
        Ok((page.iter().map(holding).collect(), more))
    }
}

/// Returns the addresses of an instance: none, once it has no machine.
fn holding(instance: &pb::Instance) -> Holding {
    let has_ended = instance.released || instance.state() == pb::State::Deleted;
    let ips = instance.ips.iter().filter(|_| !has_ended);
    Holding {
        id: instance.id.clone(),
        tenant: instance.tenant.clone(),
        hardware_id: instance.hardware_id.clone(),
        addresses: ips.map(|ip| ip.address.clone()).collect(),
        macs: Vec::new(),
    }
}

//! One attempt of each change of a grant.

use std::time::SystemTime;

use nouns::Noun as _;
use prost_types::Timestamp;
use store::records::Change;
use store::{Commit, Expect, Store as _, Write};
use tinwright::address::v1 as pb;
use tinwright::{GrantId, Object as _, TenantName};

use super::plan::Plan;
use super::{Grants, PENDING_TIME, block, holder, key_entry, missing};
use crate::Error;
use crate::subnets::{hold, quota};

impl Grants {
    pub(super) async fn try_create(&self, wanted: &pb::Grant) -> Result<pb::Grant, Error> {
        if let Some(made) = self.previous(wanted).await? {
            return Ok(made);
        }
        let plan = self.plan(wanted).await?;
        let now = self.clock.wall();
        let mut grant = new_grant(wanted, &plan, now);
        grant.initialize("grant.id", now)?;
        let retired = format!("retired/{}", grant.id);
        if self.records.store().get(&retired).await?.is_some() {
            return Err(released(&grant.id));
        }
        let unused = Commit { expect: vec![Expect::Absent(retired)], ..Commit::default() };
        let claim = match self.claims.to_claim(plan.block, &holder(&grant)).await {
            // Another writer took it since the plan: another block will do.
            Err(Error::Taken { .. }) if wanted.block.is_empty() => return Err(Error::Busy),
            claim => claim?,
        };
        let more = plan.unchanged(self).and(claim).and(self.to_count(&grant, &plan.subnet).await?);
        Ok(self
            .records
            .create(&grant, more.and(to_take_key(&grant)).and(unused.into()), None)
            .await?)
    }

    /// Returns the grant that has the key of `wanted`.
    async fn previous(&self, wanted: &pb::Grant) -> Result<Option<pb::Grant>, Error> {
        if wanted.key.is_empty() {
            return Ok(None);
        }
        let entry = self.records.store().get(&key_entry(&wanted.tenant, &wanted.key)).await?;
        let Some(entry) = entry else { return Ok(None) };
        let id = String::from_utf8_lossy(&entry.value).into_owned();
        let found = self.records.get(&id).await?;
        let Some(grant) = found.filter(|it| it.state() != pb::GrantState::Released) else {
            return Err(released(&id));
        };
        let agrees = |wanted: &str, has: &str| wanted.is_empty() || wanted == has;
        if agrees(&wanted.block, &grant.block)
            && agrees(&wanted.subnet_id, &grant.subnet_id)
            && agrees(&wanted.range_id, &grant.range_id)
            && agrees(&wanted.location_id, &grant.location_id)
        {
            return Ok(Some(grant));
        }
        let text =
            format!("grant {id} has the key {}, and is another one: {}", grant.key, grant.block);
        Err(Error::Overlaps { noun: "grant", id, text })
    }

    /// Returns the change that counts a new grant of a tenant. Fails if the tenant has as many as it may have.
    async fn to_count(&self, grant: &pb::Grant, subnet: &pb::Subnet) -> Result<Change, Error> {
        if grant.tenant.is_empty() {
            return Ok(Change::default());
        }
        let (count, set) = self.usage(&subnet.id, &grant.tenant).await?;
        match quota(subnet, &grant.tenant) {
            Some(quota) if count >= quota => Err(Error::Quota {
                tenant: grant.tenant.clone(),
                subnet: subnet.name.clone(),
                quota,
            }),
            Some(_) | None => Ok(set(count + 1)),
        }
    }

    /// Returns the change that no longer counts a grant.
    async fn to_discount(&self, grant: &pb::Grant) -> Result<Change, Error> {
        if grant.tenant.is_empty() {
            return Ok(Change::default());
        }
        let (count, set) = self.usage(&grant.subnet_id, &grant.tenant).await?;
        Ok(set((count - 1).max(0)))
    }

    pub(super) async fn try_confirm(
        &self,
        id: GrantId,
        use_only: bool,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Grant, Error> {
        let old = self.get(&id.to_string(), tenant).await?;
        match old.state() {
            pb::GrantState::Active if use_only || old.confirm_time.is_some() => return Ok(old),
            pb::GrantState::Released => return Err(released(&old.id)),
            pb::GrantState::Active | pb::GrantState::Pending | pb::GrantState::Unspecified => {}
        }
        let update_time = Some(Timestamp::from(self.clock.wall()));
        let confirm_time = if use_only { None } else { update_time };
        let state = pb::GrantState::Active.into();
        let new = pb::Grant { state, due_time: None, confirm_time, update_time, ..old.clone() };
        Ok(self.records.replace(&old, new).await?)
    }

    pub(super) async fn try_release(
        &self,
        id: GrantId,
        revision: i64,
        tenant: Option<&TenantName>,
    ) -> Result<(), Error> {
        let id = id.to_string();
        let found = match self.get(&id, tenant).await {
            Err(Error::Records(store::records::Error::Missing { .. })) => {
                return self.check_retired(&id, tenant).await;
            }
            found => found?,
        };
        let old = if revision == 0 { found } else { self.records.at(&id, revision).await? };
        if old.state() == pb::GrantState::Released {
            return Ok(());
        }
        let subnet = self.subnets.records().get(&old.subnet_id).await?.unwrap_or_default();
        let now = self.clock.wall();
        let counted = self.to_discount(&old).await?;
        if hold(&subnet).is_zero() {
            let gone = counted.and(self.to_remove(&old).await?);
            self.records.commit(gone).await?;
            return Ok(());
        }
        let state = pb::GrantState::Released.into();
        let (due_time, update_time) = (Some((now + hold(&subnet)).into()), Some(now.into()));
        let new = pb::Grant { state, due_time, update_time, attachment: None, ..old.clone() };
        self.records.replace_with(&old, new, counted).await?;
        Ok(())
    }

    /// Passes if the grant `id` is gone, and was one that `tenant` may see.
    async fn check_retired(&self, id: &str, tenant: Option<&TenantName>) -> Result<(), Error> {
        let retired = self.records.store().get(&format!("retired/{id}")).await?;
        let is_own = |of: &[u8]| tenant.is_none_or(|tenant| tenant.as_str().as_bytes() == of);
        match retired {
            Some(found) if is_own(&found.value) => Ok(()),
            Some(_) | None => Err(missing(id).into()),
        }
    }

    /// Frees `old`, whose state has ended. A grant that was never active leaves its key to others.
    pub(super) async fn try_end(&self, old: &pb::Grant) -> Result<(), Error> {
        let mut gone = self.to_remove(old).await?;
        if old.state() != pb::GrantState::Released {
            gone = gone.and(self.to_discount(old).await?);
            if !old.key.is_empty() {
                let writes = vec![Write::Delete(key_entry(&old.tenant, &old.key))];
                gone = gone.and(Commit { expect: Vec::new(), writes }.into());
            }
        }
        self.records.commit(gone).await?;
        Ok(())
    }

    /// Returns the change that removes `old` and its claim.
    async fn to_remove(&self, old: &pb::Grant) -> Result<Change, Error> {
        let claim = self.claims.to_free(block(old)?, &holder(old)).await?;
        let tenant = old.tenant.clone().into();
        let writes = vec![Write::Put(format!("retired/{}", old.id), tenant)];
        let retired = Change::from(Commit { expect: Vec::new(), writes });
        Ok(self.records.to_delete(old).and(claim).and(retired))
    }
}

fn new_grant(wanted: &pb::Grant, plan: &Plan, now: SystemTime) -> pb::Grant {
    pb::Grant {
        subnet_id: plan.subnet.id.clone(),
        range_id: plan.range.as_ref().map_or_else(String::new, |range| range.id.clone()),
        block: plan.block.to_string(),
        state: pb::GrantState::Pending.into(),
        due_time: Some((now + PENDING_TIME).into()),
        network: plan.subnet.cidr.clone(),
        gateway: plan.subnet.gateway.clone(),
        attachment: None,
        confirm_time: None,
        ..wanted.clone()
    }
}

/// Returns the change by which a new grant takes its key.
fn to_take_key(grant: &pb::Grant) -> Change {
    if grant.key.is_empty() {
        return Change::default();
    }
    let key = key_entry(&grant.tenant, &grant.key);
    let write = Write::Put(key.clone(), grant.id.clone().into());
    Commit { expect: vec![Expect::Absent(key)], writes: vec![write] }.into()
}

pub(super) fn released(id: &str) -> Error {
    Error::Precondition {
        reason: "GRANT_RELEASED",
        subject: format!("grant/{id}"),
        text: format!("grant {id} was released"),
    }
}

//! Grants that are attached to instances.
//!
//! The grant's record says which instance has the address. The instance service follows the grants, and copies the addresses of
//! each instance into its record, from which DHCP and metadata learn of them. It also detaches the grants of an instance that is gone.

use prost_types::Timestamp;
use store::Store as _;
use tinwright::address::v1 as pb;
use tinwright::status::Violations;
use tinwright::{GrantId, TenantName};

use super::change::released;
use super::{Grants, INSTANCE_INDEX, block};
use crate::Error;
use crate::block::Family;
use crate::machines::AttachTarget;

/// The most grants that are attached to one instance. Several calls at the same time may exceed it by a few.
pub const MAX_ATTACHED: usize = 64;

impl Grants {
    /// Attaches a grant that `tenant` may see to `target`; if it is `primary`, as the address that DHCP gives the interface. A
    /// pending grant becomes active.
    pub async fn attach(
        &self,
        id: GrantId,
        target: &AttachTarget,
        primary: bool,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Grant, Error> {
        self.turns.repeat(|| self.try_attach(id, target, primary, tenant)).await
    }

    /// Detaches a grant that `tenant` may see; from `instance` only, if that is not empty.
    pub async fn detach(
        &self,
        id: GrantId,
        instance: &str,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Grant, Error> {
        self.turns.repeat(|| self.try_detach(id, instance, tenant)).await
    }

    async fn try_attach(
        &self,
        id: GrantId,
        target: &AttachTarget,
        primary: bool,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Grant, Error> {
        let old = self.get(&id.to_string(), tenant).await?;
        check_attachable(&old, target, primary)?;
        let attachment = Some(pb::Attachment {
            instance_id: target.instance.to_string(),
            mac: target.mac.to_string(),
            primary,
        });
        if old.attachment == attachment {
            return Ok(old);
        }
        if old.attachment.is_none() {
            self.check_count(target).await?;
        }
        let update_time = Some(Timestamp::from(self.clock.wall()));
        let state = pb::GrantState::Active.into();
        let new = pb::Grant { state, due_time: None, attachment, update_time, ..old.clone() };
        Ok(self.records.replace(&old, new).await?)
    }

    /// Passes if one more grant can be attached to the instance of `target`.
    async fn check_count(&self, target: &AttachTarget) -> Result<(), Error> {
        let prefix = format!("{INSTANCE_INDEX}/{}/", target.instance);
        let found = self.records.store().list(&prefix, "", MAX_ATTACHED).await?;
        if found.pairs.len() < MAX_ATTACHED {
            return Ok(());
        }
        Err(Error::Precondition {
            reason: "TOO_MANY_ATTACHED",
            subject: format!("instance/{}", target.instance),
            text: format!("instance {} has {MAX_ATTACHED} attached grants", target.instance),
        })
    }

    async fn try_detach(
        &self,
        id: GrantId,
        instance: &str,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Grant, Error> {
        let old = self.get(&id.to_string(), tenant).await?;
        match &old.attachment {
            None => return Ok(old),
            Some(has) if instance.is_empty() || has.instance_id == instance => {}
            Some(has) => return Err(attached_elsewhere(&old, has)),
        }
        let update_time = Some(Timestamp::from(self.clock.wall()));
        let new = pb::Grant { attachment: None, update_time, ..old.clone() };
        Ok(self.records.replace(&old, new).await?)
    }
}

/// Passes if `grant` can be attached to `target`, as `primary` says.
fn check_attachable(grant: &pb::Grant, target: &AttachTarget, primary: bool) -> Result<(), Error> {
    let refused = |reason: &'static str, text: String| {
        Err(Error::Precondition { reason, subject: format!("grant/{}", grant.id), text })
    };
    let block = block(grant)?;
    if grant.state() == pb::GrantState::Released {
        return Err(released(&grant.id));
    }
    if !block.is_single() {
        return refused(
            "GRANT_IS_BLOCK",
            format!("{block} is a block: an interface has addresses"),
        );
    }
    if primary && block.family() == Family::V6 {
        let text = "is for IPv4 only: there is no DHCP for IPv6";
        return Err(Violations::single("attachment.primary", text).into());
    }
    if !grant.tenant.is_empty() && grant.tenant != target.tenant {
        let text =
            format!("grant {} is of another tenant than instance {}", grant.id, target.instance);
        return refused("OTHER_TENANT", text);
    }
    match &grant.attachment {
        Some(has) if has.instance_id != target.instance.to_string() => {
            Err(attached_elsewhere(grant, has))
        }
        Some(_) | None => Ok(()),
    }
}

fn attached_elsewhere(grant: &pb::Grant, has: &pb::Attachment) -> Error {
    Error::Precondition {
        reason: "GRANT_ATTACHED",
        subject: format!("grant/{}", grant.id),
        text: format!("grant {} is attached to instance {}", grant.id, has.instance_id),
    }
}

//! The client certificates that were issued here.
//!
//! ```text
//! identity/certificate/<serial number>                       the record, until the certificate expires
//! identity/certificate-tenant/<tenant>/<serial number>       ─▶ serial number, unless it is revoked
//! ```
//!
//! A certificate is stored before it is returned, so that each one can be listed and revoked.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nouns::Served;
use runtime::authority::{MAX_CLIENT_VALIDITY, SiteAuthority};
use runtime::serial::Serial;
use runtime::{Caller, Clock, Role, Secret};
use store::ScopedStore;
use store::records::{self, Change, Index, Kind, Records};
use tinwright::identity::v1 as pb;
use tinwright::status::Violations;

use crate::revocations::{self, Revocations};
use crate::tenants::{CERTIFICATE_INDEX, Tenants};
use crate::{Error, roles};

/// The records that are read at a time.
const PAGE_SIZE: usize = 200;
const MIN_LIFETIME: Duration = Duration::from_secs(60);
/// The most names of an edge.
const MAX_SERVER_NAMES: usize = 16;
/// The longest host name (RFC 1035 §2.3.4).
const MAX_NAME_BYTES: usize = 253;

/// The kind of these records.
#[derive(Debug)]
pub enum CertificateKind {}

impl Kind for CertificateKind {
    type Record = pb::Certificate;
    type Id = Serial;
    const KIND: &'static str = "certificate";
    const INDEXES: &'static [&'static str] = &[CERTIFICATE_INDEX];

    fn name(certificate: &pb::Certificate) -> &str {
        &certificate.subject
    }

    fn indexes(certificate: &pb::Certificate) -> Vec<Index> {
        let is_listed = !certificate.tenant.is_empty() && certificate.revoke_time.is_none();
        let index = is_listed.then(|| Index::shared(CERTIFICATE_INDEX, &certificate.tenant));
        index.into_iter().collect()
    }

    fn state(certificate: &pb::Certificate) -> String {
        if certificate.revoke_time.is_some() { "revoked".into() } else { "valid".into() }
    }

    fn has_ended(_: &pb::Certificate) -> bool {
        // Only those are deleted that no longer count.
        true
    }

    fn tenant(certificate: &pb::Certificate) -> &str {
        &certificate.tenant
    }
}

impl Served for CertificateKind {}

/// A new certificate.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Its record.
    pub certificate: pb::Certificate,
    /// The certificate in PEM.
    pub pem: String,
    /// The content of an edge's file `edge.key`; none for other roles.
    pub edge_key: Option<Secret<String>>,
}

/// The certificates.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The underlying records.
    pub records: Records<CertificateKind>,
    tenants: Tenants,
    revocations: Revocations,
    authority: Arc<SiteAuthority>,
    clock: Clock,
}

impl Certificates {
    /// The certificates in `store`, whose keys are the identity service's. New ones are issued by `authority`.
    pub fn new(store: ScopedStore, authority: Arc<SiteAuthority>, clock: Clock) -> Self {
        let (tenants, revocations) =
            (Tenants::new(store.clone(), clock.clone()), Revocations::new(store.clone()));
        Self { records: Records::new(store), tenants, revocations, authority, clock }
    }

    /// Returns the certificate of the site's authority in PEM.
    pub fn authority_pem(&self) -> String {
        self.authority.authority()
    }

    /// Issues a certificate as `request` says, for the caller `issued_by`.
    pub async fn issue(
        &self,
        request: pb::IssueCertificateRequest,
        issued_by: &str,
    ) -> Result<Issued, Error> {
        let caller = requested_caller(&request)?;
        let pb::IssueCertificateRequest {
            role,
            subject: _,
            tenant,
            lifetime,
            certificate_request,
            server_names,
        } = request;
        check_server_names(caller.role(), &server_names)?;
        let now = self.clock.wall();
        let lifetime = checked_lifetime(lifetime)?;
        // The tenant is checked before anything is signed.
        self.tenants.require("tenant", &tenant).await?;
        let end = now + lifetime;
        let issued =
            self.authority.certify_until(&caller, &certificate_request, end, &server_names)?;
        let is_edge = caller.role() == Role::Edge;
        // The id comes first: if the site key is replaced meanwhile, the edge counts as one of the former key.
        let site_key_id = is_edge.then(|| self.authority.edge_key_id()).transpose()?;
        let edge_key = is_edge.then(|| self.authority.edge_key(&issued)).transpose()?;
        let certificate = pb::Certificate {
            serial: issued.serial.to_string(),
            role,
            subject: caller.subject().to_string(),
            tenant,
            create_time: Some(now.into()),
            expire_time: Some(issued.expires.into()),
            revoke_time: None,
            revision: 0,
            issued_by: issued_by.to_owned(),
            site_key_id: site_key_id.unwrap_or_default(),
            authority: issued.authority,
            authority_dropped: false,
        };
        let tenant = ("tenant", certificate.tenant.as_str());
        let stored =
            self.tenants.create_identity(&self.records, &certificate, tenant, None).await?;
        Ok(Issued { certificate: stored, pem: issued.certificate, edge_key })
    }

    /// Revokes the certificate with this serial number. Returns its record, if it was issued here.
    pub async fn revoke(&self, serial: &Serial) -> Result<Option<pb::Certificate>, Error> {
        let found = self.records.get(&serial.to_string()).await?;
        let now = self.clock.wall();
        if self.revocations.records.get(&serial.identity()).await?.is_some() {
            return Ok(found);
        }
        let expires = match found.as_ref().and_then(|certificate| certificate.expire_time) {
            Some(end) => SystemTime::try_from(end).unwrap_or(now + MAX_CLIENT_VALIDITY),
            None => now + MAX_CLIENT_VALIDITY,
        };
        let revocation = self.revocations.to_revoke(serial.identity(), now, expires);
        let Some(old) = found else {
            self.revocations.records.commit(revocation).await?;
            return Ok(None);
        };
        let mut new = pb::Certificate { revoke_time: Some(now.into()), ..old.clone() };
        let change: Change = self.records.to_replace(&old, &new).and(revocation);
        new.revision = self.records.commit(change).await?.0.cast_signed();
        Ok(Some(new))
    }

    /// Returns the valid edges whose keys are not derived from the newest site key, each with its subject and serial number.
    pub async fn edges_of_former_keys(&self) -> Result<Vec<String>, Error> {
        let newest = self.authority.edge_key_id()?;
        let is_former =
            |it: &pb::Certificate| it.role() == pb::Role::Edge && it.site_key_id != newest;
        self.lasting(is_former).await
    }

    /// Returns the certificates that neither are revoked nor have expired, and whose authority is not trusted any more, each with its subject
    /// and serial number. A certificate that was issued before authorities were recorded counts as one of them.
    pub async fn of_dropped_authorities(&self) -> Result<Vec<String>, Error> {
        let trusted = self.authority.authority_names();
        self.lasting(|it: &pb::Certificate| !trusted.contains(&it.authority)).await
    }

    /// Returns `certificate` as it is shown: with the mark that its authority is not trusted any more.
    pub fn shown(&self, certificate: pb::Certificate) -> pb::Certificate {
        let authority = &certificate.authority;
        let authority_dropped =
            !authority.is_empty() && !self.authority.authority_names().contains(authority);
        pb::Certificate { authority_dropped, ..certificate }
    }

    /// Returns the certificates that neither are revoked nor have expired, and for which `is_wanted` holds, each with its subject and serial
    /// number.
    async fn lasting(
        &self,
        is_wanted: impl Fn(&pb::Certificate) -> bool,
    ) -> Result<Vec<String>, Error> {
        let now = self.clock.wall();
        let has_ended = |it: &pb::Certificate| {
            let end = it.expire_time.and_then(|end| SystemTime::try_from(end).ok());
            it.revoke_time.is_some() || end.is_some_and(|end| end <= now)
        };
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let (page, more) = self.records.page("", &after, PAGE_SIZE).await?;
            after = page.last().map_or(after, |last| last.serial.clone());
            let wanted = page.iter().filter(|it| is_wanted(it) && !has_ended(it));
            found.extend(wanted.map(|it| format!("{} ({})", it.subject, it.serial)));
            if !more {
                return Ok(found);
            }
        }
    }

    /// Deletes the records of certificates that have expired.
    pub async fn delete_expired(&self, now: SystemTime) -> Result<(), records::Error> {
        revocations::delete_expired(&self.records, now, |it| it.expire_time).await
    }
}

/// Returns the caller that the certificate is requested for.
fn requested_caller(request: &pb::IssueCertificateRequest) -> Result<Caller, Violations> {
    let role = roles::parse("role", request.role)?;
    let mut caller = Caller::from(role);
    if !request.subject.is_empty() {
        let is_kind = |kind| request.subject.starts_with(kind);
        if !is_kind("person:") && !is_kind("service:") {
            return Err(Violations::single("subject", "begins with neither person: nor service:"));
        }
        let named = Caller::new(role, &request.subject);
        caller = named.map_err(|error| Violations::single("subject", error))?;
    }
    if !request.tenant.is_empty() {
        let tenant = Violations::parse("tenant", &request.tenant)?;
        caller = caller.with_tenant(tenant).map_err(|it| Violations::single("tenant", it))?;
    }
    Ok(caller)
}

/// Checks the names of a server. Only an edge, a door and a builder are one: its API, or its doors, can be called at no other name.
fn check_server_names(role: Role, names: &[String]) -> Result<(), Violations> {
    let wrong = |reason: String| Err(Violations::single("server_names", reason));
    if !matches!(role, Role::Edge | Role::Door | Role::Builder) && !names.is_empty() {
        return wrong("are for the roles edge, door and builder only".into());
    }
    if names.len() > MAX_SERVER_NAMES {
        return wrong(format!("are over {MAX_SERVER_NAMES}"));
    }
    let is_host = |name: &str| {
        (1..=MAX_NAME_BYTES).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
    };
    let is_name = |name: &&String| is_host(name) || name.parse::<IpAddr>().is_ok();
    match names.iter().find(|name| !is_name(name)) {
        Some(name) => wrong(format!("{name:?} is neither a host name nor an address")),
        None => Ok(()),
    }
}

fn checked_lifetime(wanted: Option<prost_types::Duration>) -> Result<Duration, Violations> {
    let Some(wanted) = wanted else { return Ok(MAX_CLIENT_VALIDITY) };
    match Duration::try_from(wanted) {
        Ok(lifetime) if (MIN_LIFETIME..=MAX_CLIENT_VALIDITY).contains(&lifetime) => Ok(lifetime),
        Ok(_) | Err(_) => Err(Violations::single("lifetime", "is not from a minute to 398 days")),
    }
}

#[cfg(test)]
mod tests;

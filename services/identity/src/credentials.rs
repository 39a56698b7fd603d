//! The credentials in the store, the rules for them, and the authentication by them.
//!
//! ```text
//! identity/credential/<id>                       the record, with digests of its fields
//! identity/credential-tenant/<tenant>/<id>       ─▶ id
//! ```

use std::collections::BTreeMap;
use std::time::SystemTime;

use nouns::{Delete, Noun, Served};
use runtime::{Caller, Clock, Secret};
use store::ScopedStore;
use store::records::requests::IdempotentRequest;
use store::records::{Change, Index, Kind, Records};
use tinwright::identity::v1 as pb;
use tinwright::secret::Secrets as _;
use tinwright::status::Violations;
use tinwright::{CredentialId, Object as _, check};

use crate::digest::{self, Digests};
use crate::revocations::{CREDENTIAL_RETENTION, Revocations};
use crate::tenants::{CREDENTIAL_INDEX, Tenants};
use crate::{Error, roles};

/// The field of a generated API key.
const API_KEY_FIELD: &str = "api_key";

const MAX_DESCRIPTION_BYTES: usize = 1024;
const MAX_SCOPES: usize = 64;
const MAX_SCOPE_BYTES: usize = 255;
const MAX_FIELDS: usize = 16;
const MAX_FIELD_NAME_BYTES: usize = 64;
const MAX_FIELD_BYTES: usize = 16 * 1024;
/// Bytes of the longest value of a credential, at least: shorter ones can be guessed.
const MIN_SECRET_BYTES: usize = 16;
/// Records that authentication reads at a time.
const PAGE_RECORDS: usize = 500;

/// The kind of these records.
#[derive(Debug)]
pub enum CredentialKind {}

impl Kind for CredentialKind {
    type Record = pb::Credential;
    type Id = CredentialId;
    const KIND: &'static str = "credential";
    const INDEXES: &'static [&'static str] = &[CREDENTIAL_INDEX];

    fn indexes(credential: &pb::Credential) -> Vec<Index> {
        let tenant = Some(&credential.tenant).filter(|tenant| !tenant.is_empty());
        tenant.map(|tenant| Index::shared(CREDENTIAL_INDEX, tenant)).into_iter().collect()
    }

    fn tenant(credential: &pb::Credential) -> &str {
        &credential.tenant
    }
}

impl Served for CredentialKind {}

/// A new credential.
#[derive(Clone, Debug)]
pub struct Created {
    /// The credential.
    pub credential: pb::Credential,
    /// The API key, if it was generated for this request.
    pub api_key: Option<Secret<String>>,
}

/// The credentials.
#[derive(Clone, Debug)]
pub struct Credentials {
    records: Records<CredentialKind>,
    tenants: Tenants,
    revocations: Revocations,
    clock: Clock,
}

impl Credentials {
    /// The credentials in `store`, whose keys are the identity service's.
    pub fn new(store: ScopedStore, clock: Clock) -> Self {
        let (tenants, revocations) =
            (Tenants::new(store.clone(), clock.clone()), Revocations::new(store.clone()));
        Self { records: Records::new(store), tenants, revocations, clock }
    }

    /// Stores a new credential with digests of `fields`; without fields, of a generated API key. A repeated `request` returns the
    /// first result, without the key.
    pub async fn create(
        &self,
        credential: pb::Credential,
        mut fields: BTreeMap<String, String>,
        request: Option<IdempotentRequest>,
    ) -> Result<Created, Error> {
        let now = self.clock.wall();
        let mut credential = checked(credential, &fields, now)?;
        credential.initialize("credential.id", now)?;
        let mut api_key = None;
        if fields.is_empty() {
            let key = digest::generate_api_key(&credential.id)?;
            fields.insert(API_KEY_FIELD.into(), key.expose().clone());
            api_key = Some(key);
        }
        credential.field_names = fields.keys().cloned().collect();
        (credential.digest_key, credential.digests) = Digests::of(&fields)?.into_parts();
        let tenant = ("credential.tenant", credential.tenant.as_str());
        let stored =
            self.tenants.create_identity(&self.records, &credential, tenant, request.as_ref());
        let stored = stored.await?;
        // The result of an earlier request has other digests: its key is not known any more.
        let api_key = api_key.filter(|_| stored.digests == credential.digests);
        Ok(Created { credential: stored, api_key })
    }

    /// Returns the caller whose credential has these `fields`, and the credential: of several, the one with the most fields, then
    /// the oldest.
    pub async fn authenticate(
        &self,
        fields: &BTreeMap<String, String>,
    ) -> Result<(Caller, pb::Credential), Error> {
        let now = self.clock.wall();
        let (mut best, mut after): (Option<pb::Credential>, _) = (None, String::new());
        let mut has_expired_match = false;
        loop {
            let (page, more) = self.records.page("", &after, PAGE_RECORDS).await?;
            after = page.last().map_or_else(String::new, |last| last.id.clone());
            for found in page.into_iter().filter(|found| digests(found).match_all(fields)) {
                let fewer = |best: &pb::Credential| best.digests.len() < found.digests.len();
                if has_expired(&found, now) {
                    has_expired_match = true;
                } else if best.as_ref().is_none_or(fewer) {
                    best = Some(found);
                }
            }
            if !more {
                break;
            }
        }
        let refusal = if has_expired_match { Error::Expired } else { Error::Unknown };
        let credential = best.ok_or(refusal)?;
        Ok((caller(&credential)?, credential))
    }
}

impl Noun for Credentials {
    type Kind = CredentialKind;
    type Error = Error;

    fn records(&self) -> &Records<CredentialKind> {
        &self.records
    }
}

impl Delete for Credentials {
    /// Revokes the credential in the same commit.
    async fn before_delete(&self, old: &pb::Credential) -> Result<Change, Error> {
        let now = self.clock.wall();
        Ok(self.revocations.to_revoke(subject(old), now, now + CREDENTIAL_RETENTION))
    }
}

/// The subject of the holder of `credential`, and its name among revoked identities.
fn subject(credential: &pb::Credential) -> String {
    format!("credential:{}", credential.id)
}

fn caller(credential: &pb::Credential) -> Result<Caller, Violations> {
    let role = roles::parse_personal("role", credential.role)?;
    let invalid = |error| Violations::single("credential", error);
    let caller = Caller::new(role, &subject(credential)).map_err(invalid)?;
    match credential.tenant.as_str() {
        "" => Ok(caller),
        tenant => caller.with_tenant(Violations::parse("tenant", tenant)?).map_err(invalid),
    }
}

fn digests(credential: &pb::Credential) -> Digests {
    Digests::from_parts(credential.digest_key.clone(), credential.digests.clone())
}

fn has_expired(credential: &pb::Credential, now: SystemTime) -> bool {
    let Some(end) = credential.expire_time else { return false };
    // An end that is no time of the clock counts as passed.
    SystemTime::try_from(end).map_or(true, |end| end <= now)
}

/// Returns `credential` without the fields that the service sets, if it and its `fields` are valid.
fn checked(
    credential: pb::Credential,
    fields: &BTreeMap<String, String>,
    now: SystemTime,
) -> Result<pb::Credential, Violations> {
    let mut wrong = Violations::default();
    if let Err(violations) = roles::parse_personal("role", credential.role) {
        wrong.add_nested("credential", violations);
    }
    wrong.take("credential.labels", check::labels(&credential.labels));
    if !credential.boot_url.is_empty() {
        let checked = check::tenant_boot_url(&credential.boot_url, &credential.tenant);
        wrong.take("credential.boot_url", checked);
    }
    let description = check::length(&credential.description, MAX_DESCRIPTION_BYTES);
    wrong.take("credential.description", description);
    for (name, scopes) in [("hubs", &credential.hubs), ("locations", &credential.locations)] {
        wrong.each(&format!("credential.{name}"), scopes, MAX_SCOPES, |scope, wrong| {
            wrong.take("", check::length(scope, MAX_SCOPE_BYTES));
            if scope.is_empty() || scope.chars().any(char::is_control) {
                wrong.add("", "is empty, or has a control character");
            }
        });
    }
    if has_expired(&credential, now) {
        wrong.add("credential.expire_time", "is not in the future");
    }
    check_fields(fields, &mut wrong);
    let (field_names, digests, digest_key) = Default::default();
    wrong.into_result(pb::Credential { field_names, digests, digest_key, ..credential })
}

/// Adds what is wrong with the `fields` of a new credential. No error quotes a value.
fn check_fields(fields: &BTreeMap<String, String>, wrong: &mut Violations) {
    wrong.take("fields", check::count(fields.len(), MAX_FIELDS));
    for (name, value) in fields {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !(1..=MAX_FIELD_NAME_BYTES).contains(&name.len()) || !name.chars().all(is_name) {
            let rule = "letters, digits and _.-, at most 64";
            wrong.add("fields", format!("the name of a field is not {rule}"));
            continue;
        }
        let field = format!("fields[{name}]");
        wrong.take(&field, check::length(value, MAX_FIELD_BYTES));
        if value.trim().is_empty() {
            wrong.add(&field, "is empty");
        }
    }
    let longest = fields.values().map(String::len).max();
    if longest.is_some_and(|longest| longest < MIN_SECRET_BYTES) {
        wrong.add("fields", format!("no value has {MIN_SECRET_BYTES} bytes: they can be guessed"));
    }
}

/// Checks the fields that the client of a door sent.
pub(crate) fn check_presented(fields: &BTreeMap<String, String>) -> Result<(), Violations> {
    let mut wrong = Violations::default();
    wrong.take("fields", check::count(fields.len(), MAX_FIELDS));
    for (name, value) in fields {
        wrong.take("fields", check::length(name, MAX_FIELD_NAME_BYTES));
        wrong.take("fields", check::length(value, MAX_FIELD_BYTES));
    }
    wrong.into_result(())
}

impl From<Created> for pb::CreateCredentialResponse {
    fn from(Created { credential, api_key }: Created) -> Self {
        let api_key = api_key.map_or_else(String::new, |key| key.expose().clone());
        Self { credential: Some(credential.without_secrets()), api_key }
    }
}

#[cfg(test)]
mod tests;

//! Credentials in a store: created, presented, expired and deleted.

use std::sync::Arc;
use std::time::Duration;

use nouns::{Delete as _, Edit as _, Noun as _};
use runtime::Role;
use store::Store as _;
use store::memory::MemoryStore;
use store::records::Error as RecordsError;

use super::*;
use crate::tenants::tests::deletion::no_objects;

struct Fixture {
    store: ScopedStore,
    clock: Clock,
    tenants: Tenants,
    credentials: Credentials,
}

async fn fixture() -> Fixture {
    let store = ScopedStore::new(Arc::new(MemoryStore::default()), "identity");
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let tenants = Tenants::new(store.clone(), clock.clone());
    let acme = pb::Tenant { name: "acme".into(), ..pb::Tenant::default() };
    tenants.create(acme, None).await.unwrap();
    let credentials = Credentials::new(store.clone(), clock.clone());
    Fixture { store, clock, tenants, credentials }
}

fn operator() -> pb::Credential {
    let role = pb::Role::Operator.into();
    pb::Credential { role, tenant: "acme".into(), ..pb::Credential::default() }
}

fn fields(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

const SECRET: &str = "correct-horse-battery";

#[tokio::test]
async fn a_generated_key_authenticates_its_holder_with_role_and_tenant() {
    let Fixture { credentials, .. } = fixture().await;
    let made = credentials.create(operator(), BTreeMap::new(), None).await.unwrap();
    let key = made.api_key.unwrap();
    assert!(key.expose().starts_with(&format!("tw_{}_", made.credential.id)));
    let presented = fields(&[("api_key", key.expose()), ("region", "ignored")]);
    let (caller, found) = credentials.authenticate(&presented).await.unwrap();
    assert_eq!((caller.role(), found.id.as_str()), (Role::Operator, made.credential.id.as_str()));
    assert_eq!(**caller.subject(), *format!("credential:{}", found.id));
    assert_eq!(caller.tenant().map(ToString::to_string).as_deref(), Some("acme"));
    let wrong = fields(&[("api_key", &format!("{}x", key.expose()))]);
    assert!(matches!(credentials.authenticate(&wrong).await, Err(Error::Unknown)));
}

#[tokio::test]
async fn no_value_of_a_field_is_in_the_store() {
    let Fixture { credentials, store, .. } = fixture().await;
    let key = credentials.create(operator(), BTreeMap::new(), None).await.unwrap().api_key.unwrap();
    let values = fields(&[("client_id", "visible-client-name"), ("secret", SECRET)]);
    credentials.create(operator(), values, None).await.unwrap();
    let stored = store.list("", "", 100).await.unwrap().pairs;
    for secret in [key.expose().as_str(), "visible-client-name", SECRET] {
        let has = |value: &[u8]| value.windows(secret.len()).any(|it| it == secret.as_bytes());
        assert!(!stored.iter().any(|(_, at)| has(&at.value)), "{secret}");
    }
}

#[tokio::test]
async fn of_two_credentials_that_match_the_one_with_more_fields_counts() {
    let Fixture { credentials, .. } = fixture().await;
    let short = fields(&[("secret", SECRET)]);
    let long = fields(&[("secret", SECRET), ("client_id", "x")]);
    let first = credentials.create(operator(), short.clone(), None).await.unwrap().credential;
    let second = credentials.create(operator(), long.clone(), None).await.unwrap().credential;
    let third = credentials.create(operator(), long.clone(), None).await.unwrap().credential;
    let found = async |presented| credentials.authenticate(&presented).await.unwrap().1.id;
    assert_eq!(found(short).await, first.id);
    let of_long = found(long).await;
    assert!(of_long == second.id && of_long != third.id, "the older one");
}

#[tokio::test]
async fn an_expired_credential_is_refused() {
    let Fixture { credentials, clock, .. } = fixture().await;
    let end = clock.wall() + Duration::from_secs(60);
    let short = pb::Credential { expire_time: Some(end.into()), ..operator() };
    let presented = fields(&[("secret", SECRET)]);
    credentials.create(short.clone(), presented.clone(), None).await.unwrap();
    assert!(credentials.authenticate(&presented).await.is_ok());
    clock.advance(Duration::from_secs(60));
    assert!(matches!(credentials.authenticate(&presented).await, Err(Error::Expired)));
    // Another one with the same fields that has not expired is found, whichever is read first.
    let valid = credentials.create(operator(), presented.clone(), None).await.unwrap().credential;
    assert_eq!(credentials.authenticate(&presented).await.unwrap().1.id, valid.id);
    let late = credentials.create(short, presented, None).await.unwrap_err().to_string();
    assert_eq!(late, "credential.expire_time: is not in the future");
}

#[tokio::test]
async fn a_deleted_credential_is_refused_and_revoked() {
    let Fixture { credentials, store, clock, .. } = fixture().await;
    let presented = fields(&[("secret", SECRET)]);
    let made = credentials.create(operator(), presented.clone(), None).await.unwrap().credential;
    credentials.delete(made.id.parse().unwrap(), 0).await.unwrap();
    assert!(matches!(credentials.authenticate(&presented).await, Err(Error::Unknown)));
    let revocations = Revocations::new(store);
    let revoked = format!("credential:{}", made.id);
    assert!(revocations.records.get(&revoked).await.unwrap().is_some());
    revocations.delete_expired(clock.wall()).await.unwrap();
    assert!(revocations.records.get(&revoked).await.unwrap().is_some(), "too early");
    clock.advance(CREDENTIAL_RETENTION);
    revocations.delete_expired(clock.wall()).await.unwrap();
    assert!(revocations.records.get(&revoked).await.unwrap().is_none());
}

#[tokio::test]
async fn a_tenant_with_a_credential_is_not_deleted() {
    let Fixture { credentials, tenants, .. } = fixture().await;
    let made = credentials.create(operator(), BTreeMap::new(), None).await.unwrap().credential;
    let acme = tenants.records().require_by(crate::tenants::NAME_INDEX, "acme").await.unwrap();
    let id = acme.id.parse().unwrap();
    let objects = no_objects();
    let refused = tenants.delete(id, 0, &objects).await.unwrap_err().to_string();
    assert!(
        refused.starts_with(&format!("tenant acme has 1 credential ({})", made.id)),
        "{refused}"
    );
    credentials.delete(made.id.parse().unwrap(), 0).await.unwrap();
    tenants.delete(id, 0, &objects).await.unwrap();
    let orphan = credentials.create(operator(), BTreeMap::new(), None).await.unwrap_err();
    assert_eq!(orphan.to_string(), "credential.tenant: there is no tenant acme");
}

#[tokio::test]
async fn a_credential_that_is_created_while_its_tenant_is_deleted_makes_the_deletion_fail() {
    let Fixture { credentials, tenants, .. } = fixture().await;
    let acme = tenants.records().require_by(crate::tenants::NAME_INDEX, "acme").await.unwrap();
    credentials.create(operator(), BTreeMap::new(), None).await.unwrap();
    // The deletion read the tenant, and found no credential, before one was created.
    let late = tenants.records().commit(tenants.records().to_delete(&acme)).await;
    assert!(matches!(late, Err(RecordsError::Changed { .. })));
}

#[tokio::test]
async fn a_repeated_request_returns_the_credential_without_its_key() {
    let Fixture { credentials, .. } = fixture().await;
    let request = IdempotentRequest::new("r1", &operator());
    let first = credentials.create(operator(), BTreeMap::new(), request.clone()).await.unwrap();
    let again = credentials.create(operator(), BTreeMap::new(), request).await.unwrap();
    assert!(first.api_key.is_some() && again.api_key.is_none());
    assert_eq!(first.credential.id, again.credential.id);
}

#[test]
fn wrong_fields_are_named_without_their_values() {
    let now = SystemTime::UNIX_EPOCH;
    let wrong = |credential, values: &[(&str, &str)]| {
        checked(credential, &fields(values), now).unwrap_err().to_string()
    };
    assert!(wrong(operator(), &[("secret", "short")]).contains("16 bytes"));
    assert!(wrong(operator(), &[("a b", SECRET)]).starts_with("fields: the name of a field"));
    let empty = wrong(operator(), &[("secret", SECRET), ("region", " ")]);
    assert_eq!(empty, "fields[region]: is empty");
    let long = wrong(operator(), &[("secret", &SECRET.repeat(1000))]);
    assert!(long.starts_with("fields[secret]: has ") && !long.contains(SECRET), "{long}");
    let door = pb::Credential { role: pb::Role::Door.into(), ..operator() };
    let door = wrong(door, &[]);
    assert_eq!(door, "credential.role: is none of viewer, operator and admin");
    let hub = pb::Credential { hubs: vec![String::new()], ..operator() };
    assert!(wrong(hub, &[]).starts_with("credential.hubs[0]: is empty"));
}

#[tokio::test]
async fn answers_and_debug_show_neither_fields_nor_digests() {
    let Fixture { credentials, .. } = fixture().await;
    let presented = fields(&[("secret", SECRET)]);
    let made = credentials.create(operator(), presented.clone(), None).await.unwrap();
    let response = pb::CreateCredentialResponse::from(made.clone());
    let shown = response.credential.clone().unwrap();
    assert!(shown.digests.is_empty() && shown.digest_key.is_empty());
    assert_eq!(shown.field_names, ["secret"]);
    let request = pb::AuthenticateRequest { fields: presented };
    assert!(!format!("{request:?} {made:?} {response:?}").contains(SECRET));
    assert!(!format!("{made:?}").contains("digest_key"));
}

//! Certificates: issued, listed, revoked and forgotten.

use std::sync::Arc;

use nouns::{Edit as _, Noun as _};
use runtime::authority::request_certificate;
use store::Store as _;
use store::memory::MemoryStore;

use super::*;
use crate::tenants::tests::deletion::no_objects;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

struct Fixture {
    _folder: tempfile::TempDir,
    store: ScopedStore,
    clock: Clock,
    tenants: Tenants,
    certificates: Certificates,
}

async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(SystemTime::now());
    let authority = SiteAuthority::open_at(folder.path(), clock.clone()).unwrap();
    let store = ScopedStore::new(Arc::new(MemoryStore::default()), "identity");
    let tenants = Tenants::new(store.clone(), clock.clone());
    let acme = pb::Tenant { name: "acme".into(), ..pb::Tenant::default() };
    tenants.create(acme, None).await.unwrap();
    let certificates = Certificates::new(store.clone(), Arc::new(authority), clock.clone());
    Fixture { _folder: folder, store, clock, tenants, certificates }
}

/// A request for a viewer's certificate for ten days.
fn anna() -> pb::IssueCertificateRequest {
    pb::IssueCertificateRequest {
        role: pb::Role::Viewer.into(),
        subject: "person:anna".into(),
        tenant: "acme".into(),
        lifetime: Some(prost_types::Duration { seconds: 10 * 24 * 60 * 60, nanos: 0 }),
        certificate_request: request_certificate().unwrap().0,
        server_names: Vec::new(),
    }
}

fn der(pem: &str) -> Vec<u8> {
    use base64::Engine as _;
    let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    base64::engine::general_purpose::STANDARD.decode(base64).unwrap()
}

#[tokio::test]
async fn a_certificate_names_its_holder_and_is_listed() {
    let Fixture { _folder, certificates, clock, .. } = fixture().await;
    let issued = certificates.issue(anna(), "person:admin").await.unwrap();
    let der = der(&issued.pem);
    let caller = Caller::in_certificate(&der).unwrap();
    assert_eq!(caller.to_string(), "tinwright:viewer?subject=person:anna&tenant=acme");
    let record = certificates.records.require(&issued.certificate.serial).await.unwrap();
    assert_eq!(record, issued.certificate);
    assert_eq!(Serial::in_certificate(&der).unwrap().to_string(), record.serial);
    assert_eq!(record.issued_by, "person:admin");
    let end = SystemTime::try_from(record.expire_time.unwrap()).unwrap();
    let lifetime = end.duration_since(clock.wall()).unwrap();
    assert!(lifetime <= 10 * DAY && lifetime > 10 * DAY - Duration::from_secs(1));
}

#[tokio::test]
async fn wrong_requests_are_refused_with_the_field() {
    let Fixture { _folder, certificates, .. } = fixture().await;
    let error =
        async |request| certificates.issue(request, "person:admin").await.unwrap_err().to_string();
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    for (request, start) in [
        (pb::IssueCertificateRequest { role: 0, ..anna() }, "role: is missing"),
        (pb::IssueCertificateRequest { role: 99, ..anna() }, "role: 99 is not a role"),
        (pb::IssueCertificateRequest { subject: "machine:x".into(), ..anna() }, "subject: "),
        (pb::IssueCertificateRequest { subject: "credential:x".into(), ..anna() }, "subject: "),
        (pb::IssueCertificateRequest { subject: "person:a b".into(), ..anna() }, "subject: "),
        (pb::IssueCertificateRequest { tenant: "none".into(), ..anna() }, "tenant: there is no"),
        (pb::IssueCertificateRequest { role: pb::Role::Door.into(), ..anna() }, "tenant: "),
        (pb::IssueCertificateRequest { lifetime: seconds(59), ..anna() }, "lifetime: "),
        (pb::IssueCertificateRequest { lifetime: seconds(399 * 86400), ..anna() }, "lifetime: "),
        (
            pb::IssueCertificateRequest { certificate_request: vec![1], ..anna() },
            "certificate_request: ",
        ),
    ] {
        let text = error(request).await;
        assert!(text.starts_with(start), "{text}");
    }
    assert!(certificates.records.page("", "", 10).await.unwrap().0.is_empty());
}

#[tokio::test]
async fn a_revoked_certificate_is_marked_and_its_revocation_lasts_until_its_end() {
    let Fixture { _folder, certificates, store, clock, .. } = fixture().await;
    let issued = certificates.issue(anna(), "person:admin").await.unwrap().certificate;
    let serial: Serial = issued.serial.parse().unwrap();
    let revoked = certificates.revoke(&serial).await.unwrap().unwrap();
    assert!(revoked.revoke_time.is_some());
    assert_eq!(certificates.revoke(&serial).await.unwrap(), Some(revoked));
    let revocations = Revocations::new(store);
    let revocation = revocations.records.require(&serial.identity()).await.unwrap();
    assert_eq!(revocation.expire_time, issued.expire_time);
    for (days, is_there) in [(9, true), (1, false)] {
        clock.advance(days * DAY);
        certificates.delete_expired(clock.wall()).await.unwrap();
        revocations.delete_expired(clock.wall()).await.unwrap();
        let left = revocations.records.get(&serial.identity()).await.unwrap();
        assert_eq!(left.is_some(), is_there);
        let left = certificates.records.get(&issued.serial).await.unwrap();
        assert_eq!(left.is_some(), is_there);
    }
}

#[tokio::test]
async fn a_certificate_that_was_not_issued_here_can_be_revoked() {
    let Fixture { _folder, certificates, store, .. } = fixture().await;
    let serial = Serial::random().unwrap();
    assert_eq!(certificates.revoke(&serial).await.unwrap(), None);
    assert_eq!(certificates.revoke(&serial).await.unwrap(), None);
    let revocations = Revocations::new(store);
    assert!(revocations.records.get(&serial.identity()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_tenant_is_deleted_once_its_certificates_are_revoked() {
    let Fixture { _folder, certificates, tenants, store, .. } = fixture().await;
    let issued = certificates.issue(anna(), "person:admin").await.unwrap().certificate;
    let acme = tenants.records().require_by(crate::tenants::NAME_INDEX, "acme").await.unwrap();
    let id = acme.id.parse().unwrap();
    let objects = no_objects();
    assert!(matches!(tenants.delete(id, 0, &objects).await, Err(Error::InUse { .. })));
    certificates.revoke(&issued.serial.parse().unwrap()).await.unwrap();
    tenants.delete(id, 0, &objects).await.unwrap();
    assert!(store.list("certificate-tenant/", "", 1).await.unwrap().pairs.is_empty());
}

/// A request for an edge.
fn rack_7() -> pb::IssueCertificateRequest {
    pb::IssueCertificateRequest {
        role: pb::Role::Edge.into(),
        subject: "service:rack-7".into(),
        tenant: String::new(),
        server_names: vec!["192.0.2.7".into(), "2001:db8::7".into(), "rack-7.lab".into()],
        ..anna()
    }
}

#[tokio::test]
async fn an_edge_gets_a_key_of_its_own_and_no_other_role_gets_one() {
    let Fixture { _folder, certificates, .. } = fixture().await;
    let [first, second] = [(); 2].map(|()| certificates.issue(rack_7(), "person:admin"));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let key = |issued: &Issued| issued.edge_key.clone().unwrap().expose().clone();
    assert!(key(&first).starts_with(&format!("{}-", first.certificate.serial)));
    assert_ne!(key(&first).split_once('.').unwrap().1, key(&second).split_once('.').unwrap().1);
    assert!(!format!("{first:?}").contains(key(&first).trim_end()));
    let site = std::fs::read(_folder.path().join("site.key")).unwrap();
    assert!(!key(&first).as_bytes().windows(site.len()).any(|part| part == site));
    assert!(certificates.issue(anna(), "person:admin").await.unwrap().edge_key.is_none());
}

#[tokio::test]
async fn wrong_names_of_an_edge_are_refused() {
    let Fixture { _folder, certificates, .. } = fixture().await;
    for (request, names, why) in [
        (anna(), vec!["x.lab"], "are for the roles edge, door and builder only"),
        (rack_7(), vec![""], "is neither a host name nor an address"),
        (rack_7(), vec!["a b"], "is neither a host name nor an address"),
        (rack_7(), vec!["x"; 17], "are over 16"),
    ] {
        let server_names = names.into_iter().map(str::to_owned).collect();
        let request = pb::IssueCertificateRequest { server_names, ..request };
        let refused = certificates.issue(request, "person:admin").await.unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

#[tokio::test]
async fn edges_of_a_former_site_key_are_those_that_were_neither_issued_again_nor_revoked() {
    let Fixture { _folder, certificates, clock, .. } = fixture().await;
    let issue = async || certificates.issue(rack_7(), "person:admin").await.unwrap().certificate;
    let former = async || certificates.edges_of_former_keys().await.unwrap();
    let [first, _ends] = [issue().await, issue().await];
    certificates.issue(anna(), "person:admin").await.unwrap();
    assert_eq!(former().await, [""; 0]);
    certificates.authority.use_next_key().unwrap();
    let again = issue().await;
    let found = former().await;
    assert_eq!(found.len(), 2);
    assert!(found.contains(&format!("service:rack-7 ({})", first.serial)), "{found:?}");
    assert!(!found.iter().any(|it| it.contains(&again.serial)), "{found:?}");
    certificates.revoke(&first.serial.parse().unwrap()).await.unwrap();
    assert_eq!(former().await.len(), 1);
    clock.advance(10 * DAY);
    assert_eq!(former().await, [""; 0]);
}

#[tokio::test]
async fn certificates_of_a_dropped_authority_are_listed_and_marked() {
    let Fixture { _folder, certificates, .. } = fixture().await;
    let issue = async || certificates.issue(anna(), "person:admin").await.unwrap().certificate;
    let [former, revoked] = [issue().await, issue().await];
    certificates.revoke(&revoked.serial.parse().unwrap()).await.unwrap();
    certificates.authority.use_next_authority().unwrap();
    let new = issue().await;
    assert!(!former.authority.is_empty() && former.authority != new.authority);
    assert_eq!(certificates.of_dropped_authorities().await.unwrap(), [""; 0]);
    assert!(!certificates.shown(former.clone()).authority_dropped);
    assert!(certificates.authority.drop_old_authority().unwrap());
    let dropped = certificates.of_dropped_authorities().await.unwrap();
    assert_eq!(dropped, [format!("person:anna ({})", former.serial)]);
    assert!(certificates.shown(former.clone()).authority_dropped);
    assert!(!certificates.shown(new).authority_dropped);
    // Issued by an earlier version.
    let unknown = pb::Certificate { authority: String::new(), ..former };
    assert!(!certificates.shown(unknown).authority_dropped);
}

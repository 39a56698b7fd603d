//! Identities that are given and taken back, through the API's listener.

use std::time::Duration;

use crate::support::{connect, start, start_in};
use runtime::{Role, authority};
use tinwright::address::v1 as addr;
use tinwright::address::v1::grant_service_client::GrantServiceClient;
use tinwright::address::v1::subnet_service_client::SubnetServiceClient;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::identity::v1 as pb;
use tinwright::identity::v1::identity_service_client::IdentityServiceClient;
use tinwright::identity::v1::tenant_service_client::TenantServiceClient;
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use tonic_types::StatusExt as _;

/// Returns true if the server at `to` refuses a caller with these TLS settings.
async fn is_refused(to: std::net::SocketAddr, tls: ClientTlsConfig) -> bool {
    let Ok(channel) = connect(to, tls).await else { return true };
    let mut client = HardwareServiceClient::new(channel);
    let listed = client.list_hardware(hw::ListHardwareRequest::default());
    listed.await.is_err()
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_its_streams_end_and_it_stays_refused_after_a_restart() {
    let server = start().await;
    let mut admin = IdentityServiceClient::new(server.channel(Some(Role::Admin)).await);
    let (certificate_request, key) = authority::request_certificate().unwrap();
    let request = pb::IssueCertificateRequest {
        role: pb::Role::Viewer.into(),
        subject: "person:anna".into(),
        certificate_request,
        ..pb::IssueCertificateRequest::default()
    };
    let issued = admin.issue_certificate(request).await.unwrap().into_inner();
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&issued.authority_pem))
        .identity(Identity::from_pem(&issued.certificate_pem, key.expose()));
    let channel = connect(server.grpc, tls.clone()).await.unwrap();
    let watch = hw::WatchHardwareRequest::default();
    let watched = HardwareServiceClient::new(channel).watch_hardware(watch).await;
    let mut events = watched.unwrap().into_inner();
    assert!(events.next().await.unwrap().is_ok(), "synced");

    let serial = issued.certificate.unwrap().serial;
    admin.revoke_certificate(pb::RevokeCertificateRequest { serial }).await.unwrap();
    let end = tokio::time::timeout(Duration::from_secs(30), events.next());
    assert!(end.await.expect("the stream ends").is_none_or(|event| event.is_err()));
    assert!(is_refused(server.grpc, tls.clone()).await);
    let listed = admin.list_certificates(pb::ListCertificatesRequest::default()).await.unwrap();
    assert!(listed.into_inner().certificates[0].revoke_time.is_some());

    let server = start_in(server.end().await).await;
    assert!(is_refused(server.grpc, tls).await);
    assert!(
        server
            .hardware(Role::Viewer)
            .await
            .list_hardware(hw::ListHardwareRequest::default())
            .await
            .is_ok()
    );
    server.end().await;
}

#[tokio::test]
async fn a_door_gets_the_caller_of_a_credential_and_nobody_else_asks() {
    let server = start().await;
    let mut admin = IdentityServiceClient::new(server.channel(Some(Role::Admin)).await);
    let credential = pb::Credential { role: pb::Role::Viewer.into(), ..pb::Credential::default() };
    let request = pb::CreateCredentialRequest {
        credential: Some(credential),
        ..pb::CreateCredentialRequest::default()
    };
    let created = admin.create_credential(request).await.unwrap().into_inner();
    let id = created.credential.unwrap().id;
    let fields = [("api_key".to_owned(), created.api_key)].into();
    let request = pb::AuthenticateRequest { fields };
    let mut door = IdentityServiceClient::new(server.channel(Some(Role::Door)).await);
    let found = door.authenticate(request.clone()).await.unwrap().into_inner();
    assert_eq!(found.caller, format!("tinwright:viewer?subject=credential:{id}"));
    let asked = admin.authenticate(request.clone()).await.unwrap_err();
    assert_eq!(asked.code(), Code::PermissionDenied);
    admin.delete_credential(pb::DeleteCredentialRequest { id, revision: 0 }).await.unwrap();
    assert_eq!(door.authenticate(request).await.unwrap_err().code(), Code::Unauthenticated);
    server.end().await;
}

#[tokio::test]
async fn an_address_is_granted_to_a_tenant_that_exists_and_a_tenant_with_one_stays() {
    let server = start().await;
    let channel = server.channel(Some(Role::Admin)).await;
    let mut tenants = TenantServiceClient::new(channel.clone());
    let mut grants = GrantServiceClient::new(channel.clone());
    let cidr = "203.0.113.0/24".to_owned();
    let subnet = Some(addr::Subnet { name: "lab".into(), cidr, ..addr::Subnet::default() });
    let request = addr::CreateSubnetRequest { subnet, ..addr::CreateSubnetRequest::default() };
    SubnetServiceClient::new(channel).create_subnet(request).await.unwrap();
    let block = "203.0.113.7".to_owned();
    let grant = addr::Grant { tenant: "acme".into(), block, ..addr::Grant::default() };
    let create = addr::CreateGrantRequest { grant: Some(grant) };
    let refused = grants.create_grant(create.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(refused.message(), "grant.tenant: there is no tenant acme");
    let tenant = Some(pb::Tenant { name: "acme".into(), ..pb::Tenant::default() });
    let request = pb::CreateTenantRequest { tenant, ..pb::CreateTenantRequest::default() };
    let tenant = tenants.create_tenant(request.clone()).await.unwrap().into_inner().tenant.unwrap();
    let grant = grants.create_grant(create).await.unwrap().into_inner().grant.unwrap();
    let delete = pb::DeleteTenantRequest { id: tenant.id, revision: 0 };
    let refused = tenants.delete_tenant(delete.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let named = format!("tenant acme has 1 pending grant ({}): ", grant.id);
    assert!(refused.message().starts_with(&named), "{refused}");
    let release = addr::ReleaseGrantRequest { id: grant.id, revision: 0 };
    grants.release_grant(release).await.unwrap();
    tenants.delete_tenant(delete).await.unwrap();
    // Remaining objects name the deleted tenant: a later tenant of the name would see them.
    let refused = tenants.create_tenant(request).await.unwrap_err();
    let reason = refused.get_details_error_info().map(|info| info.reason);
    assert_eq!(reason.as_deref(), Some("TENANT_DELETED"), "{refused}");
    server.end().await;
}

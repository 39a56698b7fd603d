//! Credentials, certificates and revocations over gRPC.

use nouns::Noun as _;
use runtime::{Caller, Role, access};
use store::serving;
use tinwright::identity::v1 as pb;
use tinwright::identity::v1::identity_service_server::IdentityService;
use tinwright::secret::Secrets as _;
use tinwright::status::Violations;
use tonic::{Request, Response, Status};

use super::Api;
use crate::credentials;

impl IdentityService for Api {
    async fn create_credential(
        &self,
        request: Request<pb::CreateCredentialRequest>,
    ) -> Result<Response<pb::CreateCredentialResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        // The digest of a request is stored: it must not allow guessing the fields.
        let idempotent =
            serving::idempotent(&caller, &request.request_id, &request.clone().without_secrets())?;
        let credential = Violations::require("credential", request.credential)?;
        let created = self.credentials.create(credential, request.fields, idempotent).await?;
        Ok(Response::new(created.into()))
    }

    #[tracing::instrument(skip_all, fields(credential.id = request.get_ref().id))]
    async fn get_credential(
        &self,
        request: Request<pb::GetCredentialRequest>,
    ) -> Result<Response<pb::GetCredentialResponse>, Status> {
        let id: tinwright::CredentialId = Violations::parse("id", &request.get_ref().id)?;
        let credential = self.credentials.records().require(&id.to_string()).await?;
        let credential = Some(credential.without_secrets());
        Ok(Response::new(pb::GetCredentialResponse { credential }))
    }

    async fn list_credentials(
        &self,
        request: Request<pb::ListCredentialsRequest>,
    ) -> Result<Response<pb::ListCredentialsResponse>, Status> {
        nouns::list(self.credentials.records(), request).await
    }

    #[tracing::instrument(skip_all, fields(credential.id = request.get_ref().id))]
    async fn delete_credential(
        &self,
        request: Request<pb::DeleteCredentialRequest>,
    ) -> Result<Response<pb::DeleteCredentialResponse>, Status> {
        nouns::delete(&self.credentials, request).await
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        let fields = request.into_inner().fields;
        credentials::check_presented(&fields)?;
        let (caller, credential) = self.credentials.authenticate(&fields).await?;
        let (caller, credential) = (caller.to_string(), Some(credential.without_secrets()));
        Ok(Response::new(pb::AuthenticateResponse { caller, credential }))
    }

    async fn issue_certificate(
        &self,
        request: Request<pb::IssueCertificateRequest>,
    ) -> Result<Response<pb::IssueCertificateResponse>, Status> {
        let caller = request.extensions().get::<Caller>().cloned();
        let issued_by = caller.unwrap_or_else(|| Role::Admin.into());
        let issued = self.certificates.issue(request.into_inner(), issued_by.subject()).await?;
        Ok(Response::new(pb::IssueCertificateResponse {
            certificate: Some(issued.certificate),
            certificate_pem: issued.pem,
            authority_pem: self.certificates.authority_pem(),
            edge_key: issued.edge_key.map(|key| key.expose().clone()).unwrap_or_default(),
        }))
    }

    async fn list_certificates(
        &self,
        request: Request<pb::ListCertificatesRequest>,
    ) -> Result<Response<pb::ListCertificatesResponse>, Status> {
        let mut response = nouns::list(&self.certificates.records, request).await?;
        for certificate in &mut response.get_mut().certificates {
            *certificate = self.certificates.shown(std::mem::take(certificate));
        }
        Ok(response)
    }

    #[tracing::instrument(skip_all, fields(certificate.serial = request.get_ref().serial))]
    async fn revoke_certificate(
        &self,
        request: Request<pb::RevokeCertificateRequest>,
    ) -> Result<Response<pb::RevokeCertificateResponse>, Status> {
        let serial = Violations::parse("serial", &request.get_ref().serial)?;
        let certificate = self.certificates.revoke(&serial).await?;
        Ok(Response::new(pb::RevokeCertificateResponse { certificate }))
    }

    async fn rotate_site_key(
        &self,
        request: Request<pb::RotateSiteKeyRequest>,
    ) -> Result<Response<pb::RotateSiteKeyResponse>, Status> {
        let request = request.into_inner();
        let resealed = self.rotation.site_key(request.step(), request.force).await?;
        let resealed_records = i64::try_from(resealed).unwrap_or(i64::MAX);
        Ok(Response::new(pb::RotateSiteKeyResponse { resealed_records }))
    }

    async fn rotate_authority(
        &self,
        request: Request<pb::RotateAuthorityRequest>,
    ) -> Result<Response<pb::RotateAuthorityResponse>, Status> {
        let request = request.into_inner();
        let refused_certificates = self.rotation.authority(request.step(), request.force).await?;
        Ok(Response::new(pb::RotateAuthorityResponse { refused_certificates }))
    }

    type WatchRevocationsStream = serving::Events<pb::WatchRevocationsResponse>;

    #[tracing::instrument(skip_all)]
    async fn watch_revocations(
        &self,
        _: Request<pb::WatchRevocationsRequest>,
    ) -> Result<Response<Self::WatchRevocationsStream>, Status> {
        serving::watch_by_id(&self.mirrors.1, "", &self.stop, |revocation| revocation)
    }
}

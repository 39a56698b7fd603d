//! Identities: the files of a new certificate, and the key that is printed once.

use std::os::unix::fs::PermissionsExt as _;

use tinwright::identity::v1 as pb;
use tinwright::identity::v1::identity_service_server::{IdentityService, IdentityServiceServer};
use tokio_stream::Empty;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

use super::{fake, tinwright};

/// Issues certificates to viewers and edges only.
struct Identities;

fake! {
    impl IdentityService for Identities {
        type WatchRevocationsStream = Empty<Result<pb::WatchRevocationsResponse, Status>>;

        async fn watch_revocations(
            &self,
            _: Request<pb::WatchRevocationsRequest>,
        ) -> Result<Response<Self::WatchRevocationsStream>, Status> {
            Err(Status::unimplemented("watch_revocations"))
        }

        async fn issue_certificate(
            &self,
            request: Request<pb::IssueCertificateRequest>,
        ) -> Result<Response<pb::IssueCertificateResponse>, Status> {
            let request = request.into_inner();
            if !matches!(request.role(), pb::Role::Viewer | pb::Role::Edge) {
                return Err(Status::permission_denied("viewers only"));
            }
            let edge_key = request.server_names.join(" ");
            assert!(!request.certificate_request.is_empty());
            let certificate = pb::Certificate {
                serial: "0a1b".into(),
                subject: request.subject,
                role: request.role,
                ..pb::Certificate::default()
            };
            Ok(Response::new(pb::IssueCertificateResponse {
                certificate: Some(certificate),
                certificate_pem: format!("{:?}", request.lifetime.map(|it| it.seconds)),
                authority_pem: "authority".into(),
                edge_key,
            }))
        }

        async fn create_credential(
            &self,
            request: Request<pb::CreateCredentialRequest>,
        ) -> Result<Response<pb::CreateCredentialResponse>, Status> {
            let credential = request.into_inner().credential;
            Ok(Response::new(pb::CreateCredentialResponse { credential, api_key: "tw_1_2".into() }))
        }
    }
    refuses {
        get_credential: GetCredentialRequest => GetCredentialResponse,
        list_credentials: ListCredentialsRequest => ListCredentialsResponse,
        delete_credential: DeleteCredentialRequest => DeleteCredentialResponse,
        authenticate: AuthenticateRequest => AuthenticateResponse,
        list_certificates: ListCertificatesRequest => ListCertificatesResponse,
        rotate_authority: RotateAuthorityRequest => RotateAuthorityResponse,
        rotate_site_key: RotateSiteKeyRequest => RotateSiteKeyResponse,
        revoke_certificate: RevokeCertificateRequest => RevokeCertificateResponse,
    }
}

fn server() -> Router {
    Server::builder().add_service(IdentityServiceServer::new(Identities))
}

#[tokio::test]
async fn a_certificate_is_written_with_its_key_which_only_the_owner_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("anna");
    let line = format!(
        "identity issue --role viewer --subject person:anna --lifetime 30d --out {}",
        prefix.display()
    );
    let (out, result) = tinwright(&line, server()).await;
    assert_eq!(result, Ok(()));
    assert!(out.contains("0a1b") && out.contains("person:anna"), "{out}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(
        (read("anna.pem"), read("anna-ca.pem")),
        ("Some(2592000)".into(), "authority".into())
    );
    assert!(read("anna-key.pem").starts_with("-----BEGIN PRIVATE KEY-----"));
    let mode = std::fs::metadata(folder.path().join("anna-key.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
    let (_, again) = tinwright(&line, server()).await;
    assert!(again.unwrap_err().starts_with("creating "), "a file is not replaced");
    assert!(read("anna-key.pem").starts_with("-----BEGIN PRIVATE KEY-----"));
}

#[tokio::test]
async fn the_secrets_of_an_edge_are_written_into_a_directory_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("edge/secrets");
    let line = format!("identity issue --role edge --out {}", secrets.display());
    let (_, refused) = tinwright(&line, server()).await;
    assert_eq!(refused.unwrap_err(), "the server is too old: it has no edges");
    assert!(!secrets.exists());
    let (_, result) = tinwright(&format!("{line} --server-name a,b"), server()).await;
    assert_eq!(result, Ok(()));
    let mut found: Vec<_> = std::fs::read_dir(&secrets)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            (file.file_name().into_string().unwrap(), mode)
        })
        .collect();
    found.sort();
    let expected = ["ca.pem", "edge-key.pem", "edge.key", "edge.pem"];
    assert_eq!(found, expected.map(|name| (name.to_owned(), 0o600)));
    assert_eq!(std::fs::read_to_string(secrets.join("edge.key")).unwrap(), "a b");
    let (_, again) = tinwright(&format!("{line} --server-name c"), server()).await;
    assert!(again.unwrap_err().starts_with("creating "), "a file is not replaced");
    assert_eq!(std::fs::read_to_string(secrets.join("edge.key")).unwrap(), "a b");
}

#[tokio::test]
async fn without_files_a_bundle_is_printed() {
    let (out, result) =
        tinwright("identity issue --role viewer --subject person:anna", server()).await;
    assert_eq!(result, Ok(()));
    let bundle: serde_json::Value = yaml_serde::from_str(&out).unwrap();
    assert_eq!((&bundle["certificate"], &bundle["ca"]), (&"None".into(), &"authority".into()));
    assert!(bundle["key"].as_str().unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    assert!(bundle.get("servers").is_none(), "others do not reach it on the loopback: {out}");
    let (out, result) = tinwright("identity issue --role edge", server()).await;
    let wanted = "the secrets of an edge and of a door are a directory: give --out DIR";
    assert_eq!((out.as_str(), result), ("", Err(wanted.into())));
}

#[tokio::test]
async fn a_refused_certificate_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("identity issue --role admin --out {}", folder.path().join("x").display());
    let (_, result) = tinwright(&line, server()).await;
    assert!(result.unwrap_err().starts_with("viewers only"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_rotation_is_forced_at_its_end_only() {
    use clap::Parser as _;
    let parsed = |text: &str| {
        ["ca", "site-key"].into_iter().all(|key| {
            let words = ["tinwright", "identity", "rotate", key].into_iter();
            super::Program::try_parse_from(words.chain(text.split_whitespace())).is_ok()
        })
    };
    assert!(["", "--prepare", "--finish", "--finish --force"].into_iter().all(parsed));
    assert!(!["--force", "--prepare --finish", "--prepare --force"].into_iter().any(parsed));
}

#[tokio::test]
async fn a_new_api_key_is_printed() {
    let (out, result) = tinwright("identity credential create --role viewer", server()).await;
    assert_eq!(result, Ok(()));
    assert!(out.ends_with("API key, shown only once: tw_1_2\n"), "{out}");
}

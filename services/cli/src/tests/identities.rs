//! Identities: the files of a new certificate, and the key that is printed once.

use std::os::unix::fs::PermissionsExt as _;

use tinwright::identity::v1 as pb;
use tinwright::identity::v1::identity_service_server::{IdentityService, IdentityServiceServer};
use tokio_stream::Empty;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

use super::{fake, tinwright};

/// The ids of the credentials.
const CREDENTIALS: [&str; 3] = [
    "01a219b8-5419-7abc-8def-0123456789ab",
    "01a219b8-5420-7abc-8def-0123456789ab",
    "01a219b9-0000-7abc-8def-0123456789ab",
];

/// The serial numbers of the recorded certificates.
const SERIALS: [&str; 3] = [
    "6eb649d9000000000000000000000001",
    "6eb64a00000000000000000000000002",
    "7c000000000000000000000000000003",
];

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

        async fn list_credentials(
            &self,
            _: Request<pb::ListCredentialsRequest>,
        ) -> Result<Response<pb::ListCredentialsResponse>, Status> {
            let credentials = CREDENTIALS.map(|id| pb::Credential {
                id: id.into(),
                hubs: vec!["hub-1".into()],
                locations: vec!["lab".into(), "attic".into()],
                ..pb::Credential::default()
            });
            let (credentials, next_page_token) = (credentials.into(), String::new());
            Ok(Response::new(pb::ListCredentialsResponse { credentials, next_page_token }))
        }

        async fn delete_credential(
            &self,
            request: Request<pb::DeleteCredentialRequest>,
        ) -> Result<Response<pb::DeleteCredentialResponse>, Status> {
            assert!(CREDENTIALS.contains(&request.get_ref().id.as_str()));
            Ok(Response::new(pb::DeleteCredentialResponse {}))
        }

        async fn list_certificates(
            &self,
            _: Request<pb::ListCertificatesRequest>,
        ) -> Result<Response<pb::ListCertificatesResponse>, Status> {
            let certificates = SERIALS.map(|serial| pb::Certificate {
                serial: serial.into(),
                subject: "person:anna".into(),
                authority_dropped: serial == SERIALS[2],
                ..pb::Certificate::default()
            });
            let (certificates, next_page_token) = (certificates.into(), String::new());
            Ok(Response::new(pb::ListCertificatesResponse { certificates, next_page_token }))
        }

        async fn revoke_certificate(
            &self,
            request: Request<pb::RevokeCertificateRequest>,
        ) -> Result<Response<pb::RevokeCertificateResponse>, Status> {
            let serial = request.into_inner().serial;
            let is_recorded = SERIALS.contains(&serial.as_str());
            let subject = "person:anna".to_owned();
            let certificate = pb::Certificate { serial, subject, ..pb::Certificate::default() };
            let certificate = is_recorded.then_some(certificate);
            Ok(Response::new(pb::RevokeCertificateResponse { certificate }))
        }

        async fn rotate_authority(
            &self,
            _: Request<pb::RotateAuthorityRequest>,
        ) -> Result<Response<pb::RotateAuthorityResponse>, Status> {
            let refused_certificates = vec!["person:anna (6eb6)".into(), "person:bo (7c)".into()];
            Ok(Response::new(pb::RotateAuthorityResponse { refused_certificates }))
        }
    }
    refuses {
        get_credential: GetCredentialRequest => GetCredentialResponse,
        authenticate: AuthenticateRequest => AuthenticateResponse,
        rotate_site_key: RotateSiteKeyRequest => RotateSiteKeyResponse,
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
    let hint = "pem exists already: give another --out, or remove it";
    assert!(again.unwrap_err().ends_with(hint), "a file is not replaced");
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
    let hint = "pem exists already: give another --out, or remove it";
    assert!(again.unwrap_err().ends_with(hint), "a file is not replaced");
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
    let wanted = "the secrets of an edge, a door and a builder are a directory: give --out DIR";
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

#[tokio::test]
async fn credentials_are_deleted_by_the_beginnings_of_their_ids_and_all_are_found_before() {
    let delete = async |names: &str| {
        tinwright(&format!("identity credential delete {names}"), server()).await
    };
    let [first, second, third] = CREDENTIALS.map(|id| format!("credential {id} deleted\n"));
    let (out, result) = delete("01a219b8-5419 credential/01A219B9 01a219b9").await;
    assert_eq!((out, result), (first + &third, Ok(())));
    assert_eq!(delete(CREDENTIALS[1]).await, (second, Ok(())));
    for (names, why) in [
        ("01a219b9 01a219b8", "2 ids begin with 01a219b8: give more of it"),
        ("01a219b9 0f", "credential 0f not found (see `tinwright identity credential list`)"),
        ("01a219b9 credential/", "an empty text is not the id of a credential"),
    ] {
        assert_eq!(delete(names).await, (String::new(), Err(why.into())));
    }
}

#[tokio::test]
async fn a_wide_list_of_credentials_shows_hubs_and_locations() {
    let (out, result) = tinwright("identity credential list -o wide", server()).await;
    assert_eq!(result, Ok(()));
    let lines: Vec<_> = out.lines().map(str::trim_end).collect();
    assert!(lines[0].ends_with("HUBS   LOCATIONS"), "{out}");
    assert!(lines[1].ends_with("hub-1  lab,attic"), "{out}");
    let (out, _) = tinwright("identity credential list", server()).await;
    assert!(!out.contains("hub-1"), "{out}");
}

#[tokio::test]
async fn a_certificate_is_revoked_by_the_beginning_of_its_serial_number_if_it_is_recorded() {
    let revoke =
        async |serials: &str| tinwright(&format!("identity revoke {serials}"), server()).await;
    let revoked = |serial: &str| format!("certificate {serial} of person:anna revoked\n");
    let (out, result) = revoke("6eb649d9 certificate/7C:00").await;
    assert_eq!((out, result), (revoked(SERIALS[0]) + &revoked(SERIALS[2]), Ok(())));
    let whole = "5f000000000000000000000000000004";
    let (out, result) = revoke(whole).await;
    assert_eq!(result, Ok(()));
    assert!(out.starts_with(&format!("certificate {whole} revoked; no certificate")), "{out}");
    for (serials, why) in [
        ("7c 6eb6", "2 serial numbers begin with 6eb6: give more of it"),
        ("7c 6eb648", "no serial number in `tinwright identity list` begins with 6eb648"),
        ("7c 00", "\"00\" is not a serial number: at most 40 hexadecimal digits, not all of them"),
        ("7c xyz", "\"xyz\" is not a serial number"),
    ] {
        let (out, result) = revoke(serials).await;
        let error = result.unwrap_err();
        assert!(out.is_empty() && error.starts_with(why), "{out} {error}");
    }
}

#[tokio::test]
async fn the_certificates_of_a_dropped_authority_are_named_and_listed_as_untrusted() {
    let (out, result) = tinwright("identity rotate ca --finish", server()).await;
    assert_eq!(result, Ok(()));
    assert!(out.contains("issue them again with `tinwright identity issue`"), "{out}");
    assert!(out.ends_with("\n  person:anna (6eb6)\n  person:bo (7c)\n"), "{out}");
    let (out, result) = tinwright("identity list --state untrusted -q", server()).await;
    assert_eq!((out, result), (format!("{}\n", SERIALS[2]), Ok(())));
    let (out, _) = tinwright("identity list --no-headers", server()).await;
    let states: Vec<_> = out.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(states, ["valid", "valid", "untrusted"]);
}

//! Authentication and access control of the API, tested through real connections.

use crate::support::{config, connect, start, stranger};
use runtime::{Caller, Role};
use tinwright::HardwareId;
use tinwright::common::v1::View;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::test]
async fn without_a_certificate_only_the_health_service_is_available() {
    let server = start().await;
    let channel = server.channel(None).await;
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await;
    assert!(health.is_ok());
    let mut hardware = HardwareServiceClient::new(channel);
    let listed = hardware.list_hardware(pb::ListHardwareRequest::default()).await;
    assert_eq!(listed.unwrap_err().code(), Code::Unauthenticated);
    server.end().await;
}

#[tokio::test]
async fn a_role_may_make_its_calls_and_no_others() {
    let server = start().await;
    let code = async |role, view: View| {
        let request = pb::ListHardwareRequest { view: view.into(), ..Default::default() };
        server
            .hardware(role)
            .await
            .list_hardware(request)
            .await
            .map_err(|status| status.code())
            .err()
    };
    assert_eq!(code(Role::Viewer, View::Basic).await, None);
    assert_eq!(code(Role::Viewer, View::Full).await, Some(Code::PermissionDenied));
    assert_eq!(code(Role::Operator, View::Full).await, Some(Code::PermissionDenied));
    assert_eq!(code(Role::Admin, View::Full).await, None);
    assert_eq!(
        code(Role::worker(HardwareId::new()), View::Basic).await,
        Some(Code::PermissionDenied)
    );
    let delete = pb::DeleteHardwareRequest::default();
    let refused = server.hardware(Role::Viewer).await.delete_hardware(delete).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    server.end().await;
}

#[tokio::test]
async fn a_service_makes_its_own_calls_and_no_other_ones() {
    let server = start().await;
    let client = async |subject| {
        let caller = Caller::new(Role::Service, subject).unwrap();
        HardwareServiceClient::new(server.channel_of(Some(caller)).await)
    };
    let watch = || pb::WatchHardwareRequest {
        id: String::new(),
        view: View::Full.into(),
        ..Default::default()
    };
    let mut metadata = client("service:metadata.identity").await;
    assert!(metadata.watch_hardware(watch()).await.is_ok());
    let get = pb::GetHardwareRequest::default();
    let refused = metadata.get_hardware(get).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let refused = client("service:instance").await.watch_hardware(watch()).await.unwrap_err();
    let call = "/tinwright.hardware.v1.HardwareService/WatchHardware";
    assert_eq!(refused.message(), format!("service:instance does not make the call {call}"));
    // A process without the authority's key has the certificate of all services.
    assert!(client("service:tinwright").await.watch_hardware(watch()).await.is_ok());
    server.end().await;
}

#[tokio::test]
async fn another_sites_certificate_is_refused_and_its_servers_are_not_trusted() {
    let server = start().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let other_site = stranger(elsewhere.path());
    let admin = other_site.client(&Role::Admin.into()).unwrap();
    let ours = std::fs::read_to_string(server.secrets().join("ca.pem")).unwrap();
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&ours))
        .identity(Identity::from_pem(&admin.certificate, admin.key.expose()));
    // With TLS 1.3 a client learns that its certificate was refused only when it reads.
    if let Ok(channel) = connect(server.grpc, tls).await {
        let mut hardware = HardwareServiceClient::new(channel);
        let listed = hardware.list_hardware(pb::ListHardwareRequest::default()).await;
        assert!(matches!(listed.unwrap_err().code(), Code::Unavailable | Code::Unknown));
    }
    let other_ca =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(other_site.authority()));
    assert!(connect(server.grpc, other_ca).await.is_err());
    server.end().await;
}

#[tokio::test]
async fn a_second_server_on_the_same_data_or_port_is_refused_with_the_reason() {
    use all_in_one::Server;
    let server = start().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let open = async |data: &std::path::Path, listen: &str| {
        let config = config(&["--data", data.to_str().unwrap(), "--listen", listen]);
        format!("{:#}", Server::open(config).await.unwrap_err())
    };
    let port = open(elsewhere.path(), &server.grpc.to_string()).await;
    assert!(port.starts_with(&format!("listening for grpc on {}", server.grpc)), "{port}");
    let data = open(server.dir.path(), "127.0.0.1:0").await;
    let holder =
        format!("a server is using {} (pid {})", server.dir.path().display(), std::process::id());
    assert_eq!(data, format!("{holder}: stop it first"));
    server.end().await;
}

#[tokio::test]
async fn health_and_metrics_are_served_without_tls() {
    let server = start().await;
    let get = async |path: &str| {
        let url = format!("http://{}{path}", server.vitals);
        reqwest::get(url).await.unwrap().error_for_status().unwrap().text().await.unwrap()
    };
    assert_eq!(get("/healthz").await, "ok\n");
    server
        .hardware(Role::Viewer)
        .await
        .list_hardware(pb::ListHardwareRequest::default())
        .await
        .unwrap();
    let metrics = get("/metrics").await;
    let listed = r#"
grpc_server_handled_total{grpc_service="tinwright.hardware.v1.HardwareService",grpc_method="ListHardware",grpc_code="OK"} 1
"#;
    assert!(metrics.contains(listed), "{metrics}");
    for name in ["\nprocess_resident_memory_bytes ", "\ntinwright_build_info{version="] {
        assert!(metrics.contains(name), "{metrics}");
    }
    server.end().await;
}

#[tokio::test]
async fn objects_commits_and_certificates_are_measured() {
    let server = start().await;
    let interface = pb::Interface { mac: "02:00:00:00:00:01".into(), ..Default::default() };
    let hardware = Some(pb::Hardware { interfaces: vec![interface], ..Default::default() });
    let create = pb::CreateHardwareRequest { hardware, request_id: String::new() };
    server.hardware(Role::Admin).await.create_hardware(create).await.unwrap();
    let measured = [
        "\ntinwright_workflows{state=\"pending\"} 0\n",
        "\ntinwright_workflow_longest_queue 0\n",
        "\ntinwright_workflows_orphaned 0\n",
        "\ntinwright_instances{state=\"active\"} 0\n",
        "\ntinwright_power_jobs{state=\"running\"} 0\n",
        "\ntinwright_power_job_longest_queue 0\n",
        "\ntinwright_store_commit_seconds_count{result=\"ok\"} ",
        "\ntinwright_certificate_expiry_seconds{certificate=\"authority\"} ",
        "\ntinwright_certificate_expiry_seconds{certificate=\"server\"} ",
    ];
    let mut metrics = String::new();
    // Objects are reported once all of them were read.
    for _ in 0..6000 {
        let url = format!("http://{}/metrics", server.vitals);
        metrics = reqwest::get(url).await.unwrap().text().await.unwrap();
        if measured.iter().all(|name| metrics.contains(name)) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    for name in measured {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
    server.end().await;
}

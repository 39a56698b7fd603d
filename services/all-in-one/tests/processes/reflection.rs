//! The API describes itself in both versions of gRPC's reflection: v1, and v1alpha of older clients.

use super::process::Place;

/// Returns the names of the services, and the number of files that describe `symbol`, by the client of one version.
macro_rules! reflected {
    ($version:ident, $channel:expr, $symbol:expr) => {{
        use pb::server_reflection_request::MessageRequest;
        use pb::server_reflection_response::MessageResponse;
        use tonic_reflection::pb::$version as pb;
        let request = |message| pb::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(message),
        };
        let requests = [
            request(MessageRequest::ListServices(String::new())),
            request(MessageRequest::FileContainingSymbol($symbol.to_owned())),
        ];
        let mut client = pb::server_reflection_client::ServerReflectionClient::new($channel);
        let sent = futures_util::stream::iter(requests);
        let mut responses = client.server_reflection_info(sent).await.unwrap().into_inner();
        let (mut names, mut files) = (Vec::new(), 0);
        while let Some(response) = responses.message().await.unwrap() {
            match response.message_response.unwrap() {
                MessageResponse::ListServicesResponse(found) => {
                    names.extend(found.service.into_iter().map(|service| service.name));
                }
                MessageResponse::FileDescriptorResponse(found) => {
                    files += found.file_descriptor_proto.len();
                }
                other => panic!("{other:?}"),
            }
        }
        (names, files)
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_described_in_both_versions() {
    let server = Place::new().start(&[]).await;
    let symbol = "tinwright.hardware.v1.HardwareService";
    let present = reflected!(v1, server.channel().await, symbol);
    let older = reflected!(v1alpha, server.channel().await, symbol);
    for (names, files) in [present, older] {
        assert!(names.iter().any(|name| name == symbol), "{names:?}");
        assert!(names.iter().any(|name| name == "tinwright.instance.v1.InstanceService"));
        assert_eq!(files, 1);
    }
}

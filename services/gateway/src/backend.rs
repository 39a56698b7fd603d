//! The services behind the gateway.

use std::collections::BTreeMap;

use runtime::Channel;
use tinwright::calls::CALLS;
use tinwright::client::Call;
use tonic::Status;

/// A channel to each service, by its name. The gateway is a caller of the role `door` there.
#[derive(Clone, Debug)]
pub struct Backend(BTreeMap<String, Channel>);

impl Backend {
    /// Returns the backend with these services.
    pub fn new(services: impl IntoIterator<Item = (String, Channel)>) -> Self {
        Self(services.into_iter().collect())
    }

    /// Returns the backend whose services are all at `channel`.
    pub fn at_one(channel: impl Into<Channel>) -> Self {
        let channel = channel.into();
        let names = CALLS.iter().filter_map(|call| service(call.path.strip_prefix('/')?));
        Self::new(names.map(|name| (name.to_owned(), channel.clone())))
    }

    /// Returns the channel to the service `name`. Without such a service it answers no call.
    pub fn to(&self, name: &str) -> Channel {
        self.0.get(name).cloned().unwrap_or_else(Channel::unconnected)
    }

    /// Returns the channel to the service that answers a call.
    pub fn of_call<R: Call>(&self) -> Channel {
        self.to(service(R::PATH.trim_start_matches('/')).unwrap_or_default())
    }

    /// Makes a call as the gateway.
    pub async fn call<R: Call>(&self, request: R) -> Result<R::Response, Status> {
        runtime::call(self.of_call::<R>(), request).await
    }

    /// Returns the channel to the service that serves the proto package `package`, such as `tinwright.instance.v1`.
    pub fn of_package(&self, package: &str) -> Option<&Channel> {
        self.0.get(service(package)?)
    }
}

/// Returns the name of the service in the beginning of `path`, such as `tinwright.instance.v1`.
fn service(path: &str) -> Option<&str> {
    match path.strip_prefix("tinwright.")?.split_once(".v1")?.0 {
        // The identity service merges the events of all services. Each process with records answers for the store of the site.
        "event" | "store" => Some("identity"),
        name => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use tinwright::hardware::v1::ListHardwareRequest;
    use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
    use tokio::net::TcpListener;
    use tonic::Code;
    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test]
    async fn a_server_that_closes_connections_is_unavailable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let _closing = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream);
            }
        });
        let channel = Endpoint::from_shared(url).unwrap().connect_lazy();
        let mut client = HardwareServiceClient::new(Channel::from(channel));
        let listed = client.list_hardware(ListHardwareRequest::default()).await;
        let status = listed.unwrap_err();
        assert!(matches!(status.code(), Code::Unavailable | Code::Cancelled), "{status:?}");
    }
}

//! A client of the site's API.

use std::collections::HashMap;

use anyhow::Context as _;
use cli::connect::Connection;
use rack::SERVER;
use runtime::Channel;
use tinwright::hardware::v1::ListHardwareRequest;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tokio::runtime::{Builder, Runtime};

use crate::fleet;
use crate::site::Site;

/// A runtime on this thread alone, so that its sockets are created in the thread's network namespace.
pub fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Connects to the hardware service of `site`.
pub async fn hardware(site: &Site) -> anyhow::Result<HardwareServiceClient<Channel>> {
    let server = vec![format!("https://{SERVER}:42113")];
    let connection = Connection { server, data: Some(site.data()), ..Connection::default() };
    Ok(HardwareServiceClient::new(connection.open().await?))
}

/// Returns the ids of all machines, in the order of their numbers. Fails unless there are `count` machines.
pub async fn ids(
    mut hardware: HardwareServiceClient<Channel>,
    count: usize,
) -> anyhow::Result<Vec<String>> {
    let (mut by_mac, mut page_token) = (HashMap::new(), String::new());
    loop {
        let request = ListHardwareRequest { page_size: 1000, page_token, ..Default::default() };
        let page = hardware.list_hardware(request).await?.into_inner();
        for machine in page.hardware {
            let interface = machine.interfaces.into_iter().next().context("no interface")?;
            by_mac.insert(interface.mac, machine.id);
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    anyhow::ensure!(by_mac.len() == count, "{} machines, expected {count}", by_mac.len());
    let id = |n| by_mac.remove(&fleet::mac(n).to_string()).context("a machine has no record");
    (0..count).map(id).collect()
}

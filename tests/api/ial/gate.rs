//! The boot gate as it is stored. netboot's tests make the requests of machines to it.

use serde_json::{Value, json};

use super::platform::{self, Call};
use super::site::IalSite;

async fn gate(site: &IalSite, server: &str) -> Value {
    site.instance(server).await["boot_gate"].clone()
}

#[tokio::test]
async fn a_gate_is_stored_with_the_identity_that_the_platform_gets_and_survives_restarts() {
    let mut site = IalSite::start().await;
    let order = platform::provision(1, "kir1");
    let server = site.provisioned(&order).await;
    let status = platform::status(1, &server, "kir1");
    let answer = site.acme.call(Call::Status, &status).await.data();
    let open = gate(&site, &server).await;
    let identity = json!([open["uuid"], open["initial_ips"], open["mac"]]);
    let auth = &answer["auth"];
    assert_eq!(identity, json!([auth["uuid"], auth["initial_ips"], auth["mac_addr"]]));
    assert!(open["open"] == true && open["open_time"].is_string(), "{open}");

    site = site.restarted().await;
    assert_eq!(gate(&site, &server).await, open);
    assert_eq!(site.acme.call(Call::Status, &status).await.data(), answer);
    assert_eq!(site.provisioned(&order).await, server, "the order is known");

    let change = platform::change(1, &server, "kir1");
    assert_eq!(site.acme.call(Call::Decommission, &change).await.data(), true);
    assert_ne!(gate(&site, &server).await["open"], true);
    site = site.restarted().await;
    assert_ne!(gate(&site, &server).await["open"], true);
    let gone = site.acme.call(Call::Status, &status).await;
    gone.refused("403.invalid-state", None, "it was given back");
    site.end().await;
}

//! Calls of GetPowerState, and the sessions that they open.

use std::time::Duration;

use tinwright::HardwareId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::get_power_state_response::PowerState;
use tokio::task::JoinSet;

use crate::emulator::Emulator;
use crate::journey::service;
use crate::proxy::{Extras, Proxy};
use crate::site::bmc;

/// Waits until `condition` is true.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in a minute: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_calls_open_one_session_which_is_closed() {
    let emulator = Emulator::open(&["node1".into()]);
    let proxy = Proxy::start(&emulator.url, Extras { sessions: true, ..Extras::default() }).await;
    let mut service = service().await;
    let hardware = HardwareId::new();
    service.add(bmc(hardware, &proxy.url, "")).await;
    let request = || pb::GetPowerStateRequest { hardware_id: hardware.to_string() };
    proxy.hold(true);
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let (mut client, request) = (service.client.clone(), request());
        calls.spawn(async move { client.get_power_state(request).await });
    }
    until("a session is open", || proxy.is_open()).await;
    calls.shutdown().await;
    proxy.hold(false);
    until("no session is open", || !proxy.is_open()).await;
    assert_eq!(proxy.sessions(), 1);
    let state = service.client.get_power_state(request()).await.unwrap().into_inner();
    assert_eq!(state.power_state(), PowerState::Off);
    assert!(!proxy.is_open());
}

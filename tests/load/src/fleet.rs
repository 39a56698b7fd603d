//! The machines of a site: the same ones in every store, by number.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Instant;

use anyhow::Context as _;
use tinwright::Mac;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::api;
use crate::site::Site;

/// The relay the machines are behind where all have the same one, an address of their network.
pub const RELAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The prefix length of that network.
const PREFIX: u32 = 15;
/// Addresses before the first machine's.
const RESERVED: u32 = 256;
/// How far above the machines' addresses the relays' are.
const RELAYS: u32 = 1 << 16;
/// Requests under way at a time.
const AT_ONCE: usize = 64;

/// The MAC of machine `n`: locally administered, so nobody's.
pub fn mac(n: usize) -> Mac {
    let [.., a, b, c, d] = n.to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

/// Its address. At most 65,000 fit.
pub fn address(n: usize) -> Ipv4Addr {
    let [.., a, b] = n.to_be_bytes();
    let number = u32::from(u16::from_be_bytes([a, b]));
    Ipv4Addr::from_bits((RELAY.to_bits() & !0xff) + RESERVED + number)
}

/// The relay of machine `n` alone: the port of a switch that relays.
pub fn relay(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(address(n).to_bits() + RELAYS)
}

/// Its record, of the size of those in `docs/examples/hardware.yaml`.
fn record(n: usize) -> pb::Hardware {
    let name = format!("node-{n:05}");
    let address = pb::Address {
        address: address(n).to_string(),
        prefix_length: PREFIX,
        gateway: RELAY.to_string(),
    };
    let dhcp = pb::Dhcp {
        address: Some(address),
        hostname: name.clone(),
        lease_time: Some(prost_types::Duration { seconds: 86_400, nanos: 0 }),
        name_servers: vec![RELAY.to_string()],
        ..pb::Dhcp::default()
    };
    let interface = pb::Interface {
        mac: mac(n).to_string(),
        name: "eth0".into(),
        dhcp: Some(dhcp),
        netboot: Some(pb::Netboot { allow_pxe: true, ..pb::Netboot::default() }),
        ..pb::Interface::default()
    };
    pb::Hardware {
        name,
        labels: [("rack".into(), format!("r{}", n / 40))].into(),
        // Metadata answers who somebody looks after; a provisionable machine without an instance is nobody there.
        state: pb::State::Enrolled.into(),
        facility: "lab1".into(),
        interfaces: vec![interface],
        disks: vec![pb::Disk { device: "/dev/vda".into() }],
        ..pb::Hardware::default()
    }
}

/// Creates the machines `numbers` at `site`. Answers how many a second.
pub fn create(site: &Site, numbers: Range<usize>) -> anyhow::Result<f64> {
    site.enter()?;
    let (count, start) = (numbers.len(), Instant::now());
    api::runtime()?.block_on(async {
        let hardware = api::hardware(site).await?;
        let mut tasks = JoinSet::new();
        for n in numbers {
            if tasks.len() == AT_ONCE {
                tasks.join_next().await.context("no request is under way")???;
            }
            tasks.spawn(create_one(hardware.clone(), n));
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        anyhow::Ok(())
    })?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

async fn create_one(mut hardware: HardwareServiceClient<Channel>, n: usize) -> anyhow::Result<()> {
    let request =
        pb::CreateHardwareRequest { hardware: Some(record(n)), request_id: String::new() };
    hardware.create_hardware(request).await.with_context(|| format!("creating machine {n}"))?;
    Ok(())
}

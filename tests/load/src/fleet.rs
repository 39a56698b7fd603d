//! Hardware records of simulated machines, derived from the machine's number.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Instant;

use anyhow::Context as _;
use runtime::Channel;
use tinwright::Mac;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tokio::task::JoinSet;

use crate::api;
use crate::site::Site;

/// The relay shared by all machines, an address of their network.
pub const RELAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The prefix length of that network.
const PREFIX_LENGTH: u32 = 15;
/// Offset of the first machine's address.
const FIRST_ADDRESS_OFFSET: u32 = 256;
/// Offset of a machine's own relay from the machine's address.
const RELAY_OFFSET: u32 = 1 << 16;
/// Number of concurrent requests when the rate does not matter.
pub const MAX_CONCURRENT_REQUESTS: usize = 64;

/// Returns the MAC of machine `n`, a locally administered address.
pub fn mac(n: usize) -> Mac {
    let [.., a, b, c, d] = n.to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

/// Returns the IPv4 address of machine `n`. There are addresses for 65,000 machines.
pub fn address(n: usize) -> Ipv4Addr {
    let [.., a, b] = n.to_be_bytes();
    let number = u32::from(u16::from_be_bytes([a, b]));
    Ipv4Addr::from_bits((RELAY.to_bits() & !0xff) + FIRST_ADDRESS_OFFSET + number)
}

/// Returns the address of the relay that only machine `n` is behind, as at a switch that relays per port.
pub fn relay(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(address(n).to_bits() + RELAY_OFFSET)
}

/// Returns the record of machine `n`, of the size of those in `docs/examples/hardware.yaml`.
fn record(n: usize) -> pb::Hardware {
    let name = format!("node-{n:05}");
    let address = pb::Address {
        address: address(n).to_string(),
        prefix_length: PREFIX_LENGTH,
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
        // The metadata service does not answer provisionable machines without an instance.
        state: pb::State::Enrolled.into(),
        facility: "lab1".into(),
        interfaces: vec![interface],
        disks: vec![pb::Disk { device: "/dev/vda".into() }],
        ..pb::Hardware::default()
    }
}

/// Creates the machines `numbers` at `site`. Returns the rate in records per second.
pub fn create(site: &Site, numbers: Range<usize>) -> anyhow::Result<f64> {
    create_by(site, numbers, MAX_CONCURRENT_REQUESTS)
}

/// Creates the machines `numbers` at `site` by at most `concurrent` requests at a time. Returns the
/// rate in records per second.
pub fn create_by(site: &Site, numbers: Range<usize>, concurrent: usize) -> anyhow::Result<f64> {
    site.enter()?;
    let (count, start) = (numbers.len(), Instant::now());
    api::runtime()?.block_on(async {
        let hardware = api::hardware(site).await?;
        let mut tasks = JoinSet::new();
        for n in numbers {
            if tasks.len() == concurrent {
                tasks.join_next().await.context("no request is pending")???;
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

//! Granted addresses that are attached to an instance: its machine has them over DHCP and in metadata until they are detached.

mod guest;

use runtime::Channel;
use tinwright::address::v1 as addr;
use tinwright::address::v1::get_grant_request::By;
use tinwright::address::v1::grant_service_client::GrantServiceClient;
use tinwright::address::v1::subnet_service_client::SubnetServiceClient;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tonic::{Code, Status};

use self::guest::{Guest, peers};
use super::network::{Network, OURS, run_ip};
use super::peer::free_port;
use super::process::{Place, Process, arguments, machine, soon};
use super::scripts;

const MAC: &str = "52:54:00:00:00:01";
const RESERVED: &str = "198.51.100.50";
const PRIMARY: &str = "198.51.100.70";
const SECOND: &str = "198.51.100.71";
const SIX: &str = "2001:db8::7";
/// The only address that is leased, where there is a pool.
const POOLED: &str = "198.51.100.100";
const POOL: &str = "[[subnets]]
network = \"198.51.100.0/24\"
gateway = \"198.51.100.1\"
ranges = [\"198.51.100.100-198.51.100.100\"]
";
/// A client renews at half of it.
const LEASE_SECONDS: i64 = 12;

/// The operator of the site.
#[derive(Clone)]
struct Operator(Channel);

impl Operator {
    fn grants(&self) -> GrantServiceClient<Channel> {
        GrantServiceClient::new(self.0.clone())
    }

    fn instances(&self) -> InstanceServiceClient<Channel> {
        InstanceServiceClient::new(self.0.clone())
    }

    async fn create_subnet(&self, name: &str, cidr: &str, gateway: &str) {
        let (name, cidr, gateway) = (name.into(), cidr.into(), gateway.into());
        let subnet = Some(addr::Subnet { name, cidr, gateway, ..addr::Subnet::default() });
        let request = addr::CreateSubnetRequest { subnet, ..Default::default() };
        SubnetServiceClient::new(self.0.clone()).create_subnet(request).await.unwrap();
    }

    /// Waits until the subnet `name` of the file is there.
    async fn until_imported(&self, name: &str) {
        let get = async || {
            let by = Some(addr::get_subnet_request::By::Name(name.into()));
            let mut subnets = SubnetServiceClient::new(self.0.clone());
            subnets.get_subnet(addr::GetSubnetRequest { by }).await
        };
        let imported = async {
            while get().await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        soon(imported).await;
    }

    /// Creates an instance, in which nothing is installed, on the machine that `create` creates. Returns its id.
    async fn create_instance(&self, mut create: hw::CreateHardwareRequest) -> String {
        create.hardware.as_mut().unwrap().set_state(hw::State::Provisionable);
        let mut machines = HardwareServiceClient::new(self.0.clone());
        let created = machines.create_hardware(create).await.unwrap().into_inner();
        let hardware_id = created.hardware.unwrap().id;
        let instance =
            Some(inst::Instance { hardware_id, reserve_only: true, ..inst::Instance::default() });
        let request = inst::CreateInstanceRequest { instance, ..Default::default() };
        let created = self.instances().create_instance(request).await.unwrap().into_inner();
        created.instance.unwrap().id
    }

    /// Grants `address`, and attaches it to the instance. Returns the grant's id.
    async fn attach(&self, address: &str, instance: &str, primary: bool) -> String {
        let grant = Some(addr::Grant { block: address.into(), ..addr::Grant::default() });
        let granted = self.grants().create_grant(addr::CreateGrantRequest { grant }).await.unwrap();
        let id = granted.into_inner().grant.unwrap().id;
        self.attach_grant(&id, instance, primary).await.unwrap();
        id
    }

    async fn attach_grant(&self, id: &str, instance: &str, primary: bool) -> Result<(), Status> {
        let instance_id = instance.to_owned();
        let attachment = addr::Attachment { instance_id, primary, ..addr::Attachment::default() };
        let request = addr::AttachGrantRequest { id: id.into(), attachment: Some(attachment) };
        self.grants().attach_grant(request).await.map(drop)
    }

    async fn detach(&self, id: &str) {
        let request = addr::DetachGrantRequest { id: id.into(), ..Default::default() };
        self.grants().detach_grant(request).await.unwrap();
    }

    async fn release(&self, id: &str) {
        let request = addr::ReleaseGrantRequest { id: id.into(), revision: 0 };
        self.grants().release_grant(request).await.unwrap();
    }

    async fn delete_instance(&self, id: &str) {
        let request =
            inst::DeleteInstanceRequest { id: id.into(), force: true, ..Default::default() };
        self.instances().delete_instance(request).await.unwrap();
    }

    async fn is_attached(&self, id: &str) -> bool {
        let request = addr::GetGrantRequest { by: Some(By::Id(id.into())) };
        let found = self.grants().get_grant(request).await.unwrap().into_inner();
        found.grant.unwrap().attachment.is_some()
    }

    /// Waits until the instance's record has these addresses.
    async fn until_addresses(&self, instance: &str, expected: &[&str]) {
        let by = Some(inst::get_instance_request::By::Id(instance.into()));
        let request = inst::GetInstanceRequest { by, ..Default::default() };
        let has = async {
            loop {
                let found = self.instances().get_instance(request.clone()).await.unwrap();
                let found = found.into_inner().instance.unwrap().addresses;
                let found: Vec<_> = found.iter().map(|it| it.address.as_str()).collect();
                if found == expected {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        soon(has).await;
    }
}

/// Returns a machine with the reserved address.
fn reserved() -> hw::CreateHardwareRequest {
    let mut create = machine(MAC, RESERVED);
    let dhcp = create.hardware.as_mut().unwrap().interfaces[0].dhcp.as_mut().unwrap();
    dhcp.address.as_mut().unwrap().prefix_length = 24;
    dhcp.lease_time = Some(prost_types::Duration { seconds: LEASE_SECONDS, nanos: 0 });
    create
}

/// Returns the address that udhcpc gets on the machine.
fn udhcpc(network: &Network) -> String {
    let output = network.run(0, "busybox udhcpc -i eth0 -n -q -f -t 20 -T 2 -s /bin/true");
    let lease = output.split_once("lease of ").and_then(|(_, rest)| rest.split([' ', ',']).next());
    lease.unwrap_or_else(|| panic!("no lease: {output}")).to_owned()
}

/// Waits until udhcpc gets `address`: netboot follows the instances.
async fn until_leased(network: &Network, address: &str) {
    let leased = async {
        while udhcpc(network) != address {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    soon(leased).await;
}

/// Returns the status and the body of metadata at `path`, for the source address `source`.
fn metadata(network: &Network, source: &str, path: &str) -> (String, String) {
    scripts::get(network, &format!("--interface {source} http://{OURS}:8080/{path}"))
}

/// Waits until the metadata of the interface at `name` is `expected`, for the source address `source`.
async fn until_served(network: &Network, source: &str, name: &str, expected: &str) {
    let path = format!("latest/meta-data/network/interfaces/macs/{MAC}/{name}");
    let served = async {
        while metadata(network, source, &path) != ("200".into(), expected.into()) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    soon(served).await;
}

/// A site that serves machines, and its operator.
struct Site {
    flags: Vec<String>,
    server: Process,
    operator: Operator,
}

impl Site {
    /// Starts it with subnets of both families. Single addresses in `pool` are leased, if there are any.
    async fn start(pool: &str) -> Self {
        let (api, metadata_address) = (format!("{OURS}:{}", free_port()), format!("{OURS}:8080"));
        let place = Place::new();
        let config = place.path("config.toml");
        std::fs::write(&config, pool).unwrap();
        let config = config.display().to_string();
        let flags = ["--config", &config, "--netboot-interface", "br0", "--listen", &api];
        let flags = arguments(&[&flags[..], &["--metadata-listen", &metadata_address]].concat());
        let server = place.start(&flags).await;
        let operator = Operator(server.channel().await);
        match pool {
            "" => operator.create_subnet("v4", "198.51.100.0/24", "198.51.100.1").await,
            _ => operator.until_imported("config-198-51-100-0-24").await,
        }
        operator.create_subnet("v6", "2001:db8::/64", "2001:db8::1").await;
        Self { flags, server, operator }
    }

    /// Restarts its process.
    async fn restart(self) -> Self {
        let server = self.server.terminate().start(&self.flags).await;
        let operator = Operator(server.channel().await);
        Self { server, operator, ..self }
    }
}

#[test]
fn a_machine_has_the_addresses_that_are_attached_until_they_are_detached_or_released() {
    let network = Network::new(&[MAC]);
    network.on_site(async || {
        let site = Site::start("").await;
        let operator = site.operator.clone();
        let instance = operator.create_instance(reserved()).await;
        until_leased(&network, RESERVED).await;

        let primary = operator.attach(PRIMARY, &instance, true).await;
        let second = operator.attach(SECOND, &instance, false).await;
        let six = operator.attach(SIX, &instance, false).await;
        operator.until_addresses(&instance, &[PRIMARY, SECOND, SIX]).await;
        until_leased(&network, PRIMARY).await;
        for address in [RESERVED, PRIMARY, SECOND] {
            network.set(0, &format!("addr add {address}/24 dev eth0"));
        }
        until_served(&network, PRIMARY, "local-ipv4s", &format!("{PRIMARY}\n{SECOND}")).await;
        until_served(&network, SECOND, "ipv6s", SIX).await;
        let (status, config) = metadata(&network, PRIMARY, "nocloud/network-config");
        for line in ["198.51.100.70/24", "198.51.100.71/24", "2001:db8::7/64", "198.51.100.1"] {
            assert!(status == "200" && config.contains(line), "{line} in {config}");
        }

        let site = site.restart().await;
        let operator = site.operator.clone();
        until_leased(&network, PRIMARY).await;

        operator.detach(&primary).await;
        operator.until_addresses(&instance, &[SECOND, SIX]).await;
        until_leased(&network, RESERVED).await;
        until_served(&network, RESERVED, "local-ipv4s", &format!("{RESERVED}\n{SECOND}")).await;
        assert_eq!(metadata(&network, PRIMARY, "latest/meta-data/").0, "404");
        operator.release(&second).await;
        until_served(&network, RESERVED, "local-ipv4s", RESERVED).await;

        operator.delete_instance(&instance).await;
        let detached = async {
            while operator.is_attached(&six).await {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        soon(detached).await;
        let gone = operator.attach_grant(&six, &instance, false).await.unwrap_err();
        assert_eq!(gone.code(), Code::NotFound, "{gone}");
    });
}

#[test]
fn a_guest_answers_at_granted_addresses_that_its_network_document_has_until_they_are_released() {
    let (peers, network) = (peers(), Network::new(&[MAC]));
    network.on_site(async || {
        run_ip("addr add 2001:db8::1/64 dev br0 nodad");
        let Site { operator, server: _server, .. } = Site::start(POOL).await;
        let mut create = machine(MAC, POOLED);
        create.hardware.as_mut().unwrap().interfaces[0].dhcp = None;
        let instance = operator.create_instance(create).await;
        until_leased(&network, POOLED).await;
        let (guest, all) = (Guest::new(&network, peers), [POOLED, PRIMARY, SECOND, SIX]);
        guest.start();
        guest.until_answers(&all, &[POOLED]).await;
        let interface = format!("latest/meta-data/network/interfaces/macs/{MAC}/local-ipv4s");

        let second = operator.attach(SECOND, &instance, false).await;
        let six = operator.attach(SIX, &instance, false).await;
        until_served(&network, POOLED, "ipv6s", SIX).await;
        guest.restart();
        guest.until_answers(&all, &[POOLED, SECOND, SIX]).await;

        let primary = operator.attach(PRIMARY, &instance, true).await;
        until_leased(&network, PRIMARY).await;
        guest.restart();
        guest.until_answers(&all, &[PRIMARY, SECOND, SIX]).await;
        assert_eq!(metadata(&network, SECOND, &interface).1, format!("{PRIMARY}\n{SECOND}"));

        for grant in [&primary, &second, &six] {
            operator.release(grant).await;
        }
        operator.until_addresses(&instance, &[]).await;
        until_leased(&network, POOLED).await;
        guest.restart();
        guest.until_answers(&all, &[POOLED]).await;
    });
}

#[test]
fn a_running_guest_leaves_a_released_primary_address_when_it_renews_its_lease() {
    let (peers, network) = (peers(), Network::new(&[MAC]));
    network.on_site(async || {
        let Site { operator, server, .. } = Site::start("").await;
        let instance = operator.create_instance(reserved()).await;
        let primary = operator.attach(PRIMARY, &instance, true).await;
        until_leased(&network, PRIMARY).await;
        let (guest, all) = (Guest::new(&network, peers), [RESERVED, PRIMARY]);
        let _client = guest.start_dhcp_client(&server.place.path("udhcpc"));
        guest.until_answers(&all, &[PRIMARY]).await;

        operator.release(&primary).await;
        guest.until_answers(&all, &[RESERVED]).await;
    });
}

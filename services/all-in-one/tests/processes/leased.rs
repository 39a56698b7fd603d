//! Leases beside machines' reservations, instances' addresses and grants: of two that want an address the second does not get it.

use runtime::Channel;
use tinwright::address::v1 as addr;
use tinwright::address::v1::grant_service_client::GrantServiceClient;
use tinwright::address::v1::subnet_service_client::SubnetServiceClient;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::get_lease_request::By;
use tinwright::netboot::v1::lease::State;
use tinwright::netboot::v1::lease_service_client::LeaseServiceClient;
use tinwright::status::AddressInUse;
use tonic::{Code, Status};

use super::network::{Network, OURS};
use super::peer::free_port;
use super::process::{Place, arguments, machine, soon};

const MAC: &str = "52:54:00:00:00:01";
/// The only address that is leased.
const POOLED: &str = "198.51.100.100";
const POOL: &str = "[[subnets]]
network = \"198.51.100.0/24\"
ranges = [\"198.51.100.100-198.51.100.100\"]
";

/// A kind of object that has an address.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Reservation,
    Instance,
    Grant,
}

const KINDS: [Kind; 3] = [Kind::Reservation, Kind::Instance, Kind::Grant];

/// The operator of the site.
struct Operator {
    channel: Channel,
    macs: u8,
}

impl Operator {
    fn hardware(&self) -> HardwareServiceClient<Channel> {
        HardwareServiceClient::new(self.channel.clone())
    }

    fn leases(&self) -> LeaseServiceClient<Channel> {
        LeaseServiceClient::new(self.channel.clone())
    }

    /// Creates a machine; with the pooled address, if it is `reserving`.
    async fn machine(&mut self, mac: &str, reserving: bool) -> Result<String, Status> {
        let mut create = machine(mac, POOLED);
        let hardware = create.hardware.as_mut().unwrap();
        hardware.set_state(hw::State::Provisionable);
        let interface = &mut hardware.interfaces[0];
        match interface.dhcp.as_mut().filter(|_| reserving) {
            Some(dhcp) => dhcp.address.as_mut().unwrap().prefix_length = 24,
            None => interface.dhcp = None,
        }
        let created = self.hardware().create_hardware(create).await?;
        Ok(created.into_inner().hardware.unwrap().id)
    }

    /// Deletes the range of the file, which is for leases only, from the address service: its address can be granted then, too.
    async fn delete_imported_range(&self) {
        let mut subnets = SubnetServiceClient::new(self.channel.clone());
        let range = async {
            loop {
                let listed = subnets.list_ranges(addr::ListRangesRequest::default()).await;
                if let Some(range) = listed.unwrap().into_inner().ranges.pop() {
                    return range;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        let id = soon(range).await.id;
        let delete = addr::DeleteRangeRequest { id, ..Default::default() };
        subnets.delete_range(delete).await.unwrap();
    }

    fn other_mac(&mut self) -> String {
        self.macs += 1;
        format!("52:54:00:00:01:{:02x}", self.macs)
    }

    /// Creates an object with the pooled address. Returns its noun and id.
    async fn create(&mut self, kind: Kind) -> Result<String, Status> {
        let mac = self.other_mac();
        Ok(match kind {
            Kind::Reservation => format!("hardware {}", self.machine(&mac, true).await?),
            Kind::Instance => {
                let hardware_id = self.machine(&mac, false).await?;
                let ips = vec![inst::instance::Ip { address: POOLED.into(), ..Default::default() }];
                let instance =
                    inst::Instance { hardware_id, ips, reserve_only: true, ..Default::default() };
                let request =
                    inst::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
                let mut client = InstanceServiceClient::new(self.channel.clone());
                let created = client.create_instance(request).await?.into_inner();
                format!("instance {}", created.instance.unwrap().id)
            }
            Kind::Grant => {
                let grant = Some(addr::Grant { block: POOLED.into(), ..addr::Grant::default() });
                let mut client = GrantServiceClient::new(self.channel.clone());
                let created = client.create_grant(addr::CreateGrantRequest { grant }).await?;
                format!("grant {}", created.into_inner().grant.unwrap().id)
            }
        })
    }

    async fn lease(&self) -> Result<pb::Lease, Status> {
        let request = pb::GetLeaseRequest { by: Some(By::Address(POOLED.into())) };
        Ok(self.leases().get_lease(request).await?.into_inner().lease.unwrap())
    }
}

/// True if udhcpc gets the pooled address on the machine.
fn is_leased(network: &Network) -> bool {
    let output = network.run(0, "busybox udhcpc -i eth0 -n -q -f -t 3 -T 1 -s /bin/true");
    output.contains(&format!("lease of {POOLED}"))
}

async fn site(network: &Network, check: impl AsyncFnOnce(&Network, Operator)) {
    let api = format!("{OURS}:{}", free_port());
    let place = Place::new();
    let config = place.path("config.toml");
    std::fs::write(&config, POOL).unwrap();
    let config = config.display().to_string();
    let flags = ["--config", &config, "--netboot-interface", "br0", "--listen", &api];
    let server = place.start(&arguments(&flags)).await;
    let mut operator = Operator { channel: server.channel().await, macs: 0 };
    operator.delete_imported_range().await;
    operator.machine(MAC, false).await.unwrap();
    check(network, operator).await;
}

#[test]
fn what_wants_an_address_that_a_client_leases_is_refused_by_the_name_of_the_client() {
    let network = Network::new(&[MAC]);
    network.on_site(async || {
        let check = async |network: &Network, mut operator: Operator| {
            let leased = async {
                while !is_leased(network) {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            };
            soon(leased).await;
            for kind in KINDS {
                let refused = operator.create(kind).await.unwrap_err();
                assert_eq!(refused.code(), Code::AlreadyExists, "{kind:?}: {refused}");
                let text = format!("{POOLED} is leased to {MAC} until ");
                assert!(refused.message().starts_with(&text), "{kind:?}: {refused}");
                let used = AddressInUse::from_status(&refused).unwrap();
                assert_eq!((used.noun.as_str(), used.id.as_str()), ("lease", POOLED));
            }
            // The machine that has the lease may reserve the address.
            let by = Some(hw::get_hardware_request::By::Mac(MAC.into()));
            let get = hw::GetHardwareRequest { by, ..Default::default() };
            let found = operator.hardware().get_hardware(get).await.unwrap().into_inner();
            let mut own = found.hardware.unwrap();
            let reserved = machine(MAC, POOLED).hardware.unwrap().interfaces.remove(0).dhcp;
            own.interfaces[0].dhcp = reserved;
            let update =
                hw::UpdateHardwareRequest { hardware: Some(own), update_mask: None, force: true };
            operator.hardware().update_hardware(update).await.unwrap();
            let refused = operator.create(Kind::Grant).await.unwrap_err();
            assert!(refused.message().contains("is reserved for machine"), "{refused}");
        };
        site(&network, check).await;
    });
}

#[test]
fn an_address_that_an_object_has_is_leased_to_nobody() {
    for kind in KINDS {
        let network = Network::new(&[MAC]);
        network.on_site(async || {
            let check = async |network: &Network, mut operator: Operator| {
                let holder = operator.create(kind).await.unwrap();
                let withheld = operator.lease().await.unwrap();
                assert_eq!(withheld.state(), State::Withheld, "{kind:?}");
                assert_eq!(withheld.withheld_for, holder);
                assert!(!is_leased(network), "{kind:?}");
                // Nor after the time for which it is withheld.
                let delete =
                    pb::DeleteLeaseRequest { address: POOLED.into(), ..Default::default() };
                operator.leases().delete_lease(delete).await.unwrap();
                assert!(!is_leased(network), "{kind:?}");
                assert_eq!(operator.lease().await.unwrap_err().code(), Code::NotFound);
            };
            site(&network, check).await;
        });
    }
}

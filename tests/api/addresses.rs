//! Addresses that two objects want: the second one is refused by the name of the first, whatever they are.

use runtime::{Channel, Role};
use tinwright::address::v1 as addr;
use tinwright::address::v1::grant_service_client::GrantServiceClient;
use tinwright::address::v1::subnet_service_client::SubnetServiceClient;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::status::AddressInUse;
use tonic::{Code, Status};

use crate::support::{RunningServer, start, start_in};

/// A kind of object that has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A machine, with a reservation.
    Reservation,
    /// An instance, with an address of its own.
    Instance,
    /// A grant.
    Grant,
    /// The gateway of a subnet.
    Gateway,
}

const KINDS: [Kind; 4] = [Kind::Reservation, Kind::Instance, Kind::Grant, Kind::Gateway];

impl Kind {
    /// The text by which a holder `name` with this `id` is named.
    fn named(self, address: &str, id: &str) -> String {
        match self {
            Self::Reservation => {
                format!("{address} is reserved for machine m-{} ({id})", word(address))
            }
            Self::Instance => format!("{address} is an address of instance {id}"),
            Self::Grant => format!("{address} is granted: grant {id}"),
            Self::Gateway => {
                format!("{address} is the gateway of subnet s-{} ({id})", word(address))
            }
        }
    }
}

/// The last byte of an address, as a part of names.
fn word(address: &str) -> String {
    address.rsplit('.').next().unwrap().to_owned()
}

struct Site {
    server: RunningServer,
    channel: Channel,
    macs: u8,
}

impl Site {
    async fn over(server: RunningServer) -> Self {
        let channel = server.channel(Some(Role::Operator)).await;
        Self { server, channel, macs: 0 }
    }

    fn hardware(&self) -> HardwareServiceClient<Channel> {
        HardwareServiceClient::new(self.channel.clone())
    }

    fn instances(&self) -> InstanceServiceClient<Channel> {
        InstanceServiceClient::new(self.channel.clone())
    }

    fn grants(&self) -> GrantServiceClient<Channel> {
        GrantServiceClient::new(self.channel.clone())
    }

    /// Creates a machine that reserves `address`; none if that is empty.
    async fn machine(&mut self, address: &str) -> Result<hw::Hardware, Status> {
        self.macs += 1;
        let reserved =
            hw::Address { address: address.into(), prefix_length: 16, ..hw::Address::default() };
        let dhcp = hw::Dhcp { address: Some(reserved), ..hw::Dhcp::default() };
        let interface = hw::Interface {
            mac: format!("02:00:00:00:01:{:02x}", self.macs),
            dhcp: Some(dhcp).filter(|_| !address.is_empty()),
            ..hw::Interface::default()
        };
        let name = if address.is_empty() { String::new() } else { format!("m-{}", word(address)) };
        let (state, interfaces) = (hw::State::Provisionable.into(), vec![interface]);
        let hardware = hw::Hardware { name, state, interfaces, ..hw::Hardware::default() };
        let request = hw::CreateHardwareRequest { hardware: Some(hardware), ..Default::default() };
        let made = self.hardware().create_hardware(request).await?;
        Ok(made.into_inner().hardware.unwrap())
    }

    /// Creates an instance with `address` on `machine`. It only keeps the machine.
    async fn instance(&self, machine: &str, address: &str) -> Result<inst::Instance, Status> {
        let ip = inst::instance::Ip { address: address.into(), ..Default::default() };
        let (hardware_id, reserve_only) = (machine.to_owned(), true);
        let instance =
            inst::Instance { hardware_id, reserve_only, ips: vec![ip], ..Default::default() };
        let request =
            inst::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
        let made = self.instances().create_instance(request).await?;
        Ok(made.into_inner().instance.unwrap())
    }

    async fn subnet(&self, name: &str, cidr: &str, gateway: &str) -> Result<String, Status> {
        let (name, cidr, gateway) = (name.into(), cidr.into(), gateway.into());
        let subnet = Some(addr::Subnet { name, cidr, gateway, ..Default::default() });
        let mut client = SubnetServiceClient::new(self.channel.clone());
        let request = addr::CreateSubnetRequest { subnet, request_id: String::new() };
        let made = client.create_subnet(request).await?;
        Ok(made.into_inner().subnet.unwrap().id)
    }

    /// Creates an object with `address`, in a network whose first bytes are 10.n. Returns its id.
    async fn create(&mut self, kind: Kind, address: &str) -> Result<String, Status> {
        match kind {
            Kind::Reservation => Ok(self.machine(address).await?.id),
            Kind::Instance => {
                let machine = self.machine("").await.unwrap();
                Ok(self.instance(&machine.id, address).await?.id)
            }
            Kind::Grant => {
                let grant = addr::Grant { block: address.into(), ..addr::Grant::default() };
                let request = addr::CreateGrantRequest { grant: Some(grant) };
                Ok(self.grants().create_grant(request).await?.into_inner().grant.unwrap().id)
            }
            Kind::Gateway => {
                let network = address.rsplit_once('.').unwrap().0;
                let name = format!("s-{}", word(address));
                self.subnet(&name, &format!("{network}.0/24"), address).await
            }
        }
    }
}

#[tokio::test]
async fn of_two_objects_that_want_an_address_the_second_is_refused_by_the_name_of_the_first() {
    let mut site = Site::over(start().await).await;
    let mut pair = 0_u8;
    for first in KINDS {
        for second in KINDS {
            pair += 1;
            let address = format!("10.0.{pair}.{}", 100 + pair);
            // A second subnet would overlap: that is another error.
            let has_subnet = [first, second].contains(&Kind::Gateway);
            if has_subnet && (first == second || [first, second].contains(&Kind::Grant)) {
                continue;
            }
            if !has_subnet {
                let name = format!("n-{pair}");
                site.subnet(&name, &format!("10.0.{pair}.0/24"), "").await.unwrap();
            }
            let id = site.create(first, &address).await.unwrap();
            let refused = site.create(second, &address).await.unwrap_err();
            let text = format!("{second:?} after {first:?}: {refused}");
            assert_eq!(refused.code(), Code::AlreadyExists, "{text}");
            assert_eq!(refused.message(), first.named(&address, &id), "{text}");
            let used = AddressInUse::from_status(&refused).unwrap();
            assert_eq!((used.address, used.id), (address, id), "{text}");
        }
    }
    site.server.end().await;
}

#[tokio::test]
async fn an_address_is_free_once_its_object_is_deleted_or_has_it_no_longer() {
    let mut site = Site::over(start().await).await;
    let machine = site.machine("10.0.1.1").await.unwrap();
    let other = site.machine("").await.unwrap();
    site.instance(&other.id, "10.0.1.1").await.unwrap_err();
    // A machine and its own instance may have the same address.
    site.instance(&machine.id, "10.0.1.1").await.unwrap();
    let mut update = other.clone();
    update.interfaces[0].dhcp = Some(hw::Dhcp {
        address: Some(hw::Address {
            address: "10.0.1.2".into(),
            prefix_length: 24,
            ..Default::default()
        }),
        ..hw::Dhcp::default()
    });
    let request = |hardware: &hw::Hardware| hw::UpdateHardwareRequest {
        hardware: Some(hw::Hardware { revision: 0, ..hardware.clone() }),
        update_mask: None,
        force: true,
    };
    site.hardware().update_hardware(request(&update)).await.unwrap();
    assert_eq!(site.machine("10.0.1.2").await.unwrap_err().code(), Code::AlreadyExists);
    site.hardware().update_hardware(request(&other)).await.unwrap();
    let second = site.machine("10.0.1.2").await.unwrap();
    let delete = hw::DeleteHardwareRequest { id: second.id, revision: 0 };
    site.hardware().delete_hardware(delete).await.unwrap();
    let third = site.machine("10.0.1.2").await.unwrap();
    // Also after a restart of the server.
    let site_after = start_in(site.server.end().await).await;
    let mut site = Site { macs: site.macs, ..Site::over(site_after).await };
    let refused = site.machine("10.0.1.2").await.unwrap_err();
    assert!(refused.message().contains(&third.id), "{refused}");
    site.server.end().await;
}

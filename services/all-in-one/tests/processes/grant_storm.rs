//! Grants and releases of addresses by 64 writers, while the server is killed again and again: none has two holders, and none is lost.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Instant;

use futures_util::future::join_all;
use ipnet::IpNet;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use runtime::Channel;
use tinwright::address::v1 as addr;
use tinwright::address::v1::grant_service_client::GrantServiceClient;
use tinwright::address::v1::subnet_service_client::SubnetServiceClient;
use tinwright::identity::v1 as id;
use tinwright::identity::v1::tenant_service_client::TenantServiceClient;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::kills::{Caller, seed, with_kills};
use super::process::{Place, soon};

const WRITERS: u64 = 64;
/// The grants that a writer has at most.
const MAX_OWN: usize = 4;
/// There is at most one kill for so many grants, so that a busy machine gets to the end.
const GRANTS_PER_KILL: usize = 100;
const TENANTS: [&str; 2] = ["acme", "other"];
/// The ranges: name, subnet, first and last address, length of its blocks and their number. The wanted addresses are in blocks of the second.
const RANGES: [(&str, &str, &str, &str, u32, usize); 2] = [
    ("v4", "198.51.100.0/24", "198.51.100.32", "198.51.100.159", 0, 128),
    ("v6", "2001:db8::/48", "2001:db8::", "2001:db8:0:3ff:ffff:ffff:ffff:ffff", 60, 64),
];

/// The client of the site.
struct Operator {
    caller: Caller,
    /// The ids of the ranges.
    ranges: [String; 2],
    /// The grants that writers have, by block.
    held: RefCell<HashMap<IpNet, String>>,
    /// The creations that are still to be made.
    left: Cell<usize>,
}

impl Operator {
    /// Creates the tenants, subnets and ranges. `grants` is the number of creations to be made.
    async fn new(caller: Caller, grants: usize) -> Self {
        for name in TENANTS {
            let tenant = Some(id::Tenant { name: name.into(), ..id::Tenant::default() });
            let request = id::CreateTenantRequest { tenant, ..Default::default() };
            TenantServiceClient::new(caller.channel.clone()).create_tenant(request).await.unwrap();
        }
        let [v4, v6] = RANGES.map(|range| create_range(&caller, range));
        let ranges = [v4.await, v6.await];
        Self { caller, ranges, held: RefCell::default(), left: Cell::new(grants) }
    }

    fn grants(&self) -> GrantServiceClient<Channel> {
        GrantServiceClient::new(self.caller.channel.clone())
    }

    async fn create(&self, grant: &addr::Grant) -> Result<addr::Grant, Status> {
        let request = addr::CreateGrantRequest { grant: Some(grant.clone()) };
        let created =
            self.caller.repeat(async || self.grants().create_grant(request.clone()).await);
        Ok(created.await?.grant.unwrap())
    }

    async fn confirm(&self, grant: &addr::Grant) {
        let request = addr::ConfirmGrantRequest { id: grant.id.clone(), use_only: false };
        let confirmed =
            self.caller.repeat(async || self.grants().confirm_grant(request.clone()).await);
        let confirmed = confirmed.await.unwrap().grant.unwrap();
        assert_eq!((&confirmed.id, &confirmed.block), (&grant.id, &grant.block));
    }

    async fn release(&self, grant: &addr::Grant) {
        let request = addr::ReleaseGrantRequest { id: grant.id.clone(), revision: 0 };
        let released =
            self.caller.repeat(async || self.grants().release_grant(request.clone()).await);
        released.await.unwrap();
    }

    /// Returns what a writer wants next: an IPv4 address, an IPv6 prefix, or a certain IPv6 address in one of these.
    fn wanted(&self, random: &mut Xoshiro256PlusPlus) -> addr::Grant {
        let tenant = ["", TENANTS[0], TENANTS[1]][random.random_range(0..3)].to_owned();
        let key = format!("{:x}", random.random::<u128>());
        let mut grant = addr::Grant { key, tenant, ..addr::Grant::default() };
        match random.random_range(0..4) {
            0 | 1 => grant.range_id.clone_from(&self.ranges[0]),
            2 => grant.range_id.clone_from(&self.ranges[1]),
            _ => grant.block = format!("2001:db8:0:{:x}::1", random.random_range(0..0x400u16)),
        }
        grant
    }

    /// Creates, confirms and releases grants until no creation is left. Each granted block is compared with those that others have.
    async fn write(&self, seed: u64) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut own: Vec<(IpNet, addr::Grant)> = Vec::new();
        loop {
            let is_creation = own.is_empty() || own.len() < MAX_OWN && random.random_bool(0.6);
            if !is_creation {
                let (block, grant) = own.swap_remove(random.random_range(0..own.len()));
                // Others may get it as soon as it is released.
                self.held.borrow_mut().remove(&block);
                self.release(&grant).await;
                continue;
            }
            let Some(left) = self.left.get().checked_sub(1) else { break };
            self.left.set(left);
            let grant = match self.create(&self.wanted(&mut random)).await {
                Ok(grant) => grant,
                Err(status) => {
                    assert!(is_taken(&status), "{status:?}");
                    self.left.set(self.left.get() + 1);
                    continue;
                }
            };
            let block: IpNet = grant.block.parse().unwrap();
            {
                let mut held = self.held.borrow_mut();
                let other = held.keys().find(|it| it.contains(&block) || block.contains(*it));
                assert!(other.is_none(), "{block} is granted, and another writer has {other:?}");
                held.insert(block, grant.id.clone());
            }
            self.confirm(&grant).await;
            own.push((block, grant));
        }
        for (block, grant) in own {
            self.held.borrow_mut().remove(&block);
            self.release(&grant).await;
        }
    }

    /// Grants blocks of a range until no one is free. Returns their number, and the numbers in the refusal.
    async fn exhaust(&self, range: usize) -> (usize, [String; 2]) {
        for count in 0.. {
            let range_id = self.ranges[range].clone();
            match self.create(&addr::Grant { range_id, ..addr::Grant::default() }).await {
                Ok(_) => {}
                Err(status) => {
                    let info = status.get_details_error_info().unwrap();
                    assert_eq!(info.reason, "ADDRESSES_EXHAUSTED", "{status}");
                    return (count, ["taken", "total"].map(|key| info.metadata[key].clone()));
                }
            }
        }
        unreachable!("the numbers do not end")
    }

    /// Returns all grants.
    async fn all(&self) -> Vec<addr::Grant> {
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let list = addr::ListGrantsRequest { page_size: 500, page_token, ..Default::default() };
            let page = self.grants().list_grants(list).await.unwrap().into_inner();
            all.extend(page.grants);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return all;
            }
        }
    }
}

/// Creates a range in a subnet of its own, whose released addresses are free at once. Returns its id.
async fn create_range(
    caller: &Caller,
    (name, cidr, first, last, prefix_length, _): (&str, &str, &str, &str, u32, usize),
) -> String {
    let mut subnets = SubnetServiceClient::new(caller.channel.clone());
    let hold = Some(prost_types::Duration::default());
    let (name, cidr) = (name.to_owned(), cidr.into());
    let subnet = Some(addr::Subnet { name: name.clone(), cidr, hold, ..addr::Subnet::default() });
    let request = addr::CreateSubnetRequest { subnet, ..Default::default() };
    let subnet = subnets.create_subnet(request).await.unwrap().into_inner().subnet.unwrap();
    let (first, last) = (first.into(), last.into());
    let subnet_id = subnet.id;
    let range = addr::Range { name, subnet_id, first, last, prefix_length, ..Default::default() };
    let request = addr::CreateRangeRequest { range: Some(range), ..Default::default() };
    subnets.create_range(request).await.unwrap().into_inner().range.unwrap().id
}

/// True if `status` says that others have what was wanted.
fn is_taken(status: &Status) -> bool {
    let reason = status.get_details_error_info().map(|info| info.reason);
    let is_exhausted = reason.as_deref() == Some("ADDRESSES_EXHAUSTED");
    status.code() == Code::AlreadyExists || is_exhausted
}

/// Makes and releases `grants` grants while the server is killed. Afterwards no address is taken, and each can be granted again.
async fn storm(grants: usize) {
    let seed = seed();
    let process = Place::new().start(&[]).await;
    let operator = Operator::new(Caller::of(&process), grants).await;
    let begun = Instant::now();
    let written = join_all((0..WRITERS).map(|n| operator.write(seed.wrapping_mul(1000) + n)));
    let (_, process, kills) =
        Box::pin(with_kills(process, seed, (grants / GRANTS_PER_KILL, 20..1000), written)).await;
    let (elapsed, interrupted) = (begun.elapsed(), operator.caller.interrupted());
    println!(
        "{grants} grants and releases in {elapsed:?}: {kills} kills, {interrupted} calls without a response"
    );
    assert!(kills > 0 && interrupted > kills, "{kills} kills interrupted {interrupted} calls");

    assert!(operator.held.borrow().is_empty());
    assert_eq!(soon(operator.all()).await, []);
    let process = process.terminate();
    process.check_store();
    let process = process.start(&[]).await;
    for (n, (.., blocks)) in RANGES.into_iter().enumerate() {
        let (granted, refused) = operator.exhaust(n).await;
        let expected = blocks.to_string();
        assert_eq!((granted, refused), (blocks, [expected.clone(), expected]));
    }
    process.terminate().check_store();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_64_writers_no_address_has_two_holders_while_the_server_is_killed() {
    storm(800).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes: 10,000 grants, each synced to the disk"]
async fn under_64_writers_10000_grants_have_one_holder_each_while_the_server_is_killed() {
    storm(10_000).await;
}

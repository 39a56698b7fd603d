//! One grant at a time: its states, its key, and what it cannot be.

use std::time::Duration;

use nouns::{Delete as _, Edit as _};
use tinwright::address::v1 as pb;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::bench::{Bench, exactly, of_range};
use crate::Error;

fn code(outcome: Result<impl Sized, Error>) -> (Code, String) {
    let status = Status::from(outcome.err().expect("an error"));
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn a_range_is_granted_from_its_first_address_without_gateway_and_exclusions() {
    let bench = Bench::new();
    let subnet = pb::Subnet {
        name: "lab".into(),
        cidr: "192.0.2.0/29".into(),
        gateway: "192.0.2.1".into(),
        excluded: vec!["192.0.2.3-192.0.2.4".into()],
        ..pb::Subnet::default()
    };
    let subnet = bench.create_subnet(subnet).await;
    let range = bench.range(&subnet, "192.0.2.0-192.0.2.7", 0).await;
    let mut granted = Vec::new();
    for _ in 0..3 {
        granted.push(bench.grant(of_range(&range)).await.unwrap().block);
    }
    assert_eq!(granted, ["192.0.2.2/32", "192.0.2.5/32", "192.0.2.6/32"]);
    let (code, text) = code(bench.grant(of_range(&range)).await);
    let expected = "range r192-0-2-0 is exhausted: 3 of 3 blocks are taken";
    assert_eq!((code, text.as_str()), (Code::ResourceExhausted, expected));
}

#[tokio::test]
async fn blocks_are_aligned_and_keep_apart_from_single_addresses() {
    let bench = Bench::new();
    let subnet = bench.subnet("v6", "2001:db8::/48").await;
    let range =
        bench.range(&subnet, "2001:db8:0:100::-2001:db8:0:3ff:ffff:ffff:ffff:ffff", 56).await;
    let first = bench.grant(exactly("2001:db8:0:100::7")).await.unwrap();
    let block = bench.grant(of_range(&range)).await.unwrap();
    assert_eq!(block.block, "2001:db8:0:200::/56");
    assert_eq!((block.network.as_str(), block.range_id), ("2001:db8::/48", range.id.clone()));
    let (code_of, text) = code(bench.grant(exactly("2001:db8:0:2ff::1")).await);
    assert_eq!(code_of, Code::AlreadyExists);
    assert!(text.contains(&format!("grant {}", block.id)), "{text}");
    let (code_of, text) = code(bench.grant(exactly("2001:db8:0:100::/56")).await);
    assert_eq!(code_of, Code::AlreadyExists);
    assert!(text.contains(&format!("grant {}", first.id)), "{text}");
}

#[tokio::test]
async fn a_pending_grant_is_freed_after_ten_minutes_with_its_key() {
    let bench = Bench::new();
    let subnet = bench.subnet("lab", "192.0.2.0/24").await;
    let wanted = pb::Grant { key: "lb-1".into(), ..exactly("192.0.2.7") };
    let empty = bench.content().await;
    let (lost, kept) = (
        bench.grant(wanted.clone()).await.unwrap(),
        bench.grant(exactly("192.0.2.8")).await.unwrap(),
    );
    bench.grants.confirm(kept.id.parse().unwrap(), false, None).await.unwrap();
    assert_eq!(bench.after(9).await, 0);
    assert_eq!(bench.grant(wanted.clone()).await.unwrap(), lost);
    assert_eq!(bench.after(1).await, 1);
    let confirm = bench.grants.confirm(lost.id.parse().unwrap(), false, None).await;
    assert_eq!(code(confirm).0, Code::NotFound);
    assert_eq!(bench.after(100).await, 0);
    let again = bench.grant(wanted).await.unwrap();
    assert_ne!(again.id, lost.id);
    bench.release(&again).await;
    bench.release(&kept).await;
    assert_eq!(bench.after(10).await, 2);
    let mut left = bench.content().await;
    // The keys that stay for ever, and the events.
    assert_eq!((left.remove("retired"), left.remove("key")), (Some(3), Some(1)));
    left.remove("event");
    assert_eq!(left, empty, "of {}", subnet.name);
}

#[tokio::test]
async fn a_grant_in_use_is_confirmed_once_its_holder_knows_of_it() {
    let bench = Bench::new();
    bench.subnet("lab", "192.0.2.0/24").await;
    let grant = bench.grant(exactly("192.0.2.7")).await.unwrap();
    let id = grant.id.parse().unwrap();
    for _ in 0..2 {
        let used = bench.grants.confirm(id, true, None).await.unwrap();
        assert_eq!(used.state(), pb::GrantState::Active);
        assert_eq!((used.due_time, used.confirm_time), (None, None));
        assert_eq!(bench.after(20).await, 0, "it is not freed");
    }
    let confirmed = bench.grants.confirm(id, false, None).await.unwrap();
    assert!(confirmed.confirm_time.is_some());
    bench.after(20).await;
    for use_only in [false, true] {
        assert_eq!(bench.grants.confirm(id, use_only, None).await.unwrap(), confirmed);
    }
}

#[tokio::test]
async fn a_released_address_is_held_back_and_its_release_may_be_repeated_for_ever() {
    let bench = Bench::new();
    let hold = Some(Duration::from_secs(60 * 60).try_into().unwrap());
    let (name, cidr) = ("lab".into(), "192.0.2.0/24".into());
    let subnet = pb::Subnet { name, cidr, hold, ..pb::Subnet::default() };
    let subnet = bench.create_subnet(subnet).await;
    bench.range(&subnet, "192.0.2.7-192.0.2.7", 0).await;
    let wanted = pb::Grant { key: "a".into(), subnet_id: subnet.id, ..pb::Grant::default() };
    let grant = bench.grant(wanted.clone()).await.unwrap();
    bench.grants.confirm(grant.id.parse().unwrap(), false, None).await.unwrap();
    bench.release(&grant).await;
    assert_eq!(bench.after(59).await, 0);
    assert_eq!(code(bench.grant(exactly("192.0.2.7")).await).0, Code::AlreadyExists);
    let other = pb::Grant { key: "b".into(), ..wanted.clone() };
    assert_eq!(code(bench.grant(other.clone()).await).0, Code::ResourceExhausted);
    assert_eq!(bench.after(1).await, 1);
    assert_eq!(bench.grant(other).await.unwrap().block, "192.0.2.7/32");
    bench.release(&grant).await;
    let (code_of, text) = code(bench.grant(wanted).await);
    assert_eq!(
        (code_of, text),
        (Code::FailedPrecondition, format!("grant {} was released", grant.id))
    );
    let never = bench.grants.release(tinwright::GrantId::new(), 0, None).await;
    assert_eq!(code(never).0, Code::NotFound);
}

#[tokio::test]
async fn the_error_of_an_exhausted_range_says_when_a_block_is_free_again() {
    let bench = Bench::new();
    let hold = Some(Duration::from_secs(60 * 60).try_into().unwrap());
    let (name, cidr) = ("lab".into(), "192.0.2.0/24".into());
    let subnet = pb::Subnet { name, cidr, hold, ..pb::Subnet::default() };
    let subnet = bench.create_subnet(subnet).await;
    let range = bench.range(&subnet, "192.0.2.7-192.0.2.7", 0).await;
    let other = bench.range(&subnet, "192.0.2.9-192.0.2.9", 0).await;
    let delay = async |range: &pb::Range| {
        let status = Status::from(bench.grant(of_range(range)).await.unwrap_err());
        assert_eq!(status.get_details_error_info().unwrap().reason, "ADDRESSES_EXHAUSTED");
        tinwright::status::retry_delay(&status).map(|delay| delay.as_secs())
    };
    let grant = bench.grant(of_range(&range)).await.unwrap();
    assert_eq!(delay(&range).await, Some(10 * 60 + 5), "it may never be confirmed");
    bench.grants.confirm(grant.id.parse().unwrap(), false, None).await.unwrap();
    assert_eq!(delay(&range).await, None);
    let kept = bench.grant(of_range(&other)).await.unwrap();
    bench.grants.confirm(kept.id.parse().unwrap(), false, None).await.unwrap();
    bench.release(&grant).await;
    bench.after(20).await;
    assert_eq!(delay(&range).await, Some(40 * 60 + 5));
    assert_eq!(delay(&other).await, None, "the free block is one of another range");
}

#[tokio::test]
async fn a_key_names_one_grant_and_another_wish_with_it_is_refused() {
    let bench = Bench::new();
    let subnet = bench.subnet("lab", "192.0.2.0/24").await;
    let range = bench.range(&subnet, "192.0.2.10-192.0.2.20", 0).await;
    let wanted = pb::Grant { key: "k".into(), ..of_range(&range) };
    let (one, other) = tokio::join!(bench.grant(wanted.clone()), bench.grant(wanted.clone()));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.id, other.id);
    let differs = pb::Grant { key: "k".into(), ..exactly("192.0.2.99") };
    let (code_of, text) = code(bench.grant(differs).await);
    assert_eq!(code_of, Code::AlreadyExists);
    assert!(text.contains(&one.id), "{text}");
    let of_tenant = pb::Grant { tenant: "acme".into(), ..wanted };
    assert_ne!(bench.grant(of_tenant).await.unwrap().id, one.id);
}

#[tokio::test]
async fn what_cannot_be_granted_is_refused_by_field() {
    let bench = Bench::new();
    let subnet = bench.subnet("lab", "192.0.2.0/24").await;
    let dynamic = bench.try_range(&subnet, "192.0.2.100-192.0.2.199", 0, pb::RangeKind::Dynamic);
    let dynamic = dynamic.await.unwrap();
    for (wanted, text) in [
        (exactly("198.51.100.1"), "198.51.100.1/32 is in no subnet"),
        (exactly("192.0.0.0/16"), "192.0.0.0/16 is in no subnet"),
        (exactly("192.0.2.0"), "192.0.2.0/32 is the network address of 192.0.2.0/24"),
        (exactly("192.0.2.255"), "192.0.2.255/32 is the broadcast address of 192.0.2.0/24"),
        (exactly("192.0.2.150"), "192.0.2.150/32 is for leases, in range r192-0-2-100"),
        (exactly("192.0.2.128/25"), "192.0.2.128/25 is for leases, in range r192-0-2-100"),
        (of_range(&dynamic), "range r192-0-2-100 is for leases"),
        (
            pb::Grant::default(),
            "grant.subnet_id: is missing: give a subnet, a range, a block or a location",
        ),
        (exactly("192.0.2.1/24"), "is neither an address nor an aligned block"),
    ] {
        let (code, found) = code(bench.grant(wanted).await);
        assert_eq!(code, Code::InvalidArgument, "{found}");
        assert!(found.contains(text), "{found}");
    }
}

#[tokio::test]
async fn subnets_and_ranges_do_not_overlap_and_a_used_one_is_not_deleted() {
    let bench = Bench::new();
    let subnet = bench.subnet("lab", "192.0.2.0/24").await;
    let (name, cidr) = ("other".into(), "192.0.2.128/25".into());
    let other = pb::Subnet { name, cidr, ..pb::Subnet::default() };
    let (code_of, text) = code(bench.grants.subnets.create(other, None).await);
    assert_eq!(code_of, Code::AlreadyExists);
    assert_eq!(text, "192.0.2.128/25 overlaps 192.0.2.0/24 of subnet lab");
    let range = bench.range(&subnet, "192.0.2.10-192.0.2.20", 0).await;
    let grant = bench.grant(of_range(&range)).await.unwrap();
    let overlapping = bench.try_range(&subnet, "192.0.2.20-192.0.2.30", 0, pb::RangeKind::Static);
    assert_eq!(code(overlapping.await).0, Code::AlreadyExists);
    let id = subnet.id.parse().unwrap();
    let (code_of, text) = code(bench.grants.subnets.delete(id, 0).await);
    let wanted = format!("subnet lab has range {}", range.name);
    assert_eq!((code_of, text), (Code::FailedPrecondition, wanted));
    bench.grants.ranges.delete(range.id.parse().unwrap(), 0).await.unwrap();
    let (code_of, text) = code(bench.grants.subnets.delete(id, 0).await);
    assert_eq!(
        (code_of, text),
        (Code::FailedPrecondition, format!("subnet lab has grant {}", grant.id))
    );
    let dynamic = bench.try_range(&subnet, "192.0.2.1-192.0.2.100", 0, pb::RangeKind::Dynamic);
    let (code_of, text) = code(dynamic.await);
    assert_eq!(
        (code_of, text),
        (
            Code::FailedPrecondition,
            format!(
                "a dynamic range must not have granted addresses: 192.0.2.10/32 is granted (grant {})",
                grant.id
            )
        )
    );
    bench.release(&grant).await;
    assert_eq!(bench.after(10).await, 1);
    bench.grants.subnets.delete(id, 0).await.unwrap();
}

#[tokio::test]
async fn a_gateway_is_nobody_elses_and_moves() {
    let bench = Bench::new();
    let subnet = bench.subnet("lab", "192.0.2.0/24").await;
    let grant = bench.grant(exactly("192.0.2.1")).await.unwrap();
    let update = |gateway: &str| {
        let subnet =
            pb::Subnet { id: subnet.id.clone(), gateway: gateway.into(), ..Default::default() };
        let subnets = bench.grants.subnets.clone();
        async move { subnets.update(subnet, &["gateway".into()]).await }
    };
    let (code_of, text) = code(update("192.0.2.1").await);
    assert_eq!(code_of, Code::AlreadyExists);
    assert!(text.contains(&grant.id), "{text}");
    update("192.0.2.2").await.unwrap();
    let (code_of, text) = code(bench.grant(exactly("192.0.2.2")).await);
    assert_eq!(code_of, Code::AlreadyExists);
    assert!(text.contains(&format!("subnet {}", subnet.id)), "{text}");
    update("192.0.2.3").await.unwrap();
    bench.grant(exactly("192.0.2.2")).await.unwrap();
    assert_eq!(code(bench.grant(exactly("192.0.2.0/30")).await).0, Code::AlreadyExists);
}

#[tokio::test]
async fn the_gateway_of_an_ipv4_network_is_an_address_of_a_host_in_it() {
    let bench = Bench::new();
    let subnet = |cidr: &str, gateway: &str| pb::Subnet {
        name: format!("n{}", cidr.replace(['.', ':', '/'], "-")),
        cidr: cidr.into(),
        gateway: gateway.into(),
        ..pb::Subnet::default()
    };
    for (cidr, gateway, text) in [
        ("192.0.2.0/24", "198.51.100.1", "198.51.100.1 is outside of 192.0.2.0/24"),
        ("192.0.2.0/24", "192.0.2.0", "192.0.2.0 is the network address of 192.0.2.0/24"),
        ("192.0.2.0/30", "192.0.2.3", "192.0.2.3 is the broadcast address of 192.0.2.0/30"),
        ("192.0.2.0/24", "fe80::1", "fe80::1 is not of the family of 192.0.2.0/24"),
    ] {
        let refused = bench.grants.subnets.create(subnet(cidr, gateway), None).await;
        let wanted = (Code::InvalidArgument, format!("subnet.gateway: {text}"));
        assert_eq!(code(refused), wanted);
    }
    // These have no address for a gateway, or have a link-local one.
    for (cidr, gateway) in [
        ("203.0.113.7/32", "198.51.100.1"),
        ("203.0.113.8/31", "203.0.113.8"),
        ("2001:db8::/64", "fe80::1"),
    ] {
        bench.create_subnet(subnet(cidr, gateway)).await;
    }
    let lab = bench.create_subnet(subnet("192.0.2.0/24", "192.0.2.1")).await;
    let update = pb::Subnet { id: lab.id, gateway: "198.51.100.1".into(), ..Default::default() };
    let refused = bench.grants.subnets.update(update, &["gateway".into()]).await;
    assert_eq!(code(refused).0, Code::InvalidArgument);
}

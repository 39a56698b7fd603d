//! Bindings: their rules, which is in force, and grants by location.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use store::memory::MemoryStore;

use super::*;
use crate::grants::Grants;

struct Site {
    grants: Grants,
}

impl Site {
    fn new() -> Self {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        let store = ScopedStore::new(Arc::new(MemoryStore::default()), "address");
        Self { grants: Grants::new(store, clock) }
    }

    async fn subnet(&self, name: &str, cidr: &str) -> String {
        let (name, cidr) = (name.into(), cidr.into());
        let subnet = pb::Subnet { name, cidr, ..pb::Subnet::default() };
        self.grants.subnets.create(subnet, None).await.unwrap().id
    }

    async fn range(&self, subnet_id: &str, name: &str, text: &str, kind: pb::RangeKind) -> String {
        let (first, last) = text.split_once('-').unwrap();
        let range = pb::Range {
            name: name.into(),
            subnet_id: subnet_id.into(),
            first: first.into(),
            last: last.into(),
            kind: kind.into(),
            ..pb::Range::default()
        };
        self.grants.ranges.create(range, None).await.unwrap().id
    }

    async fn bind(&self, binding: pb::LocationBinding) -> Result<pb::LocationBinding, Error> {
        self.grants.bindings.create(binding, None).await
    }

    async fn grant(&self, wanted: pb::Grant) -> Result<String, String> {
        let granted = self.grants.create(wanted).await;
        granted.map(|grant| grant.block).map_err(|error| error.to_string())
    }
}

fn binding(location: LocationId) -> pb::LocationBinding {
    pb::LocationBinding { location_id: location.to_string(), ..pb::LocationBinding::default() }
}

/// Wants an address at `location`.
fn at(location: LocationId, tenant: &str, group: &str) -> pb::Grant {
    let (location_id, tenant, group) = (location.to_string(), tenant.into(), group.into());
    pb::Grant { location_id, tenant, group, ..pb::Grant::default() }
}

const STATIC: pb::RangeKind = pb::RangeKind::Static;

#[tokio::test]
async fn each_wrong_field_of_a_binding_is_named() {
    let id = SubnetId::new().to_string();
    let wrong = pb::LocationBinding {
        location_id: "kir1".into(),
        group: "hub".into(),
        subnet_ids: vec![id.clone(), id],
        range_ids: vec!["x".into()],
        configuration: "[]".into(),
        ..pb::LocationBinding::default()
    };
    let violations = checked(wrong).unwrap_err();
    let fields: Vec<_> = violations.iter().map(|it| it.field.as_str()).collect();
    let expected = [
        "location_binding.location_id",
        "location_binding.group",
        "location_binding.subnet_ids[1]",
        "location_binding.range_ids[0]",
        "location_binding.configuration",
    ];
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn a_binding_is_one_of_its_place_and_counts_the_changes_of_its_content() {
    let (site, location) = (Site::new(), LocationId::new());
    let subnet = site.subnet("lab", "192.0.2.0/24").await;
    let leases = site.range(&subnet, "leases", "192.0.2.1-192.0.2.9", pb::RangeKind::Dynamic).await;
    let made = site.bind(binding(location)).await.unwrap();
    let again = site.bind(binding(location)).await.unwrap_err();
    assert!(matches!(again, Error::Records(records::Error::Taken { .. })), "{again}");
    let labelled =
        pb::LocationBinding { labels: [("a".into(), "b".into())].into(), ..made.clone() };
    let updated = site.grants.bindings.update(labelled, &["labels".into()]).await.unwrap();
    assert_eq!((made.version, updated.version), (1, 1));
    let bound = pb::LocationBinding { subnet_ids: vec![subnet], ..updated.clone() };
    let updated = site.grants.bindings.update(bound, &["subnet_ids".into()]).await.unwrap();
    assert_eq!(updated.version, 2);
    let of_leases = pb::LocationBinding { range_ids: vec![leases], ..updated.clone() };
    let refused = site.grants.bindings.update(of_leases, &["range_ids".into()]).await.unwrap_err();
    assert!(refused.to_string().contains("range leases is for leases"), "{refused}");
    let absent = vec![SubnetId::new().to_string()];
    let absent = pb::LocationBinding { subnet_ids: absent, ..updated };
    let refused = site.grants.bindings.update(absent, &["subnet_ids".into()]).await.unwrap_err();
    assert!(matches!(refused, Error::Records(records::Error::Missing { .. })), "{refused}");
}

#[tokio::test]
async fn a_grant_comes_from_the_binding_of_its_group_else_of_its_tenant_else_of_all() {
    let (site, location) = (Site::new(), LocationId::new());
    for (number, (tenant, group)) in
        [("", ""), ("acme", ""), ("acme", "hub/1")].into_iter().enumerate()
    {
        let subnet = site.subnet(&format!("s{number}"), &format!("192.0.{number}.0/24")).await;
        let text = format!("192.0.{number}.10-192.0.{number}.19");
        site.range(&subnet, &format!("r{number}"), &text, STATIC).await;
        let (tenant, group) = (tenant.into(), group.into());
        let subnet_ids = vec![subnet];
        site.bind(pb::LocationBinding { tenant, group, subnet_ids, ..binding(location) })
            .await
            .unwrap();
    }
    for (tenant, group, expected) in [
        ("acme", "hub/1", "192.0.2.10/32"),
        ("acme", "hub", "192.0.1.10/32"),
        ("acme", "", "192.0.1.11/32"),
        ("other", "hub/1", "192.0.0.10/32"),
        ("", "", "192.0.0.11/32"),
    ] {
        let granted = site.grant(at(location, tenant, group)).await;
        assert_eq!(granted.as_deref(), Ok(expected), "{tenant}, {group}");
    }
    let elsewhere = site.grant(at(LocationId::new(), "acme", "")).await.unwrap_err();
    assert!(elsewhere.contains("location binding of location"), "{elsewhere}");
}

#[tokio::test]
async fn a_location_gives_out_its_ranges_then_its_subnets_by_family_until_all_are_exhausted() {
    let (site, location) = (Site::new(), LocationId::new());
    let (four, six) =
        (site.subnet("v4", "192.0.2.0/24").await, site.subnet("v6", "2001:db8::/64").await);
    let first = site.range(&four, "first", "192.0.2.50-192.0.2.50", STATIC).await;
    site.range(&four, "second", "192.0.2.10-192.0.2.10", STATIC).await;
    site.range(&four, "leases", "192.0.2.60-192.0.2.69", pb::RangeKind::Dynamic).await;
    site.range(&six, "six", "2001:db8::10-2001:db8::10", STATIC).await;
    let (subnet_ids, range_ids) = (vec![four, six], vec![first]);
    site.bind(pb::LocationBinding { subnet_ids, range_ids, ..binding(location) }).await.unwrap();
    let wanted =
        |family: pb::AddressFamily| pb::Grant { family: family.into(), ..at(location, "", "") };
    let (v4, v6) = (pb::AddressFamily::Ipv4, pb::AddressFamily::Ipv6);
    assert_eq!(site.grant(wanted(v4)).await.as_deref(), Ok("192.0.2.50/32"));
    assert_eq!(site.grant(wanted(v4)).await.as_deref(), Ok("192.0.2.10/32"));
    assert_eq!(site.grant(wanted(v6)).await.as_deref(), Ok("2001:db8::10/128"));
    let exhausted = format!("location {location} is exhausted: 2 of 2 blocks are taken");
    assert_eq!(site.grant(wanted(v4)).await, Err(exhausted));
    let mixed = pb::Grant { block: "192.0.2.99".into(), ..wanted(v4) };
    let refused = site.grant(mixed).await.unwrap_err();
    assert!(refused.contains("grant.location_id: is set beside"), "{refused}");
}

#[tokio::test]
async fn a_key_names_the_grant_of_one_location() {
    let (site, location) = (Site::new(), LocationId::new());
    let subnet = site.subnet("lab", "192.0.2.0/24").await;
    site.range(&subnet, "r", "192.0.2.10-192.0.2.19", STATIC).await;
    let subnet_ids = vec![subnet];
    site.bind(pb::LocationBinding { subnet_ids, ..binding(location) }).await.unwrap();
    let wanted = pb::Grant { key: "lb".into(), ..at(location, "", "") };
    let first = site.grant(wanted.clone()).await.unwrap();
    assert_eq!(site.grant(wanted.clone()).await, Ok(first));
    let other = pb::Grant { location_id: LocationId::new().to_string(), ..wanted };
    assert!(site.grant(other).await.unwrap_err().contains("has the key lb"));
}

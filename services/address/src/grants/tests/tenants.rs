//! Tenants: their quotas, and what they are told of others.

use tinwright::address::v1 as pb;
use tinwright::{GrantId, TenantName};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::bench::{Bench, exactly, of_range};

#[tokio::test]
async fn a_tenant_has_at_most_its_quota_also_when_it_asks_at_the_same_time() {
    let bench = Bench::new();
    let subnet = pb::Subnet {
        name: "lab".into(),
        cidr: "192.0.2.0/24".into(),
        quota: 3,
        tenant_quotas: [("large".to_owned(), 5), ("none".to_owned(), 0)].into(),
        ..pb::Subnet::default()
    };
    let subnet = bench.create_subnet(subnet).await;
    let range = bench.range(&subnet, "192.0.2.10-192.0.2.99", 0).await;
    for (tenant, quota) in [("acme", 3), ("large", 5), ("none", 0), ("", 12)] {
        let wanted = pb::Grant { tenant: tenant.into(), ..of_range(&range) };
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let (grants, wanted) = (bench.grants.clone(), wanted.clone());
            tasks.spawn(async move { grants.create(wanted).await });
        }
        let outcomes = tasks.join_all().await;
        let (granted, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!(granted.len(), quota, "{tenant}");
        for error in refused {
            let status = Status::from(error.unwrap_err());
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            let failure = status.get_details_quota_failure().unwrap();
            assert_eq!(failure.violations[0].subject, format!("tenant/{tenant}"));
            assert_eq!(status.get_details_error_info().unwrap().reason, "QUOTA");
        }
        if let Some(Ok(one)) = granted.into_iter().next() {
            bench.release(&one).await;
            bench.grant(wanted).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_tenant_finds_its_own_grants_only_and_no_error_names_another() {
    let bench = Bench::new();
    bench.subnet("lab", "192.0.2.0/24").await;
    let acme: TenantName = "acme".parse().unwrap();
    let other = pb::Grant { tenant: "other".into(), ..exactly("192.0.2.7") };
    let other = bench.grant(other).await.unwrap();
    let id: GrantId = other.id.parse().unwrap();
    let missing = format!("grant {id} not found");
    let outcomes = [
        bench.grants.confirm(id, false, Some(&acme)).await.map(drop),
        bench.grants.release(id, 0, Some(&acme)).await,
        bench.grants.get(&other.id, Some(&acme)).await.map(drop),
    ];
    for outcome in outcomes {
        let status = outcome.unwrap_err().into_status(Some(&acme));
        assert_eq!((status.code(), status.message()), (Code::NotFound, missing.as_str()));
    }
    let wanted = pb::Grant { tenant: "acme".into(), ..exactly("192.0.2.0/29") };
    let status = bench.grant(wanted).await.unwrap_err().into_status(Some(&acme));
    assert_eq!((status.code(), status.message()), (Code::AlreadyExists, "192.0.2.0/29 is taken"));
    assert_eq!(status.get_details_resource_info().unwrap().resource_name, "192.0.2.0/29");
    bench.release(&other).await;
    bench.after(10).await;
    let gone = bench.grants.release(id, 0, Some(&acme)).await.unwrap_err();
    assert_eq!(Status::from(gone).message(), missing);
    let own: TenantName = "other".parse().unwrap();
    bench.grants.release(id, 0, Some(&own)).await.unwrap();
}

#[tokio::test]
async fn a_grant_of_a_tenant_that_is_gone_is_taken_back_unless_it_is_confirmed() {
    let bench = Bench::new();
    bench.subnet("lab", "192.0.2.0/24").await;
    let taken = async || {
        let content = bench.content().await;
        ["chunk", "claim", "grant", "key"].map(|kind| content.get(kind).copied().unwrap_or(0))
    };
    let before = taken().await;
    let wanted = pb::Grant { tenant: "acme".into(), key: "lb".into(), ..exactly("192.0.2.7") };
    let first = bench.grant(wanted.clone()).await.unwrap();
    assert_eq!(bench.grants.take_back(first.id.clone()).await.unwrap(), None);
    assert_eq!(bench.grants.take_back(first.id).await.unwrap(), None, "it is repeated");
    assert_eq!(taken().await, before, "neither the key nor the address stays taken");
    let second = bench.grant(wanted).await.unwrap();
    assert_ne!(taken().await, before);
    let id = second.id.parse().unwrap();
    let second = bench.grants.confirm(id, false, None).await.unwrap();
    let stays = bench.grants.take_back(second.id.clone()).await.unwrap();
    assert_eq!(stays, Some(second));
}

//! Grants that are attached to instances.

use tinwright::address::v1 as pb;
use tinwright::{GrantId, InstanceId, TenantName};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::bench::{Bench, exactly, of_range};
use crate::Error;
use crate::grants::attach::MAX_ATTACHED;
use crate::machines::AttachTarget;

fn target(mac: u8, tenant: &str) -> AttachTarget {
    let mac = tinwright::Mac([0x52, 0x54, 0, 0, 0, mac]);
    AttachTarget { instance: InstanceId::new(), tenant: tenant.into(), mac }
}

fn id(grant: &pb::Grant) -> GrantId {
    grant.id.parse().unwrap()
}

/// Returns the reason of the error, or its code and text.
fn reason(outcome: Result<pb::Grant, Error>) -> String {
    let status = Status::from(outcome.expect_err("a refusal"));
    let text = || format!("{:?}: {}", status.code(), status.message());
    status.get_details_error_info().map_or_else(text, |info| info.reason)
}

async fn bench() -> Bench {
    let bench = Bench::new();
    bench.subnet("v4", "192.0.2.0/24").await;
    bench.subnet("v6", "2001:db8::/48").await;
    bench
}

#[tokio::test]
async fn a_pending_grant_is_attached_and_confirmed_moved_and_detached() {
    let bench = bench().await;
    let grant = bench.grant(exactly("192.0.2.7")).await.unwrap();
    let first = target(1, "");
    let attached = bench.grants.attach(id(&grant), &first, false, None).await.unwrap();
    let expected = pb::Attachment {
        instance_id: first.instance.to_string(),
        mac: "52:54:00:00:00:01".into(),
        primary: false,
    };
    assert_eq!(
        (attached.attachment.as_ref(), attached.state()),
        (Some(&expected), pb::GrantState::Active)
    );
    assert_eq!(bench.after(10).await, 0, "it is confirmed by its use");
    let again = bench.grants.attach(id(&grant), &first, false, None).await.unwrap();
    assert_eq!(again, attached, "it is repeated");
    let moved = AttachTarget { mac: tinwright::Mac([2; 6]), ..first.clone() };
    let moved = bench.grants.attach(id(&grant), &moved, true, None).await.unwrap();
    let has = moved.attachment.unwrap();
    assert_eq!((has.mac.as_str(), has.primary), ("02:02:02:02:02:02", true));
    let other = target(2, "");
    assert_eq!(
        reason(bench.grants.attach(id(&grant), &other, false, None).await),
        "GRANT_ATTACHED"
    );
    let elsewhere = bench.grants.detach(id(&grant), &other.instance.to_string(), None).await;
    assert_eq!(reason(elsewhere), "GRANT_ATTACHED");
    for _ in 0..2 {
        let from = first.instance.to_string();
        let detached = bench.grants.detach(id(&grant), &from, None).await.unwrap();
        assert_eq!(
            (detached.attachment.as_ref(), detached.state()),
            (None, pb::GrantState::Active)
        );
    }
    bench.grants.attach(id(&grant), &other, false, None).await.unwrap();
}

#[tokio::test]
async fn a_release_detaches_and_leaves_no_index_entry() {
    let bench = bench().await;
    let grant = bench.grant(exactly("192.0.2.7")).await.unwrap();
    let target = target(1, "");
    bench.grants.attach(id(&grant), &target, true, None).await.unwrap();
    bench.release(&grant).await;
    assert_eq!(bench.grants.get(&grant.id, None).await.unwrap().attachment, None);
    assert_eq!(
        reason(bench.grants.attach(id(&grant), &target, true, None).await),
        "GRANT_RELEASED"
    );
    let content = bench.content().await;
    assert!(!content.contains_key("grant-instance") && !content.contains_key("grant-primary"));
    bench.grants.detach(id(&grant), "", None).await.unwrap();
}

#[tokio::test]
async fn an_interface_has_one_primary_address_of_ipv4() {
    let bench = bench().await;
    let [one, two, six] = ["192.0.2.7", "192.0.2.8", "2001:db8::7"].map(exactly);
    let [one, two, six] = [bench.grant(one).await, bench.grant(two).await, bench.grant(six).await]
        .map(Result::unwrap);
    let target = target(1, "");
    bench.grants.attach(id(&one), &target, true, None).await.unwrap();
    let second = bench.grants.attach(id(&two), &target, true, None).await.unwrap_err();
    let status = Status::from(second);
    assert_eq!(status.code(), Code::AlreadyExists);
    assert!(status.message().ends_with(&format!("is taken by grant {}", one.block)), "{status}");
    bench.grants.attach(id(&two), &target, false, None).await.unwrap();
    let text = reason(bench.grants.attach(id(&six), &target, true, None).await);
    assert!(text.contains("attachment.primary: is for IPv4 only"), "{text}");
    bench.grants.attach(id(&six), &target, false, None).await.unwrap();
    bench.grants.detach(id(&one), "", None).await.unwrap();
    bench.grants.attach(id(&two), &target, true, None).await.unwrap();
}

#[tokio::test]
async fn blocks_other_tenants_and_too_many_are_refused() {
    let bench = bench().await;
    let range = bench.subnet("lab", "198.51.100.0/24").await;
    let range = bench.range(&range, "198.51.100.10-198.51.100.200", 0).await;
    let block = bench.grant(exactly("192.0.2.8/29")).await.unwrap();
    let target = target(1, "acme");
    assert_eq!(
        reason(bench.grants.attach(id(&block), &target, false, None).await),
        "GRANT_IS_BLOCK"
    );
    let other = pb::Grant { tenant: "other".into(), ..of_range(&range) };
    let other = bench.grant(other).await.unwrap();
    assert_eq!(reason(bench.grants.attach(id(&other), &target, false, None).await), "OTHER_TENANT");
    let acme: TenantName = "acme".parse().unwrap();
    let hidden = reason(bench.grants.attach(id(&other), &target, false, Some(&acme)).await);
    assert_eq!(hidden, format!("NotFound: grant {} not found", other.id));
    for _ in 0..MAX_ATTACHED {
        let own = bench.grant(of_range(&range)).await.unwrap();
        bench.grants.attach(id(&own), &target, false, None).await.unwrap();
    }
    let more = bench.grant(of_range(&range)).await.unwrap();
    assert_eq!(
        reason(bench.grants.attach(id(&more), &target, false, None).await),
        "TOO_MANY_ATTACHED"
    );
}

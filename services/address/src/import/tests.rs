//! The import of a file: once, and never over what is there.

use std::sync::Arc;

use nouns::{Edit as _, Noun as _};
use runtime::Clock;
use store::ScopedStore;
use store::memory::MemoryStore;

use super::*;

fn grants() -> Grants {
    let store = ScopedStore::new(Arc::new(MemoryStore::default()), "address");
    Grants::new(store, Clock::system())
}

fn subnet(ranges: &[(&str, &str)]) -> ConfiguredSubnet {
    ConfiguredSubnet {
        cidr: "192.0.2.0/24".into(),
        gateway: "192.0.2.1".into(),
        ranges: ranges.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
    }
}

async fn stored(grants: &Grants) -> (Vec<pb::Subnet>, Vec<pb::Range>) {
    let subnets = grants.subnets.records().page("", "", 100).await.unwrap().0;
    let ranges = grants.ranges.records().page("", "", 100).await.unwrap().0;
    (subnets, ranges)
}

#[tokio::test]
async fn a_file_is_imported_once_and_nothing_is_granted_where_it_leases() {
    let grants = grants();
    let file = [subnet(&[("192.0.2.100", "192.0.2.199"), ("192.0.2.210", "192.0.2.210")])];
    assert_eq!(grants.import(&file).await.unwrap(), [""; 0]);
    let (subnets, ranges) = stored(&grants).await;
    assert_eq!((subnets[0].name.as_str(), subnets.len()), ("config-192-0-2-0-24", 1));
    assert_eq!(subnets[0].gateway, "192.0.2.1");
    let names: Vec<_> = ranges.iter().map(|range| range.name.as_str()).collect();
    assert_eq!(names, ["config-192-0-2-100", "config-192-0-2-210"]);
    assert!(ranges.iter().all(|range| range.kind() == pb::RangeKind::Dynamic));
    let leased = pb::Grant { block: "192.0.2.150".into(), ..pb::Grant::default() };
    let refused = grants.create(leased).await.unwrap_err().to_string();
    assert!(refused.contains("is for leases"), "{refused}");
    assert_eq!(grants.import(&file).await.unwrap(), [""; 0]);
    assert_eq!(stored(&grants).await, (subnets, ranges), "a repeated import");
}

#[tokio::test]
async fn what_an_operator_changed_stays_and_a_difference_is_reported() {
    let grants = grants();
    grants.import(&[subnet(&[])]).await.unwrap();
    let (subnets, _) = stored(&grants).await;
    let changed =
        pb::Subnet { name: "lab".into(), gateway: "192.0.2.2".into(), ..subnets[0].clone() };
    let paths = ["name".to_owned(), "gateway".to_owned()];
    let changed = grants.subnets.update(changed, &paths).await.unwrap();
    let range = pb::Range {
        name: "web".into(),
        subnet_id: changed.id.clone(),
        first: "192.0.2.10".into(),
        last: "192.0.2.19".into(),
        ..pb::Range::default()
    };
    grants.ranges.create(range, None).await.unwrap();
    let file = subnet(&[("192.0.2.15", "192.0.2.30"), ("192.0.2.40", "192.0.2.49")]);
    let expected = [
        "subnet 192.0.2.0/24: the gateway is 192.0.2.1, and 192.0.2.2 in subnet lab",
        "subnet 192.0.2.0/24: 192.0.2.15-192.0.2.30 is leased, and range web is for grants: \
         192.0.2.10-192.0.2.19",
    ];
    assert_eq!(grants.import(std::slice::from_ref(&file)).await.unwrap(), expected);
    let (subnets, ranges) = stored(&grants).await;
    // Creating a range writes its subnet's record again, without a change.
    let revision = subnets[0].revision;
    assert_eq!(subnets, [pb::Subnet { revision, ..changed }]);
    let names: Vec<_> = ranges.iter().map(|range| range.name.as_str()).collect();
    assert_eq!(names, ["web", "config-192-0-2-40"], "the rest of the file is imported");
}

#[tokio::test]
async fn a_network_that_overlaps_another_one_and_a_range_with_grants_are_reported() {
    let grants = grants();
    let lab =
        pb::Subnet { name: "lab".into(), cidr: "192.0.0.0/16".into(), ..pb::Subnet::default() };
    grants.subnets.create(lab, None).await.unwrap();
    let text = "subnet 192.0.2.0/24: subnet lab has the network 192.0.0.0/16";
    assert_eq!(grants.import(&[subnet(&[])]).await.unwrap(), [text]);
    let other = ConfiguredSubnet {
        cidr: "198.51.100.0/24".into(),
        gateway: String::new(),
        ranges: Vec::new(),
    };
    grants.import(std::slice::from_ref(&other)).await.unwrap();
    let granted = pb::Grant { block: "198.51.100.7".into(), ..pb::Grant::default() };
    let granted = grants.create(granted).await.unwrap();
    let ranges = vec![("198.51.100.5".to_owned(), "198.51.100.9".to_owned())];
    let reported = grants.import(&[ConfiguredSubnet { ranges, ..other }]).await.unwrap();
    assert_eq!(reported.len(), 1);
    assert!(reported[0].contains(&granted.id), "{reported:?}");
}

#[tokio::test]
async fn processes_that_import_the_same_file_at_once_create_it_once() {
    let grants = grants();
    let file = [subnet(&[("192.0.2.100", "192.0.2.199")])];
    let import = |_| {
        let (grants, file) = (grants.clone(), file.clone());
        tokio::spawn(async move { grants.import(&file).await.unwrap() })
    };
    let running: Vec<_> = (0..4).map(import).collect();
    for task in running {
        assert_eq!(task.await.unwrap(), [""; 0]);
    }
    let (subnets, ranges) = stored(&grants).await;
    assert_eq!((subnets.len(), ranges.len()), (1, 1));
}

//! Locations and zones: their rules, and that none disappears below a machine.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use store::memory::MemoryStore;
use store::records::requests::IdempotentRequest;
use store::{Changes, Commit, Page, Revision, Store, Versioned, records};

use super::*;
use crate::HardwareRecords;

fn machines() -> HardwareRecords {
    HardwareRecords::new(Arc::new(MemoryStore::default()), Clock::system())
}

fn locations(machines: &HardwareRecords) -> Locations {
    Locations::new(machines.records.store().clone(), machines.clock.clone())
}

fn zone(name: &str) -> pb::Zone {
    pb::Zone { name: name.into(), ..pb::Zone::default() }
}

fn location(name: &str, zones: &[&str]) -> pb::Location {
    let zones = zones.iter().map(|name| zone(name)).collect();
    pb::Location { name: name.into(), zones, ..pb::Location::default() }
}

fn machine(number: u8, location_id: &str, zone: &str) -> pb::Hardware {
    let mac = format!("02:00:00:00:00:{number:02x}");
    pb::Hardware {
        name: format!("m{number}"),
        interfaces: vec![pb::Interface { mac, ..pb::Interface::default() }],
        location_id: location_id.into(),
        zone: zone.into(),
        ..pb::Hardware::default()
    }
}

/// Returns `location` with these zones.
fn with_zones(location: &pb::Location, zones: &[&str]) -> pb::Location {
    let zones = zones.iter().map(|name| zone(name)).collect();
    pb::Location { zones, revision: 0, ..location.clone() }
}

const ZONES: [&str; 1] = ["zones"];

async fn set_zones(
    locations: &Locations,
    location: &pb::Location,
    zones: &[&str],
) -> Result<pb::Location, Error> {
    locations.update(with_zones(location, zones), &ZONES.map(String::from)).await
}

#[test]
fn a_location_is_stored_in_normal_form_and_each_wrong_field_is_named() {
    let geography = pb::Geography { country: "se".into(), latitude: 67.9, ..Default::default() };
    let right = pb::Location { geography: Some(geography), ..location("Kir1", &["A", "b"]) };
    let stored = checked(right).unwrap();
    assert_eq!((stored.name.as_str(), stored.zones[0].name.as_str()), ("kir1", "a"));
    assert_eq!(stored.geography.unwrap().country, "SE");
    let geography = pb::Geography {
        country: "Sweden".into(),
        city: "a\nb".into(),
        latitude: f64::NAN,
        longitude: 180.5,
        ..pb::Geography::default()
    };
    let wrong = pb::Location {
        boot_url: "tftp://192.0.2.1".into(),
        geography: Some(geography),
        ..location("a b", &["a", "A", "x y"])
    };
    let violations = checked(wrong).unwrap_err();
    let fields: Vec<_> = violations.iter().map(|it| it.field.as_str()).collect();
    let expected = [
        "location.name",
        "location.zones[1].name",
        "location.zones[2].name",
        "location.geography.country",
        "location.geography.city",
        "location.geography.latitude",
        "location.geography.longitude",
        "location.boot_url",
    ];
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn a_machine_is_put_only_where_there_is_a_location_and_its_zone() {
    let machines = machines();
    let made = locations(&machines).create(location("kir1", &["a"]), None).await.unwrap();
    let created = machines.create(machine(1, &made.id.to_uppercase(), "A"), None).await.unwrap();
    assert_eq!((&created.location_id, created.zone.as_str()), (&made.id, "a"));
    let other = LocationId::new().to_string();
    for (location_id, zone, expected) in [
        (other.as_str(), "", format!("location {other} not found")),
        (&made.id, "b", "zone: location kir1 has no zone \"b\"".into()),
        ("", "a", "zone: is set without location_id".into()),
        ("kir1", "", "location_id: \"kir1\" is not a valid location id: a UUID is expected".into()),
    ] {
        let refused = machines.create(machine(2, location_id, zone), None).await.unwrap_err();
        assert_eq!(refused.to_string(), expected);
        let update = pb::Hardware { id: created.id.clone(), ..machine(1, location_id, zone) };
        let paths = ["location_id", "zone"].map(String::from);
        assert_eq!(machines.update(update, &paths).await.unwrap_err().to_string(), expected);
    }
    assert_eq!(machines.records.require(&created.id).await.unwrap(), created);
}

#[tokio::test]
async fn a_location_or_zone_with_machines_stays_and_the_error_names_one() {
    let machines = machines();
    let locations = locations(&machines);
    let made = locations.create(location("kir1", &["a", "b"]), None).await.unwrap();
    let other = locations.create(location("kir2", &["b"]), None).await.unwrap();
    let created = machines.create(machine(1, &made.id, "b"), None).await.unwrap();
    let refused = set_zones(&locations, &made, &["a"]).await.unwrap_err();
    let text = "zone b of location kir1 has machines, such as m1";
    assert_eq!(refused.to_string(), text);
    assert!(matches!(refused, Error::Precondition { reason: "ZONE_IN_USE", .. }));
    let refused = locations.delete(made.id.parse().unwrap(), 0).await.unwrap_err();
    assert_eq!(refused.to_string(), "location kir1 has machines, such as m1");
    assert!(matches!(refused, Error::Precondition { reason: "LOCATION_IN_USE", .. }));
    assert_eq!(locations.records().require(&made.id).await.unwrap(), made, "nothing was written");
    set_zones(&locations, &made, &["b", "c"]).await.unwrap();
    locations.delete(other.id.parse().unwrap(), 0).await.unwrap();
    let gone = pb::Hardware { id: created.id, ..pb::Hardware::default() };
    machines.update(gone, &["location_id", "zone"].map(String::from)).await.unwrap();
    set_zones(&locations, &made, &[]).await.unwrap();
    locations.delete(made.id.parse().unwrap(), 0).await.unwrap();
    assert_eq!(locations.records().get(&made.id).await.unwrap(), None);
}

#[tokio::test]
async fn an_update_that_leaves_the_place_alone_does_not_look_at_the_location() {
    let machines = machines();
    let made = locations(&machines).create(location("kir1", &["a"]), None).await.unwrap();
    let created = machines.create(machine(1, &made.id, "a"), None).await.unwrap();
    let records = locations(&machines).records().clone();
    let marked = pb::Location { draining: true, ..made.clone() };
    let marked = records.replace(&made, marked).await.unwrap();
    let renamed = pb::Hardware { name: "other".into(), ..created };
    machines.update(renamed, &["name".into()]).await.unwrap();
    let refused = machines.create(machine(2, &made.id, "a"), None).await.unwrap_err();
    assert_eq!(refused.to_string(), "location kir1 is being deleted");
    // The next update of an interrupted deletion takes the mark back.
    let update = pb::Location { boot_url: "http://192.0.2.1".into(), ..marked };
    locations(&machines).update(update, &["boot_url".into()]).await.unwrap();
    machines.create(machine(2, &made.id, "a"), None).await.unwrap();
}

#[tokio::test]
async fn a_creation_in_a_location_that_was_deleted_since_may_be_repeated() {
    let machines = machines();
    let made = locations(&machines).create(location("kir1", &[]), None).await.unwrap();
    let body = pb::CreateHardwareRequest {
        hardware: Some(machine(1, &made.id, "")),
        request_id: "r1".into(),
    };
    let request = || IdempotentRequest::new("r1", &body);
    let first = machines.create(machine(1, &made.id, ""), request()).await.unwrap();
    let moved = pb::Hardware { id: first.id.clone(), ..pb::Hardware::default() };
    let moved = machines.update(moved, &["location_id".into()]).await.unwrap();
    locations(&machines).delete(made.id.parse().unwrap(), 0).await.unwrap();
    assert_eq!(machines.create(machine(1, &made.id, ""), request()).await.unwrap(), moved);
}

/// A store in which each operation lets other tasks go first, as often as the next number says.
struct YieldingStore {
    store: MemoryStore,
    yields: Mutex<VecDeque<u8>>,
}

impl YieldingStore {
    async fn pause(&self) {
        let count = self.yields.lock().unwrap().pop_front().unwrap_or_default();
        for _ in 0..count {
            tokio::task::yield_now().await;
        }
    }
}

#[tonic::async_trait]
impl Store for YieldingStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, store::Error> {
        self.pause().await;
        self.store.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, store::Error> {
        self.pause().await;
        self.store.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, store::Error> {
        self.pause().await;
        self.store.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, store::Error> {
        self.store.changed(prefix, after).await
    }
}

/// A change of a machine that puts it into zone `a`.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Create,
    Update,
}

/// A change of a location after which there is no zone `a`.
#[derive(Clone, Copy, Debug)]
enum Removal {
    Zone,
    Location,
}

/// Carries both out at the same time, and returns true for those that succeeded.
async fn race(yields: Vec<u8>, entry: Entry, removal: Removal) -> (bool, bool) {
    let store = YieldingStore { store: MemoryStore::default(), yields: Mutex::default() };
    let store = Arc::new(store);
    let machines = HardwareRecords::new(store.clone(), Clock::system());
    let locations = locations(&machines);
    let made = locations.create(location("kir1", &["a", "b"]), None).await.unwrap();
    let outside = machines.create(machine(1, "", ""), None).await.unwrap();
    *store.yields.lock().unwrap() = yields.into();
    let enter = async {
        match entry {
            Entry::Create => machines.create(machine(2, &made.id, "a"), None).await,
            Entry::Update => {
                let update = pb::Hardware { id: outside.id, ..machine(1, &made.id, "a") };
                machines.update(update, &["location_id", "zone"].map(String::from)).await
            }
        }
    };
    let remove = async {
        match removal {
            Removal::Zone => set_zones(&locations, &made, &["b"]).await.map(drop),
            Removal::Location => locations.delete(made.id.parse().unwrap(), 0).await,
        }
    };
    let (entered, removed) = tokio::join!(enter, remove);
    let location = locations.records().get(&made.id).await.unwrap();
    let has_zone = location.is_some_and(|it| it.zones.iter().any(|zone| zone.name == "a"));
    assert_eq!(has_zone, removed.is_err());
    (entered.is_ok(), removed.is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn of_a_removal_and_an_entry_at_the_same_time_exactly_one_succeeds(
        yields in vec(0_u8..6, 24),
        entry in prop_oneof![Just(Entry::Create), Just(Entry::Update)],
        removal in prop_oneof![Just(Removal::Zone), Just(Removal::Location)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (entered, removed) = runtime.block_on(race(yields, entry, removal));
        prop_assert_ne!(entered, removed);
    }
}

#[tokio::test]
async fn two_locations_have_no_common_name() {
    let locations = locations(&machines());
    let first = locations.create(location("kir1", &[]), None).await.unwrap();
    let second = locations.create(location("kir2", &[]), None).await.unwrap();
    let taken = locations.create(location("KIR1", &[]), None).await.unwrap_err().to_string();
    assert_eq!(taken, format!("name kir1 is taken by location {}", first.id));
    let renamed = pb::Location { name: "kir1".into(), ..second };
    let taken = locations.update(renamed, &["name".into()]).await.unwrap_err();
    assert!(matches!(taken, Error::Records(records::Error::Taken { by, .. }) if by == first.id));
}

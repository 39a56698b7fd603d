//! The models of which machines stand in locations, for orders by model and location.

use std::collections::{BTreeMap, BTreeSet};

use store::records::{self, Kind, Records};
use tinwright::Stored as _;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::State;

use super::{Models, PAGE_RECORDS};
use crate::matching::matches;

/// The requested offers. An empty id stands for all.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The model.
    pub model_id: &'a str,
    /// The location.
    pub location_id: &'a str,
}

/// What is collected of the machines of a model in a location.
#[derive(Default)]
struct Group {
    zones: BTreeSet<String>,
    machines: u64,
    free: u64,
    /// The parts of the machine with the least memory, the first by id.
    parts: Option<pb::MachineParts>,
}

impl Models {
    /// Returns the wanted offers, ordered by names, in one pass over all machines. Those in `occupied` have an instance.
    pub async fn offers(
        &self,
        wanted: Wanted<'_>,
        occupied: &BTreeSet<String>,
    ) -> Result<Vec<pb::ModelOffer>, records::Error> {
        let is_wanted = |id: &str, wanted: &str| wanted.is_empty() || id == wanted;
        let mut models = all(&self.records).await?;
        models.retain(|model| is_wanted(&model.id, wanted.model_id));
        let mut locations = all(&self.locations).await?;
        locations.retain(|location| is_wanted(&location.id, wanted.location_id));
        let locations: BTreeMap<_, _> =
            locations.into_iter().map(|location| (location.id, location.name)).collect();
        let mut groups = BTreeMap::<(&str, &str, &str, &str), Group>::new();
        for machine in all(&self.machines).await?.into_iter().filter(is_offered) {
            let Some((location_id, location)) = locations.get_key_value(&machine.location_id)
            else {
                continue;
            };
            for model in models.iter().filter(|model| matches(model, &machine)) {
                let key = (
                    model.name.as_str(),
                    location.as_str(),
                    model.id.as_str(),
                    location_id.as_str(),
                );
                groups.entry(key).or_default().add(&machine, occupied.contains(&machine.id));
            }
        }
        Ok(groups.into_iter().map(|(names, group)| group.into_offer(names)).collect())
    }
}

/// True if `machine` counts for offers: it was accepted, and is not being deleted.
fn is_offered(machine: &pb::Hardware) -> bool {
    match machine.state() {
        State::Provisionable | State::Failed | State::Maintenance => true,
        State::Unspecified | State::Enrolled | State::Deleting => false,
    }
}

/// Returns all records of a kind, in id order.
async fn all<K: Kind>(records: &Records<K>) -> Result<Vec<K::Record>, records::Error> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let (page, more) = records.page("", &after, PAGE_RECORDS).await?;
        if let Some(last) = page.last() {
            after = last.id().to_owned();
        }
        found.extend(page);
        if !more {
            return Ok(found);
        }
    }
}

impl Group {
    fn add(&mut self, machine: &pb::Hardware, is_occupied: bool) {
        self.machines += 1;
        let is_free = machine.state() == State::Provisionable && !machine.protect && !is_occupied;
        self.free += u64::from(is_free);
        if !machine.zone.is_empty() {
            self.zones.insert(machine.zone.clone());
        }
        let Some(inventory) = &machine.inventory else { return };
        if self.parts.as_ref().is_none_or(|parts| inventory.memory_bytes < parts.memory_bytes) {
            self.parts = Some(parts(inventory));
        }
    }

    fn into_offer(
        self,
        (model_name, location_name, model_id, location_id): (&str, &str, &str, &str),
    ) -> pb::ModelOffer {
        let Self { zones, machines, free, parts } = self;
        pb::ModelOffer {
            model_id: model_id.into(),
            model_name: model_name.into(),
            location_id: location_id.into(),
            location_name: location_name.into(),
            zones: zones.into_iter().collect(),
            available: free > 0,
            machines,
            free,
            parts,
        }
    }
}

/// Returns the parts of a machine with this inventory. Groups are in the order of their first members.
fn parts(inventory: &pb::Inventory) -> pb::MachineParts {
    let mut disks = Vec::<pb::DiskGroup>::new();
    for disk in inventory.disks.iter().filter(|disk| !disk.removable) {
        let like =
            |it: &&mut pb::DiskGroup| (it.size_bytes, it.medium) == (disk.size_bytes, disk.medium);
        match disks.iter_mut().find(like) {
            Some(group) => group.count += 1,
            None => disks.push(pb::DiskGroup {
                count: 1,
                size_bytes: disk.size_bytes,
                medium: disk.medium,
            }),
        }
    }
    let mut interfaces = Vec::<pb::InterfaceGroup>::new();
    for interface in &inventory.interfaces {
        match interfaces.iter_mut().find(|it| it.speed_mbps == interface.speed_mbps) {
            Some(group) => group.count += 1,
            None => {
                interfaces.push(pb::InterfaceGroup { count: 1, speed_mbps: interface.speed_mbps })
            }
        }
    }
    pb::MachineParts {
        processors: inventory.processors.clone(),
        memory_bytes: inventory.memory_bytes,
        disks,
        interfaces,
        architecture: inventory.architecture.clone(),
        firmware_mode: inventory.firmware_mode,
        tpm_version: inventory.tpm_version.clone(),
        vendor: inventory.vendor.clone(),
        product: inventory.product.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HardwareRecords;
    use crate::locations::Locations;
    use nouns::Edit as _;
    use runtime::Clock;
    use std::sync::Arc;
    use store::memory::MemoryStore;

    fn disk(size_bytes: u64, removable: bool) -> pb::InventoryDisk {
        pb::InventoryDisk { size_bytes, removable, ..pb::InventoryDisk::default() }
    }

    fn machine(memory_bytes: u64) -> pb::Hardware {
        let interface = |speed_mbps| pb::InventoryInterface { speed_mbps, ..Default::default() };
        let inventory = pb::Inventory {
            memory_bytes,
            disks: vec![disk(9, false), disk(7, false), disk(9, false), disk(1, true)],
            interfaces: vec![interface(0), interface(10_000), interface(0)],
            ..pb::Inventory::default()
        };
        let inventory = Some(Box::new(inventory));
        pb::Hardware { state: State::Provisionable.into(), inventory, ..pb::Hardware::default() }
    }

    #[test]
    fn the_parts_are_those_of_the_machine_with_the_least_memory_in_groups() {
        let mut group = Group::default();
        group.add(&machine(64), false);
        group.add(&machine(32), false);
        group.add(&pb::Hardware { inventory: None, ..machine(0) }, false);
        let parts = group.parts.unwrap();
        assert_eq!(parts.memory_bytes, 32);
        let disks: Vec<_> = parts.disks.iter().map(|it| (it.count, it.size_bytes)).collect();
        assert_eq!(disks, [(2, 9), (1, 7)]);
        let links: Vec<_> = parts.interfaces.iter().map(|it| (it.count, it.speed_mbps)).collect();
        assert_eq!(links, [(2, 0), (1, 10_000)]);
    }

    #[test]
    fn a_machine_is_free_if_it_is_provisionable_not_protected_and_not_occupied() {
        let mut group = Group::default();
        group.add(&machine(1), true);
        group.add(&pb::Hardware { protect: true, ..machine(1) }, false);
        group.add(&pb::Hardware { state: State::Maintenance.into(), ..machine(1) }, false);
        assert_eq!((group.machines, group.free), (3, 0));
        group.add(&machine(1), false);
        assert_eq!((group.machines, group.free), (4, 1));
    }

    #[tokio::test]
    async fn each_model_is_offered_in_each_location_where_a_machine_of_it_stands() {
        let records = HardwareRecords::new(Arc::new(MemoryStore::default()), Clock::system());
        let store = records.records.store().clone();
        let models = Models::new(store.clone(), Clock::system());
        let locations = Locations::new(store, Clock::system());
        let zone = |name: &str| pb::Zone { name: name.into(), ..pb::Zone::default() };
        let mut ids = Vec::new();
        for name in ["north", "south", "empty"] {
            let zones = vec![zone("a"), zone("b")];
            let location = pb::Location { name: name.into(), zones, ..Default::default() };
            ids.push(locations.create(location, None).await.unwrap().id);
        }
        for (n, (place, zone, rack)) in
            [(0, "b", "r1"), (0, "a", "r1"), (1, "", "r2"), (0, "a", "r2")].into_iter().enumerate()
        {
            let mac = format!("02:00:00:00:00:{n:02x}");
            let machine = pb::Hardware {
                interfaces: vec![pb::Interface { mac, ..pb::Interface::default() }],
                labels: [("rack".into(), rack.into())].into(),
                location_id: ids[place].clone(),
                zone: zone.into(),
                state: State::Provisionable.into(),
                ..pb::Hardware::default()
            };
            records.create(machine, None).await.unwrap();
        }
        for (name, rack) in [("m1", "r1"), ("m2", "r2"), ("m3", "r3")] {
            let labels = [("rack".to_owned(), rack.to_owned())].into();
            let constraints = Some(pb::ModelConstraints { labels, ..Default::default() });
            let model = pb::Model { name: name.into(), constraints, ..pb::Model::default() };
            models.create(model, None).await.unwrap();
        }
        let offers = async |model_id: &str, location_id: &str| {
            let wanted = Wanted { model_id, location_id };
            let offers = models.offers(wanted, &BTreeSet::new()).await.unwrap();
            offers
                .into_iter()
                .map(|it| (it.model_name, it.location_name, it.zones.join(","), it.machines))
                .collect::<Vec<_>>()
        };
        let row = |model: &str, place: &str, zones: &str, machines| {
            (model.to_owned(), place.to_owned(), zones.to_owned(), machines)
        };
        let all =
            [row("m1", "north", "a,b", 2), row("m2", "north", "a", 1), row("m2", "south", "", 1)];
        assert_eq!(offers("", "").await, all);
        assert_eq!(offers("", &ids[1]).await, all[2..]);
        assert_eq!(offers("", &ids[2]).await, []);
    }
}

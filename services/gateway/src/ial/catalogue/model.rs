//! A model as the platform lists it, with the parts of one of its machines.

use std::collections::BTreeMap;

use tinwright::hardware::v1 as hw;

use super::{Scope, below, note, words};
use crate::ial::responses::{
    Cpu, Memory, Model, ModelFeatures, ModelProvider, Network, Pricing, Specs, Storage,
};

/// The least memory of a node of the platform, in GiB.
const MIN_MEMORY_GB: u64 = 4;
/// The least storage of a node of the platform, in GB.
const MIN_STORAGE_GB: u64 = 45;

/// Returns `model` with its offers at the locations `seen`.
pub(super) fn model(
    model: &hw::Model,
    offers: &[hw::ModelOffer],
    seen: &[&hw::Location],
    scope: &Scope,
) -> Model {
    let at = |location: &hw::Location| {
        offers.iter().find(|it| it.model_id == model.id && it.location_id == location.id)
    };
    let offered: Vec<_> = seen.iter().filter_map(|it| Some((*it, at(it)?))).collect();
    let parts = offered.iter().find_map(|(_, offer)| offer.parts.as_ref());
    let specs = specs(model, parts.unwrap_or(&hw::MachineParts::default()));
    let can_boot = parts.is_some_and(|parts| meets_requirements(parts, &specs));
    let notes = &model.annotations;
    let drivers = note(notes, "ial/drivers").map(|text| words(&text));
    Model {
        name: note(notes, "ial/name").unwrap_or_else(|| model.name.clone()),
        drivers,
        description: model.description.clone(),
        specs,
        provider: ModelProvider {
            category: note(notes, "ial/category").unwrap_or_else(|| "bare-metal".into()),
            class: note(notes, "ial/class").unwrap_or_default(),
            model_id: model.name.clone(),
            locations: offered.iter().map(|(location, _)| location.name.clone()).collect(),
            availability_zones: offered
                .iter()
                .map(|(location, offer)| (location.name.clone(), offer.zones.clone()))
                .collect(),
        },
        pricing: pricing(notes),
        compatible: can_boot && offered.iter().any(|(location, _)| scope.is_compatible(location)),
    }
}

/// True if the platform's system runs on a machine with these parts.
fn meets_requirements(parts: &hw::MachineParts, specs: &Specs) -> bool {
    let storage: u64 = specs.storage.iter().map(|kind| u64::from(kind.count) * kind.size_gb).sum();
    parts.architecture == "x86_64"
        && specs.memory.size_gb >= MIN_MEMORY_GB
        && storage >= MIN_STORAGE_GB
        && specs.network.iter().any(|interface| interface.scope == "public")
}

fn pricing(notes: &BTreeMap<String, String>) -> Pricing {
    let mils = |key| note(notes, key).and_then(|text| text.parse().ok()).unwrap_or_default();
    Pricing { hourly: mils("ial/hourly-mils"), monthly: mils("ial/monthly-mils") }
}

fn specs(model: &hw::Model, parts: &hw::MachineParts) -> Specs {
    let notes = &model.annotations;
    Specs {
        cpu: cpu(parts.processors.as_ref()),
        gpu: (),
        memory: Memory {
            size_gb: parts.memory_bytes >> 30,
            r#type: note(notes, "ial/memory-type").unwrap_or_default(),
        },
        storage: storage(&parts.disks),
        network: network(&parts.interfaces, notes),
        features: ModelFeatures {
            raid: note(notes, "ial/raid"),
            hypervisor: note(notes, "ial/hypervisor").and_then(|text| text.parse().ok()),
            extra: below(notes, "ial/features/"),
        },
    }
}

fn cpu(processors: Option<&hw::Processors>) -> Cpu {
    let shared = Some(false);
    let Some(processors) = processors else { return Cpu { shared, ..Cpu::default() } };
    let hw::Processors { model, sockets, cores, threads } = processors.clone();
    // The inventory counts all of them. The platform counts cores per socket, and threads per core.
    let per = |all: u32, parts: u32| all.checked_div(parts).filter(|count| *count > 0);
    let (cores, threads) = (per(cores, sockets), per(threads, cores));
    Cpu { count: sockets, cores, threads, r#type: model, shared }
}

fn storage(disks: &[hw::DiskGroup]) -> Vec<Storage> {
    let mut kinds: BTreeMap<(&'static str, u64), u32> = BTreeMap::new();
    for disk in disks {
        let medium = match disk.medium() {
            hw::DiskMedium::Nvme => "nvme",
            hw::DiskMedium::Ssd => "ssd",
            hw::DiskMedium::Hdd | hw::DiskMedium::Unspecified => "hdd",
        };
        *kinds.entry((medium, disk.size_bytes / 1_000_000_000)).or_default() += disk.count;
    }
    let storage = |((r#type, size_gb), count)| Storage { count, size_gb, r#type };
    kinds.into_iter().map(storage).collect()
}

/// Returns the interfaces. The first ones are public: one, unless an annotation says how many.
fn network(interfaces: &[hw::InterfaceGroup], notes: &BTreeMap<String, String>) -> Vec<Network> {
    let public = note(notes, "ial/public-interfaces").and_then(|text| text.parse().ok());
    let public: usize = public.unwrap_or(1);
    let each = |group: &hw::InterfaceGroup| vec![group.speed_mbps; group.count as usize];
    let network = |(n, speed_mbps): (usize, u32)| Network {
        scope: if n < public { "public" } else { "private" },
        r#type: "ethernet",
        throughput: throughput(speed_mbps),
    };
    interfaces.iter().flat_map(each).enumerate().map(network).collect()
}

fn throughput(mbps: u32) -> String {
    match mbps {
        0 => "unknown".into(),
        _ if mbps.is_multiple_of(1000) => format!("{}Gbps", mbps / 1000),
        _ => format!("{mbps}Mbps"),
    }
}

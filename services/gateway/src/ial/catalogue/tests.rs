use serde_json::Value;

use super::*;

fn notes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
}

fn disks(count: u32, medium: hw::DiskMedium, size_bytes: u64) -> Vec<hw::DiskGroup> {
    vec![hw::DiskGroup { count, medium: medium.into(), size_bytes }]
}

fn parts() -> hw::MachineParts {
    let model = "EPYC 4545P".to_owned();
    let interface = |speed_mbps| hw::InterfaceGroup { count: 1, speed_mbps };
    hw::MachineParts {
        architecture: "x86_64".into(),
        processors: Some(hw::Processors { model, sockets: 1, cores: 16, threads: 32 }),
        memory_bytes: 128 << 30,
        disks: disks(2, hw::DiskMedium::Nvme, 960_197_124_096),
        interfaces: vec![interface(10_000), interface(25_000)],
        ..hw::MachineParts::default()
    }
}

fn catalogue() -> Catalogue {
    let zone = |name: &str| hw::Zone { name: name.into(), ..hw::Zone::default() };
    let location = hw::Location {
        id: "l1".into(),
        name: "kir1".into(),
        boot_url: "https://boot.test/ipxe".into(),
        zones: vec![zone("kir1-b"), zone("kir1-a")],
        geography: Some(hw::Geography {
            country: "SE".into(),
            state: "Norrbotten".into(),
            city: "Kiruna".into(),
            region: "eu-north".into(),
            latitude: 67.8557,
            longitude: 20.2253,
        }),
        annotations: notes(&[
            ("ial/name", "Kiruna 1"),
            ("ial/code", "KRN"),
            ("ial/abbreviation", "KIR1"),
            ("ial/features", "ipv4, ipv6, pxe"),
            ("ial/notes/power", "hydro"),
        ]),
        ..hw::Location::default()
    };
    let model = hw::Model {
        id: "m1".into(),
        name: "m2-16c128".into(),
        description: "16-core single-socket node with mirrored NVMe".into(),
        annotations: notes(&[
            ("ial/name", "Metal M2"),
            ("ial/class", "m2"),
            ("ial/hourly-mils", "410"),
            ("ial/monthly-mils", "239000"),
            ("ial/raid", "raid1"),
            ("ial/hypervisor", "true"),
            ("ial/features/tpm", "2.0"),
            ("ial/memory-type", "ddr5"),
        ]),
        ..hw::Model::default()
    };
    let offer = hw::ModelOffer {
        model_id: "m1".into(),
        location_id: "l1".into(),
        zones: vec!["kir1-a".to_owned(), "kir1-b".to_owned()],
        parts: Some(parts()),
        ..hw::ModelOffer::default()
    };
    Catalogue { locations: vec![location], models: vec![model], offers: vec![offer] }
}

fn documents(catalogue: &Catalogue, scope: &Scope) -> (Value, Value) {
    let listings = catalogue.listings(scope);
    let locations = serde_json::to_value(listings.clone().into_locations()).unwrap();
    (locations, serde_json::to_value(listings.into_models()).unwrap())
}

#[test]
fn the_listings_are_those_of_the_examples() {
    let (locations, models) = documents(&catalogue(), &Scope::default());
    let expected = json!([{
        "name": "Kiruna 1",
        "geographic": {"latitude": 67.8557, "longitude": 20.2253, "city": "Kiruna", "state": "Norrbotten", "country": "SE",
            "region": "eu-north"},
        "provider": {"location_id": "kir1", "code": "KRN", "availability_zones": ["kir1-a", "kir1-b"]},
        "features": {"available": ["ipv4", "ipv6", "pxe"], "supported": ["ipv4", "ipv6"]},
        "abbreviation": "KIR1", "annotations": {"power": "hydro"}, "compatible": true
    }]);
    assert_eq!(locations["locations"], expected);
    let expected = json!([{
        "name": "Metal M2", "drivers": null, "description": "16-core single-socket node with mirrored NVMe",
        "specs": {
            "cpu": {"count": 1, "cores": 16, "threads": 2, "type": "EPYC 4545P", "shared": false},
            "gpu": null,
            "memory": {"size_gb": 128, "type": "ddr5"},
            "storage": [{"count": 2, "size_gb": 960, "type": "nvme"}],
            "network": [
                {"scope": "public", "type": "ethernet", "throughput": "10Gbps"},
                {"scope": "private", "type": "ethernet", "throughput": "25Gbps"}
            ],
            "features": {"raid": "raid1", "hypervisor": true, "extra": {"tpm": "2.0"}}
        },
        "provider": {"category": "bare-metal", "class": "m2", "model_id": "m2-16c128", "locations": ["kir1"],
            "availability_zones": {"kir1": ["kir1-a", "kir1-b"]}},
        "pricing": {"hourly": 410, "monthly": 239000},
        "compatible": true
    }]);
    assert_eq!(models["models"], expected);
    assert_eq!(locations["extra"], models["extra"]);
}

#[test]
fn the_snapshot_changes_with_the_catalogue_only() {
    let snapshot =
        |catalogue: &Catalogue| documents(catalogue, &Scope::default()).0["extra"].clone();
    let mut changed = catalogue();
    assert_eq!(snapshot(&changed), snapshot(&catalogue()));
    changed.models[0].annotations.insert("ial/hourly-mils".into(), "411".into());
    assert_ne!(snapshot(&changed), snapshot(&catalogue()));
}

#[test]
fn machines_that_the_platform_cannot_use_are_not_compatible() {
    let is_compatible = |change: fn(&mut hw::MachineParts)| {
        let mut catalogue = catalogue();
        change(catalogue.offers[0].parts.as_mut().unwrap());
        documents(&catalogue, &Scope::default()).1["models"][0]["compatible"].as_bool().unwrap()
    };
    assert!(is_compatible(|_| {}));
    assert!(!is_compatible(|parts| parts.memory_bytes = (4 << 30) - 1));
    assert!(is_compatible(|parts| parts.memory_bytes = 4 << 30));
    assert!(!is_compatible(|parts| parts.architecture = "aarch64".into()));
    assert!(!is_compatible(|parts| parts.interfaces.clear()));
    assert!(!is_compatible(|parts| parts.disks = disks(1, hw::DiskMedium::Ssd, 44_999_999_999)));
    assert!(is_compatible(|parts| parts.disks = disks(1, hw::DiskMedium::Ssd, 45_000_000_000)));
}

#[test]
fn a_location_without_boot_url_is_compatible_for_those_who_have_their_own() {
    let mut catalogue = catalogue();
    catalogue.locations[0].boot_url.clear();
    let (locations, models) = documents(&catalogue, &Scope::default());
    assert_eq!(locations["locations"][0]["compatible"], false);
    assert_eq!(models["models"][0]["compatible"], false);
    let own = Scope { has_boot_url: true, ..Scope::default() };
    assert_eq!(documents(&catalogue, &own).0["locations"][0]["compatible"], true);
    let other = Scope { locations: vec!["kir2".into()], ..Scope::default() };
    let (locations, models) = documents(&catalogue, &other);
    assert_eq!(locations["locations"], json!([]));
    assert_eq!(models["models"][0]["provider"]["locations"], json!([]));
}

//! Images with changed bytes, and random bytes behind every magic: no conversion panics.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

const DISK_BYTES: usize = 256 << 10;

/// Converts `content`. Fails if the result is larger than the limit.
fn check(place: &Place, name: &str, content: &[u8]) -> Result<(), TestCaseError> {
    let limits = Limits { raw_bytes: 32 << 20, ..Limits::default() };
    for kind in [Kind::Disk, Kind::Archive] {
        let job = place.job(&place.file(name, content));
        if let Ok(report) = place.run(&Job { kind, limits: limits.clone(), ..job }) {
            prop_assert!(report.size_bytes <= 32 << 20);
            std::fs::remove_file(report.content).unwrap();
        }
    }
    Ok(())
}

/// Returns changes of a file: places in thousandths of their area, and the bytes there. Most are in
/// the first KiB, where headers are.
fn changes() -> impl Strategy<Value = Vec<(bool, usize, Vec<u8>)>> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..5),
        prop::collection::vec(Just(0xff_u8), 1..9),
        prop::collection::vec(Just(0_u8), 1..9),
    ];
    prop::collection::vec((prop::bool::weighted(0.8), 0..1000_usize, bytes), 1..4)
}

fn changed(content: &[u8], changes: &[(bool, usize, Vec<u8>)]) -> Vec<u8> {
    let mut content = content.to_vec();
    for (is_header, place, bytes) in changes {
        let area = if *is_header { content.len().min(1024) } else { content.len() };
        for (at, byte) in (area * place / 1000..).zip(bytes) {
            content[at.min(area - 1)] = *byte;
        }
    }
    content
}

/// Runs `test` with this number of cases.
fn cases<T: Strategy>(
    count: u32,
    strategy: T,
    test: impl Fn(T::Value) -> Result<(), TestCaseError>,
) {
    let config = ProptestConfig { cases: count, failure_persistence: None, ..Default::default() };
    TestRunner::new(config).run(&strategy, test).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn images_with_changed_bytes_are_converted_or_refused() {
    let place = Place::new();
    let raw = place.file("raw", disk(DISK_BYTES));
    for (kind, _, _, extension) in IMAGES {
        let content = std::fs::read(place.image(kind, &raw)).unwrap();
        // The formats of qemu-img take longer.
        let count = if kind.starts_with("qcow2") { 40 } else { 8 };
        cases(count, changes(), |changes| {
            check(&place, &format!("a.{extension}"), &changed(&content, &changes))
        });
    }
}

#[test]
fn archives_with_changed_bytes_are_converted_or_refused() {
    let place = Place::new();
    let raw = place.file("disk.raw", disk(DISK_BYTES));
    let (zip, tar) = (place.path("a.zip"), place.path("a.tar"));
    run(Command::new("zip").args(["-q", "-j"]).arg(&zip).arg(&raw));
    run(Command::new("tar").arg("-C").arg(place.0.path()).arg("-cf").arg(&tar).arg("disk.raw"));
    for path in [zip, tar] {
        let content = std::fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        cases(100, changes(), |changes| check(&place, name, &changed(&content, &changes)));
        // The directory of a zip is at its end.
        let end = content.len().saturating_sub(200);
        let tail = prop::collection::vec((0..200_usize, any::<u8>()), 1..4);
        cases(100, tail, |tail| {
            let mut content = content.clone();
            for (at, byte) in tail {
                content[end + at] = byte;
            }
            check(&place, name, &content)
        });
    }
}

#[test]
fn random_bytes_behind_every_magic_are_converted_or_refused() {
    const MAGICS: [&[u8]; 12] = [
        b"",
        b"QFI\xfb\0\0\0\x03",
        b"QFI\xfb\0\0\0\x02",
        b"KDMV\x01\0\0\0",
        b"# Disk DescriptorFile\n",
        b"conectix",
        b"vhdxfile",
        b"\x1f\x8b\x08\0",
        b"\xfd7zXZ\0",
        b"\x28\xb5\x2f\xfd",
        b"BZh91AY&SY",
        b"PK\x03\x04",
    ];
    let place = Place::new();
    let bytes = prop::collection::vec(any::<u8>(), 0..3000);
    cases(150, (0..MAGICS.len(), bytes), |(magic, bytes)| {
        check(&place, "a.raw", &[MAGICS[magic], &bytes].concat())
    });
}

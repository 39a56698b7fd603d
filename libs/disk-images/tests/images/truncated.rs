//! Images that end too early.

use super::*;

const DISK_BYTES: usize = (3 << 20) + 512;

/// Asserts that the beginning of `whole` with `length` bytes is refused, or has lost no content.
/// Returns the refusal.
fn cut(place: &Place, name: &str, whole: &[u8], length: usize, disk: &[u8]) -> Option<String> {
    match place.convert(&place.file(name, &whole[..length])) {
        Err(error) => Some(error),
        Ok(report) => {
            let content = std::fs::read(&report.content).unwrap();
            std::fs::remove_file(report.content).unwrap();
            assert!(content == disk, "{name}: {length} of {} bytes pass", whole.len());
            None
        }
    }
}

/// Returns lengths up to that of a file with `length` bytes: near its ends, and in between.
fn lengths(length: usize) -> Vec<usize> {
    let near = [1, 2, 4, 64, 511, 512, 513, 1024, 4096, 65_536, 100_000];
    let between = (1..12).map(|part| length * part / 12);
    let all = near.iter().flat_map(|it| [*it, length.saturating_sub(*it)]).chain(between);
    let all = all.filter(|it| (1..length).contains(it));
    all.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

#[test]
fn no_truncated_image_becomes_a_disk_with_another_content() {
    let (place, disk) = (Place::new(), disk(DISK_BYTES));
    let raw = place.file("disk", &disk);
    for (kind, ..) in IMAGES.iter().filter(|(kind, ..)| *kind != "raw") {
        let image = place.image(kind, &raw);
        let whole = std::fs::read(&image).unwrap();
        let name = image.file_name().unwrap().to_str().unwrap();
        let lengths = lengths(whole.len());
        let refused = lengths.iter().filter_map(|it| cut(&place, name, &whole, *it, &disk));
        assert!(refused.count() > lengths.len() / 3, "{kind}");
    }
}

#[test]
fn a_truncated_image_is_named_with_its_length() {
    let (place, disk) = (Place::new(), disk(DISK_BYTES));
    let raw = place.file("disk", &disk);
    for (kind, format) in [("qcow2", "qcow2"), ("vmdk", "vmdk"), ("vdi", "vdi"), ("vhd-f", "vhd")] {
        let image = place.image(kind, &raw);
        let whole = std::fs::read(&image).unwrap();
        let length = whole.len() / 2;
        let name = image.file_name().unwrap().to_str().unwrap();
        let error = place.run(&Job {
            declared: Format::of_name(format),
            ..place.job(&place.file(name, &whole[..length]))
        });
        let expected = format!("source: format {format}: truncated at byte {length}: ");
        let contradiction = format!("source: declared format {format}: the content is ");
        let error = error.unwrap_err();
        // The footer of a fixed vhd is its only magic.
        assert!(
            error.starts_with(if kind == "vhd-f" { &contradiction } else { &expected }),
            "{error}"
        );
    }
}

#[test]
fn a_truncated_wrapping_is_named_with_its_length() {
    let place = Place::new();
    let raw = place.file("disk.raw", disk(DISK_BYTES));
    for (program, extension) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst"), ("bzip2", "bz2")] {
        let output = run(Command::new(program).arg("-c").arg(&raw)).stdout;
        for length in lengths(output.len()).into_iter().filter(|it| *it >= 64) {
            let path = place.file(&format!("disk.raw.{extension}"), &output[..length]);
            let expected = format!("source: format {program}: truncated at byte {length}: ");
            let error = place.refused(&path);
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}

#[test]
fn a_truncated_zip_or_tar_is_refused() {
    let place = Place::new();
    let raw = place.file("disk.raw", disk(DISK_BYTES));
    let (zip, tar) = (place.path("a.zip"), place.path("a.tar"));
    run(Command::new("zip").args(["-q", "-j"]).arg(&zip).arg(&raw));
    run(Command::new("tar").arg("-C").arg(place.0.path()).arg("-cf").arg(&tar).arg("disk.raw"));
    let whole = std::fs::read(&zip).unwrap();
    for length in lengths(whole.len()).into_iter().filter(|it| *it >= 4) {
        let error = place.refused(&place.file("b.zip", &whole[..length]));
        assert!(error.starts_with("source: format zip: "), "{error}");
    }
    let whole = std::fs::read(&tar).unwrap();
    // The end mark begins behind the file's last block.
    let end = 512 + DISK_BYTES.next_multiple_of(512);
    for length in lengths(end).into_iter().filter(|it| *it >= 512) {
        let path = place.file("b.tar", &whole[..length]);
        let error = place.run(&Job { kind: Kind::Archive, ..place.job(&path) }).unwrap_err();
        let expected = format!("source: format tar: truncated at byte {length}: ");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn a_raw_disk_that_is_no_whole_number_of_sectors_is_truncated() {
    let place = Place::new();
    let error = place.refused(&place.file("disk.raw", &disk(1 << 20)[..1_000_000]));
    let expected = "source: format raw: truncated at byte 1000000: a disk has sectors of 512 bytes";
    assert_eq!(error, expected);
}

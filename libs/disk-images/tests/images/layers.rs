//! Disks in the layers of containers.

use disk_images::{LayerDisk, convert_layer, disk_in_tar};

use super::*;

/// Returns an entry of a tar: header and content.
fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut put = |at: usize, value: &[u8]| header[at..at + value.len()].copy_from_slice(value);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, if kind == b'1' || kind == b'2' { b"/etc/shadow" } else { b"" });
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header.extend(content);
    header.resize(header.len().next_multiple_of(512), 0);
    header
}

fn layer(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

fn taken(place: &Place, tar: &[u8]) -> Result<LayerDisk, String> {
    let limits = Limits { raw_bytes: 8 << 20, members: 50, ..Limits::default() };
    let path = place.file("layer", tar);
    disk_in_tar(&path, &place.work(), &limits, &mut |_| {}).map_err(one_line)
}

#[test]
fn the_disk_of_a_layer_is_taken_out_and_converted() {
    let (place, disk) = (Place::new(), disk(3 << 20));
    let image = place.image("qcow2-c", &place.file("raw", &disk));
    let tree = place.path("tree/disk");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::rename(image, tree.join("system.qcow2")).unwrap();
    for options in ["-cf", "-czf"] {
        let tar = place.path("layer.tar");
        let mut command = Command::new("tar");
        run(command.arg("-C").arg(place.path("tree")).arg(options).arg(&tar).arg("./disk"));
        let taken = taken(&place, &std::fs::read(tar).unwrap()).unwrap();
        assert_eq!(taken.name, "system.qcow2");
        let job = Job { name: taken.name, ..place.job(&taken.path) };
        let report = convert(&job, &mut |_| {}).unwrap();
        assert_content(&report, &disk, options);
    }
}

#[test]
fn a_layer_is_a_disk_or_a_tar_with_one() {
    let (place, disk) = (Place::new(), disk(3 << 20));
    let image = place.image("qcow2-c", &place.file("raw", &disk));
    let packed = zstd::encode_all(&disk[..], 1).unwrap();
    let with_disk = layer(&[entry("disk/a.img", b'0', &disk)]);
    let packed_tar = zstd::encode_all(&with_disk[..], 1).unwrap();
    for (content, case) in [
        (std::fs::read(image).unwrap(), "qcow2"),
        (disk.clone(), "raw"),
        (packed, "raw in zstd"),
        (with_disk, "tar"),
        (packed_tar, "tar in zstd"),
    ] {
        let job = place.job(&place.file("layer", content));
        let report = convert_layer(&job, &mut |_| {}).unwrap();
        assert_content(&report, &disk, case);
        assert_eq!(std::fs::read_dir(place.work()).unwrap().count(), 0, "{case}");
    }
    let refused = |content: Vec<u8>| {
        let job = place.job(&place.file("layer", content));
        one_line(convert_layer(&job, &mut |_| {}).unwrap_err())
    };
    assert_eq!(refused(b"{}".repeat(300)), "source: unsupported format: text");
    let found = "no file below disk/";
    let tar = layer(&[entry("etc/passwd", b'0', b"x")]);
    assert_eq!(refused(tar), format!("source: tar: {found}: expected exactly one image"));
}

#[test]
fn links_devices_and_names_that_lead_out_are_refused() {
    let place = Place::new();
    let disk = entry("disk/a.img", b'0', &[1; 512]);
    for (name, kind, problem) in [
        ("disk/b", b'2', "a link: refused"),
        ("etc/b", b'1', "a link: refused"),
        ("disk/b", b'3', "a device: refused"),
        ("disk/b", b'4', "a device: refused"),
        ("disk/b", b'6', "a device: refused"),
        ("disk/../../b", b'0', "a name that leads out of the archive: refused"),
        ("/disk/b", b'0', "a name that leads out of the archive: refused"),
        ("disk/b", b'7', ""),
    ] {
        let error = taken(&place, &layer(&[entry(name, kind, b""), disk.clone()])).unwrap_err();
        let expected = match problem {
            // A reserved type is a regular file, and so a second disk.
            "" => "source: tar: \"disk/b\" and \"disk/a.img\": expected exactly one image".into(),
            problem => format!("source: tar: entry \"{name}\": {problem}"),
        };
        assert_eq!(error, expected);
        assert_eq!(std::fs::read_dir(place.work()).unwrap().count(), 0);
    }
}

#[test]
fn a_layer_has_exactly_one_file_below_disk() {
    let place = Place::new();
    let one = entry("disk/a.img", b'0', &[1; 512]);
    let two = entry("./disk/b.img", b'0', &[2; 512]);
    let other = entry("etc/passwd", b'0', b"x");
    let beside = entry("disk", b'0', b"x");
    let expected = |found: &str| format!("source: tar: {found}: expected exactly one image");
    let both = "\"disk/a.img\" and \"./disk/b.img\"";
    let refused = |entries: &[Vec<u8>]| taken(&place, &layer(entries)).unwrap_err();
    assert_eq!(refused(&[one.clone(), two]), expected(both));
    assert_eq!(refused(&[other.clone(), beside]), expected("no file below disk/"));
    let taken = taken(&place, &layer(&[entry("disk/", b'5', b""), other, one])).unwrap();
    assert_eq!(std::fs::read(taken.path).unwrap(), [1; 512]);
}

#[test]
fn sparse_files_too_large_ones_and_too_many_are_refused() {
    let place = Place::new();
    let file = place.path("tree/disk/a.img");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
    for format in ["gnu", "posix"] {
        let tar = place.path("sparse.tar");
        let mut command = Command::new("tar");
        command.arg("-C").arg(place.path("tree")).arg(format!("--format={format}"));
        run(command.arg("--sparse").arg("-cf").arg(&tar).arg("disk"));
        let error = taken(&place, &std::fs::read(tar).unwrap()).unwrap_err();
        assert!(error.ends_with("a sparse file: refused"), "{error}");
    }
    let error = taken(&place, &layer(&[entry("disk/a", b'0', &[1; 9 << 20])])).unwrap_err();
    assert_eq!(error, "source: content: 8.25 MiB: the limit is 8.00 MiB");
    let many: Vec<_> = (0..51).map(|number| entry(&format!("{number}"), b'5', b"")).collect();
    let error = taken(&place, &layer(&many)).unwrap_err();
    assert_eq!(error, "source: tar: 51 entries: the limit is 50");
}

#[test]
fn an_archive_image_with_a_name_that_leads_out_is_refused() {
    let place = Place::new();
    let tar = layer(&[entry("etc/../../b", b'0', b"x")]);
    let job = Job { kind: Kind::Archive, ..place.job(&place.file("a.tar", tar)) };
    let error = place.run(&job).unwrap_err();
    assert!(error.ends_with("a name that leads out of the archive: refused"), "{error}");
}

//! One disk in every format and every wrapping.

use super::*;

/// Size of the disk: an odd number of sectors, in no format a whole number of clusters.
const DISK_BYTES: usize = (24 << 20) + 3 * 512;

/// Programs that wrap a file, with their options and the extension.
const WRAPPINGS: [(&str, &[&str], &str); 4] = [
    ("gzip", &["-1"], "gz"),
    ("xz", &["-0"], "xz"),
    ("zstd", &["-q", "-1"], "zst"),
    ("bzip2", &["-1"], "bz2"),
];

/// Wraps the file at `path`. Returns the path of the result.
fn wrap(path: &Path, program: &str, options: &[&str], extension: &str) -> PathBuf {
    let wrapped = path.with_added_extension(extension);
    let output = std::fs::File::create(&wrapped).unwrap();
    let mut command = Command::new(program);
    command.args(options).arg("-c").arg(path).stdout(output).stdin(Stdio::null());
    assert!(command.status().unwrap().success(), "{program}");
    wrapped
}

fn zip(files: &[&Path], to: &Path) -> PathBuf {
    run(Command::new("zip").args(["-q", "-j", "-1"]).arg(to).args(files));
    to.to_owned()
}

#[test]
fn every_format_in_every_wrapping_gives_the_same_disk() {
    let (place, disk) = (Place::new(), disk(DISK_BYTES));
    let raw = place.file("disk", &disk);
    for (kind, _, format, _) in IMAGES {
        let image = place.image(kind, &raw);
        let report = place.convert(&image).unwrap();
        assert_eq!((report.format, report.wrappings.len()), (format, 0), "{kind}");
        assert_content(&report, &disk, kind);
        if ["qcow2-v2", "qcow2-l2", "vdi-static"].contains(&kind) {
            continue; // wrapped as the others of their format
        }
        for (program, options, extension) in WRAPPINGS {
            let wrapped = wrap(&image, program, options, extension);
            let (case, report) = (format!("{kind} {program}"), place.convert(&wrapped).unwrap());
            assert_eq!((report.format, report.wrappings[0].name()), (format, program), "{case}");
            assert_content(&report, &disk, &case);
        }
        let report = place.convert(&zip(&[&image], &image.with_added_extension("zip"))).unwrap();
        assert_eq!((report.format, report.wrappings[0].name()), (format, "zip"), "{kind}");
        assert_content(&report, &disk, kind);
    }
}

#[test]
fn the_library_and_qemu_img_read_the_same_from_qcow2() {
    let (place, disk) = (Place::new(), disk(5 << 20));
    let raw = place.file("disk", &disk);
    for options in [
        "compat=0.10",
        "cluster_size=512",
        "cluster_size=2M",
        "preallocation=metadata",
        "preallocation=full",
        "lazy_refcounts=on",
        "refcount_bits=1",
    ] {
        for compressed in [&[][..], &["-c"]] {
            let image = place.path("image");
            let mut command = Command::new("qemu-img");
            command.args(["convert", "-O", "qcow2", "-f", "raw", "-o", options]).args(compressed);
            // Compression and preallocation exclude each other.
            if !command.arg(&raw).arg(&image).output().unwrap().status.success() {
                assert!(options.starts_with("pre") && !compressed.is_empty(), "{options}");
                continue;
            }
            assert_content(&place.convert(&image).unwrap(), &disk, options);
            let theirs = place.path("theirs");
            let mut command = Command::new("qemu-img");
            command.args(["convert", "-O", "raw", "-f", "qcow2"]).arg(image).arg(&theirs);
            run(&mut command);
            assert!(std::fs::read(theirs).unwrap() == disk, "{options}");
        }
    }
}

#[test]
fn clusters_that_were_made_zeros_and_snapshots_are_read() {
    let (place, mut disk) = (Place::new(), disk(5 << 20));
    let image = place.image("qcow2", &place.file("disk", &disk));
    run(Command::new("qemu-img").args(["snapshot", "-c", "before"]).arg(&image));
    let script = "write -z 1M 1M\nwrite -P 7 2M 100k\nwrite -z -u 3M 64k\nquit\n";
    let script = place.file("script", script);
    let input = std::fs::File::open(script).unwrap();
    let written = Command::new("qemu-io").args(["-f", "qcow2"]).arg(&image).stdin(input).output();
    assert!(written.unwrap().status.success());
    disk[1 << 20..2 << 20].fill(0);
    disk[2 << 20..(2 << 20) + 102_400].fill(7);
    disk[3 << 20..(3 << 20) + 65_536].fill(0);
    let report = place.convert(&image).unwrap();
    assert!(std::fs::read(report.content).unwrap() == disk);
}

#[test]
fn wrappings_in_wrappings_are_taken_off_up_to_three_times() {
    let (place, disk) = (Place::new(), disk(1 << 20));
    let raw = place.file("disk.raw", &disk);
    let twice = wrap(&wrap(&raw, "xz", &[], "xz"), "gzip", &[], "gz");
    let zipped = zip(&[&twice], &place.path("a.zip"));
    let report = place.convert(&zipped).unwrap();
    let names: Vec<_> = report.wrappings.iter().map(|it| it.name()).collect();
    assert_eq!(names, ["zip", "gzip", "xz"]);
    assert_content(&report, &disk, "wrapped");
    let error = place.refused(&wrap(&zipped, "zstd", &["-q"], "zst"));
    assert_eq!(error, "source: wrapped more than 3 times: the innermost is xz");
}

#[test]
fn an_appliance_in_a_zip_has_its_last_vmdk_converted() {
    let (place, disk) = (Place::new(), disk(1 << 20));
    let directory = place.path("app");
    std::fs::create_dir(&directory).unwrap();
    let image = place.image("vmdk", &place.file("disk", &disk));
    std::fs::rename(image, directory.join("b.vmdk")).unwrap();
    for name in ["a.vmdk", "readme.txt", "b.ovf"] {
        std::fs::write(directory.join(name), "text").unwrap();
    }
    run(Command::new("zip").args(["-q", "-r", "app.zip", "app"]).current_dir(place.0.path()));
    let report = place.convert(&place.path("app.zip")).unwrap();
    assert_content(&report, &disk, "app.zip");
}

#[test]
fn several_members_of_gzip_and_frames_of_zstd_are_one_disk() {
    let (place, disk) = (Place::new(), disk(1 << 20));
    for (program, options, extension) in [("gzip", &["-1"], "gz"), ("zstd", &["-q"], "zst")] {
        let parts: Vec<_> = disk.chunks(300_000).collect();
        let wrapped = parts.iter().map(|part| {
            std::fs::read(wrap(&place.file("part", part), program, options, extension)).unwrap()
        });
        let whole = wrapped.collect::<Vec<_>>().concat();
        let report = place.convert(&place.file(&format!("d.raw.{extension}"), whole)).unwrap();
        assert_content(&report, &disk, program);
    }
}

#[test]
fn a_mostly_empty_disk_may_compress_by_thousands() {
    let place = Place::new();
    let raw = place.path("disk.raw");
    std::fs::File::create(&raw).unwrap().set_len(512 << 20).unwrap();
    let packed = wrap(&raw, "zstd", &["-q", "-1"], "zst");
    assert!(std::fs::metadata(&packed).unwrap().len() * 2000 < 512 << 20);
    let report = place.convert(&packed).unwrap();
    let metadata = std::fs::metadata(report.content).unwrap();
    assert_eq!((metadata.len(), metadata.blocks()), (512 << 20, 0));
}

#[test]
fn progress_grows_over_all_steps() {
    let (place, disk) = (Place::new(), disk(5 << 20));
    let image = place.image("qcow2", &place.file("disk", &disk));
    let packed = wrap(&image, "gzip", &[], "gz");
    let mut seen = Vec::new();
    convert(&place.job(&packed), &mut |bytes| seen.push(bytes)).unwrap();
    assert!(seen.is_sorted() && seen.len() > 4, "{seen:?}");
    let unpacked = std::fs::metadata(image).unwrap().len();
    assert_eq!(seen.last(), Some(&(unpacked + disk.len() as u64)));
}

#[test]
fn a_tar_is_an_archive_image_and_no_disk() {
    let place = Place::new();
    let tree = place.path("tree");
    std::fs::create_dir_all(tree.join("etc")).unwrap();
    std::fs::write(tree.join("etc/hostname"), "a").unwrap();
    std::os::unix::fs::symlink("etc", tree.join("link")).unwrap();
    let tar = place.path("system.tar");
    run(Command::new("tar").args(["-C"]).arg(&tree).arg("-cf").arg(&tar).arg("."));
    for source in [tar.clone(), wrap(&tar, "xz", &[], "xz")] {
        let archive = Job { kind: Kind::Archive, ..place.job(&source) };
        let report = place.run(&archive).unwrap();
        assert_eq!(report.format, Format::Tar);
        assert!(std::fs::read(&report.content).unwrap() == std::fs::read(&tar).unwrap());
        std::fs::remove_file(report.content).unwrap();
        let error = place.refused(&source);
        let expected = "source: format tar: not a disk image: register it with the kind archive";
        assert_eq!(error, expected);
    }
    let raw = place.file("disk.raw", disk(1 << 20));
    let error = place.run(&Job { kind: Kind::Archive, ..place.job(&raw) }).unwrap_err();
    assert_eq!(error, "source: format raw: not an archive: archive images are tar files");
}

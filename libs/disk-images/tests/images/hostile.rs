//! Images that are made to reach files of the host, or to exhaust it.

use rustix::fs::inotify;

use super::*;

const SECRET: &[u8] = b"root:secret-of-the-host:19000:0:99999:7:::\n";

/// A file of the host, which nobody may open.
struct Planted {
    path: PathBuf,
    watch: rustix::fd::OwnedFd,
}

impl Planted {
    fn new(place: &Place) -> Self {
        let mut content = SECRET.repeat(2000);
        content.resize(128 << 10, 0);
        let path = place.file("shadow", content);
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        Self { path, watch }
    }

    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Watches from now on.
    fn watch(&self) {
        let events = inotify::WatchFlags::OPEN | inotify::WatchFlags::MODIFY;
        inotify::add_watch(&self.watch, &self.path, events).unwrap();
    }

    /// Asserts that nobody opened the file.
    fn assert_untouched(&self, case: &str) {
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let next = inotify::Reader::new(&self.watch, &mut space).next().map(drop);
        assert_eq!(next, Err(rustix::io::Errno::AGAIN), "{case}: the file was opened");
    }
}

fn qemu_img(words: &str) {
    run(Command::new("qemu-img").args(words.split_whitespace()));
}

/// Changes `bytes` at `at` in the file at `path`.
fn patch(path: &Path, at: usize, bytes: &[u8]) {
    let mut content = std::fs::read(path).unwrap();
    content[at..at + bytes.len()].copy_from_slice(bytes);
    std::fs::write(path, content).unwrap();
}

#[test]
fn files_that_images_refer_to_stay_unopened() {
    let place = Place::new();
    let planted = Planted::new(&place);
    let secret = planted.name();
    let image = |name: &str| place.path(name).to_str().unwrap().to_owned();
    qemu_img(&format!("create -q -f qcow2 -b {secret} -F raw {}", image("backed.qcow2")));
    let v2 = "-o compat=0.10 -F raw";
    qemu_img(&format!("create -q -u -f qcow2 {v2} -b {secret} {} 64k", image("v2.img")));
    let data_file = format!("data_file={secret}.copy,data_file_raw=on");
    qemu_img(&format!("create -q -f qcow2 -o {data_file} {} 64k", image("data.qcow2")));
    qemu_img(&format!("create -q -f vmdk {} 128k", image("base.vmdk")));
    let base = image("base.vmdk");
    qemu_img(&format!("create -q -f vmdk -b {base} -F vmdk {}", image("child.vmdk")));
    let flat = format!(
        "# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\n\
         createType=\"monolithicFlat\"\nRW 256 FLAT \"{secret}\" 0\n"
    );
    place.file("flat.vmdk", &flat);
    let mut embedded = std::fs::read(&base).unwrap();
    embedded[12..20].fill(0); // no capacity: the extents of the descriptor count
    embedded[512..512 + flat.len() + 1].copy_from_slice(format!("{flat}\0").as_bytes());
    place.file("embedded.vmdk", &embedded);
    planted.watch();
    for (name, part) in [
        ("backed.qcow2", format!("format qcow2: refers to backing file \"{secret}\"")),
        ("v2.img", format!("format qcow2: refers to backing file \"{secret}\"")),
        ("data.qcow2", format!("format qcow2: refers to data file \"{secret}.copy\"")),
        ("child.vmdk", format!("format vmdk: refers to parent disk \"{base}\"")),
        ("flat.vmdk", format!("refers to extent \"RW 256 FLAT \\\"{secret}\\\" 0\"")),
        ("embedded.vmdk", "refers to extents in place of a capacity".into()),
    ] {
        let error = place.refused(&place.path(name));
        assert!(error.contains(&part), "{part}: {error}");
        assert!(error.ends_with(": images that refer to other files are refused"), "{error}");
        planted.assert_untouched(name);
    }
}

#[test]
fn the_watch_of_the_tests_notices_a_converted_backing_file() {
    // Without the refusal, qemu-img copies the file of the host into the disk.
    let place = Place::new();
    let planted = Planted::new(&place);
    let (image, raw) = (place.path("a.qcow2"), place.path("raw"));
    qemu_img(&format!("create -q -f qcow2 -b {} -F raw {}", planted.name(), image.display()));
    planted.watch();
    qemu_img(&format!("convert -f qcow2 -O raw {} {}", image.display(), raw.display()));
    assert!(std::fs::read(raw).unwrap().starts_with(SECRET));
    let mut space = [std::mem::MaybeUninit::uninit(); 4096];
    assert!(inotify::Reader::new(&planted.watch, &mut space).next().is_ok());
}

#[test]
fn parents_of_vdi_and_vhd_are_refused() {
    let place = Place::new();
    let raw = place.file("raw", disk(2 << 20));
    let vdi = place.image("vdi", &raw);
    patch(&vdi, 424, &[7; 16]); // UUID of the parent
    let error = place.refused(&vdi);
    assert!(error.starts_with("source: format vdi: damaged: "), "{error}");
    let vhd = place.image("vhd", &raw);
    let end = std::fs::metadata(&vhd).unwrap().len() as usize - 512;
    let content = std::fs::read(&vhd).unwrap();
    let mut footer = content[end..].to_vec();
    footer[63] = 4; // differencing
    let sum = u32::from_be_bytes(footer[64..68].try_into().unwrap()) - 1;
    footer[64..68].copy_from_slice(&sum.to_be_bytes());
    patch(&vhd, end, &footer);
    patch(&vhd, 0, &footer);
    let error = place.refused(&vhd);
    assert!(error.contains("refers to parent disk of a differencing image"), "{error}");
}

#[test]
fn links_in_the_place_of_files_that_are_made_are_not_followed() {
    let (place, disk) = (Place::new(), disk(1 << 20));
    let planted = Planted::new(&place);
    planted.watch();
    for name in ["disk.raw", ".unpacked-0", ".qemu-img.errors"] {
        std::os::unix::fs::symlink(&planted.path, place.work().join(name)).unwrap();
    }
    let image = place.image("vmdk", &place.file("raw", &disk));
    let zip = place.path("a.zip");
    run(Command::new("zip").args(["-q", "-j"]).arg(&zip).arg(&image));
    assert_content(&place.convert(&zip).unwrap(), &disk, "links");
    planted.assert_untouched("links");
    // A refusal removes what it would have written.
    std::os::unix::fs::symlink(&planted.path, place.work().join("disk.raw")).unwrap();
    patch(&image, 12, &[0; 8]);
    assert!(place.refused(&image).contains("refers to extents"));
    planted.assert_untouched("a refusal");
}

#[test]
fn a_source_that_is_no_regular_file_is_refused() {
    let place = Place::new();
    let (link, pipe) = (place.path("link"), place.path("pipe"));
    std::os::unix::fs::symlink(place.file("disk.raw", disk(1 << 20)), &link).unwrap();
    run(Command::new("mkfifo").arg(&pipe));
    for path in [&link, &pipe, place.0.path(), Path::new("/dev/zero")] {
        let job = Job { name: String::new(), ..place.job(&place.path("x")) };
        let error = convert(&Job { source: path.into(), ..job }, &mut |_| {}).unwrap_err();
        assert!(!error.is_fault_of_file(), "{error}");
    }
}

#[test]
fn a_source_in_the_place_of_the_result_is_left() {
    let place = Place::new();
    let source = place.work().join("disk.raw");
    std::fs::write(&source, disk(1 << 20)).unwrap();
    let error = convert(&place.job(&source), &mut |_| {}).unwrap_err().to_string();
    assert!(error.ends_with("disk.raw: the source is in the place of the result"), "{error}");
    assert!(source.exists());
}

#[test]
fn a_disk_beyond_the_limit_is_refused_before_it_is_written() {
    let place = Place::new();
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    qemu_img(&format!("create -q -f qcow2 -o cluster_size=2M {} 4P", path("a.qcow2")));
    let zstd = "cluster_size=2M,compression_type=zstd";
    qemu_img(&format!("create -q -f qcow2 -o {zstd} {} 4P", path("z.qcow2")));
    qemu_img(&format!("create -q -f vhdx {} 60T", path("a.vhdx")));
    let vmdk = place.image("vmdk", &place.file("raw", disk(1 << 20)));
    patch(&vmdk, 12, &(8_u64 << 40).to_le_bytes());
    std::fs::File::create(path("a.raw")).unwrap().set_len(100 << 30).unwrap();
    for (name, what) in [
        ("a.qcow2", "virtual size: 4.00 PiB"),
        ("z.qcow2", "virtual size: 4.00 PiB"),
        ("a.vhdx", "virtual size: 60.00 TiB"),
        ("vmdk.vmdk", "virtual size: 4.00 PiB"),
        ("a.raw", "size: 100.00 GiB"),
    ] {
        let error = place.refused(&place.path(name));
        assert_eq!(error, format!("source: {what}: the limit is 64.00 GiB"), "{name}");
    }
}

#[test]
fn bombs_are_refused_at_the_limits() {
    let place = Place::new();
    let letters = place.file("letters.img", vec![b'\x07'; 48 << 20]);
    let zeros = place.path("zeros.img");
    std::fs::File::create(&zeros).unwrap().set_len(80 << 20).unwrap();
    for (source, part) in
        [(&letters, "expansion: more than 200 times: 1"), (&zeros, " MiB: the limit is 64.00 MiB")]
    {
        for (program, extension) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst")] {
            let packed = run(Command::new(program).arg("-c").arg(source)).stdout;
            let path = place.file(&format!("a.img.{extension}"), packed);
            let limits = Limits { raw_bytes: 64 << 20, ..Limits::default() };
            let error = place.run(&Job { limits, ..place.job(&path) }).unwrap_err();
            assert!(error.starts_with("source: ") && error.contains(part), "{error}");
        }
    }
    let zip = place.path("a.zip");
    run(Command::new("zip").args(["-q", "-j"]).arg(&zip).arg(&letters));
    assert!(place.refused(&zip).contains("expansion: more than 200 times"));
    // The size of an entry is compared before it is unpacked.
    let limits = Limits { raw_bytes: 1 << 20, ..Limits::default() };
    let error = place.run(&Job { limits, ..place.job(&zip) }).unwrap_err();
    let expected = "source: size of entry \"letters.img\": 48.00 MiB: the limit is 1.00 MiB";
    assert_eq!(error, expected);
}

#[test]
fn a_qcow2_whose_clusters_are_all_the_same_is_refused() {
    let place = Place::new();
    let raw = place.path("raw");
    std::fs::write(&raw, vec![b'\x07'; 32 << 20]).unwrap();
    let image = place.image("qcow2", &raw);
    let mut content = std::fs::read(&image).unwrap();
    let number = |content: &[u8], at: usize| {
        u64::from_be_bytes(content[at..at + 8].try_into().unwrap()) & 0x00ff_ffff_ffff_fe00
    };
    let l1 = number(&content, 40) as usize;
    let l2 = number(&content, l1) as usize;
    let first = content[l2..l2 + 8].to_vec();
    for entry in 1..512 {
        content[l2 + 8 * entry..][..8].copy_from_slice(&first);
    }
    content.truncate(number(&first, 0) as usize + (64 << 10));
    assert!(content.len() < 1 << 20, "{}", content.len());
    std::fs::write(&image, content).unwrap();
    let limits = Limits { ratio: 20, ..Limits::default() };
    let error = place.run(&Job { limits, ..place.job(&image) }).unwrap_err();
    assert!(error.starts_with("source: expansion: more than 20 times: 17."), "{error}");
}

#[test]
fn entries_of_a_zip_that_reach_out_of_it_are_refused() {
    let place = Place::new();
    let planted = Planted::new(&place);
    let tree = place.path("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("aaa.img"), disk(1 << 20)).unwrap();
    std::os::unix::fs::symlink(&planted.path, tree.join("link")).unwrap();
    let zip = place.path("a.zip");
    let mut command = Command::new("zip");
    run(command.args(["-q", "-y"]).arg(&zip).args(["aaa.img", "link"]).current_dir(&tree));
    planted.watch();
    let error = place.refused(&zip);
    assert_eq!(error, "source: zip: entry \"link\": neither a file nor a directory: refused");
    run(Command::new("zip").args(["-q", "-d"]).arg(&zip).arg("link"));
    std::fs::remove_file(place.convert(&zip).unwrap().content).unwrap();
    let plain = std::fs::read(&zip).unwrap();
    for name in ["../a.im", "/tmp/ab", "..\\a.im", "C:\\a.im", "a/../.."] {
        let mut content = plain.clone();
        for at in 0..content.len() - 7 {
            if content[at..].starts_with(b"aaa.img") {
                content[at..at + 7].copy_from_slice(name.as_bytes());
            }
        }
        let error = place.refused(&place.file("b.zip", content));
        let name = name.replace('\\', "\\\\");
        let expected =
            format!("source: zip: entry \"{name}\": a name that leads out of the archive: refused");
        assert_eq!(error, expected);
    }
    planted.assert_untouched("zip");
}

#[test]
fn an_encrypted_zip_and_one_with_too_many_entries_are_refused() {
    let place = Place::new();
    let raw = place.file("a.img", disk(1 << 20));
    let zip = place.path("secret.zip");
    run(Command::new("zip").args(["-q", "-j", "-P", "password"]).arg(&zip).arg(&raw));
    let error = place.refused(&zip);
    assert_eq!(error, "source: zip: entry \"a.img\": encrypted: refused");
    let zip = place.path("many.zip");
    let names: Vec<_> = (0..5).map(|number| place.file(&format!("{number}.txt"), "x")).collect();
    run(Command::new("zip").args(["-q", "-j"]).arg(&zip).args(names));
    let limits = Limits { members: 4, ..Limits::default() };
    let error = place.run(&Job { limits, ..place.job(&zip) }).unwrap_err();
    assert_eq!(error, "source: zip: 5 entries: the limit is 4");
    let error = place.refused(&zip);
    assert!(error.contains("5 files, none with the name of an image"), "{error}");
    // A count of 65,535 says that the real one is elsewhere, and it is not.
    let end = std::fs::metadata(&zip).unwrap().len() as usize - 22;
    patch(&zip, end + 10, &[0xff, 0xff]);
    let error = place.refused(&zip);
    assert_eq!(error, "source: zip: 65535 entries: the limit is 10000");
}

#[test]
fn a_declared_format_that_is_not_the_one_of_the_content_is_refused() {
    let place = Place::new();
    let raw = place.file("raw", disk(2 << 20));
    for (kind, _, format, _) in IMAGES {
        let image = place.image(kind, &raw);
        for declared in Format::ALL {
            let job = Job { declared: Some(declared), ..place.job(&image) };
            let converted = place.run(&job);
            if declared == format {
                std::fs::remove_file(converted.unwrap().content).unwrap();
                continue;
            }
            let error = converted.unwrap_err();
            let expected = format!("source: declared format {declared}: the content is ");
            assert!(error.starts_with(&expected), "{kind}: {error}");
        }
    }
}

#[test]
fn an_empty_file_is_refused() {
    let place = Place::new();
    assert_eq!(place.refused(&place.file("a.raw", "")), "source: empty");
    let packed = run(Command::new("gzip").arg("-c").arg("/dev/null")).stdout;
    let error = place.refused(&place.file("a.raw.gz", packed));
    assert_eq!(error, "source: empty content in gzip");
}

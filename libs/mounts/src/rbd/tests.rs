//! Mapping and unmapping against a directory in which a thread plays the kernel.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::symlink,
    thread::{self, JoinHandle},
};

use rustix::fs::{CWD, FileType, Mode};

use super::*;

struct FakeKernel {
    root: tempfile::TempDir,
    readers: Vec<JoinHandle<()>>,
}

impl FakeKernel {
    /// Starts a kernel that handles lines with `add` and `remove`, given the directory of the bus.
    fn start(add: fn(&Path, &str), remove: fn(&Path, &str)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let bus = root.path().join("sys/bus/rbd");
        fs::create_dir_all(bus.join("devices")).unwrap();
        fs::create_dir_all(root.path().join("dev")).unwrap();
        let reader = |file: &str, handle: fn(&Path, &str)| {
            let (bus, path) = (bus.clone(), bus.join(file));
            rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            // Open for both, so that it does not end when a writer closes.
            let mut pipe = File::options().read(true).write(true).open(path).unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                loop {
                    let length = pipe.read(&mut buffer).unwrap();
                    match std::str::from_utf8(&buffer[..length]).unwrap() {
                        "stop" => return,
                        line => handle(&bus, line),
                    }
                }
            })
        };
        let readers = vec![reader("add_single_major", add), reader("remove_single_major", remove)];
        Self { root, readers }
    }

    fn client(&self) -> Rbd {
        Rbd::with_roots(&self.root.path().join("sys"), &self.root.path().join("dev"))
    }

    fn bus(&self) -> PathBuf {
        self.root.path().join("sys/bus/rbd")
    }

    /// Adds a device that others have mapped.
    fn mapped(&self, id: u32, attributes: &[(&str, &str)]) {
        device(&self.bus(), id, attributes);
    }
}

impl Drop for FakeKernel {
    fn drop(&mut self) {
        for file in ["add_single_major", "remove_single_major"] {
            fs::write(self.bus().join(file), "stop").unwrap();
        }
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
    }
}

/// Makes a device's directory appear with all its attributes at once, and its file.
fn device(bus: &Path, id: u32, attributes: &[(&str, &str)]) {
    let hidden = bus.join(format!("new{id}"));
    fs::create_dir(&hidden).unwrap();
    for (name, value) in attributes {
        fs::write(hidden.join(name), format!("{value}\n")).unwrap();
    }
    fs::rename(hidden, bus.join(format!("devices/{id}"))).unwrap();
}

fn add(bus: &Path, line: &str) {
    fs::write(bus.join("last_line"), line).unwrap();
    let fields: Vec<_> = line.split(' ').collect();
    let [_, options, pool, image, snapshot] = fields[..] else { panic!("{line}") };
    let namespace = options.split(',').find_map(|option| option.strip_prefix("_pool_ns="));
    let id = u32::try_from(fs::read_dir(bus.join("devices")).unwrap().count()).unwrap();
    let attributes = [
        ("pool", pool),
        ("pool_ns", namespace.unwrap_or("")),
        ("name", image),
        ("current_snap", snapshot),
    ];
    fs::write(bus.join(format!("../../../dev/rbd{id}")), "").unwrap();
    device(bus, id, &attributes);
}

fn remove(bus: &Path, line: &str) {
    fs::write(bus.join("last_line"), line).unwrap();
    let id = line.trim_end_matches(" force");
    fs::remove_dir_all(bus.join("devices").join(id)).unwrap();
}

fn nothing(_: &Path, _: &str) {}

fn image(pool: &str, image: &str, snapshot: &str) -> RbdImage {
    RbdImage {
        monitors: vec!["10.0.0.1".into()],
        pool: pool.into(),
        image: image.into(),
        snapshot: snapshot.into(),
        options: RbdOptions {
            name: "node".into(),
            secret: Secret::from("S0VZ".to_owned()),
            ..RbdOptions::default()
        },
    }
}

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

#[test]
fn an_image_is_mapped_once_listed_and_unmapped() {
    let kernel = FakeKernel::start(add, remove);
    let client = kernel.client();
    let mapped = client.map(&image("rbd", "img1", ""), limit()).unwrap();
    let line = fs::read_to_string(kernel.bus().join("last_line")).unwrap();
    assert_eq!(line, "10.0.0.1 name=node,secret=S0VZ rbd img1 -");
    assert_eq!((mapped.id, mapped.snapshot.as_str()), (0, "-"));
    assert_eq!(client.list().unwrap(), std::slice::from_ref(&mapped));
    let again = client.map(&image("rbd", "img1", ""), limit()).unwrap_err();
    assert_eq!(again, Error::Busy("rbd image rbd/img1 is mapped already".into()));
    client.unmap(&mapped, false, limit()).unwrap();
    assert_eq!(fs::read_to_string(kernel.bus().join("last_line")).unwrap(), "0");
    assert_eq!(client.list().unwrap(), []);
    client.unmap(&mapped, true, limit()).unwrap();
    assert_eq!(fs::read_to_string(kernel.bus().join("last_line")).unwrap(), "0");
}

#[test]
fn force_is_a_word_after_the_number() {
    let kernel = FakeKernel::start(add, remove);
    let mapped = kernel.client().map(&image("rbd", "img1", ""), limit()).unwrap();
    kernel.client().unmap(&mapped, true, limit()).unwrap();
    assert_eq!(fs::read_to_string(kernel.bus().join("last_line")).unwrap(), "0 force");
}

#[test]
fn d23_neither_a_snapshot_nor_a_namespace_is_mistaken_for_the_image() {
    let kernel = FakeKernel::start(add, remove);
    kernel.mapped(0, &[("pool", "rbd"), ("name", "img"), ("pool_ns", ""), ("current_snap", "s1")]);
    kernel.mapped(1, &[("pool", "rbd"), ("name", "img"), ("pool_ns", "ns"), ("current_snap", "-")]);
    // Of an older kernel, without the attributes for namespace and snapshot.
    kernel.mapped(2, &[("pool", "rbd"), ("name", "other")]);
    let client = kernel.client();
    let mapped = client.map(&image("rbd", "img", ""), limit()).unwrap();
    assert_eq!((mapped.id, mapped.namespace.as_str(), mapped.snapshot.as_str()), (3, "", "-"));
    for (name, snapshot) in [("img", "s1"), ("other", "")] {
        let result = client.map(&image("rbd", name, snapshot), limit());
        assert!(matches!(result, Err(Error::Busy(_))), "{result:?}");
    }
    assert_eq!(client.map(&image("rbd", "img", "s2"), limit()).unwrap().id, 4);
}

#[test]
fn parallel_mappings_get_each_its_own_device() {
    let kernel = FakeKernel::start(add, remove);
    let client = kernel.client();
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let client = client.clone();
            thread::spawn(move || client.map(&image("rbd", &format!("img{number}"), ""), limit()))
        })
        .collect();
    let mut ids = Vec::new();
    for (number, thread) in threads.into_iter().enumerate() {
        let mapped = thread.join().unwrap().unwrap();
        assert_eq!(mapped.image, format!("img{number}"));
        ids.push(mapped.id);
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_number_that_has_another_image_now_is_left_alone() {
    let kernel = FakeKernel::start(add, remove);
    let mapped = kernel.client().map(&image("rbd", "img1", ""), limit()).unwrap();
    let old = RbdDevice { image: "img0".into(), ..mapped.clone() };
    kernel.client().unmap(&old, true, limit()).unwrap();
    assert_eq!(kernel.client().list().unwrap(), [mapped]);
}

#[test]
fn d20_a_device_without_a_file_is_unmapped_again() {
    fn add_without_file(bus: &Path, _: &str) {
        let attributes =
            [("pool", "rbd"), ("name", "img1"), ("pool_ns", ""), ("current_snap", "-")];
        device(bus, 0, &attributes);
    }
    let kernel = FakeKernel::start(add_without_file, remove);
    let short = Deadline::after(Duration::from_secs(5));
    let error = kernel.client().map(&image("rbd", "img1", ""), short).unwrap_err();
    assert!(error.to_string().ends_with("dev/rbd0: time limit reached"), "{error}");
    assert_eq!(fs::read_to_string(kernel.bus().join("last_line")).unwrap(), "0");
    assert_eq!(kernel.client().list().unwrap(), []);
}

#[test]
fn no_device_and_no_module_are_missing_interfaces() {
    let kernel = FakeKernel::start(nothing, nothing);
    let silent = kernel.client().map(&image("rbd", "img1", ""), limit()).unwrap_err();
    assert_eq!(silent, Error::Missing("no device for rbd image rbd/img1 appeared".into()));
    let empty = tempfile::tempdir().unwrap();
    let client = Rbd::with_roots(empty.path(), empty.path());
    assert!(matches!(client.map(&image("rbd", "i", ""), limit()), Err(Error::Missing(_))));
    assert_eq!(client.list().unwrap(), []);
}

#[test]
fn a_refusal_has_the_errno_and_not_the_key() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("bus/rbd/devices")).unwrap();
    symlink("/dev/full", root.path().join("bus/rbd/add")).unwrap();
    let client = Rbd::with_roots(root.path(), root.path());
    let error = client.map(&image("rbd", "img1", "s"), limit()).unwrap_err();
    assert!(matches!(error, Error::Failed { errno: Some(28), .. }), "{error}");
    assert!(error.to_string().starts_with("map rbd image rbd/img1@s: "), "{error}");
    assert!(!format!("{error:?}").contains("S0VZ"));
    assert_eq!(refused("unmap rbd0", Errno::BUSY), Error::Busy("unmap rbd0: in use".into()));
}

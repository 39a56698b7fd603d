//! Loop devices.

use std::{collections::BTreeSet, fs, thread, time::Duration};

use mounts::{Deadline, Error, loop_device, loop_device::LoopOptions};

use crate::scene::{Scene, detach, in_private_namespace, limit, mount, unmount};

fn small_file(scene: &Scene) {
    fs::write(scene.path("file"), [7; 4096]).unwrap();
}

#[test]
fn a_device_has_the_content_of_its_file_and_is_found_by_mark_and_file() {
    in_private_namespace(|scene| {
        small_file(scene);
        let device = scene.attach("file", "a");
        assert_eq!(fs::read(device.device_file()).unwrap(), [7; 4096]);
        assert_eq!((device.read_only, device.partition_scan), (false, false));
        assert_eq!(device.backing_file, scene.path("file").to_str().unwrap());
        assert_eq!(loop_device::find_by_mark(&scene.mark("a")).unwrap(), Some(device.clone()));
        assert_eq!(loop_device::find_by_mark(&scene.mark("b")).unwrap(), None);
        let inode = scene.resolve("file").inode();
        assert_eq!(loop_device::find_by_inode(inode).unwrap(), std::slice::from_ref(&device));
        detach(&device).unwrap();
        assert_eq!(loop_device::find_by_inode(inode).unwrap(), []);
        detach(&device).unwrap();
    });
}

#[test]
fn d22_parallel_attachments_of_one_file_get_each_a_device_of_their_own() {
    in_private_namespace(|scene| {
        small_file(scene);
        for _ in 0..4 {
            let devices: Vec<_> = thread::scope(|threads| {
                let attach = |number: usize| move || scene.attach("file", &number.to_string());
                let running: Vec<_> = (0..8).map(|number| threads.spawn(attach(number))).collect();
                running.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let numbers: BTreeSet<_> = devices.iter().map(|device| device.number).collect();
            assert_eq!(numbers.len(), 8);
            assert_eq!(scene.loop_devices().len(), 8);
            thread::scope(|threads| {
                for device in &devices {
                    threads.spawn(|| detach(device).unwrap());
                }
            });
            assert_eq!(scene.loop_devices(), []);
        }
    });
}

#[test]
fn d13_a_device_with_a_file_system_is_busy_and_stays() {
    in_private_namespace(|scene| {
        scene.ext4_image("image");
        let device = scene.attach("image", "busy");
        let target = scene.mount_point("target");
        mount(&device, "ext4", &[], &target).unwrap();
        let busy = detach(&device).unwrap_err();
        assert_eq!(busy, Error::Busy(format!("{} is in use", device.device_file().display())));
        fs::write(target.join("file"), "still works").unwrap();
        unmount(&target).unwrap();
        assert_eq!(scene.loop_devices(), std::slice::from_ref(&device));
        detach(&device).unwrap();
    });
}

#[test]
fn a_device_that_is_open_elsewhere_is_reported_and_ends_when_it_is_closed() {
    in_private_namespace(|scene| {
        small_file(scene);
        let device = scene.attach("file", "open");
        let reader = fs::File::open(device.device_file()).unwrap();
        let soon = Deadline::after(Duration::from_millis(200));
        let busy = loop_device::detach(device.number, &device.mark, soon).unwrap_err();
        assert!(matches!(busy, Error::Busy(_)), "{busy}");
        drop(reader);
        detach(&device).unwrap();
        assert_eq!(scene.loop_devices(), []);
    });
}

#[test]
fn a_number_with_another_mark_is_left_alone() {
    in_private_namespace(|scene| {
        small_file(scene);
        let device = scene.attach("file", "new");
        loop_device::detach(device.number, &scene.mark("old"), limit()).unwrap();
        assert_eq!(scene.loop_devices(), std::slice::from_ref(&device));
        detach(&device).unwrap();
    });
}

#[test]
fn a_read_only_device_refuses_writes() {
    in_private_namespace(|scene| {
        small_file(scene);
        let options = LoopOptions { read_only: true, ..scene.options("ro") };
        let device = loop_device::attach(&scene.resolve("file"), options, limit()).unwrap();
        assert!(device.read_only);
        let refused = fs::write(device.device_file(), [8; 512]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(1)); // EPERM, which Linux gives for a read-only block device.
        assert_eq!(fs::read(device.device_file()).unwrap(), [7; 4096]);
        detach(&device).unwrap();
    });
}

/// That partitions become devices needs a kernel that knows a kind of partition table, which is not said of each host.
#[test]
fn partitions_are_looked_for_when_that_is_asked_for() {
    in_private_namespace(|scene| {
        small_file(scene);
        for partition_scan in [false, true] {
            let options = LoopOptions { partition_scan, ..scene.options("scan") };
            let device = loop_device::attach(&scene.resolve("file"), options, limit()).unwrap();
            assert_eq!(device.partition_scan, partition_scan);
            let attribute = format!("/sys/block/loop{}/loop/partscan", device.number);
            let expected = if partition_scan { "1\n" } else { "0\n" };
            assert_eq!(fs::read_to_string(attribute).unwrap(), expected);
            detach(&device).unwrap();
        }
    });
}

#[test]
fn only_regular_files_and_marks_that_fit_are_accepted() {
    in_private_namespace(|scene| {
        small_file(scene);
        fs::create_dir(scene.path("directory")).unwrap();
        std::os::unix::fs::symlink("/dev/null", scene.path("null")).unwrap();
        let attach = |file: &str, mark: &str| {
            let options = LoopOptions { mark: mark.into(), ..scene.options("") };
            loop_device::attach(&scene.resolve(file), options, limit())
        };
        let directory = attach("directory", "mark").unwrap_err();
        assert_eq!(directory, Error::Invalid("directory is not a regular file".into()));
        for mark in ["", "a\0b", &"m".repeat(64)] {
            assert!(matches!(attach("file", mark), Err(Error::Invalid(_))), "{mark:?}");
        }
        let longest = format!("{:-<63}", scene.mark("long"));
        let device = attach("file", &longest).unwrap();
        assert_eq!(device.mark, longest);
        detach(&device).unwrap();
    });
}

//! File systems on loop devices, also in layers.

use std::{fs, path::Path};

use mounts::{
    Error,
    bind::{self, BindOptions},
    inventory,
    iscsi::Iscsi,
    loop_device, mount_point,
    overlay::{self, Overlay},
    rbd::Rbd,
};

use crate::scene::{
    READ_ONLY_FILE_SYSTEM, SQUASHFS, detach, in_private_namespace, limit, mount, resolve_below,
    unmount, write_error,
};

#[test]
fn what_is_written_to_ext4_is_there_after_the_next_attachment() {
    in_private_namespace(|scene| {
        scene.ext4_image("image");
        let target = scene.mount_point("target");
        let first = scene.attach("image", "first");
        mount(&first, "ext4", &["rw", "noatime"], &target).unwrap();
        fs::write(target.join("file"), "kept").unwrap();
        unmount(&target).unwrap();
        detach(&first).unwrap();
        let second = scene.attach("image", "second");
        mount(&second, "ext4", &["ro"], &target).unwrap();
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "kept");
        assert_eq!(write_error(&target), READ_ONLY_FILE_SYSTEM);
        unmount(&target).unwrap();
        detach(&second).unwrap();
    });
}

/// The chain of the contract's scheme "loopback file on NFS", with a bind in place of NFS, and one more layer below.
#[test]
fn a_squashfs_in_a_read_only_bind_of_an_ext4_under_an_overlay() {
    in_private_namespace(|scene| {
        scene.ext4_image("disk");
        let disk = scene.attach("disk", "disk");
        let ext4 = scene.mount_point("ext4");
        mount(&disk, "ext4", &[], &ext4).unwrap();
        fs::create_dir(ext4.join("images")).unwrap();
        fs::write(ext4.join("images/root.sqsh"), SQUASHFS).unwrap();
        let share = scene.mount_point("share");
        let read_only = BindOptions { recursive: false, read_only: true };
        bind::mount(&resolve_below(&ext4, "images"), read_only, &share, limit()).unwrap();

        // The file cannot be written there, so that the device is read-only though nobody asked for that.
        let file = resolve_below(&share, "/root.sqsh");
        let image = loop_device::attach(&file, scene.options("image"), limit()).unwrap();
        // An open descriptor keeps the bind busy; the device has one of its own.
        drop(file);
        assert!(image.read_only);
        let squashfs = scene.mount_point("squashfs");
        mount(&image, "squashfs", &["ro"], &squashfs).unwrap();
        let root = scene.mount_point("root");
        let overlay = Overlay {
            lower: vec![squashfs.clone()],
            upper: scene.path("upper"),
            work: scene.path("work"),
        };
        overlay::mount(&overlay, &root, limit()).unwrap();
        assert_eq!(fs::read_to_string(root.join("greeting")).unwrap(), "hello\n");
        assert_eq!(write_error(&root), None);

        // What is below cannot be taken away before what is above it: a mount with an open file, and a device whose file
        // system is alive. An overlay keeps its lower file systems alive although their own mounts can be undone.
        assert!(matches!(unmount(&share), Err(Error::Busy(_))));
        unmount(&squashfs).unwrap();
        for device in [&image, &disk] {
            assert!(matches!(detach(device), Err(Error::Busy(_))));
        }
        unmount(&root).unwrap();
        overlay::remove_directories(&overlay).unwrap();
        detach(&image).unwrap();
        unmount(&share).unwrap();
        unmount(&ext4).unwrap();
        detach(&disk).unwrap();
    });
}

#[test]
fn refusals_of_the_kernel_say_what_was_refused() {
    in_private_namespace(|scene| {
        fs::write(scene.path("image"), SQUASHFS).unwrap();
        let options = loop_device::LoopOptions { read_only: true, ..scene.options("ro") };
        let device = loop_device::attach(&scene.resolve("image"), options, limit()).unwrap();
        let target = scene.mount_point("target");
        let unknown = mount(&device, "nosuchfs", &[], &target).unwrap_err();
        assert_eq!(unknown, Error::Missing("the kernel has no file system nosuchfs".into()));
        let writable = mount(&device, "squashfs", &["rw"], &target).unwrap_err();
        assert!(writable.to_string().contains("needs the option ro"), "{writable}");
        let other = mount(&device, "ext4", &["ro"], &target).unwrap_err();
        assert!(matches!(other, Error::Failed { errno: Some(22), .. }), "{other}");
        let bad = mount(&device, "ext4,x", &["ro"], &target).unwrap_err();
        assert!(matches!(bad, Error::Invalid(_)), "{bad}");
        assert!(!mount_point::is_mounted(&target).unwrap());
        detach(&device).unwrap();
    });
}

#[test]
fn the_inventory_has_what_exists_and_nothing_of_others() {
    in_private_namespace(|scene| {
        scene.ext4_image("image");
        let device = scene.attach("image", "own");
        let base = scene.path("mounts");
        mount_point::create_base(&base).unwrap();
        let target = base.join("mount_1");
        mount_point::create(&target).unwrap();
        mount(&device, "ext4", &["ro"], &target).unwrap();
        let read = || {
            let iscsi = Iscsi::new(Path::new("iscsiadm"));
            inventory::read(&base, &scene.mark(""), &Rbd::default(), &iscsi).unwrap()
        };
        let found = read();
        assert_eq!(
            (found.mounts.len(), found.mounts[0].mount_point.as_path()),
            (1, target.as_path())
        );
        assert_eq!(found.mounts[0].source, device.device_file().as_os_str());
        assert_eq!(found.loop_devices, std::slice::from_ref(&device));
        unmount(&target).unwrap();
        detach(&device).unwrap();
        let empty = read();
        assert!(empty.mounts.is_empty() && empty.loop_devices.is_empty());
    });
}

//! Bind mounts, mount points and unmounting.

use std::{fs, os::unix::fs::symlink, path::Path};

use mounts::{
    Error,
    bind::{self, BindOptions},
    mount_point::{self, UnmountOptions},
    mount_table, paths,
};

use crate::scene::{
    READ_ONLY_FILE_SYSTEM, Scene, in_private_namespace, limit, mount_tmpfs, resolve_below, unmount,
    write_error,
};

const READ_ONLY: BindOptions = BindOptions { recursive: false, read_only: true };

/// Makes a directory `source` with a file, and a mounted file system at `source/inner`.
fn nested_source(scene: &Scene) {
    fs::create_dir_all(scene.path("source/inner")).unwrap();
    fs::write(scene.path("source/file"), "outer").unwrap();
    mount_tmpfs(&scene.path("source/inner"));
    fs::write(scene.path("source/inner/file"), "inner").unwrap();
}

#[test]
fn d8_a_read_only_bind_refuses_writes_and_its_source_does_not() {
    in_private_namespace(|scene| {
        let source = scene.mount_point("source");
        let target = scene.mount_point("target");
        bind::mount(&scene.resolve("source"), READ_ONLY, &target, limit()).unwrap();
        assert_eq!(write_error(&target), READ_ONLY_FILE_SYSTEM);
        assert_eq!(write_error(&source), None);
        assert!(target.join("new").exists());
        unmount(&target).unwrap();
    });
}

#[test]
fn a_plain_bind_is_writable_and_shows_no_mounts_below() {
    in_private_namespace(|scene| {
        nested_source(scene);
        let target = scene.mount_point("target");
        bind::mount(&scene.resolve("source"), BindOptions::default(), &target, limit()).unwrap();
        assert_eq!(write_error(&target), None);
        assert!(!target.join("inner/file").exists());
        unmount(&target).unwrap();
        unmount(&scene.path("source/inner")).unwrap();
    });
}

#[test]
fn a_recursive_read_only_bind_refuses_writes_below_too() {
    in_private_namespace(|scene| {
        nested_source(scene);
        let target = scene.mount_point("target");
        let options = BindOptions { recursive: true, read_only: true };
        bind::mount(&scene.resolve("source"), options, &target, limit()).unwrap();
        assert_eq!(fs::read_to_string(target.join("inner/file")).unwrap(), "inner");
        for directory in [target.clone(), target.join("inner")] {
            assert_eq!(write_error(&directory), READ_ONLY_FILE_SYSTEM);
        }
        assert!(mount_table::below(&target).unwrap()[0].is_read_only());
        assert_eq!(write_error(&scene.path("source/inner")), None);
        assert_eq!(unmount(&target), Err(Error::Busy(format!("{} is in use", target.display()))));
        let recursive = UnmountOptions { recursive: true, lazy: false };
        mount_point::unmount(&target, recursive, limit()).unwrap();
        unmount(&scene.path("source/inner")).unwrap();
    });
}

#[test]
fn mounts_made_later_are_not_shared_with_the_source() {
    in_private_namespace(|scene| {
        let source = scene.mount_point("source");
        mount_tmpfs(&source);
        let shared = rustix::mount::MountPropagationFlags::SHARED;
        rustix::mount::mount_change(&source, shared).unwrap();
        fs::create_dir(source.join("inner")).unwrap();
        let target = scene.mount_point("target");
        bind::mount(&scene.resolve("source"), BindOptions::default(), &target, limit()).unwrap();
        mount_tmpfs(&target.join("inner"));
        assert_eq!(mount_table::below(&source).unwrap(), []);
        for mounted in [target.join("inner"), target, source] {
            unmount(&mounted).unwrap();
        }
    });
}

#[test]
fn d10_a_bind_from_the_same_file_system_is_known_as_a_mount_point() {
    in_private_namespace(|scene| {
        scene.mount_point("source");
        let target = scene.mount_point("target");
        assert!(!mount_point::is_mounted(&target).unwrap());
        bind::mount(&scene.resolve("source"), BindOptions::default(), &target, limit()).unwrap();
        assert!(mount_point::is_mounted(&target).unwrap());
        assert_eq!(
            mount_point::remove(&target),
            Err(Error::Busy(format!("{} is a mount point", target.display())))
        );
        unmount(&target).unwrap();
        assert!(!mount_point::is_mounted(&target).unwrap());
        mount_point::remove(&target).unwrap();
        mount_point::remove(&target).unwrap();
        assert!(!mount_point::is_mounted(&target).unwrap());
        unmount(&target).unwrap();
    });
}

#[test]
fn d9_a_link_in_an_image_cannot_bind_a_directory_of_the_host() {
    in_private_namespace(|scene| {
        fs::create_dir_all(scene.path("image/etc")).unwrap();
        fs::write(scene.path("image/etc/passwd"), "of the image").unwrap();
        symlink("/etc", scene.path("image/link")).unwrap();
        symlink("../../../../../../etc", scene.path("image/climbing")).unwrap();
        let target = scene.mount_point("target");
        for path in ["link", "climbing", "/link", "etc"] {
            let source = resolve_below(&scene.path("image"), path);
            bind::mount(&source, READ_ONLY, &target, limit()).unwrap();
            assert_eq!(
                fs::read_to_string(target.join("passwd")).unwrap(),
                "of the image",
                "{path}"
            );
            unmount(&target).unwrap();
        }
        let climbing = paths::resolve_below(&scene.path("image"), Path::new("../../etc"), limit());
        assert!(matches!(climbing, Err(Error::Invalid(_))));
    });
}

#[test]
fn a_file_cannot_be_bound() {
    in_private_namespace(|scene| {
        fs::write(scene.path("file"), "").unwrap();
        let target = scene.mount_point("target");
        let result = bind::mount(&scene.resolve("file"), READ_ONLY, &target, limit());
        assert_eq!(result, Err(Error::Invalid("file is not a directory".into())));
    });
}

#[test]
fn d12_a_mount_in_use_is_busy_and_stays_unless_it_is_unmounted_lazily() {
    in_private_namespace(|scene| {
        let target = scene.mount_point("target");
        mount_tmpfs(&target);
        fs::write(target.join("file"), "open").unwrap();
        let open = fs::File::open(target.join("file")).unwrap();
        assert_eq!(unmount(&target), Err(Error::Busy(format!("{} is in use", target.display()))));
        assert!(mount_point::is_mounted(&target).unwrap());
        let lazy = UnmountOptions { recursive: false, lazy: true };
        mount_point::unmount(&target, lazy, limit()).unwrap();
        assert!(!mount_point::is_mounted(&target).unwrap());
        assert_eq!(std::io::read_to_string(open).unwrap(), "open");
    });
}

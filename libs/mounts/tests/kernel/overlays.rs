//! Overlays.

use std::{fs, path::PathBuf};

use mounts::{
    Error, mount_table,
    overlay::{self, Overlay},
};

use crate::scene::{Scene, in_private_namespace, limit, unmount};

/// Makes lower directories, each with a file `name` that tells which one it is, and a file of its own.
fn overlay_of(scene: &Scene, lower: &[&str]) -> Overlay {
    let make = |name: &&str| -> PathBuf {
        let directory = scene.path(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("name"), name).unwrap();
        fs::write(directory.join(format!("only-{}", name.len())), "").unwrap();
        directory
    };
    let lower = lower.iter().map(make).collect();
    Overlay { lower, upper: scene.path("upper"), work: scene.path("work") }
}

#[test]
fn the_first_lower_directory_is_the_topmost_and_writes_go_to_the_upper_one() {
    in_private_namespace(|scene| {
        let overlay = overlay_of(scene, &["a", "bb", "ccc"]);
        let target = scene.mount_point("target");
        overlay::mount(&overlay, &target, limit()).unwrap();
        assert_eq!(fs::read_to_string(target.join("name")).unwrap(), "a");
        for file in ["only-1", "only-2", "only-3"] {
            assert!(target.join(file).exists(), "{file}");
        }
        fs::write(target.join("name"), "changed").unwrap();
        assert_eq!(fs::read_to_string(overlay.upper.join("name")).unwrap(), "changed");
        assert_eq!(fs::read_to_string(overlay.lower[0].join("name")).unwrap(), "a");
        let mounted = mount_table::below(scene.path("").as_path()).unwrap();
        assert_eq!(
            (mounted[0].fs_type.as_str(), mounted[0].source.to_str()),
            ("overlay", Some("overlay"))
        );
        unmount(&target).unwrap();
        overlay::remove_directories(&overlay).unwrap();
        assert!(!overlay.upper.exists() && !overlay.work.exists());
        overlay::remove_directories(&overlay).unwrap();
    });
}

#[test]
fn names_with_separators_and_names_longer_than_a_value_can_be_work() {
    in_private_namespace(|scene| {
        // Five directories below each other: longer than 255 bytes, so that all names go into one string.
        let long =
            ["d".repeat(60), "e".repeat(60), "f".repeat(60), "g".repeat(60), "h,i:j\\k".into()]
                .join("/");
        for lower in [["co:lon", "com,ma"], [long.as_str(), "co:lon"]] {
            let overlay = overlay_of(scene, &lower);
            let target = scene.mount_point("target");
            overlay::mount(&overlay, &target, limit()).unwrap();
            assert_eq!(fs::read_to_string(target.join("name")).unwrap(), lower[0]);
            assert!(target.join(format!("only-{}", lower[1].len())).exists());
            unmount(&target).unwrap();
            overlay::remove_directories(&overlay).unwrap();
            fs::remove_dir(target).unwrap();
        }
    });
}

#[test]
fn sixty_four_lower_directories_are_mounted() {
    in_private_namespace(|scene| {
        let names: Vec<_> = (0..64).map(|number| format!("lower-{number:0>40}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let overlay = overlay_of(scene, &names);
        let target = scene.mount_point("target");
        overlay::mount(&overlay, &target, limit()).unwrap();
        assert_eq!(fs::read_to_string(target.join("name")).unwrap(), names[0]);
        unmount(&target).unwrap();
        overlay::remove_directories(&overlay).unwrap();
    });
}

#[test]
fn a_failed_overlay_leaves_no_directories() {
    in_private_namespace(|scene| {
        let mut overlay = overlay_of(scene, &["a"]);
        overlay.lower.push(scene.path("missing"));
        let target = scene.mount_point("target");
        let error = overlay::mount(&overlay, &target, limit()).unwrap_err();
        assert!(matches!(error, Error::Failed { errno: Some(_), .. }), "{error}");
        assert!(!overlay.upper.exists() && !overlay.work.exists());
    });
}

#[test]
fn directories_of_others_are_neither_used_nor_removed() {
    in_private_namespace(|scene| {
        let overlay = overlay_of(scene, &["a"]);
        fs::create_dir(&overlay.work).unwrap();
        let target = scene.mount_point("target");
        let error = overlay::mount(&overlay, &target, limit()).unwrap_err();
        assert!(matches!(error, Error::Failed { errno: Some(17), .. }), "{error}");
        assert!(!overlay.upper.exists() && overlay.work.exists());
    });
}

use std::time::SystemTime;

use tinwright::hardware::v1 as hw;
use tinwright::image::v1::ImageSignature;

use super::*;
use crate::create::{Error, Parts, new_workflow};

fn image() -> Image {
    Image {
        id: "11111111-1111-4111-8111-111111111111".into(),
        name: "debian-12".into(),
        kind: ImageKind::Disk.into(),
        size_bytes: 2 * GIB,
        sha256: "a".repeat(64),
        stored_sha256: "b".repeat(64),
        map_sha256: "c".repeat(64),
        signatures: ["one\n", "two\n"].map(signature_of).into(),
        properties: Some(ImageProperties {
            boots_bios: true,
            uefi_architectures: vec!["x86_64".into()],
            root_partition: 1,
            root_file_system: "ext4".into(),
            has_cloud_init: true,
            ..ImageProperties::default()
        }),
        ..Image::default()
    }
}

fn signature_of(text: &str) -> ImageSignature {
    ImageSignature { text: text.into(), ..ImageSignature::default() }
}

fn machine(disk_bytes: u64, mode: FirmwareMode) -> Hardware {
    let disk = hw::InventoryDisk {
        name: "sda".into(),
        size_bytes: disk_bytes,
        by_id: vec!["/dev/disk/by-id/scsi-SA1".into()],
        ..hw::InventoryDisk::default()
    };
    let inventory =
        Inventory { disks: vec![disk], firmware_mode: mode.into(), ..Inventory::default() };
    let interface = hw::Interface { mac: "02:00:00:00:00:07".into(), ..hw::Interface::default() };
    Hardware {
        id: tinwright::HardwareId::new().to_string(),
        interfaces: vec![interface],
        inventory: Some(Box::new(inventory)),
        ..Hardware::default()
    }
}

fn created(image: Image, machine: Hardware, data: &str) -> Result<pb::Workflow, Error> {
    let template = pb::Template { data: data.into(), ..pb::Template::default() };
    let request = pb::CreateWorkflowRequest { image_id: image.id.clone(), ..Default::default() };
    let parts = Parts { template, machine, image: Some(image) };
    new_workflow(&request, &parts, SystemTime::UNIX_EPOCH)
}

fn environment(action: &pb::Action) -> Vec<&str> {
    action.environment.iter().map(String::as_str).collect()
}

#[test]
fn without_a_template_the_root_disk_gets_the_image_and_cloud_init_its_data_source() {
    let workflow = created(image(), machine(4 * GIB, FirmwareMode::Uefi), "").unwrap();
    let [write, setting, restart] = workflow.actions.as_slice() else { panic!("{workflow:?}") };
    let (file, map) = ("b".repeat(64), "c".repeat(64));
    let expected = [
        "COMPRESSED=true".to_owned(),
        "DEST_DISK=/dev/disk/by-id/scsi-SA1".to_owned(),
        format!("IMG_MAP=/images/{file}.map"),
        format!("IMG_MAP_SHA256={map}"),
        "IMG_NAME=debian-12".to_owned(),
        format!("IMG_SHA256=sha256:{file}"),
        format!("IMG_SIGNATURE={}", BASE64.encode("one\ntwo\n")),
        format!("IMG_URL=/images/{file}.raw.zst"),
    ];
    assert_eq!(environment(write), expected);
    assert!(environment(setting).contains(&"DEST_DISK=/dev/disk/by-id/scsi-SA1-part1"));
    assert_eq!(restart.image, "reboot");
    assert_eq!(workflow.template_name, "image");
    assert_eq!(workflow.image.unwrap().stored_sha256, file);
}

#[test]
fn cloud_init_is_left_alone_where_the_image_says_so_or_has_none() {
    let without = |change: fn(&mut ImageProperties)| {
        let mut image = image();
        change(image.properties.as_mut().unwrap());
        image
    };
    for image in [
        Image { keep_data_source: true, ..image() },
        without(|properties| properties.has_cloud_init = false),
        without(|properties| properties.root_file_system = "btrfs".into()),
    ] {
        let workflow = created(image, machine(4 * GIB, FirmwareMode::Uefi), "").unwrap();
        let images: Vec<_> = workflow.actions.iter().map(|it| it.image.as_str()).collect();
        assert_eq!(images, ["image2disk", "reboot"]);
    }
}

#[test]
fn a_machine_that_was_not_seen_yet_gets_the_first_disk_of_its_record() {
    let mut machine = machine(0, FirmwareMode::Unspecified);
    machine.inventory = None;
    let refused = created(image(), machine.clone(), "").unwrap_err();
    assert!(matches!(refused, Error::RootDisk { .. }), "{refused}");
    machine.disks = vec![hw::Disk { device: "/dev/vda".into() }];
    let workflow = created(image(), machine, "").unwrap();
    assert!(environment(&workflow.actions[0]).contains(&"DEST_DISK=/dev/vda"));
    assert!(environment(&workflow.actions[1]).contains(&"DEST_DISK=/dev/vda1"));
}

#[test]
fn an_image_that_is_larger_than_the_disk_is_refused_with_both_sizes() {
    let refused = created(image(), machine(GIB, FirmwareMode::Uefi), "").unwrap_err();
    let text = "image debian-12 is a disk of 2.0 GiB, and /dev/disk/by-id/scsi-SA1 has 1.0 GiB: \
                choose a larger one";
    assert_eq!(refused.to_string(), text);
}

#[test]
fn the_firmware_has_to_find_a_boot_loader() {
    let boots = |bios, uefi: &[&str]| {
        let mut image = image();
        let properties = image.properties.as_mut().unwrap();
        properties.boots_bios = bios;
        properties.uefi_architectures = uefi.iter().map(|it| (*it).to_owned()).collect();
        image
    };
    let reason = |image, mode| match created(image, machine(4 * GIB, mode), "") {
        Ok(_) => "",
        Err(Error::Image(error)) => error.reason(),
        Err(error) => panic!("{error}"),
    };
    let (both, none) = (boots(true, &["x86_64"]), boots(false, &[]));
    for (image, mode, expected) in [
        (both.clone(), FirmwareMode::Bios, ""),
        (both, FirmwareMode::Uefi, ""),
        (boots(true, &[]), FirmwareMode::Uefi, "FIRMWARE_MODE"),
        (boots(false, &["x86_64"]), FirmwareMode::Bios, "FIRMWARE_MODE"),
        (boots(true, &[]), FirmwareMode::Unspecified, ""),
        (none, FirmwareMode::Unspecified, "FIRMWARE_MODE"),
    ] {
        assert_eq!(reason(image, mode), expected);
    }
}

#[test]
fn the_boot_loader_has_to_be_for_the_processor() {
    let refused = |bios, loaders: &[&str], mode, reported: &str| {
        let mut image = image();
        let properties = image.properties.as_mut().unwrap();
        properties.boots_bios = bios;
        properties.uefi_architectures = loaders.iter().map(|it| (*it).to_owned()).collect();
        let mut machine = Hardware { architecture: "x86_64".into(), ..machine(4 * GIB, mode) };
        machine.inventory.as_mut().unwrap().architecture = reported.into();
        created(image, machine, "").err().map(|error| error.to_string())
    };
    let text = |text: &str| Some(format!("image debian-12 does not boot {text}"));
    let (x86, arm, seen) = ("x86_64", "aarch64", FirmwareMode::Uefi);
    assert_eq!(refused(false, &[arm, x86], seen, x86), None);
    assert_eq!(refused(false, &[arm, x86], seen, arm), None);
    let other = text("on aarch64: its boot loaders are for x86_64, legacy BIOS");
    for mode in [seen, FirmwareMode::Unspecified] {
        assert_eq!(refused(true, &[x86], mode, arm), other, "not seen: ARM has no BIOS");
    }
    let other = text("on x86_64: its boot loaders are for aarch64");
    assert_eq!(refused(false, &[arm], seen, ""), other, "as the record says");
    assert_eq!(refused(false, &[arm], FirmwareMode::Unspecified, x86), other);
    assert_eq!(refused(true, &[arm], FirmwareMode::Unspecified, x86), None, "it may have a BIOS");
    assert_eq!(refused(true, &[arm], FirmwareMode::Bios, x86), None);
}

#[test]
fn a_template_gets_the_image_and_an_archive_needs_one() {
    let data = r#"
version: "0.1"
name: own
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions:
  - {name: write, image: archive2disk, environment: {ARCHIVE_URL: "{{ .image.url }}", TARFILE_CHECKSUM: "{{ .image.file_sha256 }}", ARCHIVE_TYPE: tar, DEST_DISK: /dev/sda1}}
"#;
    let archive = Image { kind: ImageKind::Archive.into(), map_sha256: String::new(), ..image() };
    let fitting = || machine(4 * GIB, FirmwareMode::Uefi);
    let workflow = created(archive.clone(), fitting(), data).unwrap();
    let url = format!("ARCHIVE_URL=/images/{}.raw.zst", "b".repeat(64));
    assert!(environment(&workflow.actions[0]).contains(&url.as_str()));
    let refused = created(archive, fitting(), "").unwrap_err();
    assert!(refused.to_string().contains("a template has to extract it"), "{refused}");
}

//! Builds with small fake kernels, and a boot with a real one.

mod boot;

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::*;
use crate::failure;

/// The files of a kernel package with a module to include and another one.
const KERNEL: &[(&str, &str)] = &[
    ("boot/vmlinuz-7", "the kernel"),
    ("lib/modules/7/kernel/virtio_net.ko", "a module"),
    ("lib/modules/7/kernel/floppy.ko", "another"),
    ("lib/modules/7/modules.dep", "kernel/floppy.ko:\nkernel/virtio_net.ko:\n"),
    ("lib/modules/7/modules.alias", "alias virtio:d00000001v* virtio_net\n"),
    ("lib/modules/7/modules.softdep", ""),
    ("lib/modules/7/modules.builtin", "kernel/ext4.ko\n"),
];

/// Writes `files` into `root`, last changed at `time`.
fn lay_out<'a>(root: &Path, files: impl Iterator<Item = &'a (&'a str, &'a str)>, time: SystemTime) {
    for (path, content) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::File::open(path).unwrap().set_modified(time).unwrap();
    }
}

/// Runs `tinwright osie build` with `--output` and these options.
fn build(output: &Path, options: &[(&str, &Path)]) -> anyhow::Result<()> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: OsieCommand,
    }
    let output = [("--output", output)];
    let options =
        output.iter().chain(options).flat_map(|(flag, path)| [(*flag).into(), path.into()]);
    let words = ["osie", "build"].map(PathBuf::from).into_iter().chain(options);
    run(<Line as clap::Parser>::parse_from(words).command)
}

/// Returns kernel and initramfs of a build from `files`, last changed at `time`.
fn built<'a>(
    files: impl Iterator<Item = &'a (&'a str, &'a str)>,
    time: SystemTime,
) -> [Vec<u8>; 2] {
    let place = tempfile::tempdir().unwrap();
    let (root, worker) = (place.path().join("root"), place.path().join("worker"));
    lay_out(&root, files, time);
    lay_out(place.path(), [("worker", "#!/bin/sh\n")].iter(), time);
    let output = place.path().join("new/output");
    build(&output, &[("--kernel-root", &root), ("--worker", &worker)]).unwrap();
    ["vmlinuz-x86_64", "initramfs-x86_64"].map(|name| std::fs::read(output.join(name)).unwrap())
}

#[test]
fn the_same_inputs_give_the_same_bytes_elsewhere_and_later() {
    let now = SystemTime::now();
    let one = built(KERNEL.iter(), now);
    let other = built(KERNEL.iter().rev(), now - Duration::from_secs(1_000_000));
    assert!(one == other);
    assert_eq!(one[0], b"the kernel");
}

#[test]
fn only_modules_of_the_groups_are_in_the_image() {
    let [_, initramfs] = built(KERNEL.iter(), SystemTime::now());
    let unpacked = zstd::decode_all(initramfs.as_slice()).unwrap();
    let holds = |text: &str| unpacked.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(holds("lib/modules/7/kernel/virtio_net.ko\0"));
    assert!(!holds("kernel/floppy.ko"));
}

/// Returns the error of a build with this worker and this busybox, in one line.
fn refused(worker: &str, busybox: &str) -> String {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path(), KERNEL.iter(), SystemTime::now());
    let kernel = Kernel::at(root.path()).unwrap();
    let none = root.path().join("none");
    let inputs = Inputs {
        flavour: Flavour::Install,
        kernel,
        program: worker.into(),
        busybox: busybox.into(),
        authorities: none.clone(),
        mke2fs: none.clone(),
        open_iscsi: none,
        image_keys: String::new(),
    };
    failure::line(&inputs.initramfs().unwrap_err())
}

#[test]
fn programs_that_cannot_run_on_the_machine_are_refused() {
    let error = "worker /bin/bash needs a loader and libraries: give one that is linked statically";
    assert_eq!(refused("/bin/bash", "/bin/busybox"), error);
    let error = "/nowhere is missing: install busybox-static";
    assert_eq!(refused("/bin/busybox", "/nowhere"), error);
    let error = "/bin/bash needs a loader and libraries: install busybox-static";
    assert_eq!(refused("/bin/busybox", "/bin/bash"), error);
}

#[test]
fn keys_of_images_are_in_the_image_and_others_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    lay_out(&path("root"), KERNEL.iter(), SystemTime::now());
    let key = "RWRtR5I6gJhlWUJEZQxK9EgQ8142Fq4V9su8H3EToWnoflmVuVQbwNcP";
    let other = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    let text = |key: &str| format!("untrusted comment: minisign public key\n{key}");
    std::fs::write(path("a.pub"), text(key)).unwrap();
    std::fs::write(path("b.pub"), text(other) + "\n").unwrap();
    let (root, a, b) = (path("root"), path("a.pub"), path("b.pub"));
    let worker = Path::new("/bin/busybox");
    let options = [("--kernel-root", &*root), ("--worker", worker), ("--image-key", &a)];
    build(&path("out"), &[&options[..], &[("--image-key", &b)]].concat()).unwrap();
    let packed = std::fs::read(path("out/initramfs-x86_64")).unwrap();
    let unpacked = zstd::decode_all(packed.as_slice()).unwrap();
    let holds = |text: &str| unpacked.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(holds("etc/tinwright/image-keys\0"));
    assert!(holds(&format!("{}\n{}\n", text(key), text(other))));
    let options = [("--kernel-root", &*root), ("--worker", worker), ("--image-key", worker)];
    assert!(build(&path("out"), &options).is_err());
    let node = Path::new("node");
    let options = [("--flavour", node), ("--node-agent", worker), ("--image-key", &*a)];
    let options = [&options[..], &[("--kernel-root", &*root)]].concat();
    let error = failure::line(&build(&path("out"), &options).unwrap_err());
    assert_eq!(error, "--image-key: nodes install no images");
}

#[test]
fn a_missing_worker_is_named() {
    let error = "cannot read /nowhere: No such file or directory (os error 2)";
    assert_eq!(refused("/nowhere", "/bin/busybox"), error);
}

#[test]
fn an_image_for_nodes_has_the_node_agent_its_modules_and_open_iscsi_beside_the_other_image() {
    let place = tempfile::tempdir().unwrap();
    let (root, agent) = (place.path().join("root"), place.path().join("agent"));
    let dep = "kernel/floppy.ko:\nkernel/rbd.ko:\nkernel/virtio_net.ko:\n";
    let files = KERNEL.iter().filter(|(path, _)| !path.ends_with("modules.dep"));
    let more = [("lib/modules/7/modules.dep", dep), ("lib/modules/7/kernel/rbd.ko", "rbd")];
    lay_out(&root, files.chain(&more), SystemTime::now());
    std::fs::write(&agent, "the agent").unwrap();
    let (output, node) = (place.path().join("output"), Path::new("node"));
    let options: [(&str, &Path); 3] =
        [("--kernel-root", &root), ("--flavour", node), ("--node-agent", &agent)];
    build(&output, &options).unwrap();
    build(&output, &[("--kernel-root", &root), ("--worker", &agent)]).unwrap();
    let [node, install] = ["initramfs-node-x86_64", "initramfs-x86_64"].map(|name| {
        let packed = std::fs::read(output.join(name)).unwrap();
        zstd::decode_all(packed.as_slice()).unwrap()
    });
    let holds = |tree: &[u8], text: &str| tree.windows(text.len()).any(|it| it == text.as_bytes());
    for file in ["bin/tinwright-node\0", "etc/node.sh\0", "sbin/iscsid\0", "kernel/rbd.ko\0"] {
        assert!(holds(&node, file) && !holds(&install, file), "{file}");
    }
    assert!(holds(&install, "bin/tinwright-worker\0") && !holds(&node, "tinwright-worker\0"));
    assert!(holds(&node, "kernel/virtio_net.ko\0") && !holds(&node, "kernel/floppy.ko\0"));
    assert_eq!(std::fs::read(output.join("vmlinuz-node-x86_64")).unwrap(), b"the kernel");
}

#[test]
fn a_worker_is_refused_for_an_image_of_nodes() {
    let place = tempfile::tempdir().unwrap();
    let options: [(&str, &Path); 2] =
        [("--flavour", Path::new("node")), ("--worker", Path::new("/bin/busybox"))];
    let error = failure::line(&build(place.path(), &options).unwrap_err());
    assert_eq!(error, "an image of this flavour has another program: give --node-agent");
}

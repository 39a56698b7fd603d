//! The container as seen from inside.

use std::collections::BTreeMap;
use std::fs::{self, File};

use containers::{End, Namespaces, Spec};
use nix::sys::signal::SigSet;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::host::{Host, on_host};

const STAT: &str = "/bin/stat -c \"%n %F %a %t:%T\" /dev/null /dev/zero /dev/full /dev/tty /dev/random /dev/urandom /dev/pts/ptmx";

/// The type and the options of each mount point.
fn mounts(text: &str) -> BTreeMap<String, (String, String)> {
    let fields = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields
        .map(|fields| (fields[1].to_owned(), (fields[2].to_owned(), fields[3].to_owned())))
        .collect()
}

/// Checks the mounts of `spec` against `expected`: the target, the type, and options that must be there.
async fn check_mounts(host: &Host, spec: Spec, expected: &[(&str, &str, &str)]) {
    let text = host.run(&spec).await.1;
    let found = mounts(&text);
    assert_eq!(text.lines().count(), found.len(), "{text}");
    let targets: Vec<&str> = found.keys().map(String::as_str).collect();
    let mut expected_targets: Vec<&str> =
        expected.iter().map(|(target, _, _)| *target).chain(["/"]).collect();
    expected_targets.sort_unstable();
    assert_eq!(targets, expected_targets);
    for (target, kind, options) in expected {
        let (found_kind, found_options) = &found[*target];
        assert_eq!(found_kind, kind, "{target}");
        let has = |option: &str| found_options.split(',').any(|found| found == option);
        assert!(options.split(',').all(has), "{target}: {found_options}");
        let without =
            |option: &str| options.split(',').any(|expected| expected == option) || !has(option);
        assert!(
            ["ro", "noexec", "nosuid", "nodev"].into_iter().all(without),
            "{target}: {found_options}"
        );
    }
}

const ALWAYS: [(&str, &str, &str); 6] = [
    ("/proc", "proc", "noexec,nosuid,nodev"),
    ("/dev", "tmpfs", "noexec"),
    ("/dev/shm", "tmpfs", "noexec,nosuid,nodev"),
    ("/dev/mqueue", "mqueue", "noexec,nosuid,nodev"),
    ("/dev/pts", "devpts", "noexec,nosuid,gid=5,mode=620,ptmxmode=666"),
    ("/sys", "sysfs", "noexec,nosuid,nodev,ro"),
];

#[test]
fn only_the_mounts_of_the_container_are_there_and_the_old_root_is_not() {
    on_host(async |host| {
        fs::write(host.root.join("secret"), "of the host").unwrap();
        check_mounts(host, host.spec("/bin/cat /proc/self/mounts"), &ALWAYS).await;
        let (_, output) =
            host.run(&host.spec("/bin/ls / /.. /proc/1/root /proc/1/cwd /proc/1/root/..")).await;
        let lists: Vec<&str> = output
            .split("\n\n")
            .filter_map(|list| list.split_once(":\n"))
            .map(|(_, list)| list.trim())
            .collect();
        assert_eq!(lists, ["bin\ndev\nproc\nsys"; 5]);
    });
}

#[test]
fn systemd_has_more_mounts_and_is_told_of_the_container() {
    on_host(async |host| {
        let more = [
            ("/run", "tmpfs", "nosuid,nodev"),
            ("/tmp", "tmpfs", "nosuid,nodev"),
            ("/sys/fs/cgroup", "tmpfs", "nosuid,nodev"),
            ("/var/lib/journal", "tmpfs", "nosuid,nodev"),
        ];
        let systemd = |command| Spec { systemd: true, ..host.spec(command) };
        check_mounts(host, systemd("/bin/cat /proc/self/mounts"), &[&ALWAYS[..], &more].concat())
            .await;
        assert_eq!(host.run(&systemd("/bin/cat /proc/1/environ")).await.1, "container=other\0\n");
        assert_eq!(host.run(&host.spec("/bin/cat /proc/1/environ")).await.1, "");
    });
}

#[test]
fn what_the_image_has_mounted_on_these_directories_is_hidden() {
    on_host(async |host| {
        fs::create_dir_all(host.image("dev")).unwrap();
        fs::write(host.image("dev/secret"), "").unwrap();
        let (_, output) = host.run(&host.spec("/bin/ls /dev")).await;
        assert!(!output.contains("secret") && output.contains("urandom"), "{output}");
        assert!(host.image("dev/secret").exists());
    });
}

#[test]
fn devices_and_links_are_as_the_contract_has_them() {
    on_host(async |host| {
        let (_, output) = host.run(&host.spec(STAT)).await;
        let device =
            |name: &str, number: &str| format!("{name} character special file 666 {number}\n");
        let devices = [
            ("null", "1:3"),
            ("zero", "1:5"),
            ("full", "1:7"),
            ("tty", "5:0"),
            ("random", "1:8"),
            ("urandom", "1:9"),
        ];
        let mut expected: String =
            devices.map(|(name, number)| device(&format!("/dev/{name}"), number)).concat();
        expected += &device("/dev/pts/ptmx", "5:2");
        assert_eq!(output, expected);
        host.script(
            "links",
            "#!/bin/sh\nfor l in ptmx fd stdin stdout stderr; do readlink /dev/$l; done\n",
        );
        let links =
            "/dev/pts/ptmx\n/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\n";
        assert_eq!(host.run(&host.spec("/links")).await.1, links);
    });
}

#[test]
fn no_descriptor_signal_setting_or_session_of_the_daemon_is_inherited() {
    on_host(async |host| {
        let inherited = File::create(host.root.join("secret")).unwrap();
        fcntl_setfd(&inherited, FdFlags::empty()).unwrap();
        SigSet::all().thread_block().unwrap();
        let (_, output) = host.run(&host.spec("/bin/ls -l /proc/self/fd")).await;
        let targets: Vec<&str> = output
            .lines()
            .filter_map(|line| line.split_once(" -> "))
            .map(|(_, target)| target)
            .collect();
        // The fourth is the directory that is being listed, which is closed by the time its target is read.
        let expected = matches!(&targets[..], ["/dev/null", out, err] if out.starts_with("pipe:") && out == err);
        assert!(expected, "{output}");
        let (_, names) = host.run(&host.spec("/bin/ls /proc/self/fd")).await;
        assert_eq!(names, "0\n1\n2\n3\n");
        let (_, status) = host.run(&host.spec("/bin/grep ^Sig[BIC] /proc/self/status")).await;
        let values = status.lines().filter_map(|line| line.split_once(":\t"));
        let values = values.map(|(_, value)| u64::from_str_radix(value, 16).unwrap());
        // Signals 32 and 33 are the C library's own: no program can set them, and whoever runs this test may ignore them.
        let values: Vec<_> = values.map(|value| value & !(0b11 << 31)).collect();
        assert_eq!(values, [0; 3], "{status}");
        // Process id, parent, group, session, and no terminal.
        let (_, stat) = host.run(&host.spec("/bin/cat /proc/self/stat")).await;
        assert!(stat.starts_with("1 (cat) R 0 1 1 0 "), "{stat}");
    });
}

/// The namespaces of a container with `namespaces` that are not those of this test.
async fn own_namespaces(host: &Host, namespaces: Namespaces) -> Vec<&'static str> {
    const KINDS: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];
    host.script("show", "#!/bin/sh\nfor n in cgroup ipc mnt net pid time user uts; do readlink /proc/1/ns/$n; done\n");
    let (_, output) = host.run(&Spec { namespaces, ..host.spec("/show") }).await;
    let host_link = |kind: &str| fs::read_link(format!("/proc/thread-self/ns/{kind}")).unwrap();
    let pairs = KINDS.into_iter().zip(output.lines().map(str::to_owned).collect::<Vec<_>>());
    pairs
        .filter(|(kind, link)| host_link(kind).to_str() != Some(link))
        .map(|(kind, _)| kind)
        .collect()
}

#[test]
fn a_container_has_four_namespaces_and_those_that_are_asked_for() {
    on_host(async |host| {
        assert_eq!(own_namespaces(host, Namespaces::default()).await, ["ipc", "mnt", "pid", "uts"]);
        let all = Namespaces { net: true, cgroup: true, time: true, user: true };
        assert_eq!(own_namespaces(host, all).await.len(), 8);
    });
}

#[test]
fn a_network_and_a_cgroup_namespace_show_nothing_of_the_host() {
    on_host(async |host| {
        let namespaces = Namespaces { net: true, cgroup: true, ..Namespaces::default() };
        let (_, output) =
            host.run(&Spec { namespaces, ..host.spec("/bin/ls /sys/class/net") }).await;
        assert_eq!(output, "lo\n");
        let (_, output) =
            host.run(&Spec { namespaces, ..host.spec("/bin/cat /proc/self/cgroup") }).await;
        let own: Vec<&str> =
            output.lines().filter(|line| line.contains("pids") || line.starts_with("0:")).collect();
        assert!(!own.is_empty() && own.iter().all(|line| line.ends_with(":/")), "{output}");
        let spec = host.spec("/bin/cat /proc/self/cgroup");
        assert!(host.run(&spec).await.1.contains(&spec.cgroup));
    });
}

#[test]
fn root_of_a_user_namespace_has_its_mounts_but_no_devices_and_no_host_name() {
    on_host(async |host| {
        let script = "#!/bin/sh\ncat /proc/self/uid_map\nmkdir /x\nmknod /n c 1 3 2>/dev/null || echo no device\n\
            hostname other 2>/dev/null || echo no name\nmount -t tmpfs t /x && echo mounted\necho > /dev/null && exit 7\n";
        host.script("try", script);
        let namespaces = Namespaces { user: true, ..Namespaces::default() };
        let (outcome, output) = host.run(&Spec { namespaces, ..host.spec("/try") }).await;
        let lines: Vec<&str> = output.lines().map(str::trim).collect();
        assert_eq!(lines[1..], ["no device", "no name", "mounted"], "{output}");
        assert_eq!(lines[0].split_ascii_whitespace().collect::<Vec<_>>(), ["0", "0", "4294967295"]);
        assert_eq!(outcome.end, End::Exited(7));
    });
}

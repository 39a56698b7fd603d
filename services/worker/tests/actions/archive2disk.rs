//! Extracts tars of GNU tar into real file systems, and compares the result with GNU tar.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use tempfile::TempDir;
use worker::{ActionOutcome, Builtin};

use crate::disk::{LoopDisk, Mounted, sh};
use crate::file_server::{FileServer, Reply};
use crate::image2disk::{noise, packed};
use crate::{context, environment, reason, run};

/// A capability to open raw sockets, as `setcap cap_net_raw+ep` stores it (capabilities(7)).
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A user attribute with a newline, an equal sign and a zero byte, which are all allowed.
const VALUE: &[u8] = b"one=1\n\0two";

/// Creates a tree with every kind of entry that a tar can hold.
fn tree() -> TempDir {
    let tree = TempDir::new().unwrap();
    let long = "long/".to_owned() + &"d".repeat(120) + "/" + &"f".repeat(120);
    sh(&format!(
        "cd {} && umask 022 && mkdir -p bin etc empty dev run 'with space' \"$(dirname {long})\"
        echo long > {long}; echo hello > etc/hello; : > etc/nothing; echo é > 'with space/naïve'
        cp /bin/true bin/su; chown 12:34 bin/su; chmod 6755 bin/su; cp /bin/true bin/ping
        chmod 4000 etc/nothing; chown 4000000:4000001 etc/hello; chmod 1777 empty; chmod 700 etc
        ln bin/ping bin/ping6; ln -s ../etc/hello bin/hello; ln -s /etc/hello absolute; ln -s nowhere dangling
        chown -h 7:8 bin/hello; ln dangling dangling2
        mknod dev/null c 1 3; chmod 666 dev/null; mknod dev/sda b 8 0; chown 0:6 dev/sda; mkfifo -m 640 run/pipe
        truncate -s 3M sparse; printf middle | dd of=sparse bs=1 seek=1000000 conv=notrunc status=none
        touch -h -d '2001-02-03 04:05:06.789' bin/hello etc/hello empty run/pipe
        touch -d '1969-12-31 23:59:58.5 UTC' etc/nothing
        touch -d '2010-01-01' etc . long",
        tree.path().display()
    ));
    let set = |path: &str, name: &str, value: &[u8]| {
        setxattr(tree.path().join(path), name, value, XattrFlags::empty()).unwrap();
    };
    set("bin/ping", "security.capability", &CAPABILITY);
    set("etc/hello", "user.note", VALUE);
    set("empty", "user.note", VALUE);
    tree
}

/// Packs `tree` with GNU tar and `options`.
fn tar(tree: &Path, options: &str) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (path, tree) = (file.path().display(), tree.display());
    sh(&format!("tar --numeric-owner -C {tree} {options} -cf {path} ."));
    fs::read(file.path()).unwrap()
}

/// Returns all attributes of each file below `root`, as `find` prints them.
fn listed(root: &Path) -> String {
    let format = "%P|%y|%m|%U|%G|%s|%n|%l|%T@|";
    // The size of a directory and the entries made by mkfs depend on the file system.
    let filter = "-not -name lost+found";
    let files =
        sh(&format!("cd {} && find . -not -type d {filter} -printf '{format}\\n'", root.display()));
    let format = "%P|%y|%m|%U|%G|%T@|";
    let directories =
        sh(&format!("cd {} && find . -type d {filter} -printf '{format}\\n'", root.display()));
    let mut lines: Vec<_> = files.lines().chain(directories.lines()).collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn attribute(path: &Path, name: &str) -> Vec<u8> {
    let mut value = [0; 64];
    let length = getxattr(path, name, &mut value[..]).unwrap();
    value[..length].to_vec()
}

/// Returns the variables to extract from `url` without a checksum.
fn variables<'a>(url: &'a str, disk: &'a LoopDisk) -> Vec<(&'a str, &'a str)> {
    let unchecked = ("INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION", "true");
    vec![("ARCHIVE_URL", url), ("ARCHIVE_TYPE", "tar"), ("DEST_DISK", &disk.path), unchecked]
}

async fn unpacked(
    tar: Vec<u8>,
    more: &[(&'static str, &'static str)],
) -> (ActionOutcome, LoopDisk) {
    let (server, disk) = (FileServer::serve("root.tar", tar, []).await, LoopDisk::ext4());
    let mut variables = variables(&server.url, &disk);
    variables.extend(more);
    let outcome = run(Builtin::Archive2Disk, &variables).await;
    (outcome, disk)
}

/// Extracts `tar` into an ext4 file system.
async fn filled(tar: Vec<u8>, more: &[(&'static str, &'static str)]) -> (Mounted, LoopDisk) {
    let (outcome, disk) = unpacked(tar, more).await;
    assert_eq!(outcome, ActionOutcome::Success);
    (disk.mounted(), disk)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_attributes_in_a_tar_are_restored() {
    let tree = tree();
    let tar = tar(tree.path(), "--format=posix --xattrs --xattrs-include='*'");
    let (root, _disk) = filled(tar, &[("FS_TYPE", "ext4")]).await;
    assert_eq!(listed(root.path()), listed(tree.path()));
    sh(&format!(
        "diff -r --no-dereference -x run -x dev {} {}/ -x lost+found",
        tree.path().display(),
        root.path().display()
    ));
    assert_eq!(attribute(&root.path().join("bin/ping6"), "security.capability"), CAPABILITY);
    assert_eq!(attribute(&root.path().join("etc/hello"), "user.note"), VALUE);
    assert_eq!(attribute(&root.path().join("empty"), "user.note"), VALUE);
    let numbers = |path: &str| root.path().join(path).metadata().unwrap().rdev();
    assert_eq!((numbers("dev/null"), numbers("dev/sda")), (0x103, 0x800));
    let sparse = root.path().join("sparse").metadata().unwrap();
    assert!(sparse.blocks() * 512 < 200_000, "holes were filled");
}

#[tokio::test(flavor = "multi_thread")]
async fn gnu_tar_finds_no_difference_in_any_format_and_compression() {
    let tree = tree();
    for (options, tool) in [
        ("--format=gnu", "gzip"),
        ("--format=gnu --sparse", "xz"),
        ("--format=posix", "zstd"),
        ("--format=ustar --exclude=./long --exclude=./etc/hello --exclude=./etc/nothing", "bzip2"),
    ] {
        let tar = tar(tree.path(), options);
        let (root, _disk) = filled(packed(tool, &tar), &[]).await;
        let (file, place) = (tempfile::NamedTempFile::new().unwrap(), root.path().display());
        fs::write(&file, tar).unwrap();
        sh(&format!("tar --numeric-owner -C {place} --compare -f {}", file.path().display()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checksum_may_be_of_the_file_the_tar_or_the_tar_without_padding() {
    let tree = TempDir::new().unwrap();
    fs::write(tree.path().join("a"), noise(5000)).unwrap();
    let (whole, bare) = (tar(tree.path(), ""), tar(tree.path(), "--blocking-factor=1"));
    assert!(whole.len() > bare.len() && whole.starts_with(&bare));
    let file = packed("gzip", &whole);
    let sum = |tool: &str, bytes: &[u8]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, bytes).unwrap();
        sh(&format!("{tool}sum < {}", file.path().display())).replace("  -", "")
    };
    let server = FileServer::serve("root.tgz", file.clone(), []).await;
    let disk = LoopDisk::ext4();
    let with_checksum = |sum: String| {
        let sum: &str = sum.leak();
        let place = [("ARCHIVE_URL", server.url.as_str()), ("DEST_DISK", &disk.path)];
        [place[0], place[1], ("ARCHIVE_TYPE", "targz"), ("TARFILE_CHECKSUM", sum)]
    };
    let sums = [&file, &whole, &bare].map(|bytes| sum("sha256", bytes));
    for right in sums
        .iter()
        .map(|sum| format!("sha256:{sum}"))
        .chain([format!("sha512:{}", sum("sha512", &bare))])
    {
        assert_eq!(run(Builtin::Archive2Disk, &with_checksum(right)).await, ActionOutcome::Success);
    }
    let zero = format!("sha256:{}", "0".repeat(64));
    let reason = reason(run(Builtin::Archive2Disk, &with_checksum(zero.clone())).await);
    let [file, tar, bare] = sums;
    let found = format!(
        "the file has sha256:{file}, the tar sha256:{tar}, and without padding sha256:{bare}"
    );
    let url = &server.url;
    assert_eq!(reason, format!("archive2disk: GET {url}: TARFILE_CHECKSUM is {zero}, but {found}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_tar_is_a_failure() {
    let tree = TempDir::new().unwrap();
    for name in ["a", "b"] {
        fs::write(tree.path().join(name), noise(3000)).unwrap();
    }
    let tar = tar(tree.path(), "--blocking-factor=1");
    let end = tar.len() - 1024;
    // In a header, after it, in a file, in its padding, after it, before the end mark, in the end mark.
    for cut in [100, 512, 1024, 2000, 4100, end - 3584, end, end + 100] {
        let (outcome, _disk) = unpacked(tar[..cut].to_vec(), &[]).await;
        let reason = reason(outcome);
        let expected = [
            "archive2disk: the tar is damaged or incomplete: ",
            "archive2disk: the tar is truncated: its end mark is missing",
        ];
        assert!(expected.iter().any(|text| reason.starts_with(text)), "{cut}: {reason}");
    }
    let (outcome, _disk) = unpacked(packed("gzip", &tar)[..2000].to_vec(), &[]).await;
    let reason = reason(outcome);
    assert!(reason.contains(": the file is damaged or incomplete (gzip): "), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_an_end_mark_is_accepted_unless_data_follows() {
    let tree = TempDir::new().unwrap();
    fs::write(tree.path().join("a"), noise(3000)).unwrap();
    let tar = tar(tree.path(), "--blocking-factor=1");
    let half = tar[..tar.len() - 512].to_vec();
    let (root, _disk) = filled(half.clone(), &[]).await;
    assert!(fs::read(root.path().join("a")).unwrap() == noise(3000));
    let (outcome, _disk) = unpacked([half, tar].concat(), &[]).await;
    let why = "the tar is damaged or incomplete: data after its end mark";
    assert_eq!(reason(outcome), format!("archive2disk: {why}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_continues_after_a_disconnect() {
    let tree = TempDir::new().unwrap();
    fs::write(tree.path().join("a"), noise(300_000)).unwrap();
    let cuts = [100_000, 5, 50_000].map(Reply::cut);
    let server = FileServer::serve("root.tar", tar(tree.path(), ""), cuts).await;
    let disk = LoopDisk::ext4();
    assert_eq!(
        run(Builtin::Archive2Disk, &variables(&server.url, &disk)).await,
        ActionOutcome::Success
    );
    assert!(fs::read(disk.mounted().path().join("a")).unwrap() == noise(300_000));
    assert_eq!(server.ranges().len(), 4);
}

/// Returns the tar that the shell commands in `script` write to `$TAR`. They run in a directory with the file `evil` and the
/// directory `dir`.
fn crafted(script: &str) -> Vec<u8> {
    let place = TempDir::new().unwrap();
    sh(&format!(
        "cd {} && export TAR=$PWD/tar && mkdir in && cd in && echo evil > evil && mkdir dir && {script}",
        place.path().display()
    ));
    fs::read(place.path().join("tar")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_outside_of_the_destination_is_refused() {
    for (how, name) in [
        ("tar -P --transform 's,^,../../,' -cf $TAR evil", "../../evil"),
        ("tar -P --transform 's,^,a/../../,' -cf $TAR evil", "a/../../evil"),
        ("ln evil hard && tar -P --transform 's,^evil,../evil,RSh' -cf $TAR evil hard", "../evil"),
    ] {
        let (outcome, _disk) = unpacked(crafted(how), &[]).await;
        let sentence =
            format!("archive2disk: the tar has {name:?}, a path outside of the destination");
        assert_eq!(reason(outcome), sentence, "{how}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn absolute_names_and_links_stay_inside_the_destination() {
    let outside = TempDir::new().unwrap();
    let out = outside.path().display().to_string();
    let tar = crafted(&format!(
        "ln -s {out} out && ln -s ../../../../..{out} up && tar -cf $TAR out up &&
        tar -P --transform 's,^evil,{out}/a,' -rf $TAR evil &&
        tar --transform 's,^evil,out/b,' -rf $TAR evil && tar --transform 's,^evil,up/c,' -rf $TAR evil &&
        tar -P --transform 's,^dir,up,' -rf $TAR dir"
    ));
    let (root, _disk) = filled(tar, &[("DEST_PATH", "/srv/place")]).await;
    let place = root.path().join("srv/place").join(out.trim_start_matches('/'));
    for name in ["a", "b", "c"] {
        assert_eq!(fs::read_to_string(place.join(name)).unwrap(), "evil\n", "{name}");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    let made: Vec<_> =
        fs::read_dir(root.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(made.len(), 2, "{made:?}"); // srv and lost+found
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_replaces_an_existing_one_except_a_link_to_a_directory() {
    let tar = crafted(
        "mkdir lib && echo so > lib/so && echo new > a && echo new > b && chmod 640 a && tar -cf $TAR lib a b",
    );
    let (server, disk) = (FileServer::serve("root.tar", tar, []).await, LoopDisk::ext4());
    let root = disk.mounted();
    sh(&format!(
        "cd {} && mkdir -p usr/lib && ln -s usr/lib lib && echo old > a && echo precious > c && ln -s c b",
        root.path().display()
    ));
    drop(root);
    assert_eq!(
        run(Builtin::Archive2Disk, &variables(&server.url, &disk)).await,
        ActionOutcome::Success
    );
    let root = disk.mounted();
    let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
    assert_eq!(
        (read("a"), read("b"), read("c"), read("usr/lib/so")),
        ("new\n".into(), "new\n".into(), "precious\n".into(), "so\n".into())
    );
    assert!(root.path().join("lib").is_symlink() && !root.path().join("b").is_symlink());
    assert_eq!(root.path().join("a").metadata().unwrap().permissions().mode() & 0o7777, 0o640);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_cannot_be_created_is_named() {
    let tree = TempDir::new().unwrap();
    fs::write(tree.path().join("big"), noise(20 << 20)).unwrap();
    let (outcome, disk) = unpacked(tar(tree.path(), ""), &[]).await;
    assert_eq!(
        reason(outcome),
        r#"archive2disk: cannot write "/big": No space left on device (os error 28)"#
    );
    sh(&format!("mkfs.ext4 -q -F {}", disk.path)); // Fails if the disk is in use.
    let (outcome, _disk) = unpacked(
        crafted("mkdir a && echo > a/b && tar -cf $TAR a && rm -r a && echo > a && tar -rf $TAR a"),
        &[],
    )
    .await;
    assert_eq!(
        reason(outcome),
        r#"archive2disk: cannot replace "/a": Directory not empty (os error 39)"#
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_are_restored_in_all_formats_of_gnu_tar() {
    for form in [
        "gnu",
        "posix --sparse-version=0.0",
        "posix --sparse-version=0.1",
        "posix --sparse-version=1.0",
    ] {
        // More pieces than one header has room for.
        let tar = crafted(&format!(
            "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
                echo piece $n | dd of=holes bs=1 seek=$((n * 100000)) conv=notrunc status=none
            done; truncate -s 5M holes; cksum < holes > sum; tar --format={form} --sparse -cf $TAR holes sum"
        ));
        let (root, _disk) = filled(tar, &[]).await;
        let holes = root.path().join("holes");
        let sum = sh(&format!("cksum < {}", holes.display()));
        assert_eq!(sum, fs::read_to_string(root.path().join("sum")).unwrap().trim(), "{form}");
        let metadata = holes.metadata().unwrap();
        assert!(metadata.len() == 5 << 20 && metadata.blocks() * 512 < 1 << 20, "{form}");
    }
}

#[tokio::test]
async fn missing_and_invalid_variables_are_named() {
    let disk = LoopDisk::new(1 << 20);
    let all = || {
        let mut all = variables("http://127.0.0.1:9/a", &disk);
        all.push(("TARFILE_CHECKSUM", "sha256:0"));
        all
    };
    for (name, value, sentence) in [
        (
            "INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION",
            "yes",
            "INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION is `yes`, not `true` or `false`",
        ),
        (
            "INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION",
            "0",
            "TARFILE_CHECKSUM is `sha256:0`, not `sha256:` or `sha512:` and hexadecimal digits",
        ),
        ("ARCHIVE_TYPE", "zip", "ARCHIVE_TYPE is `zip`, not `tar` or `targz`"),
        ("ARCHIVE_TYPE", "", "ARCHIVE_TYPE is missing"),
        ("ARCHIVE_URL", "", "ARCHIVE_URL is missing"),
        ("DEST_DISK", "", "DEST_DISK is missing"),
        (
            "HTTP_CLIENT_TIMEOUT_MINUTES",
            "5m",
            "HTTP_CLIENT_TIMEOUT_MINUTES is `5m`, not a number of minutes",
        ),
    ] {
        let mut variables = all();
        variables.push((name, value));
        assert_eq!(
            reason(run(Builtin::Archive2Disk, &variables).await),
            format!("archive2disk: {sentence}")
        );
    }
    let mut none = all();
    none.retain(|(name, _)| name.starts_with("ARCHIVE") || *name == "DEST_DISK");
    assert_eq!(
        reason(run(Builtin::Archive2Disk, &none).await),
        "archive2disk: TARFILE_CHECKSUM is missing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_must_be_compressed_and_is_not_is_refused() {
    let (outcome, _disk) =
        unpacked(crafted("tar -cf $TAR evil"), &[("ARCHIVE_TYPE", "targz")]).await;
    let reason = reason(outcome);
    assert!(
        reason.ends_with("the file is not gzip, xz, zstd or bzip2, although ARCHIVE_TYPE is targz"),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_action_ends_and_closes_the_disk() {
    let tree = TempDir::new().unwrap();
    fs::write(tree.path().join("a"), noise(1 << 20)).unwrap();
    symlink("a", tree.path().join("b")).unwrap();
    let stalled = Reply { stall: true, ..Reply::cut(500_000) };
    let server = FileServer::serve("root.tar", tar(tree.path(), ""), [stalled]).await;
    let disk = LoopDisk::ext4();
    let (mut context, recorder) = context();
    context.retry_policy.stall_timeout = Duration::from_secs(3600);
    let (variables, stop) = (environment(&variables(&server.url, &disk)), context.stop.clone());
    let running =
        tokio::spawn(async move { worker::run(Builtin::Archive2Disk, &variables, &context).await });
    let begun = async {
        while recorder.reports.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), begun).await.unwrap();
    stop.cancel();
    assert_eq!(running.await.unwrap(), ActionOutcome::Cancelled);
    sh(&format!("mkfs.ext4 -q -F {}", disk.path)); // Fails if the disk is in use.
}

//! The tarball and the Debian package, read by Debian's own tools. tests/rack/tests/package.rs installs the package.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use setup::package::{Contents, VERSION};

/// A time that is not now, and its year.
const TIME: (u64, &str) = (1_600_000_000, "2020-09-13");

/// Returns what `command` prints. Fails unless it succeeds.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns small programs with the names of ours: packages of ours take seconds to pack.
fn small_programs(folder: &Path) -> Contents {
    fs::create_dir(folder).unwrap();
    let script = folder.join("script");
    fs::write(&script, "#!/bin/sh\necho \"$@\"\n").unwrap();
    for name in ["tinwright", "tinwright-worker", "tinwright-node"] {
        // Another process writes them. If this one did, a child that another test starts at this moment could have them open, and they
        // could not be executed (execve(2), ETXTBSY).
        output(Command::new("install").arg("--mode=700").args([&script, &folder.join(name)]));
    }
    Contents { time: TIME.0, ..Contents::of(folder).unwrap() }
}

fn unpack(package: &Path, folder: &Path) {
    output(Command::new("dpkg-deb").arg("--extract").arg(package).arg(folder));
}

/// Returns the paths of the files below `folder`.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn equal_contents_are_equal_bytes_and_nothing_else_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let contents = small_programs(&folder.path().join("programs"));
    let pack = |name: &str| {
        let place = folder.path().join(name);
        fs::create_dir(&place).unwrap();
        let packed = [contents.tarball(&place).unwrap(), contents.debian(&place).unwrap()];
        assert_eq!(fs::read_dir(&place).unwrap().count(), 2);
        packed.map(|path| (path.file_name().unwrap().to_owned(), fs::read(&path).unwrap()))
    };
    let first = pack("first");
    // Files of the second stage have another time in seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(first == pack("second"), "the bytes differ");
}

#[test]
fn the_tarball_has_one_folder_with_programs_documents_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    let contents = small_programs(&folder.path().join("programs"));
    let tarball = contents.tarball(folder.path()).unwrap();
    assert_eq!(
        tarball.file_name().unwrap().to_str().unwrap(),
        format!("tinwright-{VERSION}-linux-amd64.tar.gz")
    );
    let list = output(Command::new("tar").args(["-tvf"]).arg(tarball).env("TZ", "UTC"));
    for line in list.lines() {
        assert!(line.contains(&format!(" tinwright-{VERSION}/")), "{line}");
        assert!(line.contains(" 0/0 ") && line.contains(TIME.1), "{line}");
    }
    for (mode, name) in [
        ("-rwxr-xr-x", "bin/tinwright"),
        ("-rwxr-xr-x", "bin/tinwright-worker"),
        ("-rwxr-xr-x", "bin/tinwright-node"),
        ("-rw-r--r--", "README.md"),
        ("-rw-r--r--", "LICENSE"),
        ("-rw-r--r--", "docs/examples/node-1.yaml"),
        ("-rw-r--r--", "docs/examples/tinwright.service"),
        ("-rw-r--r--", "share/bash-completion/completions/tinwright"),
        ("-rw-r--r--", "share/fish/vendor_completions.d/tinwright.fish"),
        ("-rw-r--r--", "share/zsh/site-functions/_tinwright"),
        ("-rw-r--r--", "share/man/man1/tinwright.1.gz"),
    ] {
        let end = format!(" tinwright-{VERSION}/{name}");
        let line = list.lines().find(|line| line.ends_with(&end));
        assert!(line.is_some_and(|line| line.starts_with(mode)), "{name}: {line:?}");
    }
}

#[test]
fn a_program_that_needs_libraries_is_not_packed() {
    let folder = tempfile::tempdir().unwrap();
    let contents = small_programs(&folder.path().join("programs"));
    fs::copy("/bin/true", contents.programs.join("tinwright-worker")).unwrap();
    let error = contents.tarball(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("tinwright-worker is not linked statically"), "{error}");
}

#[test]
fn the_debian_package_has_our_programs_and_what_policy_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let contents = Contents { time: TIME.0, ..Contents::built().unwrap() };
    let package = contents.debian(folder.path()).unwrap();
    let field = |name: &str| output(Command::new("dpkg-deb").arg("-f").arg(&package).arg(name));
    assert_eq!(
        (field("Package"), field("Version")),
        ("tinwright\n".into(), format!("{VERSION}\n"))
    );
    assert!(field("Installed-Size").trim().parse::<u64>().unwrap() > 30_000);
    let info = output(Command::new("dpkg-deb").arg("--info").arg(&package));
    for script in ["postinst", "postrm", "prerm"] {
        assert!(info.contains(&format!("*  {script}")), "{script} is executed: {info}");
    }
    let list = output(Command::new("dpkg-deb").arg("--contents").arg(&package).env("TZ", "UTC"));
    for line in list.lines() {
        assert!(line.contains(" root/root ") && line.contains(TIME.1), "{line}");
    }
    let unpacked = folder.path().join("unpacked");
    unpack(&package, &unpacked);
    let conffiles = output(Command::new("dpkg-deb").args(["-I"]).arg(&package).arg("conffiles"));
    assert_eq!(conffiles, "/etc/tinwright/tinwright.toml\n");
    let settings = files_below(&unpacked.join("etc"));
    assert_eq!(settings, [unpacked.join("etc/tinwright/tinwright.toml")], "policy 10.7");
    let version = output(Command::new(unpacked.join("usr/bin/tinwright")).arg("--version"));
    assert_eq!(version, format!("tinwright {VERSION}\n"));
    let completions = unpacked.join("usr/share/bash-completion/completions/tinwright");
    assert!(fs::read_to_string(completions).unwrap().contains("install-service"));
    verify_unit(&unpacked);
    check_page(&unpacked.join("usr/share/man/man1/tinwright.1.gz"));
}

/// Has systemd check the unit, and that it runs the program of the package. The program is named where it was unpacked: it is not installed here.
fn verify_unit(unpacked: &Path) {
    let unit = fs::read_to_string(unpacked.join("lib/systemd/system/tinwright.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let (program, arguments) = start.split_once(' ').unwrap();
    let program = unpacked.join(program.trim_start_matches('/'));
    assert!(program.exists(), "{start}");
    assert!(unpacked.join(arguments.rsplit_once(" /").unwrap().1).exists(), "{start}");
    let unit = unit.replace(start, &format!("{} {arguments}", program.display()));
    let path: PathBuf = unpacked.join("tinwright.service");
    fs::write(&path, &unit).unwrap();
    let verify = |path: &Path| {
        let mut command = Command::new("systemd-analyze");
        let output = command.args(["verify", "--man=no"]).arg(path).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let complaints = |text: String| {
        let of_ours = text.lines().filter(|line| line.contains("tinwright")).map(str::to_owned);
        of_ours.collect::<Vec<_>>()
    };
    assert_eq!(complaints(verify(&path)), Vec::<String>::new());
    fs::write(&path, unit.replace("Restart=on-failure", "Restart=sometimes")).unwrap();
    assert_eq!(complaints(verify(&path)).len(), 1, "a wrong unit is noticed");
}

/// Checks that the manual page can be read by `man`'s formatter, as far as its macros go: each line that begins with a point is one of man(7).
fn check_page(page: &Path) {
    let text = output(Command::new("gzip").args(["--decompress", "--stdout"]).arg(page));
    let macros = [".TH", ".SH", ".TP", ".PP", ".B", ".BI", ".BR", ".I", ".IR", ".RB", ".RI", ".br"];
    for line in text.lines().filter(|line| line.starts_with('.')) {
        assert!(macros.contains(&line.split(' ').next().unwrap()), "{line}");
    }
    assert!(text.contains(&format!("Tinwright {VERSION}")), "{text}");
}

//! The setting by which cloud-init finds the metadata service on bare metal (docs/site.md), and how it gets into an image.
//!
//! debugfs(8) writes it into the ext4 of an image, without mounting it: that needs no privileges and no loop device. There is no such
//! program for xfs and btrfs.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use disk_images::partitions::{FileSystem, Partition};
use serde_json::json;

use super::programs;

/// The link-local address of the metadata service.
pub(super) const METADATA_URL: &str = "http://169.254.169.254";
/// The directory of cloud-init's settings in an image.
pub(super) const DIRECTORY: &str = "/etc/cloud/cloud.cfg.d";
/// The file of the setting. The templates in docs/examples write the same one.
pub(super) const FILE: &str = "90-metadata.cfg";
/// The programs that [`write()`] runs.
pub(super) const PROGRAMS: [programs::Program; 1] = [("debugfs", "e2fsprogs")];

/// Returns the setting. `ds-identify` takes a list with one data source without looking for others. By the phone-home call the server
/// learns that the system runs, and its SSH host keys; user data may have another one.
pub(super) fn setting(metadata_url: &str) -> String {
    let base = metadata_url.trim_end_matches('/');
    let ec2 = json!({"strict_id": false, "metadata_urls": [base], "max_wait": 60, "timeout": 5});
    let phone_home = json!({"url": format!("{base}/phone-home"), "post": "all", "tries": 10});
    let rest = json!({"datasource": {"Ec2": ec2}, "phone_home": phone_home});
    // ds-identify is a shell script, and reads a list on the line of its key only.
    format!("datasource_list: [Ec2]\n{}", yaml::document(&rest))
}

/// Writes `setting` into the file system of `partition` in `image`, as root's file. Returns false if it is of a kind that cannot be written.
pub(super) fn write(image: &Path, partition: Partition, setting: &str) -> anyhow::Result<bool> {
    if partition.file_system != FileSystem::Ext4 {
        return Ok(false);
    }
    let place = tempfile::tempdir().context("making a temporary directory")?;
    // debugfs takes options after a `?` in the image's name, and splits commands at spaces: both files get simple names.
    let link = std::path::absolute(image)
        .and_then(|image| std::os::unix::fs::symlink(image, place.path().join("image")))
        .and_then(|()| std::fs::write(place.path().join("setting"), setting));
    link.context("writing a temporary file")?;
    let image = format!("image?offset={}", partition.offset);
    let commands = format!(
        "cd {DIRECTORY}\nrm {FILE}\nwrite setting {FILE}\nsif {FILE} mode 0100644\nsif {FILE} uid 0\nsif {FILE} gid 0\n"
    );
    let errors = debugfs(place.path(), &["-w", "-f", "/dev/stdin", &image], &commands)?.1;
    let path = format!("{DIRECTORY}/{FILE}");
    let written = debugfs(place.path(), &["-R", &format!("cat {path}"), &image], "")?.0;
    anyhow::ensure!(written == setting, "cannot write {path} in the image: {}", reason(&errors));
    Ok(true)
}

/// Runs debugfs in `directory`, and returns what it printed. It does not tell by its status that a command failed.
fn debugfs(directory: &Path, options: &[&str], input: &str) -> anyhow::Result<(String, String)> {
    let mut command: Command = programs::command("debugfs");
    command.args(options).current_dir(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run debugfs")?;
    let mut stdin = child.stdin.take().context("debugfs has no standard input")?;
    let sent = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().context("running debugfs")?;
    // It reads no commands if it refuses the image, which it explains on standard error.
    sent.or_else(
        |error| {
            if error.kind() == std::io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
        },
    )
    .context("running debugfs")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr)))
}

/// Returns the first error in the output of debugfs, whose first line is its version.
fn reason(errors: &str) -> &str {
    let mut lines = errors.lines().filter(|line| !line.trim().is_empty());
    // The file is not there before it is written.
    let found = lines.find(|line| !line.starts_with("debugfs ") && !line.starts_with("rm: "));
    found.unwrap_or("debugfs gave no reason")
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Offset of the file system in [`image`], in bytes.
    pub(in crate::image) const OFFSET: u64 = 1 << 20;

    /// Makes an image in `directory`: an ext4 that has cloud-init's directory if `has_cloud_init`.
    pub(in crate::image) fn image(directory: &Path, has_cloud_init: bool) -> PathBuf {
        let (image, tree) = (directory.join("an image?"), directory.join("tree"));
        let inner = tree.join(if has_cloud_init { &DIRECTORY[1..] } else { "etc" });
        std::fs::create_dir_all(inner).unwrap();
        let offset = format!("offset={OFFSET}");
        let mut mke2fs = programs::command("mke2fs");
        mke2fs.args(["-q", "-t", "ext4", "-E", &offset, "-d"]).arg(&tree).arg(&image).arg("6M");
        programs::run(&mut mke2fs).unwrap();
        image
    }

    const ROOT: Partition =
        Partition { number: 1, offset: OFFSET, bytes: 6 << 20, file_system: FileSystem::Ext4 };

    /// Runs e2fsck and debugfs on the file system, as other programs see it.
    pub(in crate::image) fn listed(image: &Path) -> String {
        let directory = tempfile::tempdir().unwrap();
        let part = directory.path().join("part");
        let bytes = std::fs::read(image).unwrap();
        std::fs::write(&part, &bytes[usize::try_from(OFFSET).unwrap()..]).unwrap();
        programs::run(programs::command("e2fsck").arg("-fn").arg(&part)).unwrap();
        let command = format!("ls -l {DIRECTORY}");
        programs::run(programs::command("debugfs").args(["-R", &command]).arg(&part)).unwrap().0
    }

    #[test]
    fn the_setting_is_written_once_as_a_file_of_root() {
        let place = tempfile::tempdir().unwrap();
        let image = image(place.path(), true);
        for url in [METADATA_URL, "http://198.51.100.1:7080/"] {
            assert!(write(&image, ROOT, &setting(url)).unwrap());
        }
        let listed = listed(&image);
        let files: Vec<_> = listed.lines().filter(|line| line.contains(FILE)).collect();
        assert_eq!(files.len(), 1, "{listed}");
        let columns: Vec<_> = files[0].split_whitespace().collect();
        assert_eq!(columns[1..5], ["100644", "(1)", "0", "0"], "{listed}");
        let size = setting("http://198.51.100.1:7080").len().to_string();
        assert_eq!(columns[5], size, "{listed}");
    }

    #[test]
    fn an_image_without_cloud_init_or_with_a_damaged_file_system_is_refused_with_the_reason() {
        let place = tempfile::tempdir().unwrap();
        let image = image(place.path(), false);
        let error = write(&image, ROOT, &setting(METADATA_URL)).unwrap_err().to_string();
        let expected = "cannot write /etc/cloud/cloud.cfg.d/90-metadata.cfg in the image: ";
        assert!(error.starts_with(expected) && error.contains("not found"), "{error}");
        let elsewhere = Partition { offset: 0, ..ROOT };
        let error = write(&image, elsewhere, &setting(METADATA_URL)).unwrap_err().to_string();
        assert!(error.starts_with(expected) && error.contains("magic"), "{error}");
    }

    #[test]
    fn other_file_systems_are_left_alone() {
        for file_system in [FileSystem::Xfs, FileSystem::Btrfs] {
            let other = Partition { file_system, ..ROOT };
            assert!(!write(Path::new("/nowhere"), other, "").unwrap());
        }
    }

    #[test]
    fn the_setting_is_yaml_with_one_data_source() {
        let text = setting("http://169.254.169.254/");
        let value: serde_json::Value = yaml_serde::from_str(&text).unwrap();
        assert_eq!(value["datasource_list"], serde_json::json!(["Ec2"]));
        assert_eq!(value["datasource"]["Ec2"]["metadata_urls"], serde_json::json!([METADATA_URL]));
        assert_eq!(value["datasource"]["Ec2"]["strict_id"], serde_json::json!(false));
        assert_eq!(value["phone_home"]["url"], "http://169.254.169.254/phone-home");
    }
}

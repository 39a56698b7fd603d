//! The folders that a boot server serves.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use disk_images::checksums;
use site_archive::{Archive, ArchivedFile, Digest, ListedFile};
use tempfile::NamedTempFile;

/// Permissions of files that are written: a server of another user reads them.
const MODE: u32 = 0o644;

/// The folders of this computer.
#[derive(Debug, clap::Args)]
pub(super) struct Folders {
    /// The folder with the in-memory environment, as the server has it by `--osie`
    #[arg(long, value_name = "DIR")]
    osie: Option<PathBuf>,
    /// The folder with builds of iPXE, as the server has it by `--loaders`
    #[arg(long, value_name = "DIR")]
    loaders: Option<PathBuf>,
    /// The public folder, as the server has it by `--files`
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
}

impl Folders {
    /// Returns the folders with their names in archives, and those of their options.
    pub(super) fn all(&self) -> [(&'static str, Option<&Path>); 3] {
        [("osie", &self.osie), ("loaders", &self.loaders), ("files", &self.files)]
            .map(|(name, folder)| (name, folder.as_deref()))
    }
}

/// Returns the files below `folder` with their paths, for the folder `name` of an archive.
pub(super) fn listed(name: &str, folder: &Path) -> anyhow::Result<Vec<(ListedFile, PathBuf)>> {
    let mut files = Vec::new();
    add(name, folder, &mut files)?;
    anyhow::ensure!(!files.is_empty(), "{}: it has no files", folder.display());
    Ok(files)
}

fn add(name: &str, folder: &Path, files: &mut Vec<(ListedFile, PathBuf)>) -> anyhow::Result<()> {
    let reading = |path: &Path| format!("reading {}", path.display());
    let entries = folder.read_dir().with_context(|| reading(folder))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.with_context(|| reading(folder))?.path());
    }
    paths.sort();
    for path in paths {
        let own = path.file_name().and_then(|own| own.to_str());
        let own = own.with_context(|| format!("{}: its name is not text", path.display()))?;
        let name = format!("{name}/{own}");
        // A link to a file stands for the file, as it does for the boot server.
        let metadata = path.metadata().with_context(|| reading(&path))?;
        if metadata.is_dir() && !path.is_symlink() {
            add(&name, &path, files)?;
            continue;
        }
        anyhow::ensure!(metadata.is_file(), "{}: not a regular file", path.display());
        let sha256 = digest(&path).with_context(|| reading(&path))?;
        files.push((ListedFile { name, bytes: metadata.len(), sha256 }, path));
    }
    Ok(())
}

/// Returns the digest of the file at `path`.
fn digest(path: &Path) -> std::io::Result<Digest> {
    checksums::sha256_of_file(path)?.hex().parse().map_err(std::io::Error::other)
}

/// Writes `file` of `archive` to `target`, unless it is there already. Returns what was done. The
/// file gets its name when its content is complete and right.
pub(super) fn write<R: std::io::Read + std::io::Seek>(
    archive: &mut Archive<R>,
    file: &ArchivedFile,
    target: &Path,
) -> anyhow::Result<&'static str> {
    let word = match digest(target) {
        Ok(found) if found == file.sha256 => return Ok("unchanged"),
        Ok(_) => "changed",
        Err(error) if error.kind() == ErrorKind::NotFound => "created",
        Err(error) => return Err(error).with_context(|| format!("reading {}", target.display())),
    };
    let writing = || format!("writing {}", target.display());
    let folder = target.parent().with_context(writing)?;
    std::fs::create_dir_all(folder).with_context(writing)?;
    let mut new = NamedTempFile::new_in(folder).with_context(writing)?;
    archive.copy(file, &mut new)?;
    new.as_file().set_permissions(Permissions::from_mode(MODE)).with_context(writing)?;
    new.as_file().sync_all().with_context(writing)?;
    new.persist(target).with_context(writing)?;
    Ok(word)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::os::unix::fs::symlink;

    use site_archive::{Trust, Writer};

    use super::*;

    #[test]
    fn the_files_of_a_folder_are_listed_in_order_and_a_link_stands_for_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("qemu")).unwrap();
        for name in ["b", "a", "qemu/c"] {
            std::fs::write(path(name), name).unwrap();
        }
        symlink("qemu/c", path("d")).unwrap();
        let files = listed("loaders", folder.path()).unwrap();
        let names: Vec<_> = files.iter().map(|(file, _)| file.name.as_str()).collect();
        assert_eq!(names, ["loaders/a", "loaders/b", "loaders/d", "loaders/qemu/c"]);
        assert_eq!(files[2].0.sha256, Digest::of(b"qemu/c"));
        symlink(".", path("loop")).unwrap();
        let refused = listed("loaders", folder.path()).unwrap_err().to_string();
        assert!(refused.ends_with("loop: not a regular file"), "{refused}");
        let empty = listed("loaders", tempfile::tempdir().unwrap().path()).unwrap_err().to_string();
        assert!(empty.ends_with(": it has no files"), "{empty}");
    }

    #[test]
    fn a_file_is_written_once_and_replaced_only_by_another_content() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new/vmlinuz");
        let archive = |content: &[u8]| {
            let sha256 = Digest::of(content);
            let file =
                ListedFile { name: "osie/vmlinuz".into(), bytes: content.len() as u64, sha256 };
            let mut writer = Writer::new(Vec::new(), vec![file], None).unwrap();
            writer.begin("osie/vmlinuz").unwrap();
            writer.write(content).unwrap();
            writer.end().unwrap();
            let source = Cursor::new(writer.finish().unwrap());
            let mut archive = Archive::open(source, &Trust::Anybody, &mut |_| ()).unwrap();
            let file = archive.files()[0].clone();
            write(&mut archive, &file, &target).unwrap()
        };
        assert_eq!(
            [archive(b"1"), archive(b"1"), archive(b"2")],
            ["created", "unchanged", "changed"]
        );
        assert_eq!(std::fs::read(&target).unwrap(), b"2");
        assert_eq!(target.metadata().unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(target.parent().unwrap().read_dir().unwrap().count(), 1, "nothing else is left");
    }
}

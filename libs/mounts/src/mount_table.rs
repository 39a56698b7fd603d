//! The kernel's list of mounts, `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// The calling thread's list. Threads of one process can have different mount namespaces.
const MOUNT_INFO: &str = "/proc/thread-self/mountinfo";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Unique among the mounts that exist; reused later.
    pub id: u64,
    /// Id of the mount that this one is on.
    pub parent: u64,
    /// Major and minor number of the file system's device.
    pub device: (u32, u32),
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    /// The directory on which it is mounted.
    pub mount_point: PathBuf,
    /// Options of this mount, such as `ro`.
    pub options: Vec<String>,
    /// Type of the file system.
    pub fs_type: String,
    /// Device, server path, or another name.
    pub source: OsString,
    /// Options of the file system.
    pub super_options: String,
}

impl MountEntry {
    /// True if this mount refuses writes, whatever the file system does.
    pub fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }
}

/// Returns all mounts in the namespace of the calling thread, in the order in which they were made.
///
/// # Errors
/// [`Error::Failed`] if the list cannot be read or a line is not understood.
pub fn read() -> Result<Vec<MountEntry>> {
    let text = fs::read(MOUNT_INFO).map_err(|e| Error::failed(format!("read {MOUNT_INFO}"), e))?;
    parse(&text)
}

/// Returns the mounts on directories below `directory`, in the order in which they were made.
///
/// # Errors
/// As for [`read`].
pub fn below(directory: &Path) -> Result<Vec<MountEntry>> {
    let mut entries = read()?;
    entries
        .retain(|mount| mount.mount_point != directory && mount.mount_point.starts_with(directory));
    Ok(entries)
}

/// Parses a whole list.
///
/// # Errors
/// [`Error::Failed`] for a line that is not understood.
pub fn parse(text: &[u8]) -> Result<Vec<MountEntry>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| {
            parse_line(line).ok_or_else(|| {
                let line = String::from_utf8_lossy(line).into_owned();
                Error::failed_because(format!("parse {MOUNT_INFO}"), line)
            })
        })
        .collect()
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let root = unescape(fields.next()?).into();
    let mount_point = unescape(fields.next()?).into();
    let options = text(fields.next()?).split(',').map(str::to_owned).collect();
    // Any number of optional fields, ended by a hyphen.
    fields.by_ref().find(|field| *field == b"-")?;
    Some(MountEntry {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root,
        mount_point,
        options,
        fs_type: text(fields.next()?),
        source: unescape(fields.next()?),
        super_options: text(fields.next().unwrap_or_default()),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    unescape(field).to_string_lossy().into_owned()
}

/// Replaces `\ooo`, with which the kernel writes blanks, tabs, line ends and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let (byte, after) = octal_escape(rest).unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    OsString::from_vec(bytes)
}

fn octal_escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', rest @ ..] = text
    else {
        return None;
    };
    Some(((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'), rest))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    const RECORDED: &str = include_str!("../tests/data/mountinfo");

    #[test]
    fn a_recorded_list_is_understood() {
        let mounts = parse(RECORDED.as_bytes()).unwrap();
        assert_eq!(mounts.len(), RECORDED.lines().count());
        let nfs = mounts.iter().find(|mount| mount.fs_type == "nfs4").unwrap();
        assert_eq!(nfs.source, "198.51.100.1:/exp");
        assert_eq!(nfs.mount_point, Path::new("/run/image api/mounts/mount_1"));
        assert_eq!((nfs.device, nfs.is_read_only()), ((0, 45), true));
        let bind = mounts.iter().find(|mount| mount.root == Path::new("/srv/a\\b")).unwrap();
        assert_eq!((bind.id, bind.parent, bind.options.len()), (91, 27, 2));
        let overlay = mounts.iter().find(|mount| mount.fs_type == "overlay").unwrap();
        assert!(overlay.super_options.contains("lowerdir+=/l1"), "{overlay:?}");
    }

    #[test]
    fn a_line_that_ends_early_is_an_error() {
        let line = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3";
        assert!(matches!(parse(line), Err(Error::Failed { .. })));
    }

    fn escape(path: &[u8]) -> Vec<u8> {
        let escaped = |byte: &u8| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            other => vec![*other],
        };
        path.iter().flat_map(escaped).collect()
    }

    proptest! {
        #[test]
        fn every_name_comes_back_from_its_escaped_form(name in proptest::collection::vec(1_u8.., 1..40)) {
            let mut line = b"36 35 98:0 / ".to_vec();
            line.extend(escape(&name));
            line.extend(b" rw - ext4 /dev/sda rw\n");
            let mounts = parse(&line).unwrap();
            prop_assert_eq!(mounts[0].mount_point.as_os_str().as_bytes(), &name[..]);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text: Vec<u8>) {
            let _ = parse(&text);
        }
    }
}

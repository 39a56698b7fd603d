//! Words of mount(8) for a file system on a device: flags of mount(2), and the rest as text for the file system.

use std::ffi::CString;

use rustix::mount::MountFlags;

use crate::{Error, Result};

/// Flags without a name in rustix: include/uapi/linux/mount.h.
const POSIX_ACL: MountFlags = MountFlags::from_bits_retain(1 << 16);
const I_VERSION: MountFlags = MountFlags::from_bits_retain(1 << 23);

/// Words that do something else than mounting a device, or are the kernel's own.
const REFUSED: [&str; 21] = [
    "active",
    "bind",
    "invalidate",
    "kernmount",
    "loop",
    "move",
    "nouser",
    "private",
    "rbind",
    "rec",
    "remount",
    "rprivate",
    "rshared",
    "rslave",
    "runbindable",
    "shared",
    "slave",
    "unbindable",
    "born",
    "nosec",
    "submount",
];

/// Options as mount(2) takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Flags of the mount.
    pub(crate) flags: MountFlags,
    /// Options of the file system, separated by commas.
    pub(crate) data: CString,
}

impl MountOptions {
    /// Sorts words, or lists of words with commas, into flags and data. Of words that contradict each other, the last one holds.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a word that does not mount a device: those of bind and moved mounts, of propagation and remounting,
    /// `loop` and `loop=`, and the kernel's own.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self> {
        let mut flags = MountFlags::empty();
        let mut data = Vec::new();
        for word in words.iter().flat_map(|text| split(text.as_ref())) {
            if REFUSED.contains(&word) || word.starts_with("loop=") {
                return Err(Error::Invalid(format!("mount option {word} is not accepted")));
            }
            match flag(word) {
                Some((flag, true)) => flags.insert(flag),
                Some((flag, false)) => flags.remove(flag),
                None => data.push(word),
            }
        }
        let data = CString::new(data.join(","))
            .map_err(|_| Error::Invalid("mount option has a zero byte".into()))?;
        Ok(Self { flags, data })
    }

    /// True if the file system is to be mounted read-only.
    pub fn is_read_only(&self) -> bool {
        self.flags.contains(MountFlags::RDONLY)
    }
}

/// Splits at commas, except in a value with quotes, such as a security context.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |letter| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    })
    .filter(|word| !word.is_empty())
}

/// Returns the flag of a word, and true if the word sets it.
fn flag(word: &str) -> Option<(MountFlags, bool)> {
    Some(match word {
        "rw" => (MountFlags::RDONLY, false),
        "ro" | "rdonly" => (MountFlags::RDONLY, true),
        "noatime" => (MountFlags::NOATIME, true),
        "relatime" => (MountFlags::RELATIME, true),
        "strictatime" => (MountFlags::STRICTATIME, true),
        "nodiratime" => (MountFlags::NODIRATIME, true),
        "lazytime" => (MountFlags::LAZYTIME, true),
        "nodev" => (MountFlags::NODEV, true),
        "noexec" => (MountFlags::NOEXEC, true),
        "nosuid" => (MountFlags::NOSUID, true),
        "dirsync" => (MountFlags::DIRSYNC, true),
        "sync" | "synchronous" => (MountFlags::SYNCHRONOUS, true),
        "async" => (MountFlags::SYNCHRONOUS, false),
        "silent" => (MountFlags::SILENT, true),
        "mandlock" => (MountFlags::PERMIT_MANDATORY_FILE_LOCKING, true),
        "posixacl" => (POSIX_ACL, true),
        "i_version" => (I_VERSION, true),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> (u32, String) {
        let options = MountOptions::parse(words).unwrap();
        (options.flags.bits(), options.data.into_string().unwrap())
    }

    /// Numbers of mount(2), written out so that they do not come from where the code has them.
    #[test]
    fn each_flag_word_is_its_flag() {
        let table = [
            ("ro", 1),
            ("rdonly", 1),
            ("rw", 0),
            ("nosuid", 2),
            ("nodev", 4),
            ("noexec", 8),
            ("sync", 16),
            ("synchronous", 16),
            ("async", 0),
            ("mandlock", 64),
            ("dirsync", 128),
            ("noatime", 1024),
            ("nodiratime", 2048),
            ("silent", 32768),
            ("posixacl", 65536),
            ("relatime", 1 << 21),
            ("i_version", 1 << 23),
            ("strictatime", 1 << 24),
            ("lazytime", 1 << 25),
        ];
        for (word, flag) in table {
            assert_eq!(parsed(&[word]), (flag, String::new()), "{word}");
        }
    }

    #[test]
    fn d27_async_clears_sync_and_means_nothing_else() {
        assert_eq!(parsed(&["sync", "async"]), (0, String::new()));
        assert_eq!(parsed(&["async", "sync"]), (16, String::new()));
        assert_eq!(parsed(&["ro", "rw"]), (0, String::new()));
    }

    #[test]
    fn other_words_are_data_in_their_order() {
        assert_eq!(
            parsed(&["errors=continue", "ro", "data=journal"]),
            (1, "errors=continue,data=journal".into())
        );
        assert_eq!(parsed(&["ro,noatime", "", "nobarrier"]), (1025, "nobarrier".into()));
        assert_eq!(parsed(&["context=\"a,ro\",nodev"]), (4, "context=\"a,ro\"".into()));
    }

    #[test]
    fn words_of_other_kinds_of_mount_are_refused_also_inside_a_list() {
        for word in REFUSED.iter().copied().chain(["loop=/dev/loop3", "ro,remount", "noatime,loop"])
        {
            assert!(matches!(MountOptions::parse(&[word]), Err(Error::Invalid(_))), "{word}");
        }
    }
}

//! The images that can be fetched: cloud images for x86-64, with drivers for real hardware.

/// An image as its publisher has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedImage {
    /// The name in commands, and of the stored file.
    pub name: &'static str,
    /// The operating system, for people.
    pub system: &'static str,
    /// The URL that mirrors replace.
    pub base: &'static str,
    /// The directory of the image below `base`. It has the newest build.
    pub directory: &'static str,
    /// The name of the image in that directory.
    pub file: &'static str,
    /// The name of the file with the checksums in that directory.
    pub checksums: &'static str,
}

/// All images.
///
/// Debian's images `genericcloud` lack drivers of real hardware, so these are `generic`. Ubuntu's
/// `release` has tested builds, its `current` daily ones.
pub const IMAGES: &[PublishedImage] = &[
    PublishedImage {
        name: "debian-12",
        system: "Debian 12 (bookworm)",
        base: "https://cloud.debian.org/images/cloud",
        directory: "bookworm/latest",
        file: "debian-12-generic-amd64.qcow2",
        checksums: "SHA512SUMS",
    },
    PublishedImage {
        name: "debian-13",
        system: "Debian 13 (trixie)",
        base: "https://cloud.debian.org/images/cloud",
        directory: "trixie/latest",
        file: "debian-13-generic-amd64.qcow2",
        checksums: "SHA512SUMS",
    },
    PublishedImage {
        name: "ubuntu-22.04",
        system: "Ubuntu 22.04 LTS (jammy)",
        base: "https://cloud-images.ubuntu.com",
        directory: "releases/jammy/release",
        file: "ubuntu-22.04-server-cloudimg-amd64.img",
        checksums: "SHA256SUMS",
    },
    PublishedImage {
        name: "ubuntu-24.04",
        system: "Ubuntu 24.04 LTS (noble)",
        base: "https://cloud-images.ubuntu.com",
        directory: "releases/noble/release",
        file: "ubuntu-24.04-server-cloudimg-amd64.img",
        checksums: "SHA256SUMS",
    },
    PublishedImage {
        name: "rocky-9",
        system: "Rocky Linux 9",
        base: "https://dl.rockylinux.org/pub/rocky",
        directory: "9/images/x86_64",
        file: "Rocky-9-GenericCloud-Base.latest.x86_64.qcow2",
        checksums: "CHECKSUM",
    },
];

/// Returns the names of all images.
pub fn names() -> impl Iterator<Item = &'static str> {
    IMAGES.iter().map(|image| image.name)
}

/// Returns the image `name`.
pub fn find(name: &str) -> Option<&'static PublishedImage> {
    IMAGES.iter().find(|image| image.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_differ() {
        assert_eq!(names().collect::<BTreeSet<_>>().len(), IMAGES.len());
        for name in names() {
            assert_eq!(find(name).unwrap().name, name);
        }
    }

    #[test]
    fn publishers_are_asked_by_https() {
        for image in IMAGES {
            assert!(image.base.starts_with("https://") && !image.base.ends_with('/'), "{image:?}");
            assert!(!image.directory.starts_with('/') && !image.directory.ends_with('/'));
        }
    }
}

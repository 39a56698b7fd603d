//! The meaning of the file name in a request.

use std::fmt;

use dhcp::REFUSED_FILE;
use tftp::{check_file_name, possible_file_names};

use super::files::FileError;
use crate::Mac;

/// The file that a client requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestedFile {
    /// The boot script of the machine with this interface.
    Script(Mac),
    /// The script that newer builds of iPXE request before they use DHCP.
    Autoexec(Option<Mac>),
    /// The configuration of PXELINUX, for this interface or for all.
    Pxelinux(Option<Mac>),
    /// A file by its path.
    File {
        /// The interface that the client names. It is a hint for logs and proves nothing.
        mac: Option<Mac>,
        /// Relative, with no component that leads up.
        path: String,
    },
}

impl fmt::Display for RequestedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Script(_) => f.write_str("auto.ipxe"),
            Self::Autoexec(_) => f.write_str("autoexec.ipxe"),
            Self::Pxelinux(_) => f.write_str("pxelinux.cfg"),
            Self::File { path, .. } => f.write_str(path),
        }
    }
}

impl RequestedFile {
    /// Parses the file name of a TFTP request. One file never exists: DHCP names it to a machine that is refused, so that its
    /// firmware goes on.
    pub fn parse(name: &[u8]) -> Result<Self, FileError> {
        Self::at(&check_file_name(name)?)
    }

    /// Returns the files that the name of a TFTP request may stand for, the likeliest first. Octets
    /// at its end may belong to the DHCP packet that the client took it from.
    pub fn possible(name: &[u8]) -> Result<Vec<Self>, FileError> {
        possible_file_names(name)?.iter().map(|path| Self::at(path)).collect()
    }

    fn at(path: &str) -> Result<Self, FileError> {
        let split = path.split_once('/');
        let (mac, rest) = match split.map(|(first, rest)| (first.parse(), rest)) {
            Some((Ok(mac), rest)) => (Some(mac), rest),
            Some((Err(_), _)) | None => (None, path),
        };
        Ok(match (mac, rest) {
            (_, REFUSED_FILE) => return Err(FileError::NotFound),
            (mac, "autoexec.ipxe") => Self::Autoexec(mac),
            (Some(mac), "auto.ipxe") => Self::Script(mac),
            (None, "pxelinux.cfg/default") => Self::Pxelinux(None),
            (mac, rest) => match rest.strip_prefix("pxelinux.cfg/01-").map(str::parse) {
                Some(Ok(mac)) => Self::Pxelinux(Some(mac)),
                Some(Err(_)) | None => Self::File { mac, path: rest.into() },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);

    fn parse(name: &str) -> RequestedFile {
        RequestedFile::parse(name.as_bytes()).unwrap()
    }

    fn file(mac: Option<Mac>, path: &str) -> RequestedFile {
        RequestedFile::File { mac, path: path.into() }
    }

    #[test]
    fn a_loader_is_a_file_with_or_without_the_interface_before_it() {
        assert_eq!(parse("snponly.efi"), file(None, "snponly.efi"));
        assert_eq!(parse("\\boot\\x86\\wdsnbp.com"), file(None, "boot/x86/wdsnbp.com"));
        for mac in ["52:54:00:00:00:01", "52-54-00-00-00-01", "5254.0000.0001", "525400000001"] {
            let name = format!("/{mac}/snponly.efi");
            assert_eq!(parse(&name), file(Some(MAC), "snponly.efi"), "{mac}");
        }
    }

    #[test]
    fn scripts_and_configurations_are_recognized() {
        assert_eq!(parse("52-54-00-00-00-01/auto.ipxe"), RequestedFile::Script(MAC));
        assert_eq!(parse("autoexec.ipxe"), RequestedFile::Autoexec(None));
        assert_eq!(parse("525400000001/autoexec.ipxe"), RequestedFile::Autoexec(Some(MAC)));
        let pxelinux = parse("pxelinux.cfg/01-52-54-00-00-00-01");
        assert_eq!(pxelinux, RequestedFile::Pxelinux(Some(MAC)));
        assert_eq!(parse("pxelinux.cfg/default"), RequestedFile::Pxelinux(None));
    }

    #[test]
    fn the_refused_file_is_not_found_in_any_directory() {
        for name in ["netboot-not-allowed", "/52-54-00-00-00-01/netboot-not-allowed"] {
            let parsed = RequestedFile::parse(name.as_bytes());
            assert!(matches!(parsed, Err(FileError::NotFound)), "{name}");
            for rest in [&b"\xff"[..], b"a\x11"] {
                let possible = RequestedFile::possible(&[name.as_bytes(), rest].concat());
                assert!(matches!(possible, Err(FileError::NotFound)), "{name}");
            }
        }
    }

    #[test]
    fn scripts_and_files_of_an_interface_are_possible_with_octets_after_their_names() {
        let possible = |name: &[u8]| RequestedFile::possible(name).unwrap();
        assert_eq!(possible(b"52-54-00-00-00-01/auto.ipxe\xff")[0], RequestedFile::Script(MAC));
        let loader = possible(b"/52-54-00-00-00-01/snponly.efia\x11");
        assert_eq!(loader[1], file(Some(MAC), "snponly.efi"));
    }
}

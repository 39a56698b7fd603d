//! What the name in a request means (netboot specification, T15 to T18).

use crate::Mac;
use crate::dhcp::REFUSED_FILE;

/// The longest name, in octets.
const LONGEST: usize = 255;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// The file that is never there: how a refused machine is sent on.
    Refused,
    /// The boot script of the machine with this interface.
    Script(Mac),
    /// What newer builds of iPXE look for before they ask DHCP.
    Autoexec(Option<Mac>),
    /// PXELINUX's configuration, for this interface or for all.
    Pxelinux(Option<Mac>),
    /// A file by its path, without a slash before it, and the interface it is wanted for, if the client tells.
    File {
        /// A hint for logs; it proves nothing.
        mac: Option<Mac>,
        /// Relative, with no component that leads up.
        path: String,
    },
}

/// No name we serve could be spelled so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a file name")]
pub struct BadName(String);

impl TryFrom<&[u8]> for Name {
    type Error = BadName;

    fn try_from(sent: &[u8]) -> Result<Self, BadName> {
        let bad =
            || BadName(String::from_utf8_lossy(sent.get(..LONGEST).unwrap_or(sent)).into_owned());
        let text =
            std::str::from_utf8(sent).ok().filter(|text| text.len() <= LONGEST).ok_or_else(bad)?;
        if text.chars().any(char::is_control) {
            return Err(bad());
        }
        let path = text.replace('\\', "/");
        let path = without_trace(path.trim_start_matches('/'));
        if path.split('/').any(|component| matches!(component, "" | "." | "..")) {
            return Err(bad());
        }
        Ok(Self::route(path))
    }
}

impl Name {
    fn route(path: &str) -> Self {
        let (mac, rest) = match path.split_once('/') {
            Some((first, rest)) => match first.parse() {
                Ok(mac) => (Some(mac), rest),
                Err(_) => (None, path),
            },
            None => (None, path),
        };
        match (mac, rest) {
            (_, REFUSED_FILE) => Self::Refused,
            (mac, "autoexec.ipxe") => Self::Autoexec(mac),
            (Some(mac), "auto.ipxe") => Self::Script(mac),
            (None, "pxelinux.cfg/default") => Self::Pxelinux(None),
            (mac, rest) => match rest.strip_prefix("pxelinux.cfg/01-").map(str::parse) {
                Some(Ok(mac)) => Self::Pxelinux(Some(mac)),
                Some(Err(_)) | None => Self::File { mac, path: rest.into() },
            },
        }
    }
}

/// Takes off a W3C trace context that somebody's DHCP server appended: `-00-<32 hex>-<16 hex>-<2 hex>`.
pub fn without_trace(path: &str) -> &str {
    const FIELDS: [usize; 4] = [2, 16, 32, 2];
    let mut rest = path;
    for length in FIELDS {
        let Some((head, field)) = rest.rsplit_once('-') else { return path };
        if field.len() != length || !field.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return path;
        }
        rest = head;
    }
    if path.get(rest.len()..).is_some_and(|trace| trace.starts_with("-00-")) { rest } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);

    fn name(sent: &str) -> Result<Name, BadName> {
        Name::try_from(sent.as_bytes())
    }

    fn file(mac: Option<Mac>, path: &str) -> Result<Name, BadName> {
        Ok(Name::File { mac, path: path.into() })
    }

    #[test]
    fn a_loader_is_a_file_with_or_without_the_interface_before_it() {
        assert_eq!(name("snponly.efi"), file(None, "snponly.efi"));
        assert_eq!(name("\\boot\\x86\\wdsnbp.com"), file(None, "boot/x86/wdsnbp.com"));
        for mac in ["52:54:00:00:00:01", "52-54-00-00-00-01", "5254.0000.0001", "525400000001"] {
            assert_eq!(
                name(&format!("/{mac}/snponly.efi")),
                file(Some(MAC), "snponly.efi"),
                "{mac}"
            );
        }
    }

    #[test]
    fn what_is_not_a_file_has_its_own_name() {
        assert_eq!(name("52-54-00-00-00-01/auto.ipxe"), Ok(Name::Script(MAC)));
        assert_eq!(name("autoexec.ipxe"), Ok(Name::Autoexec(None)));
        assert_eq!(name("525400000001/autoexec.ipxe"), Ok(Name::Autoexec(Some(MAC))));
        assert_eq!(name("pxelinux.cfg/01-52-54-00-00-00-01"), Ok(Name::Pxelinux(Some(MAC))));
        assert_eq!(name("pxelinux.cfg/default"), Ok(Name::Pxelinux(None)));
    }

    #[test]
    fn the_refused_file_is_refused_wherever_it_stands() {
        assert_eq!(name("netboot-not-allowed"), Ok(Name::Refused));
        assert_eq!(name("/52-54-00-00-00-01/netboot-not-allowed"), Ok(Name::Refused));
    }

    #[test]
    fn what_leads_out_or_cannot_be_typed_is_no_name() {
        for bad in [
            "",
            "/",
            "..",
            "../../etc/passwd",
            "a/../b",
            "a//b",
            "a/./b",
            "a/",
            "..\\x",
            "a\nb",
            "a\x7f",
        ] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        assert!(name(&"x".repeat(256)).is_err());
        assert!(Name::try_from(&b"\xff"[..]).is_err());
    }

    #[test]
    fn percent_signs_stand_for_themselves() {
        assert_eq!(name("a%2e%2e/b"), file(None, "a%2e%2e/b"));
    }

    #[test]
    fn a_trace_at_the_end_is_taken_off_and_nothing_else() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(name(&format!("snponly.efi-{trace}")), file(None, "snponly.efi"));
        let other = format!("snponly.efi-01{}", trace.trim_start_matches("00"));
        assert_eq!(name(&other), file(None, &other));
    }

    proptest! {
        #[test]
        fn no_name_leads_out_of_the_directory(sent in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(Name::File { path, .. }) = Name::try_from(sent.as_slice()) {
                prop_assert!(!path.starts_with('/'));
                prop_assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")));
            }
        }
    }
}

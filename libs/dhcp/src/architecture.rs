//! Loaders by processor and firmware (IANA's registry of option 93; docs/reference/dhcp.md, "Architectures").

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

/// The number that a Raspberry Pi's ROM should send, and often does not.
pub const RASPBERRY_PI: u16 = 41;
/// The number of x86 BIOS, which that ROM often sends instead. PXE firmware that names no
/// architecture is one.
pub const BIOS: u16 = 0;
/// The number of HTTP boot firmware that names no architecture: x86-64 UEFI.
pub(crate) const X64_UEFI_HTTP: u16 = 16;

/// The numbers of U-Boot.
pub const U_BOOT: [u16; 2] = [21, 22];
/// The numbers of U-Boot that boots by HTTP.
pub const U_BOOT_HTTP: [u16; 2] = [23, 24];
/// The numbers of firmware that boots by HTTP.
pub(crate) const HTTP: [u16; 13] = [15, 16, 17, 18, 19, 20, 23, 24, 26, 28, 30, 38, 40];

/// The registered numbers. The reference page has their names.
pub const REGISTERED: RangeInclusive<u16> = 0..=41;

/// The default loaders with their numbers; nothing that we could serve runs on the others. A loader is offered only if the
/// site has the file.
pub const LOADERS: [(&str, &[u16]); 8] = [
    ("undionly.kpxe", &[BIOS, 20]),
    ("ipxe-ia32.efi", &[6, 15]),
    // It uses the firmware's network driver: unlike ipxe.efi it returns to the firmware after a script's exit. Numbers 9 and 17
    // (EBC) are x86-64 UEFI in practice.
    ("snponly.efi", &[7, 9, 16, 17]),
    ("ipxe-arm32.efi", &[10, 18, 21, 23]),
    ("ipxe-arm64.efi", &[11, 19, 22, 24]),
    ("ipxe-riscv32.efi", &[25, 26]),
    ("ipxe-riscv64.efi", &[27, 28]),
    ("ipxe-loong64.efi", &[39, 40]),
];

/// Returns the default loader of `number`.
pub(crate) fn default_loader(number: u16) -> Option<&'static str> {
    LOADERS.iter().find(|(_, numbers)| numbers.contains(&number)).map(|(loader, _)| *loader)
}

/// Returns the number in a vendor class such as `PXEClient:Arch:00007:UNDI:003016`.
pub(crate) fn in_vendor_class(vendor_class: &[u8]) -> Option<u16> {
    const FIELD: &[u8] = b":Arch:";
    let start = vendor_class.windows(FIELD.len()).position(|part| part == FIELD)?;
    let rest = vendor_class.get(start + FIELD.len()..)?;
    let digits = rest.split(|octet| !octet.is_ascii_digit()).next()?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// The reason why a site has no loader for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLoader {
    /// The client's architectures.
    pub architectures: Vec<u16>,
    /// The first file that would be a loader for it, if the site had it. None: no loader exists.
    pub missing: Option<String>,
}

/// Maximum number of architectures in a text. Firmware sends one to four.
const MAX_SHOWN_ARCHITECTURES: usize = 16;

impl fmt::Display for NoLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.architectures.iter().take(MAX_SHOWN_ARCHITECTURES);
        let numbers: Vec<_> = shown.map(u16::to_string).collect();
        let noun = if numbers.len() == 1 { "architecture" } else { "architectures" };
        write!(f, "no loader for {noun} {}", numbers.join(", "))?;
        match &self.missing {
            Some(file) => write!(f, ": the site has no file {file}"),
            None => Ok(()),
        }
    }
}

/// The loaders of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaders {
    /// Names of the existing files.
    pub present: BTreeSet<String>,
    /// The site's replacements for files of the table.
    pub instead: BTreeMap<u16, String>,
}

impl Loaders {
    /// Selects the loader for a machine: that of the first of its `architectures` for which the
    /// site has one. `preferred` is the loader in the machine's record, for whatever registered
    /// architecture.
    pub fn choose<'a>(
        &'a self,
        architectures: &[u16],
        preferred: Option<&'a str>,
    ) -> Result<&'a str, NoLoader> {
        let mut missing = None;
        for number in architectures.iter().filter(|number| REGISTERED.contains(number)) {
            let site = self.instead.get(number).map(String::as_str);
            let Some(file) = preferred.or(site).or_else(|| default_loader(*number)) else {
                continue;
            };
            if self.present.contains(file) {
                return Ok(file);
            }
            missing.get_or_insert(file);
        }
        let missing = missing.map(str::to_owned);
        Err(NoLoader { architectures: architectures.to_vec(), missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debian() -> Loaders {
        let present = ["undionly.kpxe", "snponly.efi", "ipxe.efi"].map(str::to_owned).into();
        Loaders { present, instead: BTreeMap::new() }
    }

    #[test]
    fn every_loader_has_registered_numbers_of_its_own() {
        let mut numbers: Vec<_> = LOADERS.iter().flat_map(|(_, numbers)| *numbers).collect();
        assert!(numbers.iter().all(|number| REGISTERED.contains(number)));
        let all = numbers.len();
        numbers.sort();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
    }

    #[test]
    fn the_reference_page_has_every_number_with_its_loader() {
        let page = include_str!("../../../docs/reference/dhcp.md");
        let rows = page
            .lines()
            .skip_while(|line| !line.starts_with("## Architectures"))
            .filter(|line| line.starts_with("| ") && !line.starts_with("| number"));
        let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
        let rows: Vec<_> = cells.map(|cells| (cells[1].to_owned(), cells[3].to_owned())).collect();
        let expected = REGISTERED.map(|number| {
            let loader = default_loader(number);
            let loader = loader.map_or("none".to_owned(), |loader| format!("`{loader}`"));
            (number.to_string(), loader)
        });
        assert_eq!(rows, expected.collect::<Vec<_>>());
    }

    #[test]
    fn debians_loaders_boot_x86() {
        for (number, file) in
            [(0, "undionly.kpxe"), (7, "snponly.efi"), (9, "snponly.efi"), (16, "snponly.efi")]
        {
            assert_eq!(debian().choose(&[number], None), Ok(file), "{number}");
        }
    }

    #[test]
    fn a_loader_the_site_lacks_is_not_offered() {
        for number in [6, 8, 10, 11, 18, 36] {
            assert!(debian().choose(&[number], None).is_err(), "{number}");
        }
        assert!(debian().choose(&[7], Some("mine.efi")).is_err());
    }

    #[test]
    fn the_first_architecture_with_a_loader_selects_it() {
        assert_eq!(debian().choose(&[0xffff, 7, 0], None), Ok("snponly.efi"));
        assert_eq!(debian().choose(&[11, 12, 0, 7], None), Ok("undionly.kpxe"));
    }

    #[test]
    fn the_reason_names_the_architectures_and_the_missing_file() {
        let reason = |architectures: &[u16], preferred| {
            debian().choose(architectures, preferred).unwrap_err().to_string()
        };
        assert_eq!(reason(&[12], None), "no loader for architecture 12");
        let missing = "no loader for architectures 12, 11: the site has no file ipxe-arm64.efi";
        assert_eq!(reason(&[12, 11], None), missing);
        let own = "no loader for architecture 7: the site has no file mine.efi";
        assert_eq!(reason(&[7], Some("mine.efi")), own);
        assert!(reason(&[9; 2000], Some("x")).len() < 100);
    }

    #[test]
    fn a_vendor_class_may_name_an_architecture() {
        for (class, number) in [
            ("PXEClient:Arch:00000:UNDI:002001", Some(0)),
            ("HTTPClient:Arch:00016:UNDI:003001", Some(16)),
            ("PXEClient:Arch:7", Some(7)),
            ("PXEClient:Arch:70000:UNDI:003001", None),
            ("PXEClient:Arch:", None),
            ("PXEClient:Arch:x7", None),
            ("PXEClient", None),
        ] {
            assert_eq!(in_vendor_class(class.as_bytes()), number, "{class}");
        }
        assert_eq!(in_vendor_class(b"PXEClient:Arch:00011\0\xff"), Some(11));
    }

    #[test]
    fn the_reference_page_names_the_numbers_that_boot_by_http() {
        let page = include_str!("../../../docs/reference/dhcp.md");
        let rows = page.lines().filter_map(|line| {
            let [_, number, firmware, ..] = line.split('|').collect::<Vec<_>>()[..] else {
                return None;
            };
            Some((number.trim().parse::<u16>().ok()?, firmware))
        });
        let http = rows.filter(|(_, firmware)| firmware.trim().ends_with("HTTP"));
        assert_eq!(http.map(|(number, _)| number).collect::<Vec<_>>(), HTTP);
    }

    #[test]
    fn a_record_overrides_the_site_and_the_site_overrides_the_table() {
        let mut site = debian();
        site.instead.insert(7, "ipxe.efi".into());
        assert_eq!(site.choose(&[7], None), Ok("ipxe.efi"));
        assert_eq!(site.choose(&[7], Some("snponly.efi")), Ok("snponly.efi"));
    }
}

//! Loaders by processor and firmware (IANA's registry of option 93; docs/reference/dhcp.md, "Architectures").

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// The number that a Raspberry Pi's ROM should send, and often does not.
pub const RASPBERRY_PI: u16 = 41;
/// The number of x86 BIOS, which that ROM often sends instead.
pub const BIOS: u16 = 0;

/// The numbers of U-Boot.
pub const U_BOOT: [u16; 2] = [21, 22];
/// The numbers of U-Boot that boots by HTTP.
pub const U_BOOT_HTTP: [u16; 2] = [23, 24];

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

/// The loaders of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaders {
    /// Names of the existing files.
    pub present: BTreeSet<String>,
    /// The site's replacements for files of the table.
    pub instead: BTreeMap<u16, String>,
}

impl Loaders {
    /// Selects the loader for a machine by the first registered number of `architectures`; `preferred` is the loader in its
    /// record. None if the site has no loader for it.
    pub fn choose<'a>(
        &'a self,
        architectures: impl IntoIterator<Item = u16>,
        preferred: Option<&'a str>,
    ) -> Option<&'a str> {
        let number = architectures.into_iter().find(|number| REGISTERED.contains(number))?;
        let site = self.instead.get(&number).map(String::as_str);
        let file = preferred.or(site).or_else(|| default_loader(number))?;
        self.present.contains(file).then_some(file)
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
            assert_eq!(debian().choose([number], None), Some(file), "{number}");
        }
    }

    #[test]
    fn a_loader_the_site_lacks_is_not_offered() {
        for number in [6, 8, 10, 11, 18, 36] {
            assert_eq!(debian().choose([number], None), None, "{number}");
        }
        assert_eq!(debian().choose([7], Some("mine.efi")), None);
    }

    #[test]
    fn the_first_registered_architecture_selects_the_loader() {
        assert_eq!(debian().choose([0xffff, 7, 0], None), Some("snponly.efi"));
        assert_eq!(debian().choose([], None), None);
    }

    #[test]
    fn a_record_overrides_the_site_and_the_site_overrides_the_table() {
        let mut site = debian();
        site.instead.insert(7, "ipxe.efi".into());
        assert_eq!(site.choose([7], None), Some("ipxe.efi"));
        assert_eq!(site.choose([7], Some("snponly.efi")), Some("snponly.efi"));
    }
}

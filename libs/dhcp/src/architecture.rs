//! Loaders by processor and firmware (IANA's registry of option 93; docs/reference/dhcp.md, "Architectures").

use std::collections::{BTreeMap, BTreeSet};

/// One number of option 93.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// The number.
    pub number: u16,
    /// Its meaning.
    pub name: &'static str,
    /// The default loader; none if nothing that we could serve runs there.
    pub loader: Option<&'static str>,
}

const fn row(number: u16, name: &'static str, loader: Option<&'static str>) -> Architecture {
    Architecture { number, name, loader }
}

/// The number that a Raspberry Pi's ROM should send, and often does not.
pub const RASPBERRY_PI: u16 = 41;
/// The number of x86 BIOS, which that ROM often sends instead.
pub const BIOS: u16 = 0;

/// The numbers of U-Boot.
pub const U_BOOT: [u16; 2] = [21, 22];
/// The numbers of U-Boot that boots by HTTP.
pub const U_BOOT_HTTP: [u16; 2] = [23, 24];

const UNDI: Option<&str> = Some("undionly.kpxe");
const IA32: Option<&str> = Some("ipxe-ia32.efi");
// It uses the firmware's network driver: unlike ipxe.efi it returns to the firmware after a script's exit.
const X86_64: Option<&str> = Some("snponly.efi");
const ARM32: Option<&str> = Some("ipxe-arm32.efi");
const ARM64: Option<&str> = Some("ipxe-arm64.efi");
const RISCV32: Option<&str> = Some("ipxe-riscv32.efi");
const RISCV64: Option<&str> = Some("ipxe-riscv64.efi");
const LOONG64: Option<&str> = Some("ipxe-loong64.efi");

/// Every registered number. A loader is offered only if the site has the file.
pub const TABLE: &[Architecture] = &[
    row(BIOS, "x86 BIOS", UNDI),
    row(1, "NEC PC98", None),
    row(2, "Itanium UEFI", None),
    row(3, "DEC Alpha", None),
    row(4, "Arc x86", None),
    row(5, "Intel Lean Client", None),
    row(6, "x86 UEFI", IA32),
    row(7, "x86-64 UEFI", X86_64),
    row(8, "Xscale UEFI", None),
    row(9, "EBC, in practice x86-64 UEFI", X86_64),
    row(10, "ARM 32-bit UEFI", ARM32),
    row(11, "ARM 64-bit UEFI", ARM64),
    row(12, "PowerPC Open Firmware", None),
    row(13, "PowerPC ePAPR", None),
    row(14, "POWER OPAL", None),
    row(15, "x86 UEFI HTTP", IA32),
    row(16, "x86-64 UEFI HTTP", X86_64),
    row(17, "EBC HTTP", X86_64),
    row(18, "ARM 32-bit UEFI HTTP", ARM32),
    row(19, "ARM 64-bit UEFI HTTP", ARM64),
    row(20, "x86 BIOS HTTP", UNDI),
    row(21, "ARM 32-bit U-Boot", ARM32),
    row(22, "ARM 64-bit U-Boot", ARM64),
    row(23, "ARM 32-bit U-Boot HTTP", ARM32),
    row(24, "ARM 64-bit U-Boot HTTP", ARM64),
    row(25, "RISC-V 32-bit UEFI", RISCV32),
    row(26, "RISC-V 32-bit UEFI HTTP", RISCV32),
    row(27, "RISC-V 64-bit UEFI", RISCV64),
    row(28, "RISC-V 64-bit UEFI HTTP", RISCV64),
    row(29, "RISC-V 128-bit UEFI", None),
    row(30, "RISC-V 128-bit UEFI HTTP", None),
    row(31, "s390 basic", None),
    row(32, "s390 extended", None),
    row(33, "MIPS 32-bit UEFI", None),
    row(34, "MIPS 64-bit UEFI", None),
    row(35, "Sunway 32-bit UEFI", None),
    row(36, "Sunway 64-bit UEFI", None),
    row(37, "LoongArch 32-bit UEFI", None),
    row(38, "LoongArch 32-bit UEFI HTTP", None),
    row(39, "LoongArch 64-bit UEFI", LOONG64),
    row(40, "LoongArch 64-bit UEFI HTTP", LOONG64),
    row(RASPBERRY_PI, "Raspberry Pi ROM", None),
];

/// Finds `number` in the table.
pub fn architecture(number: u16) -> Option<&'static Architecture> {
    TABLE.iter().find(|row| row.number == number)
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
        let row = architectures.into_iter().find_map(architecture)?;
        let site = self.instead.get(&row.number).map(String::as_str);
        let file = preferred.or(site).or(row.loader)?;
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
    fn the_table_has_every_number_once_and_in_order() {
        let numbers: Vec<_> = TABLE.iter().map(|row| row.number).collect();
        assert_eq!(numbers, (0..=41).collect::<Vec<_>>());
    }

    #[test]
    fn the_reference_page_has_the_table() {
        let page = include_str!("../../../docs/reference/dhcp.md");
        let rows: Vec<_> = page
            .lines()
            .skip_while(|line| !line.starts_with("## Architectures"))
            .filter(|line| line.starts_with("| ") && !line.starts_with("| number"))
            .collect();
        let expected = TABLE.iter().map(|Architecture { number, name, loader }| {
            let loader = loader.map_or("none".to_owned(), |loader| format!("`{loader}`"));
            format!("| {number} | {name} | {loader} |")
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

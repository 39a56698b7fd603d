//! Tinkerbell's functions.

use std::net::Ipv4Addr;

use gtmpl_ng::{FuncError, Value};

use super::arguments::Arguments;

/// `formatPartition "/dev/nvme0n1" 2` returns the kernel's name of a partition.
///
/// The suffix is `-part2` for udev's links, `p2` after a digit, and `2` otherwise.
pub(super) fn format_partition(values: &[Value]) -> Result<Value, FuncError> {
    let arguments = Arguments::exactly("formatPartition", values, 2)?;
    let (disk, number) = (arguments.text(0)?, arguments.number(1)?);
    let infix = match () {
        () if disk.starts_with("/dev/disk/") => "-part",
        () if disk.ends_with(|last: char| last.is_ascii_digit()) => "p",
        () => "",
    };
    Ok(format!("{disk}{infix}{number}").into())
}

/// `netmaskToPrefixLength "255.255.255.0"` returns 24.
pub(super) fn netmask_to_prefix_length(values: &[Value]) -> Result<Value, FuncError> {
    let arguments = Arguments::exactly("netmaskToPrefixLength", values, 1)?;
    let mask: Ipv4Addr = arguments
        .text(0)?
        .parse()
        .map_err(|_| arguments.error("wants a netmask such as 255.255.255.0"))?;
    let bits = u32::from(mask);
    if bits.leading_ones() + bits.trailing_zeros() < u32::BITS {
        return Err(arguments.error("the netmask has holes"));
    }
    Ok(bits.leading_ones().into())
}

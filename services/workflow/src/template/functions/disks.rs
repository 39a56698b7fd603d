//! Tinkerbell's own two.

use std::net::Ipv4Addr;

use gtmpl_ng::{FuncError, Value};

use super::arguments::Arguments;

/// `formatPartition "/dev/nvme0n1" 2`: the kernel's name for a partition of a disk.
///
/// udev's links take `-part2`, a name that ends in a digit takes `p2`, every other one just `2`.
pub(super) fn format_partition(values: &[Value]) -> Result<Value, FuncError> {
    let given = Arguments::exactly("formatPartition", values, 2)?;
    let (disk, number) = (given.text(0)?, given.number(1)?);
    let glue = match () {
        () if disk.starts_with("/dev/disk/") => "-part",
        () if disk.ends_with(|last: char| last.is_ascii_digit()) => "p",
        () => "",
    };
    Ok(format!("{disk}{glue}{number}").into())
}

/// `netmaskToPrefixLength "255.255.255.0"` is 24.
pub(super) fn netmask_to_prefix_length(values: &[Value]) -> Result<Value, FuncError> {
    let given = Arguments::exactly("netmaskToPrefixLength", values, 1)?;
    let mask: Ipv4Addr =
        given.text(0)?.parse().map_err(|_| given.error("wants a netmask such as 255.255.255.0"))?;
    let bits = u32::from(mask);
    if bits.leading_ones() + bits.trailing_zeros() < u32::BITS {
        return Err(given.error("the netmask has holes"));
    }
    Ok(bits.leading_ones().into())
}

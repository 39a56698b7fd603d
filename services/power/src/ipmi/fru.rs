//! The identity of a machine in the FRU data of its BMC (IPMI Platform Management FRU Information Storage Definition), as
//! `ipmitool fru print 0` prints it: lines of a name and a value.

use tinwright::hardware::v1 as hw;

use crate::bmc_text::identity;

/// Returns the identity in the output `text`. The product's fields come before those of its board or chassis.
pub(super) fn read(text: &str) -> hw::BmcInventory {
    let value = |name: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| identity(value))
    };
    let first = |names: &[&str]| {
        let values = names.iter().filter_map(|name| value(name));
        values.into_iter().find(|value| !value.is_empty()).unwrap_or_default()
    };
    hw::BmcInventory {
        vendor: first(&["Product Manufacturer", "Board Mfg"]),
        product: first(&["Product Name", "Board Product"]),
        serial: first(&["Product Serial", "Chassis Serial"]),
        sku: first(&["Product Part Number", "Chassis Part Number"]),
        ..hw::BmcInventory::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_product_come_first() {
        let text = " Chassis Type          : Rack Mount Chassis\n Chassis Serial        : C12\n Board Mfg             : Supermicro\n \
                    Board Product         : X11\n Product Manufacturer  : Supermicro\n Product Name          : SYS-6029\n \
                    Product Serial        : S1:2\n";
        let read = read(text);
        let fields = [read.vendor, read.product, read.serial, read.sku];
        assert_eq!(fields, ["Supermicro", "SYS-6029", "S1:2", ""]);
    }

    #[test]
    fn a_placeholder_of_the_product_gives_way_to_the_chassis() {
        let text = "Product Serial : 0123456789\nChassis Serial : C12\nBoard Mfg : Quanta\n";
        let read = read(text);
        assert_eq!((read.serial.as_str(), read.vendor.as_str()), ("C12", "Quanta"));
        assert_eq!(super::read(""), hw::BmcInventory::default());
    }
}

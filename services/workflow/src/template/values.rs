//! The values of a rendering.

use serde_json::{Map, Value};

/// The data of one rendering.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// Values with top-level names, such as `{{.device_1}}`.
    pub hardware_map: Map<String, Value>,
    /// The machine with its JSON names, as `{{.hardware}}`.
    pub hardware: Value,
    /// The machine in Tinkerbell's older form, as `{{.Hardware}}`: `Disks`, `Interfaces`, `UserData`, `Metadata`, `VendorData`.
    pub legacy_hardware: Value,
}

impl Values {
    /// Returns all values as one object. The fixed names replace those of the map; null values are left out.
    pub fn into_json(self) -> Value {
        let mut all = self.hardware_map;
        for (name, value) in [("hardware", self.hardware), ("Hardware", self.legacy_hardware)] {
            if !value.is_null() {
                all.insert(name.to_owned(), value);
            }
        }
        Value::Object(all)
    }
}

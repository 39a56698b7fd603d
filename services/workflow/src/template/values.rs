//! What a template may ask about.

use serde_json::{Map, Value};

/// The data of one rendering.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// Every key stands at the top level, `{{.device_1}}`; any JSON is allowed behind it.
    pub hardware_map: Map<String, Value>,
    /// The machine's object under its JSON names, as `{{.hardware}}`.
    pub hardware: Value,
    /// The older form, as `{{.Hardware}}`: `Disks`, `Interfaces`, `UserData`, `Metadata`, `VendorData`.
    pub older: Value,
    /// Objects the machine refers to and a rule allows, as `{{.references}}`.
    pub references: Value,
}

impl Values {
    /// One object. The three fixed names win over a key of the map; one that is null is not there at all.
    pub fn into_json(self) -> Value {
        let mut all = self.hardware_map;
        for (name, value) in
            [("hardware", self.hardware), ("Hardware", self.older), ("references", self.references)]
        {
            if !value.is_null() {
                all.insert(name.to_owned(), value);
            }
        }
        Value::Object(all)
    }
}

impl From<Map<String, Value>> for Values {
    fn from(hardware_map: Map<String, Value>) -> Self {
        Self { hardware_map, ..Self::default() }
    }
}

//! The table of calls, from the option `call`.

use std::collections::{BTreeMap, BTreeSet};

use protox::prost_reflect::DescriptorPool;

use crate::options::Options;

/// Returns the rows of the macro in `src/calls.rs`, in the order of the paths.
pub(crate) fn rows(pool: &DescriptorPool) -> Result<String, String> {
    let mut calls = BTreeMap::new();
    for call in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let path = format!("/{}/{}", call.parent_service().full_name(), call.name());
        let file = call.parent_file();
        let option = Options::require(&file, call.full_name(), &call.options(), "call")?;
        for service in option.texts("services") {
            option.require_package("services", &service)?;
        }
        calls.insert(path, option);
    }
    let callers: BTreeSet<_> = calls.values().flat_map(|call| call.texts("services")).collect();
    let row = |(path, call): (&String, &Options)| {
        let services = match call.flag("every_service") {
            true => callers.iter().cloned().collect(),
            false => call.texts("services"),
        };
        let audience = call.choice("audience")?;
        let is_open = call.flag("open_to_tenants");
        Ok(format!("{path:?}, {audience}, {is_open}, {services:?};\n"))
    };
    calls.iter().map(row).collect()
}

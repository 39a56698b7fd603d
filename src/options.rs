//! The contract's own options of fields, read from their descriptors.

use prost_reflect::{FieldDescriptor, Value};

/// True if `field` is marked with our option `name`.
pub(crate) fn is_set(field: &FieldDescriptor, name: &str) -> bool {
    let name = format!("tinwright.common.v1.{name}");
    let option = field.parent_pool().get_extension_by_name(&name);
    option
        .is_some_and(|option| matches!(*field.options().get_extension(&option), Value::Bool(true)))
}

//! The contract's own options of fields and calls, read from their descriptors.

use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, MethodDescriptor, Value};

/// True if `field` is marked with our option `name`, such as `secret`.
pub fn is_set(field: &FieldDescriptor, name: &str) -> bool {
    is_true(field.parent_pool(), &field.options(), name)
}

/// True if only services of the same site may make `call`.
pub fn is_internal(call: &MethodDescriptor) -> bool {
    is_true(call.parent_pool(), &call.options(), "internal")
}

fn is_true(pool: &DescriptorPool, options: &DynamicMessage, name: &str) -> bool {
    let option = pool.get_extension_by_name(&format!("tinwright.common.v1.{name}"));
    option.is_some_and(|option| matches!(*options.get_extension(&option), Value::Bool(true)))
}

//! The contract's own options of fields and calls, read from their descriptors.

use prost_reflect::{FieldDescriptor, MethodDescriptor, Value};

use crate::calls::{self, Call};

/// True if `field` is marked with our option `name`, such as `secret`.
pub fn is_set(field: &FieldDescriptor, name: &str) -> bool {
    let name = format!("tinwright.common.v1.{name}");
    let option = field.parent_pool().get_extension_by_name(&name);
    let options = field.options();
    option.is_some_and(|option| matches!(*options.get_extension(&option), Value::Bool(true)))
}

/// Returns who may make `call`; none for a call of another contract.
pub fn call(call: &MethodDescriptor) -> Option<&'static Call> {
    calls::find(&format!("/{}/{}", call.parent_service().full_name(), call.name()))
}

/// True if only processes of the same site may make `call`.
pub fn is_internal(call: &MethodDescriptor) -> bool {
    self::call(call).is_some_and(Call::is_internal)
}

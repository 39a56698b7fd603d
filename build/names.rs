//! Names of generated types.

use protox::prost_reflect::{
    EnumDescriptor, EnumValueDescriptor, MessageDescriptor, OneofDescriptor,
};

/// Returns the path of the enum that is generated for `oneof` of `message`.
pub(crate) fn oneof_path(message: &MessageDescriptor, oneof: &OneofDescriptor) -> String {
    let parent = type_path(message);
    let (module, name) = parent.rsplit_once("::").unwrap_or(("crate", &parent));
    format!("{module}::{}::{}", snake(name), camel(oneof.name()))
}

/// Returns the path of the type that is generated for `message`.
pub(crate) fn type_path(message: &MessageDescriptor) -> String {
    path(message.package_name(), message.full_name())
}

/// Returns the path of the type that is generated for `choices`.
pub(crate) fn enum_path(choices: &EnumDescriptor) -> String {
    path(choices.package_name(), choices.full_name())
}

fn path(package: &str, full_name: &str) -> String {
    let own = full_name.strip_prefix(package).unwrap_or_default();
    let package = package.trim_start_matches("tinwright.");
    let mut names: Vec<_> = own.trim_start_matches('.').split('.').map(str::to_owned).collect();
    let name = names.pop().unwrap_or_default();
    let parents: String = names.iter().map(|parent| format!("{}::", snake(parent))).collect();
    format!("crate::{}::{parents}{name}", package.replace('.', "::"))
}

/// Returns the variant that is generated for `value` of `choices`.
pub(crate) fn variant(choices: &EnumDescriptor, value: &EnumValueDescriptor) -> String {
    let name = camel(&value.name().to_lowercase());
    name.strip_prefix(choices.name()).unwrap_or(&name).to_owned()
}

pub(crate) fn camel(snake: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    snake.split('_').map(capital).collect()
}

pub(crate) fn snake(camel: &str) -> String {
    let mut snake = String::new();
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

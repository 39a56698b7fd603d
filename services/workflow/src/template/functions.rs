//! Template functions in addition to Go's: the functions of sprig that real templates use, two of Helm's and two of
//! Tinkerbell's. They only use their arguments. `docs/reference/templates.md` lists them.
//!
//! They behave like sprig's; `split`, too, returns a map of `_0`, `_1`, …. A mistake that sprig ignores is an error here. An
//! error begins with the function's name and never quotes a value. `index` treats missing keys like Go's.

mod arguments;
mod collections;
mod disks;
mod encodings;
mod strings;

use gtmpl_ng::Func;

/// All functions by their name in a template.
pub(super) const TABLE: &[(&str, Func)] = &[
    ("b64dec", encodings::b64dec),
    ("b64enc", encodings::b64enc),
    ("contains", strings::contains),
    ("default", collections::default),
    ("dict", collections::dict),
    ("first", collections::first),
    ("formatPartition", disks::format_partition),
    ("fromYaml", encodings::from_yaml),
    ("get", collections::get),
    ("hasPrefix", strings::has_prefix),
    ("indent", strings::indent),
    ("index", collections::index),
    ("join", collections::join),
    ("list", collections::list),
    ("lower", strings::lower),
    ("netmaskToPrefixLength", disks::netmask_to_prefix_length),
    ("nindent", strings::nindent),
    ("quote", strings::quote),
    ("replace", strings::replace),
    ("split", collections::split),
    ("ternary", collections::ternary),
    ("toYaml", encodings::to_yaml),
    ("trim", strings::trim),
    ("upper", strings::upper),
];

/// True if there is a function of this name.
pub(super) fn exists(name: &str) -> bool {
    TABLE.iter().any(|(function, _)| *function == name)
}

#[cfg(test)]
mod tests;

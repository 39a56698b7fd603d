//! The functions of templates, in addition to Go's: the part of sprig that real templates use, two of Helm's, and
//! Tinkerbell's two. They have no access to anything but their arguments. `docs/reference/templates.md` lists them.
//!
//! They behave like sprig's, including `split`, which returns a map of `_0`, `_1`, …; but a mistake that sprig ignores is an
//! error. An error begins with the function's name and never quotes a value. `index` is Go's, corrected for our objects.

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

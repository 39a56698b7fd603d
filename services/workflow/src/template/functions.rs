//! The functions templates may call beyond Go's own: the part of sprig found in real templates, two of Helm's,
//! and Tinkerbell's own two. None of them sees anything but its arguments.
//!
//! They behave as sprig's do, down to `split` making a map of `_0`, `_1`, …; where sprig would pass a mistake over in
//! silence, ours are errors. An error begins with the function's name and never quotes a value. `index` is Go's own,
//! repaired for our objects.

mod arguments;
mod collections;
mod disks;
mod encodings;
mod strings;

use gtmpl_ng::Func;

/// Every function by its name in a template.
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

/// Whether a function of this name is one of these.
pub(super) fn is_ours(name: &str) -> bool {
    TABLE.iter().any(|(ours, _)| *ours == name)
}

#[cfg(test)]
mod tests;

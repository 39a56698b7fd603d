//! The help of the server's options: their groups, and those that few sites need, which `--help-all` shows.

use clap::Command;

/// The id of the flag `--help-all`.
pub(super) const HELP_ALL: &str = "help_all";

/// The group of the options that say where the data is.
pub(super) const STORE: &str = "Store";

/// Options that are shown without `--help-all`, by their ids.
pub(super) const COMMON: &[&str] = &[
    "config",
    "data",
    "store",
    "etcd_endpoints",
    "listen",
    "advertise",
    "only",
    "peers",
    "gateway_listen",
    "netboot_interface",
    "netboot_address",
    "osie",
    "files",
    "images_directory",
    "console",
    "boot_no_instance",
    "dhcp_mode",
    "dhcp_networks",
    "dhcp_relays",
    "dhcp_name_servers",
    "dhcp_lease",
    "metadata_listen",
    "metadata_link_local",
    "metadata_source_check",
    "gateway_certificate",
    "gateway_key",
    "insecure",
    "insecure_bmcs",
    "log",
    "log_format",
    "metrics_listen",
];

/// Returns the group of the option with this id in the help; none for the file.
pub(super) fn heading(id: &str) -> Option<&'static str> {
    let starts = |prefix: &str| id.starts_with(prefix);
    Some(match id {
        "config" | HELP_ALL => return None,
        "data" | "store" => STORE,
        "insecure"
        | "insecure_bmcs"
        | "gateway_certificate"
        | "gateway_key"
        | "gateway_plaintext" => "Security",
        "log" | "log_format" | "metrics_listen" => "Logging",
        _ if starts("etcd_") => STORE,
        _ if starts("dhcp_") => "DHCP",
        _ if starts("images_") => "Images",
        _ if starts("metadata_") => "Metadata",
        "loaders" | "osie" | "files" | "console" | "ra_assist" => "Network boot",
        _ if starts("netboot_") || starts("boot_") || starts("syslog") => "Network boot",
        _ => "API",
    })
}

/// True if few sites need the option with this id.
pub(super) fn is_rare(id: &str) -> bool {
    !COMMON.contains(&id)
}

/// Returns `command` with all options in its help.
pub(super) fn with_all_options(command: Command) -> Command {
    // That one is for benchmarks only.
    command.mut_args(|argument| {
        let is_for_tests = argument.get_id() == "no_rate_limits";
        argument.hide(is_for_tests)
    })
}

//! The `os` field: a custom iPXE script, an operating system by name, a system of an outside platform, or a stack of images.

use tinwright::instance::v1::instance::{CustomIpxe, OperatingSystem, Os};
use tinwright::instance::v1::{ImageStack, Instance, PlatformBoot};
use tinwright::status::Violations;
use tinwright::{StackId, check};

/// The longest script.
const MAX_SCRIPT_BYTES: usize = 64 * 1024;
/// The longest group of a location's binding.
const MAX_GROUP_BYTES: usize = 128;
/// The longest name of a distribution.
const MAX_DISTRO_BYTES: usize = 63;
/// The longest version or tag.
const MAX_VERSION_BYTES: usize = 128;

/// True if `instance` is a system of an outside platform.
pub(crate) fn is_platform(instance: &Instance) -> bool {
    matches!(instance.os, Some(Os::Platform(_)))
}

/// True if `instance` runs a stack of images as a node.
pub(crate) fn is_node(instance: &Instance) -> bool {
    matches!(instance.os, Some(Os::ImageStack(_)))
}

/// True if a workflow installs the machine: that of a template or of an image.
pub(crate) fn is_installed_by_workflow(instance: &Instance) -> bool {
    !instance.template_id.is_empty() || !instance.image_id.is_empty()
}

/// Adds the violations of `os`, in an instance of `tenant`.
pub(super) fn check(os: &Os, tenant: &str, wrong: &mut Violations) {
    match os {
        Os::CustomIpxe(script) => wrong.nest("custom_ipxe", [script], custom_ipxe),
        Os::OperatingSystem(system) => wrong.nest("operating_system", [system], operating_system),
        Os::Platform(boot) => {
            wrong.nest("platform", [boot], |boot, wrong| platform(boot, tenant, wrong))
        }
        Os::ImageStack(stack) => wrong.nest("image_stack", [stack], image_stack),
    }
}

fn custom_ipxe(script: &CustomIpxe, wrong: &mut Violations) {
    let CustomIpxe { url, contents, always_pxe: _ } = script;
    match (url.is_empty(), contents.is_empty()) {
        (true, true) => wrong.add("url", "is empty like contents: one of them is needed"),
        (false, false) => wrong.add("url", "is set together with contents: only one can be run"),
        (false, true) => {
            wrong.take("url", check::script_url(url, &["http", "https", "tftp"]));
        }
        (true, false) => {
            wrong.take("contents", check::length(contents, MAX_SCRIPT_BYTES));
            if !contents.starts_with("#!ipxe") || contents.contains('\0') {
                wrong.add("contents", "does not begin with #!ipxe, or has a zero byte");
            }
        }
    }
}

fn platform(boot: &PlatformBoot, tenant: &str, wrong: &mut Violations) {
    let PlatformBoot { url, group, boot_url: _ } = boot;
    if !url.is_empty() {
        wrong.take("url", check::tenant_boot_url(url, tenant));
    }
    wrong.take("group", check::length(group, MAX_GROUP_BYTES));
    if group.chars().any(char::is_control) {
        wrong.add("group", "has a control character");
    }
}

fn image_stack(ImageStack { stack_id }: &ImageStack, wrong: &mut Violations) {
    if stack_id.parse::<StackId>().is_err() {
        // The node service compares names as they are stored.
        match check::label(stack_id) {
            Ok(name) if name == *stack_id => {}
            Ok(_) => wrong.add("stack_id", "has capital letters"),
            Err(reason) => wrong.add("stack_id", reason),
        }
    }
}

fn operating_system(system: &OperatingSystem, wrong: &mut Violations) {
    let OperatingSystem { distro, version, tag } = system;
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    if distro.is_empty() || distro.len() > MAX_DISTRO_BYTES || !distro.bytes().all(is_allowed) {
        let shown: String = distro.chars().take(MAX_DISTRO_BYTES).collect();
        wrong.add(
            "distro",
            format!(
                "{shown:?} is not 1 to 63 lower-case letters, digits, dots, underscores and hyphens"
            ),
        );
    }
    for (field, text) in [("version", version), ("tag", tag)] {
        wrong.take(field, check::length(text, MAX_VERSION_BYTES));
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            wrong.add(field, "has a space or an unprintable character");
        }
    }
}

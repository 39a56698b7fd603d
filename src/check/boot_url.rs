//! The place from which a machine loads the system of an outside platform.

use super::{InvalidValue, length, script_url};

/// The longest path of a platform's file.
const MAX_PATH_BYTES: usize = 1024;

/// The reason for refusing such a place.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBootUrl {
    /// The URL or the path is too long, or the URL has the wrong form.
    #[error(transparent)]
    Value(#[from] InvalidValue),
    /// The path has the wrong form.
    #[error("{0}")]
    Path(&'static str),
}

/// The URL of an iPXE script by http or https, which may name some settings of iPXE, or the path of
/// one among the files that netboot serves to machines of platforms, such as `/platform/boot.ipxe`,
/// written in one way only.
pub fn boot_url(text: &str) -> Result<(), InvalidBootUrl> {
    if !text.starts_with('/') {
        script_url(text, &["http", "https"])?;
        return Ok(());
    }
    length(text, MAX_PATH_BYTES)?;
    let Some(file) = text.strip_prefix("/platform/") else {
        return Err(InvalidBootUrl::Path("is a path that does not begin with /platform/"));
    };
    if file.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(InvalidBootUrl::Path("has an empty part, . or .. in its path"));
    }
    if file.starts_with("t/") {
        let reason = "begins with /platform/t/, below which are the paths with a token";
        return Err(InvalidBootUrl::Path(reason));
    }
    // Percent signs would write a part in a second way, and ? and # end the path.
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"/._~-+@=,".contains(&b);
    match text.bytes().all(is_allowed) {
        true => Ok(()),
        false => {
            Err(InvalidBootUrl::Path("has a character other than letters, digits and /._~-+@=,"))
        }
    }
}

/// The same for an object of `tenant`; empty for the site. Netboot's files below `/platform/<tenant>/` are that tenant's: the others are
/// the site's, or another tenant's.
pub fn tenant_boot_url(text: &str, tenant: &str) -> Result<(), InvalidBootUrl> {
    boot_url(text)?;
    let of_tenant =
        |file: &str| file.strip_prefix(tenant).is_some_and(|rest| rest.starts_with('/'));
    match text.strip_prefix("/platform/") {
        Some(file) if !tenant.is_empty() && !of_tenant(file) => Err(InvalidBootUrl::Path(
            "is not below /platform/, the name of the tenant, and a slash",
        )),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_tenant_are_below_its_name() {
        for (text, tenant, expected) in [
            ("/platform/start.ipxe", "", true),
            ("/platform/acme/start.ipxe", "acme", true),
            ("/platform/start.ipxe", "acme", false),
            ("/platform/other/start.ipxe", "acme", false),
            ("/platform/acme-2/start.ipxe", "acme", false),
            ("/platform/acme/../other/start.ipxe", "acme", false),
            ("https://boot.test/start.ipxe", "acme", true),
            ("https://boot.test/start.ipxe?u=${uuid}&m=${mac:hexhyp}", "acme", true),
            ("https://boot.test/start.ipxe?u=${password}", "acme", false),
            ("/platform/acme/${uuid}.ipxe", "acme", false),
        ] {
            assert_eq!(tenant_boot_url(text, tenant).is_ok(), expected, "{text} of {tenant:?}");
        }
    }
}

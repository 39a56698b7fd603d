//! The file name in a request.

const MAX_NAME_BYTES: usize = 255;

/// The name cannot be the name of a served file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a file name")]
pub struct InvalidFileName(String);

/// Returns the relative path that `name` stands for: with slashes for backslashes, without slashes before it, without a
/// trace context after it. Fails if it is too long, is not printable UTF-8, or has a component that is empty, `.` or `..`.
pub fn check_file_name(name: &[u8]) -> Result<String, InvalidFileName> {
    let invalid = || {
        let start = name.get(..MAX_NAME_BYTES).unwrap_or(name);
        InvalidFileName(String::from_utf8_lossy(start).into_owned())
    };
    let text = std::str::from_utf8(name).map_err(|_| invalid())?;
    if text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control) {
        return Err(invalid());
    }
    let path = text.replace('\\', "/");
    let path = without_trace_context(path.trim_start_matches('/'));
    if path.split('/').any(|component| matches!(component, "" | "." | "..")) {
        return Err(invalid());
    }
    Ok(path.to_owned())
}

/// Removes a W3C trace context that a DHCP server appended: `-00-<32 hex>-<16 hex>-<2 hex>`.
fn without_trace_context(path: &str) -> &str {
    const FIELD_LENGTHS: [usize; 4] = [2, 16, 32, 2];
    let mut rest = path;
    for length in FIELD_LENGTHS {
        let Some((head, field)) = rest.rsplit_once('-') else { return path };
        if field.len() != length || !field.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return path;
        }
        rest = head;
    }
    if path.get(rest.len()..).is_some_and(|trace| trace.starts_with("-00-")) { rest } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(name: &str) -> Option<String> {
        check_file_name(name.as_bytes()).ok()
    }

    #[test]
    fn leading_slashes_are_removed_and_backslashes_become_slashes() {
        assert_eq!(check("\\boot\\x86\\wdsnbp.com").as_deref(), Some("boot/x86/wdsnbp.com"));
        assert_eq!(check("//snponly.efi").as_deref(), Some("snponly.efi"));
    }

    #[test]
    fn a_name_that_leads_out_or_is_not_printable_is_invalid() {
        let invalid = ["", "/", "..", "../../etc/passwd", "a/../b", "a//b", "a/./b", "a/", "..\\x"];
        for name in invalid.into_iter().chain(["a\nb", "a\x7f"]) {
            assert_eq!(check(name), None, "{name:?}");
        }
        assert_eq!(check(&"x".repeat(MAX_NAME_BYTES + 1)), None);
        assert!(check_file_name(b"\xff").is_err());
    }

    #[test]
    fn percent_signs_are_literal() {
        assert_eq!(check("a%2e%2e/b").as_deref(), Some("a%2e%2e/b"));
    }

    #[test]
    fn only_a_trace_context_of_version_0_at_the_end_is_removed() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(check(&format!("snponly.efi-{trace}")).as_deref(), Some("snponly.efi"));
        let other = format!("snponly.efi-01{}", trace.trim_start_matches("00"));
        assert_eq!(check(&other), Some(other));
    }

    proptest! {
        #[test]
        fn no_name_leads_out_of_the_directory(name in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(path) = check_file_name(&name) {
                prop_assert!(!path.starts_with('/'));
                prop_assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")));
            }
        }
    }
}

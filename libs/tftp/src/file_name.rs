//! The file name in a request.

const MAX_NAME_BYTES: usize = 255;
/// Maximum number of printable octets that may follow a name before the first other octet: the code
/// and the length of a DHCP option.
const MAX_PRINTABLE_REST: usize = 2;

/// The name cannot be the name of a served file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a file name")]
pub struct InvalidFileName(String);

/// Returns the relative path that `name` stands for: with slashes for backslashes, one slash
/// between components and none before the first, without a trace context at its end. Fails if it is
/// too long, is not printable UTF-8, ends in a slash, or has a component `.` or `..`.
pub fn check_file_name(name: &[u8]) -> Result<String, InvalidFileName> {
    parse(name).ok_or_else(|| {
        let start = name.get(..MAX_NAME_BYTES).unwrap_or(name);
        InvalidFileName(String::from_utf8_lossy(start).into_owned())
    })
}

/// Returns the paths that `name` may stand for, the longest first: at most three, each as
/// [`check_file_name`] returns it.
///
/// Some firmware takes a boot file name of DHCP for text up to a NUL, and requests it with the
/// octets that follow it in the packet: the end mark, or another option. A printable name stands
/// for itself, and for itself without blanks at its end. Another name ends before its first octet
/// that is not printable, or up to [`MAX_PRINTABLE_REST`] octets earlier. The caller serves the
/// first path that is a file.
pub fn possible_file_names(name: &[u8]) -> Result<Vec<String>, InvalidFileName> {
    let printable = printable_octets(name);
    let shortest = match printable == name.len() {
        true => printable,
        false => printable.saturating_sub(MAX_PRINTABLE_REST),
    };
    let mut paths: Vec<_> = parse(name).into_iter().collect();
    for end in (shortest..=printable).rev() {
        let path = name.get(..end).and_then(|start| parse(start.trim_ascii_end()));
        paths.extend(path.filter(|path| !paths.contains(path)));
    }
    // If none is a path, the name itself has the error.
    if paths.is_empty() { check_file_name(name).map(|path| vec![path]) } else { Ok(paths) }
}

fn parse(name: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(name).ok()?;
    if text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control) {
        return None;
    }
    let path = text.replace('\\', "/");
    let path = without_trace_context(&path);
    let components: Vec<_> = path.split('/').filter(|component| !component.is_empty()).collect();
    let leads_out = components.iter().any(|component| matches!(*component, "." | ".."));
    let is_file = !components.is_empty() && !path.ends_with('/');
    (is_file && !leads_out).then(|| components.join("/"))
}

/// Returns the number of octets of `name` before the first one that is not printable UTF-8.
fn printable_octets(name: &[u8]) -> usize {
    let valid = match std::str::from_utf8(name) {
        Ok(text) => text,
        Err(error) => {
            let start = name.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(start).unwrap_or_default()
        }
    };
    let control = valid.char_indices().find(|(_, letter)| letter.is_control());
    control.map_or(valid.len(), |(at, _)| at)
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
        assert_eq!(check("boot\\/x86//snponly.efi").as_deref(), Some("boot/x86/snponly.efi"));
    }

    /// The paths that `name` may stand for.
    fn possible(name: &[u8]) -> Vec<String> {
        possible_file_names(name).unwrap_or_default()
    }

    #[test]
    fn octets_of_the_packet_after_a_name_are_dropped() {
        for rest in [
            &b"\xff"[..],
            b"\xff\xff\x01",
            b"a\x11",
            b"R\x06\x01\x04Gi/1",
            b"R.\x01",
            b"\x96\x04\xc6\x33\x64\x01",
            b"\r\n",
            b"\n",
            b" ",
            b"  \xff",
            b"\xffabc.efi",
        ] {
            let name = [b"snponly.efi", rest].concat();
            assert!(possible(&name).contains(&"snponly.efi".to_owned()), "{rest:?}");
        }
    }

    #[test]
    fn the_longest_name_comes_first_and_at_most_two_printable_octets_are_dropped() {
        assert_eq!(possible(b"\\x\\ab.efiR.\x01"), ["x/ab.efiR.", "x/ab.efiR", "x/ab.efi"]);
        assert_eq!(possible(b"ab.efi\xff"), ["ab.efi", "ab.ef", "ab.e"]);
        assert_eq!(possible(b"ab.efi  "), ["ab.efi  ", "ab.efi"]);
        assert_eq!(possible(b"ab.efi"), ["ab.efi"]);
        assert_eq!(possible("\u{fc}.efi".as_bytes()), ["\u{fc}.efi"]);
    }

    #[test]
    fn a_name_without_a_path_before_its_first_other_octet_is_invalid() {
        for name in
            [&b"\xff"[..], b"", b"/", b"..\xff", b"../x\xff", b"a/../b\x01", b"\x01snponly.efi"]
        {
            assert_eq!(possible(name), [""; 0], "{name:?}");
        }
        assert_eq!(possible(&[b'x'; MAX_NAME_BYTES + 1]), [""; 0]);
    }

    #[test]
    fn a_name_that_leads_out_or_is_not_printable_is_invalid() {
        let invalid = ["", "/", "..", "../../etc/passwd", "a/../b", "a/./b", "a/", "..\\x"];
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
            let possible = possible_file_names(&name).unwrap_or_default();
            prop_assert!(possible.len() <= 3);
            for path in check_file_name(&name).into_iter().chain(possible) {
                prop_assert!(!path.starts_with('/'));
                prop_assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")));
            }
        }
    }
}

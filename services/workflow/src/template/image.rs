//! The reference of a container image: `[host[:port]/]path[:tag][@digest]`.
//!
//! Only the grammar is checked (`name`, `tag` and `digest` of the OCI distribution specification); nothing is fetched. The
//! last part of the path selects a built-in action.

/// True if `reference` is valid.
pub(super) fn is_valid(reference: &str) -> bool {
    let (name, tag, digest) = split(reference);
    is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

/// Returns the last part of the path, without tag and digest: `image2disk` of `quay.io/tinkerbell/actions/image2disk:v1`.
pub(crate) fn short_name(reference: &str) -> &str {
    let (name, _, _) = split(reference);
    name.rsplit_once('/').map_or(name, |(_, last)| last)
}

/// Splits a reference into name, tag and digest. A colon before the last slash belongs to a port, not to a tag.
fn split(text: &str) -> (&str, Option<&str>, Option<&str>) {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag), digest),
        _ => (rest, None, digest),
    }
}

/// The OCI distribution specification limits a name to 255 characters, with its host.
fn is_name(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((host, path)) if is_host(host) => path,
        _ => name,
    };
    name.len() <= 255 && path.split('/').all(is_component)
}

/// A host differs from the first part of a path by a dot or a port, or is localhost.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let distinct = port.is_some() || host.contains('.') || host == "localhost";
    let label = |label: &str| {
        let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    let port = port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    distinct && port && host.split('.').all(label)
}

/// Lower-case letters and digits, separated by one dot, one or two underscores, or any number of hyphens.
fn is_component(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = text.bytes().next().is_some_and(is_word) && text.bytes().last().is_some_and(is_word);
    let separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends && separators
        .into_iter()
        .all(|it| matches!(it, "" | "." | "_" | "__") || it.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let inner = tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    !tag.is_empty() && tag.len() <= 128 && inner && !tag.starts_with(['.', '-'])
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let valid = algorithm.bytes().all(|b| b.is_ascii_alphanumeric() || b"+._-".contains(&b));
    let valid = valid && algorithm.starts_with(|c: char| c.is_ascii_alphabetic());
    valid && hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_real_templates_are_valid() {
        for text in [
            "image2disk:v1.0.0",
            "quay.io/tinkerbell/actions/image2disk:latest",
            "127.0.0.1/embedded/cexec",
            "localhost:5000/a/b__c/d--e:v1",
            "cexec@sha256:0123456789abcdef0123456789abcdef",
        ] {
            assert!(is_valid(text), "{text}");
        }
    }

    #[test]
    fn invalid_references_are_refused() {
        let long = "a".repeat(256);
        for text in [
            "",
            "Upper",
            "a//b",
            "a:",
            "a b",
            "a:b:c",
            "a@sha256:12",
            "-a",
            "a_",
            "a..b",
            "/a",
            &long,
        ] {
            assert!(!is_valid(text), "{text}");
        }
    }

    #[test]
    fn the_short_name_has_no_host_tag_or_digest() {
        for text in ["cexec", "cexec:v1", "localhost:5000/cexec", "quay.io/a/cexec:v1"] {
            assert_eq!(short_name(text), "cexec");
        }
    }
}

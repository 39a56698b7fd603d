//! The reference of a container image: `[host[:port]/]path[:tag][@digest]`.
//!
//! Only the grammar is looked at (the OCI distribution specification's `name`, `tag` and `digest`); nothing is
//! fetched. The last part of the path decides which of our built-in actions an image stands for.

use std::{fmt, str::FromStr};

/// A reference that keeps to the grammar, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image(String);

/// The text is no image reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no image reference")]
pub struct NotAnImage(String);

impl Image {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part of the path, without tag and digest: `image2disk` of `quay.io/tinkerbell/actions/image2disk:v1`.
    pub fn short_name(&self) -> &str {
        let (name, _, _) = split(&self.0);
        name.rsplit_once('/').map_or(name, |(_, last)| last)
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Image {
    type Err = NotAnImage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, tag, digest) = split(text);
        let sound = is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
        if sound { Ok(Self(text.to_owned())) } else { Err(NotAnImage(text.to_owned())) }
    }
}

/// Name, tag and digest. A colon before the last slash belongs to a port, not to a tag.
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

/// The distribution specification bounds a name at 255 characters, its host included.
fn is_name(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((host, path)) if is_host(host) => path,
        _ => name,
    };
    name.len() <= 255 && path.split('/').all(is_component)
}

/// What tells a host from the first part of a path: a dot, a port, or the one well-known name without either.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let telling = port.is_some() || host.contains('.') || host == "localhost";
    let label = |label: &str| {
        let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    let port = port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    telling && port && host.split('.').all(label)
}

/// Lower-case letters and digits, held together by one dot, one or two underscores, or any number of hyphens.
fn is_component(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = text.bytes().next().is_some_and(word) && text.bytes().last().is_some_and(word);
    let glue = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends && glue
        .into_iter()
        .all(|glue| matches!(glue, "" | "." | "_" | "__") || glue.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let inner = tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    !tag.is_empty() && tag.len() <= 128 && inner && !tag.starts_with(['.', '-'])
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let named = algorithm.bytes().all(|b| b.is_ascii_alphanumeric() || b"+._-".contains(&b));
    let named = named && algorithm.starts_with(|c: char| c.is_ascii_alphabetic());
    named && hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_found_in_real_templates_parse() {
        for text in [
            "image2disk:v1.0.0",
            "quay.io/tinkerbell/actions/image2disk:latest",
            "127.0.0.1/embedded/cexec",
            "localhost:5000/a/b__c/d--e:v1",
            "cexec@sha256:0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(text.parse::<Image>().map(|image| image.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_breaks_the_grammar_is_refused() {
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
            assert!(text.parse::<Image>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_short_name_has_no_host_tag_or_digest() {
        for text in ["cexec", "cexec:v1", "localhost:5000/cexec", "quay.io/a/cexec:v1"] {
            assert_eq!(text.parse::<Image>().unwrap().short_name(), "cexec");
        }
    }
}

//! The source of an image's content: its rules, the user of a registry, and the digest of a tag.

use oci_spec::distribution::Reference;
use tinwright::check;
use tinwright::image::v1 as pb;
use tinwright::image::v1::image_source::Source;
use tinwright::secret::Sealable as _;
use tinwright::status::Violations;
use url::Url;

/// Maximum length of a URL in bytes.
const MAX_URL_BYTES: usize = 2048;
/// Maximum length of a reference to an artifact in a registry, in bytes.
const MAX_REFERENCE_BYTES: usize = 512;
/// Maximum length of the password of a registry in bytes: some have long tokens.
const MAX_PASSWORD_BYTES: usize = 8192;
/// Maximum length of other texts in bytes.
const MAX_TEXT_BYTES: usize = 255;
/// Formats that can be declared.
const FORMATS: [&str; 7] = ["raw", "qcow2", "vmdk", "vdi", "vhd", "vhdx", "tar"];
/// Lengths of digests in hexadecimal digits, by algorithm.
const CHECKSUMS: [(&str, usize); 2] = [("sha256", 64), ("sha512", 128)];

/// True if a client uploads the content.
pub(crate) fn is_upload(source: Option<&pb::ImageSource>) -> bool {
    matches!(source.and_then(|it| it.source.as_ref()), None | Some(Source::Upload(_)))
}

/// Erases the user and the password of a registry.
pub(crate) fn erase_secrets(source: Option<&mut pb::ImageSource>) {
    if let Some(source) = source {
        drop(source.take_secrets());
    }
}

/// Sets the pinned reference of a source in a registry, unless it has one.
pub(crate) fn pin(source: Option<&mut pb::ImageSource>, reference: &str) {
    if let Some(Source::Oci(oci)) = source.and_then(|it| it.source.as_mut())
        && oci.pinned_reference.is_empty()
    {
        reference.clone_into(&mut oci.pinned_reference);
    }
}

/// Removes a pinned reference that the creator of an image sent.
pub(crate) fn forget_pin(source: Option<&mut pb::ImageSource>) {
    if let Some(Source::Oci(oci)) = source.and_then(|it| it.source.as_mut()) {
        oci.pinned_reference.clear();
    }
}

/// Returns the pinned reference of a source in a registry; empty if it has none.
pub(crate) fn pinned(source: Option<&pb::ImageSource>) -> &str {
    match source.and_then(|it| it.source.as_ref()) {
        Some(Source::Oci(oci)) => &oci.pinned_reference,
        Some(Source::Url(_) | Source::Published(_) | Source::Upload(_)) | None => "",
    }
}

/// Checks a source, and brings it into its stored form.
pub(crate) fn normalize(source: &mut pb::ImageSource, wrong: &mut Violations) {
    let pb::ImageSource { source, checksum, format } = source;
    *checksum = checksum.to_lowercase();
    if !checksum.is_empty() && !is_checksum(checksum) {
        wrong.add("checksum", "is not sha256:<64 digits> or sha512:<128 digits>");
    }
    if !format.is_empty() && !FORMATS.contains(&format.as_str()) {
        wrong.add("format", format!("{format:?} is not one of {}", FORMATS.join(", ")));
    }
    match source {
        None => *source = Some(Source::Upload(pb::UploadSource::default())),
        Some(Source::Upload(upload)) => {
            wrong.take("upload.file_name", check::length(&upload.file_name, MAX_TEXT_BYTES));
            if upload.file_name.contains(['/', '\0']) || upload.file_name.contains(char::is_control)
            {
                wrong.add("upload.file_name", "is not a file's name");
            }
        }
        Some(Source::Published(published)) => {
            if !is_published_name(&published.name) {
                let text = format!("{:?} is not a name such as ubuntu-24.04", published.name);
                wrong.add("published.name", text);
            }
            if !matches!(published.architecture.as_str(), "x86_64" | "aarch64") {
                let text = format!("{:?} is not x86_64 or aarch64", published.architecture);
                wrong.add("published.architecture", text);
            }
            if !checksum.is_empty() {
                wrong.add("checksum", "is set, but the publisher's is used");
            }
        }
        Some(Source::Url(url)) => {
            if let Err(reason) = check_url(&url.url) {
                wrong.add("url.url", reason);
            }
        }
        Some(Source::Oci(oci)) => {
            wrong.nest("oci", [oci], check_oci);
            if !checksum.is_empty() {
                wrong.add("checksum", "is set, but the digest of the layer is used");
            }
        }
    }
}

/// Checks a source in a registry.
fn check_oci(oci: &mut pb::OciSource, wrong: &mut Violations) {
    let pb::OciSource { reference, architecture, username, password, .. } = oci;
    if let Err(reason) = check_reference(reference) {
        wrong.add("reference", reason);
    }
    let is_word =
        |it: &str| it.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if architecture.len() > MAX_TEXT_BYTES || !is_word(architecture) {
        wrong.add("architecture", format!("{architecture:?} is not a name such as arm64"));
    }
    let is_text = |it: &str| !it.contains(char::is_control);
    if username.len() > MAX_TEXT_BYTES || username.contains(':') || !is_text(username) {
        wrong.add("username", "is not a name of at most 255 bytes without a colon");
    }
    if password.len() > MAX_PASSWORD_BYTES || !is_text(password) {
        wrong.add("password", "is not a line of at most 8192 bytes");
    }
    match (username.is_empty(), password.is_empty()) {
        (true, false) => wrong.add("username", "is missing: there is a password"),
        (false, true) => wrong.add("password", "is missing: there is a username"),
        (true, true) | (false, false) => {}
    }
}

/// Passes if `text` names an artifact, and the registry that has it.
fn check_reference(text: &str) -> Result<(), String> {
    check::length(text, MAX_REFERENCE_BYTES).map_err(|error| error.to_string())?;
    let reference: Result<Reference, _> = text.parse();
    let reference = reference.map_err(|error| match text.contains('@') {
        // It may be a password.
        true => format!("is not a reference: {error}"),
        false => format!("{text:?} is not a reference: {error}"),
    })?;
    let digest = reference.digest();
    if let Some(digest) = digest.filter(|digest| !is_checksum(digest)) {
        return Err(format!("has the digest {digest:?}, which is neither sha256 nor sha512"));
    }
    // The parser takes a name without a registry for one of Docker Hub.
    match text.split_once('/') {
        Some((registry, _)) if registry == reference.registry() => Ok(()),
        Some(_) | None => {
            Err(format!("{text:?} names no registry, such as registry.example/debian"))
        }
    }
}

/// Passes if `text` is a URL that can be downloaded. An error does not repeat a password.
fn check_url(text: &str) -> Result<(), String> {
    check::length(text, MAX_URL_BYTES).map_err(|error| error.to_string())?;
    let url: Url = text.parse().map_err(|error| format!("is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("has the scheme {:?}, not http or https", url.scheme()));
    }
    if url.host().is_none() {
        return Err("has no host".into());
    }
    match url.username().is_empty() && url.password().is_none() {
        true => Ok(()),
        false => Err("has a user or a password, which would be stored in clear".into()),
    }
}

/// True if `name` has the form of a publisher's image.
fn is_published_name(name: &str) -> bool {
    let is_allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !name.is_empty() && name.len() <= MAX_TEXT_BYTES && name.bytes().all(is_allowed)
}

fn is_checksum(text: &str) -> bool {
    let Some((algorithm, digits)) = text.split_once(':') else { return false };
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex && CHECKSUMS.contains(&(algorithm, digits.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(source: Source, checksum: &str) -> Vec<String> {
        let mut wrong = Violations::default();
        let (checksum, format) = (checksum.to_owned(), String::new());
        let mut source = pb::ImageSource { source: Some(source), checksum, format };
        normalize(&mut source, &mut wrong);
        wrong.iter().map(|it| format!("{it:?}")).collect()
    }

    fn url(url: &str) -> Source {
        Source::Url(pb::UrlSource { url: url.to_owned() })
    }

    #[test]
    fn a_url_is_http_with_a_host_and_without_a_password() {
        assert_eq!(errors(url("https://images.example/debian.qcow2"), ""), Vec::<String>::new());
        for bad in [
            "",
            "debian.qcow2",
            "file:///etc/passwd",
            "ftp://images.example/x",
            "https://user:secret@images.example/x",
            "https://user@images.example/x",
        ] {
            let found = errors(url(bad), "");
            assert_eq!(found.len(), 1, "{bad}");
            assert!(!found[0].contains("secret"), "{found:?}");
        }
    }

    #[test]
    fn a_reference_names_its_registry() {
        let oci = |reference: &str| {
            let reference = reference.to_owned();
            errors(Source::Oci(pb::OciSource { reference, ..pb::OciSource::default() }), "")
        };
        let digest = "0".repeat(64);
        for good in [
            "registry.example/disk",
            "registry.example:5000/a/b:12",
            "localhost/a",
            "docker.io/library/disk",
            &format!("registry.example/a@sha256:{digest}"),
            &format!("registry.example/a:12@sha256:{digest}"),
        ] {
            assert_eq!(oci(good), Vec::<String>::new(), "{good}");
        }
        for bad in [
            "",
            "debian",
            "debian:12",
            "library/debian",
            "registry.example/",
            "registry.example/A",
            "oci://registry.example/a",
            "anna:secret@registry.example/a",
            "registry.example/../a",
            "registry.example/a@sha256:00",
            &format!("registry.example/a@sha384:{}", "0".repeat(96)),
            &format!("registry.example/{}", "a".repeat(600)),
        ] {
            assert_eq!(oci(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_registry_gets_a_user_with_a_password_or_none() {
        let login = |username: &str, password: &str| {
            let source = pb::OciSource {
                reference: "registry.example/a".into(),
                username: username.into(),
                password: password.into(),
                ..pb::OciSource::default()
            };
            errors(Source::Oci(source), "")
        };
        assert_eq!(login("", ""), Vec::<String>::new());
        assert_eq!(login("robot$a", "s:ecret"), Vec::<String>::new());
        for (username, password) in
            [("", "s3cret"), ("anna", ""), ("a:b", "s3cret"), ("anna", "s3cret\n")]
        {
            let found = login(username, password);
            assert_eq!(found.len(), 1, "{username} {password}");
            assert!(!found[0].contains("s3cret"), "{found:?}");
        }
    }

    #[test]
    fn a_published_image_has_a_name_and_an_architecture() {
        let published = |name: &str, architecture: &str| {
            let (name, architecture) = (name.to_owned(), architecture.to_owned());
            let source = Source::Published(pb::PublishedSource { name, architecture });
            errors(source, "").len()
        };
        assert_eq!(published("ubuntu-24.04", "x86_64"), 0);
        assert_eq!(published("debian-12", "aarch64"), 0);
        for (name, architecture) in [("", "x86_64"), ("../x", "x86_64"), ("debian-12", "riscv64")] {
            assert_eq!(published(name, architecture), 1, "{name} {architecture}");
        }
    }

    #[test]
    fn a_checksum_names_its_algorithm_and_has_its_length() {
        let source = || url("https://images.example/x");
        assert!(errors(source(), &format!("sha256:{}", "A".repeat(64))).is_empty());
        assert!(errors(source(), &format!("sha512:{}", "0".repeat(128))).is_empty());
        for bad in ["sha256", "sha256:", "md5:d41d8cd98f00b204e9800998ecf8427e", &"0".repeat(64)] {
            assert_eq!(errors(source(), bad).len(), 1, "{bad}");
        }
    }
}

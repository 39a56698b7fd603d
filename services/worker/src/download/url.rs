//! URLs in variables.

use reqwest::Url;

use crate::environment::{self, Environment};

/// Parses the variable `name` as a required URL. A path is completed with the origin of
/// `boot_server`, if there is one.
pub(crate) fn url(
    environment: &Environment,
    name: &'static str,
    boot_server: Option<&Url>,
) -> Result<Url, environment::Error> {
    const EXPECTED: &str = "an http or https URL";
    let path = environment.optional(name).filter(|text| text.starts_with('/'));
    if let Some(url) = boot_server.zip(path).and_then(|(server, path)| completed(server, path)) {
        return Ok(url);
    }
    let url: Url = environment.parsed(name, EXPECTED)?.ok_or(environment::Error::Missing(name))?;
    if matches!(url.scheme(), "http" | "https") {
        return Ok(url);
    }
    Err(environment::Error::invalid(name, &redacted(&url), EXPECTED))
}

/// Returns the URL of `path` on `server`. None for a text such as `//host/path`, which names another
/// server (RFC 3986 §4.2).
fn completed(server: &Url, path: &str) -> Option<Url> {
    server.join(path).ok().filter(|url| url.origin() == server.origin())
}

/// Returns `url` without parts that may be secret: user, password, and the query, which may contain
/// a signature.
pub(crate) fn redacted(url: &Url) -> String {
    let mut url = url.clone();
    // Both calls fail only for URLs that cannot contain a password.
    let _unchanged = url.set_username("").and_then(|()| url.set_password(None));
    if url.query().is_some() {
        url.set_query(Some("…"));
    }
    url.to_string().replace("%E2%80%A6", "…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str, boot_server: Option<&str>) -> Result<String, String> {
        let environment: Environment =
            [("IMG_URL".to_owned(), value.to_owned())].into_iter().collect();
        let boot_server = boot_server.map(|url| url.parse().unwrap());
        let url = url(&environment, "IMG_URL", boot_server.as_ref());
        url.map(|url| url.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_redacted_url_has_no_password_and_no_query() {
        for (url, safe) in [
            ("http://user:secret@images/os.img?X-Amz-Signature=abc", "http://images/os.img?…"),
            ("https://images:8443/os.img.zst", "https://images:8443/os.img.zst"),
        ] {
            assert_eq!(redacted(&url.parse().unwrap()), safe);
        }
    }

    #[test]
    fn a_path_is_completed_with_the_origin_of_the_boot_server() {
        let server = Some("http://198.51.100.1:7080/v1/boot/T-k_n?a=b");
        for (path, url) in [
            ("/images/a.map", "http://198.51.100.1:7080/images/a.map"),
            ("/files/os.img?x=1", "http://198.51.100.1:7080/files/os.img?x=1"),
            ("https://images/os.img", "https://images/os.img"),
        ] {
            assert_eq!(parsed(path, server), Ok(url.to_owned()));
        }
    }

    #[test]
    fn a_path_that_names_another_server_is_refused() {
        let server = Some("http://198.51.100.1:7080/v1/boot/T-k_n");
        for text in ["//images/a.map", "/\\images/a.map", "/\t/images/a.map"] {
            let refused = format!("IMG_URL is `{text}`, not an http or https URL");
            assert_eq!(parsed(text, server), Err(refused));
        }
        let refused = "IMG_URL is `/a`, not an http or https URL".to_owned();
        assert_eq!(parsed("/a", None), Err(refused));
    }
}

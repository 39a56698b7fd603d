//! Looks whether the images of a plan are at their servers, by HEAD requests.
//!
//! A tenant chooses the URLs of its instances. It could make the server request any address, and
//! learn from the answer. For its callers, and for its instances whoever asks, only this site's own
//! files are looked for. A redirect to another host is not followed, for the same reason.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::header::CONTENT_LENGTH;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use tinwright::workflow::v1::PlannedImage;
use tinwright::workflow::v1::planned_image::Check;

/// Timeout of a look, with its redirects.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of redirects, all of them at the first host.
const MAX_REDIRECTS: usize = 5;

/// Looks for images.
#[derive(Clone, Debug)]
pub(crate) struct ImageCheck {
    /// None if the system has no TLS for it.
    client: Option<Client>,
    /// URLs that begin those of this site's own files.
    own_files: Vec<String>,
}

impl ImageCheck {
    /// Looks at this site's own files below these URLs for every plan.
    pub(crate) fn new(own_files: Vec<String>) -> Self {
        let policy = Policy::custom(|attempt| {
            let first = attempt.previous().first().and_then(Url::host_str).map(str::to_owned);
            let is_same_host = attempt.url().host_str() == first.as_deref();
            match is_same_host && attempt.previous().len() <= MAX_REDIRECTS {
                true => attempt.follow(),
                false => attempt.stop(),
            }
        });
        let client = Client::builder().no_proxy().redirect(policy).timeout(TIMEOUT).build();
        Self { client: client.ok(), own_files }
    }

    /// Returns `images` with the results of the looks, and with URLs without what may be secret.
    /// Other hosts are asked only if `is_of_site`: both the caller and the instance are the site's.
    pub(crate) async fn check(
        &self,
        images: Vec<PlannedImage>,
        is_of_site: bool,
    ) -> Vec<PlannedImage> {
        join_all(images.into_iter().map(|image| self.check_one(image, is_of_site))).await
    }

    async fn check_one(&self, mut image: PlannedImage, is_of_site: bool) -> PlannedImage {
        if image.url.starts_with('/') {
            return self.check_own(image).await;
        }
        // Taken first: no path returns the URL as it was, with its credentials and query.
        let Ok(url) = std::mem::take(&mut image.url).parse::<Url>() else {
            return failed(image, "not a URL".to_owned());
        };
        let is_own = self.is_own(&url);
        image.url = without_secrets(url.clone());
        match &self.client {
            Some(client) if is_of_site || is_own => look(client, url, image).await,
            Some(_) | None => image,
        }
    }

    /// Looks for a file of the boot server, whose address the machine adds to the path. An image of
    /// the site was found before. Of other paths nothing is known: `//host/path` names another server.
    async fn check_own(&self, image: PlannedImage) -> PlannedImage {
        let own = self.own_files.first().and_then(|own| own.parse::<Url>().ok());
        let url = own.and_then(|own| own.join(&image.url).ok()).filter(|url| self.is_own(url));
        match (image.check(), url, &self.client) {
            (Check::Unspecified, Some(url), Some(client)) => look(client, url, image).await,
            (_, _, _) => image,
        }
    }

    /// True if `url` is one of this site's own files.
    fn is_own(&self, url: &Url) -> bool {
        self.own_files.iter().any(|own| url.as_str().starts_with(own))
    }
}

async fn look(client: &Client, url: Url, mut image: PlannedImage) -> PlannedImage {
    let response = match client.head(url).send().await {
        Ok(response) => response,
        Err(error) => return failed(image, unanswered(&error)),
    };
    let status = response.status();
    image.detail = status.to_string();
    match status {
        // Not every server answers to HEAD.
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => image,
        // To another host: where it leads is not looked at.
        status if status.is_redirection() => image,
        status if status.is_success() => {
            image.detail.clear();
            let length = response.headers().get(CONTENT_LENGTH);
            let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
            image.size_bytes = length.unwrap_or(0);
            image.set_check(Check::Found);
            image
        }
        _ => {
            image.set_check(Check::Failed);
            image
        }
    }
}

fn failed(image: PlannedImage, detail: String) -> PlannedImage {
    PlannedImage { check: Check::Failed.into(), detail, ..image }
}

/// Returns why there was no answer, without the URL.
fn unanswered(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer in {} seconds", TIMEOUT.as_secs());
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    format!("no answer: {cause}")
}

/// Returns `url` without what may be secret in it.
fn without_secrets(mut url: Url) -> String {
    url.set_query(None);
    url.set_fragment(None);
    // Fails only for URLs without a host, which have neither.
    let _no_host = url.set_username("").and_then(|()| url.set_password(None));
    url.into()
}

#[cfg(test)]
mod tests;

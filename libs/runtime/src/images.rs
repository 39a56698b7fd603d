//! The images of the site, for services whose objects name one.
//!
//! An image is held by objects that are about to use its content. Its deletion marks it, looks for
//! holders, and then deletes it or removes the mark:
//!
//! ```text
//! order        find the image ── store the object ── find the image again, or take the object back
//! deletion     mark the image ── look for holders ── delete the image, or remove the mark
//! ```
//!
//! An image with the mark counts as missing. So in whatever order these steps happen, the deletion
//! finds the object, or the order finds the mark.

use tinwright::image::v1::get_image_request::By;
use tinwright::image::v1::image_service_client::ImageServiceClient;
use tinwright::image::v1::{GetImageRequest, Image, ImageState};
use tinwright::{ImageId, status};
use tonic::{Code, Status};

use crate::Channel;

/// A client of the image service.
#[derive(Clone, Debug)]
pub struct ImageDirectory {
    /// None on a site without images.
    client: Option<ImageServiceClient<Channel>>,
}

/// An image that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The site has no images.
    #[error("this site has no image service")]
    NoService,
    /// There is no such image, or the tenant does not see it.
    #[error("image {0} not found")]
    Missing(String),
    /// The text is no id and no name.
    #[error("image {0:?}: {1}")]
    Invalid(String, String),
    /// It has no content yet, or never will.
    #[error("image {name} is {state}{}", cause(.reason))]
    NotReady {
        /// Its name.
        name: String,
        /// Its state, as it follows "is".
        state: &'static str,
        /// The reason of that state; empty if there is none.
        reason: String,
    },
    /// Some of its content is missing or changed.
    #[error("image {name} is damaged{}", cause(.reason))]
    Damaged {
        /// Its name.
        name: String,
        /// What is damaged.
        reason: String,
    },
    /// The image service did not answer.
    #[error("the image service did not answer")]
    Unavailable(#[source] Box<Status>),
}

impl ImageDirectory {
    /// A client for the channel `image`; none on a site without images.
    pub fn new(image: Option<Channel>) -> Self {
        Self { client: image.map(ImageServiceClient::new) }
    }

    /// Returns the image with this id, name or family, as `tenant` sees it; as the site does if that
    /// is empty. Its state is not looked at.
    pub async fn find(&self, image: &str, tenant: &str) -> Result<Image, Error> {
        let client = self.client.clone();
        let mut client = client.ok_or(Error::NoService)?;
        let by = match image.parse::<ImageId>() {
            Ok(id) => By::Id(id.to_string()),
            Err(_) => By::Name(image.to_owned()),
        };
        let request = GetImageRequest { by: Some(by), tenant: tenant.to_owned() };
        match client.get_image(request).await {
            Ok(response) => {
                let found = response.into_inner().image.filter(|image| !image.deleting);
                found.ok_or_else(|| Error::Missing(image.to_owned()))
            }
            Err(status) if status.code() == Code::NotFound => Err(Error::Missing(image.to_owned())),
            Err(status) if status.code() == Code::InvalidArgument => {
                Err(Error::Invalid(image.to_owned(), status.message().to_owned()))
            }
            Err(status) => Err(Error::Unavailable(Box::new(status))),
        }
    }

    /// Returns the image as [`Self::find`] does, if its content can be used.
    pub async fn usable(&self, image: &str, tenant: &str) -> Result<Image, Error> {
        usable(self.find(image, tenant).await?)
    }
}

/// Returns `image`, if its content can be used.
pub fn usable(image: Image) -> Result<Image, Error> {
    let state = match image.state() {
        ImageState::Ready => return Ok(image),
        ImageState::Damaged => {
            return Err(Error::Damaged { name: image.name, reason: image.state_reason });
        }
        ImageState::Unspecified | ImageState::Uploading => "being uploaded",
        ImageState::Processing => "being imported",
        ImageState::Failed => "failed",
    };
    Err(Error::NotReady { name: image.name, state, reason: image.state_reason })
}

fn cause(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::NoService => status::failed_precondition("NO_OBJECT_STORE", "image", text),
            Error::Missing(name) => status::not_found("image", &name),
            Error::Invalid(..) => Self::invalid_argument(text),
            Error::NotReady { name, .. } => {
                status::failed_precondition("IMAGE_NOT_READY", &format!("image/{name}"), text)
            }
            Error::Damaged { name, .. } => {
                status::failed_precondition("IMAGE_DAMAGED", &format!("image/{name}"), text)
            }
            Error::Unavailable(status) => {
                Self::unavailable(format!("{text}: {}", status.message()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(state: ImageState, reason: &str) -> Image {
        let mut image = Image { name: "debian-12".into(), ..Image::default() };
        image.set_state(state);
        image.state_reason = reason.into();
        image
    }

    #[test]
    fn only_a_ready_image_is_used_and_others_say_why() {
        assert!(usable(image(ImageState::Ready, "")).is_ok());
        for (state, text) in [
            (ImageState::Uploading, "image debian-12 is being uploaded: why"),
            (ImageState::Processing, "image debian-12 is being imported: why"),
            (ImageState::Failed, "image debian-12 is failed: why"),
            (ImageState::Damaged, "image debian-12 is damaged: why"),
        ] {
            assert_eq!(usable(image(state, "why")).unwrap_err().to_string(), text);
        }
    }

    #[tokio::test]
    async fn a_site_without_images_and_one_that_does_not_answer_differ() {
        let none = ImageDirectory::new(None).find("debian-12", "").await.unwrap_err();
        assert!(matches!(none, Error::NoService), "{none}");
        let silent = ImageDirectory::new(Some(Channel::unconnected()));
        let error = silent.find("debian-12", "").await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
    }
}

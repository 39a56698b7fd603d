//! The image service of the test site.

use tinwright::image::v1 as img;
use tinwright::image::v1::get_image_request::By;
use tinwright::image::v1::image_service_server::ImageService;
use tonic::{Request, Response, Status};

use super::services::{EventStream, missing, never_called};
use super::{FakeState, Site};

impl Site {
    /// Adds a READY image with this name and family.
    pub(crate) fn add_image(&self, name: &str, family: &str) -> img::Image {
        let image = img::Image {
            id: tinwright::ImageId::new().to_string(),
            name: name.into(),
            family: family.into(),
            state: img::ImageState::Ready.into(),
            sha256: name.repeat(2),
            ..img::Image::default()
        };
        self.state().stored_images.push(image.clone());
        image
    }
}

impl FakeState {
    /// Returns the image that `by` names: the newest one of a family comes last.
    fn image(&self, by: &By, tenant: &str) -> Option<&img::Image> {
        let images = || self.stored_images.iter().filter(|it| ["", tenant].contains(&&*it.tenant));
        match by {
            By::Id(id) => images().find(|image| image.id == *id),
            By::Name(name) => {
                let named = images().find(|image| image.name == *name);
                named.or_else(|| images().rfind(|image| image.family == *name))
            }
        }
    }
}

impl ImageService for Site {
    async fn get_image(
        &self,
        request: Request<img::GetImageRequest>,
    ) -> Result<Response<img::GetImageResponse>, Status> {
        let img::GetImageRequest { by, tenant } = request.into_inner();
        let mut state = self.state();
        if state.unavailable {
            return Err(Status::unavailable("unavailable"));
        }
        let image = state.image(&by.unwrap(), &tenant).cloned();
        if state.image_looks.as_mut().is_some_and(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        }) {
            state.stored_images.clear();
        }
        let image = Some(image.ok_or_else(missing)?);
        Ok(Response::new(img::GetImageResponse { image }))
    }

    type WatchImagesStream = EventStream<img::WatchImagesResponse>;

    never_called! {
        create_image(img::CreateImageRequest) -> img::CreateImageResponse;
        list_images(img::ListImagesRequest) -> img::ListImagesResponse;
        update_image(img::UpdateImageRequest) -> img::UpdateImageResponse;
        delete_image(img::DeleteImageRequest) -> img::DeleteImageResponse;
        add_signature(img::AddSignatureRequest) -> img::AddSignatureResponse;
        watch_images(img::WatchImagesRequest) -> Self::WatchImagesStream;
    }
}
